//! `fpprof archive`: packs a recording with all files needed to read it.

use crate::debuginfod::{self, Fetcher};
use crate::exit::{DONE, refuse_terminal};
use crate::output::{self, beside, print_message};
use crate::recordings::{Source, print_warnings};
use crate::worker::{Files, open_input};
use anyhow::Context as _;
use fpprof_analysis::address_space::MappedFile;
use fpprof_analysis::analyse;
use fpprof_analysis::modules::{Candidate, ElfFile, FileStat, Inode, KERNEL_FILES, Missing, Opened, Resolver};
use fpprof_analysis::symbols::Detail;
use fpprof_recording::model::{BuildId, FileIdentity};
use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
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
    /// Fetch programs and debug information that are missing here from the servers in `DEBUGINFOD_URLS`
    #[arg(long)]
    debuginfod: bool,
    /// Output file, `-` for stdout [default: the recording's name with .tar.zst]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl Args {
    /// The files it may read and write.
    pub(crate) fn files(&self) -> Files {
        let debuginfod = self.debuginfod.then(Fetcher::of_environment).flatten();
        Files { debuginfod, ..Files::new([self.file.as_path()], [self.output().as_path()]) }
    }

    fn output(&self) -> PathBuf {
        self.output.clone().unwrap_or_else(|| beside(&self.file, "tar.zst"))
    }

    fn source(&self) -> Source {
        Source { symfs: self.symfs.clone(), debuginfod: self.debuginfod, ..Source::here(&self.file) }
    }
}

/// Runs the subcommand; returns the exit status.
///
/// # Errors
/// If the recording cannot be read or the archive cannot be written.
pub(crate) fn run(args: &Args) -> anyhow::Result<u8> {
    let output = args.output();
    refuse_terminal(&output)?;
    let source = args.source();
    let modules = source.modules();
    let opened = Opens::new(&modules);
    let mut recording = source.open()?;
    let mut options = source.options(&opened, recording.meta());
    options.detail = Detail::Lines;
    // Other strategies may find frames elsewhere.
    options.all_files = true;
    let analysis = analyse(&mut recording, &options).with_context(|| args.file.display().to_string())?;
    print_warnings(&analysis.summary);
    let files = opened.packed();
    let mut changed = Vec::new();
    output::write_whole(&output, |out| write(args, &modules, &files, &mut changed, out))?;
    changed.iter().for_each(|path| print_message(&format!("warning  {}: changed meanwhile; left out", path.display())));
    if output != Path::new("-") {
        let n_files = files.len().saturating_sub(changed.len());
        print_message(&format!(
            "{}: the recording and {n_files} programs, libraries and debug files",
            output.display()
        ));
    }
    Ok(DONE)
}

/// Writes the archive; files that have changed since they were opened go to `changed` instead.
fn write<'f>(
    args: &Args,
    modules: &dyn Resolver,
    files: &'f BTreeMap<PathBuf, FileStat>,
    changed: &mut Vec<&'f Path>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let stem = args.file.file_stem().unwrap_or(OsStr::new("recording"));
    let top = Path::new(stem);
    let mut tar = tar::Builder::new(zstd::Encoder::new(out, zstd::DEFAULT_COMPRESSION_LEVEL)?);
    let mut recording = open_input(&args.file).map_err(io::Error::other)?;
    let metadata = recording.metadata()?;
    let modified_s = metadata.modified()?.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let place = top.join(args.file.file_name().unwrap_or(stem));
    append(&mut tar, &place, &mut recording, Attributes { len_bytes: metadata.len(), mode: 0o600, modified_s })?;
    for (path, stat) in files {
        let Some(mut opened) = modules.open(path).ok().filter(|opened| opened.stat == *stat) else {
            changed.push(path);
            continue;
        };
        let place = debuginfod::place_below_root(path).unwrap_or_else(|| below_root(path, args.symfs.as_deref()));
        let place = top.join("files").join(place);
        let modified_s = u64::try_from(stat.modified_unix_ns / 1_000_000_000).unwrap_or(0);
        append(
            &mut tar,
            &place,
            &mut opened.reader,
            Attributes { len_bytes: stat.len_bytes, mode: 0o644, modified_s },
        )?;
    }
    tar.into_inner()?.finish()?;
    Ok(())
}

