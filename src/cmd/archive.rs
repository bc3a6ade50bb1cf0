//! `fpprof archive`: a recording with all files that reading it needs.

use crate::exit::{DONE, refuse_terminal};
use crate::output::{self, say};
use crate::recordings::{Source, say_warnings};
use crate::worker::{Files, open_input};
use anyhow::Context as _;
use fpprof_analysis::address_space::MappedFile;
use fpprof_analysis::analyse;
use fpprof_analysis::modules::{Candidate, Inode, KERNEL_FILES, Missing, Opened, Resolver};
use fpprof_analysis::symbols::Detail;
use fpprof_recording::model::BuildId;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::UNIX_EPOCH;

/// Pack a recording and the files that reading it needs, for another machine
///
/// Makes a tar file, compressed by zstd: the recording, and under `files/` the profiled programs, their libraries and debug
/// files, by the paths they have on this machine.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  fpprof archive run.fpprof                                     # makes run.tar.zst
  tar xf run.tar.zst && fpprof report run/run.fpprof --symfs run/files   # on the other machine")]
pub(crate) struct Args {
    /// The recording
    #[arg(value_name = "FILE", default_value = "fpprof.fpprof")]
    file: PathBuf,
    /// Look for the recorded machine's files under DIR first, and use those whose build ids match
    #[arg(long, value_name = "DIR")]
    symfs: Option<PathBuf>,
    /// Output file, `-` for stdout [default: the recording's name with .tar.zst]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl Args {
    /// What it may read and write.
    pub(crate) fn files(&self) -> Files {
        Files::new([self.file.as_path()], [self.output().as_path()])
    }

    fn output(&self) -> PathBuf {
        self.output.clone().unwrap_or_else(|| self.file.with_extension("tar.zst"))
    }

    fn source(&self) -> Source {
        Source { symfs: self.symfs.clone(), ..Source::here(&self.file) }
    }
}

/// Runs the subcommand; gives the exit status.
///
/// # Errors
/// If the recording cannot be read or the archive cannot be written.
pub(crate) fn run(args: &Args) -> anyhow::Result<u8> {
    let output = args.output();
    refuse_terminal(&output)?;
    let source = args.source();
    let modules = source.modules();
    let opened = Opens { resolver: &modules, paths: Mutex::default() };
    let mut recording = source.open()?;
    let mut options = source.options(&opened, recording.meta());
    options.detail = Detail::Lines;
    let analysis = analyse(&mut recording, &options).with_context(|| args.file.display().to_string())?;
    say_warnings(&analysis.summary);
    let paths = opened.paths.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut written = Written::default();
    output::write_whole(&output, |out| write(args, &modules, &paths, &mut written, out))?;
    written.changed.iter().for_each(|path| say(&format!("warning  {}: changed meanwhile; left out", path.display())));
    if output != Path::new("-") {
        say(&format!("{}: the recording and {} programs, libraries and debug files", output.display(), written.files));
    }
    Ok(DONE)
}

/// What came of it.
#[derive(Default)]
struct Written {
    files: usize,
    changed: Vec<PathBuf>,
}

fn write(
    args: &Args,
    modules: &dyn Resolver,
    paths: &BTreeSet<PathBuf>,
    written: &mut Written,
    out: &mut dyn Write,
) -> io::Result<()> {
    let stem = args.file.file_stem().unwrap_or(OsStr::new("recording"));
    let top = Path::new(stem);
    let mut tar = tar::Builder::new(zstd::Encoder::new(out, zstd::DEFAULT_COMPRESSION_LEVEL)?);
    let mut recording = open_input(&args.file).map_err(io::Error::other)?;
    let len_bytes = recording.metadata()?.len();
    let modified = recording.metadata()?.modified()?.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let place = top.join(args.file.file_name().unwrap_or(stem));
    append(&mut tar, &place, &mut recording, Kept { len_bytes, mode: 0o600, modified })?;
    for path in paths {
        let Ok(Opened { mut reader, stat }) = modules.open(path) else {
            written.changed.push(path.clone());
            continue;
        };
        let place = top.join("files").join(below_root(path, args.symfs.as_deref()));
        let modified = u64::try_from(stat.modified_unix_ns / 1_000_000_000).unwrap_or(0);
        append(&mut tar, &place, &mut reader, Kept { len_bytes: stat.len_bytes, mode: 0o644, modified })?;
        written.files = written.files.saturating_add(1);
    }
    tar.into_inner()?.finish()?;
    Ok(())
}

/// What the archive says of a file; `modified` in seconds since 1970.
struct Kept {
    len_bytes: u64,
    mode: u32,
    modified: u64,
}

/// Adds a file. One that has become shorter ends in zeros: the length stands before the bytes.
fn append(
    tar: &mut tar::Builder<impl Write>,
    path: &Path,
    reader: &mut dyn Read,
    Kept { len_bytes, mode, modified }: Kept,
) -> io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_size(len_bytes);
    header.set_mode(mode);
    header.set_mtime(modified);
    header.set_entry_type(tar::EntryType::Regular);
    tar.append_data(&mut header, path, reader.chain(io::repeat(0)).take(len_bytes))
}

/// The path without its root, which is `symfs` for what lies there, and without `..`.
fn below_root(path: &Path, symfs: Option<&Path>) -> PathBuf {
    let path = symfs.and_then(|root| path.strip_prefix(root).ok()).unwrap_or(path);
    let mut below = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => below.push(name),
            Component::ParentDir => _ = below.pop(),
            Component::Prefix(_) | Component::RootDir | Component::CurDir => {}
        }
    }
    below
}

/// A resolver that remembers which files were opened.
#[derive(Debug)]
struct Opens<'a> {
    resolver: &'a dyn Resolver,
    paths: Mutex<BTreeSet<PathBuf>>,
}

impl Opens<'_> {
    fn note(&self, path: &Path, opened: Result<Opened, Missing>) -> Result<Opened, Missing> {
        // What those say of the kernel is in the recording.
        if opened.is_ok() && !KERNEL_FILES.iter().any(|kernel| Path::new(kernel) == path) {
            self.paths.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_owned());
        }
        opened
    }
}

impl Resolver for Opens<'_> {
    fn candidates(&self, file: &MappedFile) -> Vec<Candidate> {
        self.resolver.candidates(file)
    }

    fn debug_candidates(&self, build_id: BuildId) -> Vec<PathBuf> {
        self.resolver.debug_candidates(build_id)
    }

    fn link_candidates(&self, path: &Path, name: &[u8]) -> Vec<PathBuf> {
        self.resolver.link_candidates(path, name)
    }

    fn open(&self, path: &Path) -> Result<Opened, Missing> {
        self.note(path, self.resolver.open(path))
    }

    fn open_inode(&self, path: &Path, inode: Inode) -> Result<Opened, Missing> {
        self.note(path, self.resolver.open_inode(path, inode))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that files keep their place below the root, and none gets out of it.
    #[test]
    fn no_file_leaves_the_archive() {
        let below = |path: &str, root| below_root(Path::new(path), root).display().to_string();
        assert_eq!(below("/usr/bin/fio", None), "usr/bin/fio");
        assert_eq!(below("/usr/lib/debug/../../../../etc/x", None), "etc/x");
        assert_eq!(below("/copies/usr/bin/fio", Some(Path::new("/copies"))), "usr/bin/fio");
    }
}
