//! Where output goes: stdout, or a file that is never half-written over an older one.

mod patient;

use crate::worker;
use anyhow::Context as _;
use fpprof_collector::StopFlag;
use fpprof_recording::Recording;
use fpprof_reports::escape::visible;
use fpprof_reports::terminal::Style;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, IsTerminal as _, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

pub(crate) use patient::Patient;

/// Tells the person something, in one line or more. Data goes elsewhere.
///
/// What a terminal would obey is written out: names of files, processes and events are in many of these words. A line
/// break stays one, but what follows it is set in, so that no name can begin a line that looks like another message.
pub(crate) fn say(words: &str) {
    // A closed stderr leaves nobody to tell.
    let _ = writeln!(io::stderr().lock(), "{}", lines(words, "\n  "));
}

/// Tells what was written for a terminal already, with its names escaped and its colours.
pub(crate) fn say_drawn(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// `words` with what a terminal would obey written out, their lines separated by `between`.
pub(crate) fn lines(words: &str, between: &str) -> String {
    words.lines().map(visible).collect::<Vec<_>>().join(between)
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
    /// Ends the wait for somebody who reads a pipe.
    stop: Option<&'static StopFlag>,
    file: Option<Box<dyn Sink>>,
    made: Arc<OnceLock<Made>>,
}

trait Sink: Write + Send + std::fmt::Debug {}
impl Sink for File {}
impl Sink for Patient {}

/// What was made for a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Made {
    /// Nothing: it goes to a device or a pipe that was there.
    Nothing,
    /// A new file.
    New,
    /// A new file, for which an older one was moved aside.
    InPlaceOfOlder,
}

/// Takes a recording's file back when it turns out that nothing was recorded.
#[derive(Debug)]
pub(crate) struct Undo {
    path: PathBuf,
    made: Arc<OnceLock<Made>>,
}

impl Undo {
    /// Removes the file, if it was made, and puts the older one back.
    pub(crate) fn undo(&self) {
        let made = self.made.get().copied().unwrap_or(Made::Nothing);
        // Nothing was recorded, which is what is being said; a file that cannot be removed holds nothing.
        if made != Made::Nothing {
            let _ = std::fs::remove_file(&self.path);
        }
        if made == Made::InPlaceOfOlder {
            let _ = std::fs::rename(old_name(&self.path), &self.path);
        }
    }
}

impl RecordingFile {
    /// The file that will be made at `path`.
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), stop: None, file: None, made: Arc::default() }
    }

    /// The same; no pipe is waited for when `stop` is set.
    pub(crate) fn until(path: &Path, stop: &'static StopFlag) -> Self {
        Self { stop: Some(stop), ..Self::new(path) }
    }

    /// A way to take it back.
    pub(crate) fn undo(&self) -> Undo {
        Undo { path: self.path.clone(), made: Arc::clone(&self.made) }
    }
}

impl Write for RecordingFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let file = match &mut self.file {
            Some(file) => file,
            none => {
                let created = match worker::client() {
                    Some(client) => client.create_recording(&self.path),
                    None => create_recording(&self.path, self.stop),
                };
                let (file, made) = created.map_err(|error| io::Error::other(format!("{error:#}")))?;
                let _ = self.made.set(made);
                none.insert(match self.stop {
                    Some(stop) => Box::new(Patient::new(file, stop)),
                    None => Box::new(file),
                })
            }
        };
        file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), Write::flush)
    }
}

/// Makes a recording file, readable by its owner only. A file of that name is kept as `NAME.old`, as perf does.
///
/// # Errors
/// If the file cannot be made.
pub(crate) fn create_recording(path: &Path, stop: Option<&StopFlag>) -> anyhow::Result<(File, Made)> {
    if let Some(file) = open_special(path, stop)? {
        return Ok((file, Made::Nothing));
    }
    let has_older = path.symlink_metadata().is_ok();
    if has_older {
        let old = old_name(path);
        anyhow::ensure!(
            may_be_replaced(&old),
            "{} is not a recording and would be overwritten; move it, or choose another file",
            old.display()
        );
        std::fs::rename(path, &old).with_context(|| format!("cannot rename {} to FILE.old", path.display()))?;
    }
    let made = OpenOptions::new().write(true).read(true).create_new(true).mode(0o600).open(path);
    let file = made.with_context(|| format!("cannot create {}; choose another file", path.display()))?;
    Ok((file, if has_older { Made::InPlaceOfOlder } else { Made::New }))
}