/// The metadata of a file in the archive.
struct Attributes {
    len_bytes: u64,
    mode: u32,
    /// Modification time in seconds since 1970.
    modified_s: u64,
}

/// Adds a file. If it is truncated meanwhile, it is padded with zeros: the length precedes the bytes.
fn append(
    tar: &mut tar::Builder<impl Write>,
    path: &Path,
    reader: &mut dyn Read,
    Attributes { len_bytes, mode, modified_s }: Attributes,
) -> io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_size(len_bytes);
    header.set_mode(mode);
    header.set_mtime(modified_s);
    header.set_entry_type(tar::EntryType::Regular);
    tar.append_data(&mut header, path, reader.chain(io::repeat(0)).take(len_bytes))
}

/// The path relative to its root, which is `symfs` for files in there, without `..`.
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

/// A resolver that remembers which files were opened, and which were requested.
///
/// Debug information refers to more debug files by name, and the author of a program can name any file of this machine
/// there. So not every opened file goes into the archive ([`Self::belongs`]).
#[derive(Debug)]
struct Opens<'a> {
    resolver: &'a dyn Resolver,
    files: Mutex<BTreeMap<PathBuf, FileStat>>,
    /// Build ids of mapped files and of debug files.
    build_ids: Mutex<HashSet<BuildId>>,
    /// Paths of mapped files without a build id.
    unidentified: Mutex<HashSet<PathBuf>>,
}

impl<'a> Opens<'a> {
    fn new(resolver: &'a dyn Resolver) -> Self {
        let (files, build_ids, unidentified) = (Mutex::default(), Mutex::default(), Mutex::default());
        Self { resolver, files, build_ids, unidentified }
    }

    fn note(&self, path: &Path, opened: Result<Opened, Missing>) -> Result<Opened, Missing> {
        // The recording already has what these files say about the kernel.
        if let Some(opened) = opened.as_ref().ok().filter(|_| !KERNEL_FILES.iter().any(|name| Path::new(name) == path))
        {
            lock(&self.files).insert(path.to_owned(), opened.stat);
        }
        opened
    }

    /// Whether a file was mapped, or has debug information.
    fn belongs(&self, path: &Path, opened: Opened) -> bool {
        let Ok(elf) = ElfFile::new(opened) else { return false };
        let is_asked_for = elf.image().build_id.is_some_and(|id| lock(&self.build_ids).contains(&id));
        let has_debug_information = || elf.sections().iter().any(|section| section.name.starts_with(b".debug_"));
        is_asked_for || lock(&self.unidentified).contains(path) || has_debug_information()
    }

    /// The files to pack, with their metadata when they were opened.
    fn packed(&self) -> BTreeMap<PathBuf, FileStat> {
        let mut files = lock(&self.files).clone();
        files.retain(|path, _| self.resolver.open(path).is_ok_and(|opened| self.belongs(path, opened)));
        files
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Resolver for Opens<'_> {
    fn candidates(&self, file: &MappedFile) -> Vec<Candidate> {
        let candidates = self.resolver.candidates(file);
        match file.identity {
            FileIdentity { build_id: Some(build_id), .. } => _ = lock(&self.build_ids).insert(build_id),
            // Not a mapped file: debug information names it.
            FileIdentity { inode: 0, .. } => {}
            _ => lock(&self.unidentified).extend(candidates.iter().map(|candidate| candidate.path.clone())),
        }
        candidates
    }

    fn debug_candidates(&self, build_id: BuildId) -> Vec<PathBuf> {
        lock(&self.build_ids).insert(build_id);
        self.resolver.debug_candidates(build_id)
    }

    fn link_candidates(&self, path: &Path, name: &[u8]) -> Vec<PathBuf> {
        self.resolver.link_candidates(path, name)
    }

    fn kernel_tables(&self, build_id: BuildId) -> Vec<PathBuf> {
        self.resolver.kernel_tables(build_id)
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

    /// Check that files keep their relative path, and that none escapes from the archive's directory.
    #[test]
    fn no_file_leaves_the_archive() {
        let below = |path: &str, root| below_root(Path::new(path), root).display().to_string();
        assert_eq!(below("/usr/bin/fio", None), "usr/bin/fio");
        assert_eq!(below("/usr/lib/debug/../../../../etc/x", None), "etc/x");
        assert_eq!(below("/copies/usr/bin/fio", Some(Path::new("/copies"))), "usr/bin/fio");
    }
}
