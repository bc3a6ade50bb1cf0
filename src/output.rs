//! Where output goes: stdout, or a file that is never half-written over an older one.

use anyhow::Context as _;
use fpprof_reports::terminal::Style;
use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal as _, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Says one line to the person. Data goes elsewhere.
pub(crate) fn say(line: &str) {
    // A closed stderr leaves nobody to tell.
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// How to write for the terminal that stdout is, if it is one.
pub(crate) fn style() -> Style {
    let is_terminal = io::stdout().is_terminal();
    style_of(is_terminal, terminal_size::terminal_size_of(io::stdout()).map(|(width, _)| width.0))
}

/// How to write for the terminal that stderr is, if it is one.
pub(crate) fn stderr_style() -> Style {
    let is_terminal = io::stderr().is_terminal();
    style_of(is_terminal, terminal_size::terminal_size_of(io::stderr()).map(|(width, _)| width.0))
}

/// Colours as <https://no-color.org> asks: none where `NO_COLOR` is set and not empty.
fn style_of(is_terminal: bool, width: Option<u16>) -> Style {
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    Style { width: width.filter(|_| is_terminal).map(usize::from), colors: is_terminal && !no_color }
}

/// A recording's file, made when its first byte comes: a recording that is refused leaves nothing behind, and nothing
/// older is moved aside for it.
#[derive(Debug)]
pub(crate) struct RecordingFile {
    path: PathBuf,
    file: Option<File>,
    is_made: Arc<AtomicBool>,
}

/// Takes a recording's file back when it turns out that nothing was recorded.
#[derive(Debug)]
pub(crate) struct Undo {
    path: PathBuf,
    is_made: Arc<AtomicBool>,
}

impl Undo {
    /// Removes the file, if it was made, and puts the older one back.
    pub(crate) fn undo(&self) {
        if self.is_made.load(Ordering::Relaxed) && !is_special(&self.path) {
            // Nothing was recorded, which is what is being said; a file that cannot be removed holds nothing.
            let _ = std::fs::remove_file(&self.path);
            let _ = std::fs::rename(old_name(&self.path), &self.path);
        }
    }
}

impl RecordingFile {
    /// The file that will be made at `path`.
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), file: None, is_made: Arc::default() }
    }

    /// A way to take it back.
    pub(crate) fn undo(&self) -> Undo {
        Undo { path: self.path.clone(), is_made: Arc::clone(&self.is_made) }
    }
}

impl Write for RecordingFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(create_recording(&self.path).map_err(|error| io::Error::other(format!("{error:#}")))?),
        };
        self.is_made.store(true, Ordering::Relaxed);
        file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), File::flush)
    }
}

/// Makes a recording file, readable by its owner only. A file of that name is kept as `NAME.old`, as perf does.
///
/// # Errors
/// If the file cannot be made.
fn create_recording(path: &Path) -> anyhow::Result<File> {
    if is_special(path) {
        let opened = OpenOptions::new().write(true).open(path);
        return opened.with_context(|| format!("cannot write to {}", path.display()));
    }
    if path.symlink_metadata().is_ok() {
        std::fs::rename(path, old_name(path)).with_context(|| format!("keeping the older {} aside", path.display()))?;
    }
    let made = OpenOptions::new().write(true).read(true).create_new(true).mode(0o600).open(path);
    made.with_context(|| format!("cannot make {}: choose another file with -o", path.display()))
}

/// Writes a whole file through `fill`, beside its final name first, so that a failure leaves no half of it.
/// `-` is stdout.
///
/// # Errors
/// If `fill` fails or the file cannot be written.
pub(crate) fn write_whole(path: &Path, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> anyhow::Result<()> {
    if path == Path::new("-") {
        let mut out = io::BufWriter::new(io::stdout().lock());
        fill(&mut out)?;
        return Ok(out.flush()?);
    }
    let context = || format!("cannot write {}", path.display());
    if is_special(path) {
        let mut out = io::BufWriter::new(OpenOptions::new().write(true).open(path).with_context(context)?);
        return fill(&mut out).and_then(|()| out.flush()).with_context(context);
    }
    let beside = partial_name(path);
    let file = OpenOptions::new().write(true).create_new(true).open(&beside).with_context(context)?;
    let mut out = io::BufWriter::new(file);
    let written = fill(&mut out).and_then(|()| out.flush()).and_then(|()| std::fs::rename(&beside, path));
    if written.is_err() {
        // The message is about the write; a leftover of ours must not stay behind either way.
        let _ = std::fs::remove_file(&beside);
    }
    written.with_context(context)
}

fn old_name(path: &Path) -> PathBuf {
    let mut old = path.as_os_str().to_owned();
    old.push(".old");
    PathBuf::from(old)
}

/// A device or a pipe: written to as it is, never replaced.
fn is_special(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| !meta.is_file())
}

fn partial_name(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    PathBuf::from(name)
}