/// Whether nothing is lost with what was kept aside: there is none, it is empty, or it is a recording.
fn may_be_replaced(old: &Path) -> bool {
    let Ok(metadata) = old.symlink_metadata() else { return true };
    let is_recording = || File::open(old).is_ok_and(|file| Recording::open(BufReader::new(file)).is_ok());
    metadata.is_file() && (metadata.len() == 0 || is_recording())
}

/// Writes a whole file through `fill`, readable by its owner only, as the recording is that it tells of; beside its final
/// name first, so that a failure leaves no half of it.
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
    let write = |file| {
        let mut out = io::BufWriter::new(file);
        fill(&mut out).and_then(|()| out.flush()).with_context(context)
    };
    if let Some(client) = worker::client() {
        write(client.create(path)?)?;
        return client.commit();
    }
    let (file, pending) = Pending::create(path)?;
    write(file)?;
    pending.commit()
}

/// A file that gets its final name when it is complete, and is removed otherwise.
#[derive(Debug)]
pub(crate) struct Pending {
    path: PathBuf,
    /// `None` for a device or a pipe, which is what it is.
    beside: Option<PathBuf>,
}

impl Pending {
    /// The file to write, beside `path`.
    ///
    /// # Errors
    /// If it cannot be made.
    pub(crate) fn create(path: &Path) -> anyhow::Result<(File, Self)> {
        let path = path.to_owned();
        if let Some(file) = open_special(&path, None)? {
            return Ok((file, Self { path, beside: None }));
        }
        let beside = partial_name(&path);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside);
        let file = file.with_context(|| format!("cannot write {}", path.display()))?;
        Ok((file, Self { path, beside: Some(beside) }))
    }

    /// Gives it its name.
    ///
    /// # Errors
    /// If it cannot have it.
    pub(crate) fn commit(mut self) -> anyhow::Result<()> {
        let Some(beside) = self.beside.take() else { return Ok(()) };
        let renamed = std::fs::rename(&beside, &self.path);
        if renamed.is_err() {
            self.beside = Some(beside);
        }
        renamed.with_context(|| format!("cannot write {}", self.path.display()))
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        // The message is about the write; a leftover of ours must not stay behind either way.
        let _ = self.beside.as_ref().map(std::fs::remove_file);
    }
}

fn old_name(path: &Path) -> PathBuf {
    let mut old = path.as_os_str().to_owned();
    old.push(".old");
    PathBuf::from(old)
}

/// Opens a device or a pipe, which is written to as it is and never replaced; `None` where there is none. For a pipe's
/// reader it waits until `stop` is set.
///
/// # Errors
/// If another user put it, or a link to it, where he may: he would read what is written, or choose where it goes. If it
/// cannot be opened.
fn open_special(path: &Path, stop: Option<&StopFlag>) -> anyhow::Result<Option<File>> {
    let Ok(named) = path.symlink_metadata() else { return Ok(None) };
    if named.is_file() || path.metadata().map_or(true, |metadata| metadata.is_file()) {
        return Ok(None);
    }
    anyhow::ensure!(
        named.uid() == own_uid() || !others_may_write_beside(path),
        "{} belongs to another user, in a directory that others can write to; choose another file",
        path.display()
    );
    let context = || format!("cannot write to {}", path.display());
    let link_flags = if named.is_symlink() { OFlags::empty() } else { OFlags::NOFOLLOW };
    let flags = (link_flags | OFlags::NOCTTY).bits().cast_signed();
    let file = match stop {
        Some(stop) => patient::open(path, flags, stop),
        None => OpenOptions::new().write(true).custom_flags(flags).open(path),
    };
    let file = file.with_context(context)?;
    let opened = file.metadata().with_context(context)?;
    let is_same = named.is_symlink() || (opened.dev(), opened.ino()) == (named.dev(), named.ino());
    anyhow::ensure!(
        is_same && !opened.is_file(),
        "{} was replaced while it was being opened; try again",
        path.display()
    );
    Ok(Some(file))
}

fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn others_may_write_beside(path: &Path) -> bool {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    dir.metadata().is_ok_and(|dir| dir.mode() & 0o022 != 0 || ![0, own_uid()].contains(&dir.uid()))
}

fn partial_name(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    PathBuf::from(name)
}

#[cfg(test)]
mod tests;
