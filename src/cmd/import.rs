//! `fpprof import`: converts another profiler's file to a recording.

use crate::exit::{DONE, Usage};
use crate::output::{Whole, print_message};
use crate::worker::{Files, Older, PIPE_PATIENCE, client, open_input, standard_input};
use anyhow::{Context as _, ensure};
use fpprof_analysis::import::{self, ImportError, Imported};
use fpprof_collector::StopFlag;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read};
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Convert perf.data to a recording
///
/// Samples keep their registers, stack bytes and callchains. Records that a recording cannot hold are counted by perf's
/// name of their type.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  fpprof import perf.data -o perf.fpprof && fpprof report perf.fpprof
  perf record --call-graph dwarf -o - ./program | fpprof import - -o perf.fpprof")]
pub(crate) struct Args {
    /// The perf.data file; `-` reads the output of `perf record -o -` from stdin
    #[arg(value_name = "FILE", default_value = "perf.data")]
    file: PathBuf,
    /// Output file; an existing FILE is renamed to FILE.old
    #[arg(short, long, value_name = "FILE", default_value = "perf.fpprof")]
    output: PathBuf,
}

impl Args {
    /// The files it may read and write.
    pub(crate) fn files(&self) -> Files {
        Files::new([self.file.as_path()], [self.output.as_path()])
    }
}

/// Magic number of perf's files and streams.
const MAGIC: &[u8] = b"PERFILE2";
/// Start of a file in file mode: the magic number and the size of the header (`struct perf_file_header`). In pipe mode
/// the header has 16 bytes.
const FILE_HEADER: &[u8] = b"PERFILE2\x68\0\0\0\0\0\0\0";

/// Runs the subcommand; returns the exit status.
///
/// # Errors
/// If the file has another format or is damaged, has no samples, or the recording cannot be written.
pub(crate) fn run(args: &Args) -> anyhow::Result<u8> {
    if args.output == Path::new("-") {
        return Err(Usage("import cannot write to stdout: name a file with -o".to_owned()).into());
    }
    let id = |path: &Path| std::fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()));
    ensure!(
        id(&args.output).is_none_or(|output| id(&args.file) != Some(output)),
        "{}: the recording would replace the file that is read: choose another name with -o",
        args.output.display()
    );
    // The input comes first: opening it may wait, and leave a file behind if that is interrupted.
    let stdin = (args.file == Path::new("-")).then(Stdin::new).transpose()?;
    let has_file_mode = stdin.is_none() && is_file_mode(&args.file)?;
    let (file, whole) = Whole::create(&args.output, Older::SetAside)?;
    let imported = match stdin {
        Some(stdin) => import::perf_pipe(BufReader::new(stdin), file),
        None if has_file_mode => import::perf_data(BufReader::new(open(&args.file)?), file),
        None => import::perf_pipe(BufReader::new(open(&args.file)?), file),
    };
    let imported = imported.map_err(|error| {
        let its_file = if matches!(error, ImportError::Write(_)) { &args.output } else { &args.file };
        let its_file = its_file.display().to_string();
        anyhow::Error::new(error).context(its_file)
    })?;
    whole.commit()?;
    print_imported(&imported);
    print_message(&format!("recorded  {}", args.output.display()));
    Ok(DONE)
}

/// Standard input. The signal that ends the program on the other side of a pipe comes here, too: what that program still writes is
/// read.
struct Stdin {
    file: File,
    /// For a pipe, unless another process waits for this one and has the signals.
    stop: Option<&'static StopFlag>,
    /// When reading ends, once there was a signal.
    ends: Option<Instant>,
}

impl Stdin {
    fn new() -> anyhow::Result<Self> {
        let file = standard_input()?;
        let is_file = file.metadata().context("standard input")?.is_file();
        let has_no_signals = is_file || client().is_some();
        let stop = if has_no_signals { None } else { Some(StopFlag::on_signals().context("watching for signals")?) };
        Ok(Self { file, stop, ends: None })
    }
}

impl Read for Stdin {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let Some(stop) = self.stop else { return self.file.read(bytes) };
        loop {
            if self.ends.is_none() && stop.signal().is_some() {
                self.ends = Some(Instant::now() + PIPE_PATIENCE);
            }
            let left = self.ends.map(|ends| ends.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                let words = "the program that writes to the pipe goes on after the signal";
                return Err(io::Error::new(ErrorKind::TimedOut, words));
            }
            let timeout = left.and_then(|left| PollTimeout::try_from(left).ok()).unwrap_or(PollTimeout::NONE);
            let mut fds = [self.file.as_fd(), stop.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
            // The flag stays readable once it is set.
            let watched = if left.is_some() { &mut fds[..1] } else { &mut fds[..] };
            match poll(watched, timeout) {
                Err(Errno::EINTR) => continue,
                Err(error) => return Err(error.into()),
                Ok(_) => {}
            }
            if fds[0].any() == Some(true) {
                return self.file.read(bytes);
            }
        }
    }
}

pub(super) fn open(path: &Path) -> anyhow::Result<File> {
    open_input(path).with_context(|| path.display().to_string())
}

/// Whether a file was written by `perf record`, to a file or to a pipe.
pub(super) fn is_of_perf(path: &Path) -> anyhow::Result<bool> {
    let mut magic = Vec::new();
    let file = match open(path) {
        // Whoever reads recordings says how to make one.
        Err(error) if error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == ErrorKind::NotFound) => {
            return Ok(false);
        }
        file => file?,
    };
    let read = file.take(MAGIC.len() as u64).read_to_end(&mut magic);
    read.with_context(|| path.display().to_string())?;
    Ok(magic == MAGIC)
}

pub(super) fn is_file_mode(path: &Path) -> anyhow::Result<bool> {
    let mut header = Vec::new();
    let read = open(path)?.take(FILE_HEADER.len() as u64).read_to_end(&mut header);
    read.with_context(|| path.display().to_string())?;
    // If it is neither, the parser of file mode gives the best error message.
    Ok(header == FILE_HEADER || !header.starts_with(MAGIC))
}

/// Prints what was imported and what was left out.
pub(super) fn print_imported(imported: &Imported) {
    let Imported { samples, lost_records, lost_samples, left_out, damage, warnings } = imported;
    print_message(&format!("imported  {samples} samples; perf lost {lost_samples} samples in {lost_records} chunks"));
    let left_out: Vec<_> = left_out.iter().map(|(name, n)| format!("{n} {name}")).collect();
    if !left_out.is_empty() {
        print_message(&format!("left out  {}", left_out.join(", ")));
    }
    for damage in damage {
        print_message(&format!("damaged  {damage}"));
    }
    for warning in warnings {
        print_message(&format!("warning  {warning}"));
    }
}
