//! Output to stdout, or to a file that never replaces an older one half-written.

mod patient;
mod place;

use crate::worker::{Older, client};
use anyhow::Context as _;
use fpprof_collector::StopFlag;
use fpprof_recording::{LooksLike, Recording};
use fpprof_reports::escape::visible;
use fpprof_reports::terminal::Style;
use place::{Place, own_uid};
use rustix::fs::{FileType, OFlags, Stat};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, BufReader, IsTerminal as _, Read as _, Write};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

pub(crate) use patient::Patient;

/// Prints a message for the user, of one line or more. Data does not go through here.
///
/// Escapes characters that a terminal interprets, since many messages contain names of files, processes and events. A
/// line break is kept, but the next line is indented, so that no name can forge another message.
pub(crate) fn print_message(words: &str) {
    print_drawn(&lines(words, "\n  "));
}

/// Prints text already formatted for a terminal, with escaped names and colours.
pub(crate) fn print_drawn(text: &str) {
    draw(&format!("{text}\n"));
}

/// Prints text and control sequences to stderr as they are.
pub(crate) fn draw(text: &str) {
    // If stderr is closed, there is nowhere to report the error.
    let _ = io::stderr().write_all(text.as_bytes());
}

/// `words` with characters that a terminal interprets escaped, and lines separated by `between`.
pub(crate) fn lines(words: &str, between: &str) -> String {
    words.lines().map(visible).collect::<Vec<_>>().join(between)
}

/// The style for stdout: with width and colours if it is a terminal.
pub(crate) fn style() -> Style {
    let is_terminal = io::stdout().is_terminal();
    style_of(is_terminal, terminal_size::terminal_size_of(io::stdout()).map(|(width, _)| width.0))
}

/// The style for stderr: with width and colours if it is a terminal.
pub(crate) fn stderr_style() -> Style {
    let is_terminal = io::stderr().is_terminal();
    style_of(is_terminal, terminal_size::terminal_size_of(io::stderr()).map(|(width, _)| width.0))
}

/// Colours follow <https://no-color.org>: none if `NO_COLOR` is set and not empty.
fn style_of(is_terminal: bool, width: Option<u16>) -> Style {
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    Style { width: width.filter(|_| is_terminal).map(usize::from), colors: is_terminal && !no_color }
}

/// A recording's file, created when its first byte is written: a refused recording leaves no file behind, and moves no
/// older one aside.
#[derive(Debug)]
pub(crate) struct RecordingFile {
    path: PathBuf,
    /// Ends the wait for a pipe's reader.
    stop: Option<&'static StopFlag>,
    file: Option<Box<dyn Sink>>,
    begun: Arc<OnceLock<Begun>>,
}

trait Sink: Write + Send + std::fmt::Debug {}
impl Sink for File {}
impl Sink for Patient {}

/// A recording that was started: what was created for it, and where.
#[derive(Debug)]
struct Begun {
    made: Made,
    place: Place,
}

/// What was created for a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Made {
    /// Nothing: it is written to an existing device or pipe.
    Nothing,
    /// A new file.
    New,
    /// A new file; an older one was moved aside.
    InPlaceOfOlder,
}

/// Removes a recording's file if nothing was recorded.
#[derive(Debug)]
pub(crate) struct Undo {
    begun: Arc<OnceLock<Begun>>,
}

impl Undo {
    /// Removes the file, if it was created, and puts the older one back.
    pub(crate) fn undo(&self) {
        let Some(Begun { made, place }) = self.begun.get() else { return };
        let undone = match made {
            Made::Nothing => Ok(()),
            Made::New => place.remove(),
            Made::InPlaceOfOlder => place.beside(OLD).and_then(|old| old.rename(place)),
        };
        // For example in a directory of another user, after root has dropped its privileges.
        if let Err(error) = undone {
            let path = place.path().display();
            let older =
                if *made == Made::InPlaceOfOlder { format!("; the older one is {path}{OLD}") } else { String::new() };
            print_message(&format!(
                "fpprof: cannot remove the recording {path}, which holds no samples: {error}{older}"
            ));
        }
    }
}

impl RecordingFile {
    /// A recording to be created at `path`.
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), stop: None, file: None, begun: Arc::default() }
    }

    /// Like [`Self::new`], but stops waiting for a pipe's reader when `stop` is set.
    pub(crate) fn until(path: &Path, stop: &'static StopFlag) -> Self {
        Self { stop: Some(stop), ..Self::new(path) }
    }

    /// Returns a handle that can remove the file again.
    pub(crate) fn undo(&self) -> Undo {
        Undo { begun: Arc::clone(&self.begun) }
    }
}

impl Write for RecordingFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let file = match &mut self.file {
            Some(file) => file,
            none => {
                let created = begin_recording(&self.path, self.stop);
                let (file, begun) = created.map_err(|error| io::Error::other(format!("{error:#}")))?;
                let _ = self.begun.set(begun);
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

/// Creates a recording file, readable by its owner only. An existing file is renamed to `NAME.old`, as in perf.
fn begin_recording(path: &Path, stop: Option<&StopFlag>) -> anyhow::Result<(File, Begun)> {
    let place = Place::of(path)?;
    if let Some(file) = open_special(&place, stop)? {
        return Ok((file, Begun { made: Made::Nothing, place }));
    }
    let older = place_of_older(&place)?;
    if let Some(old) = &older {
        set_aside(&place, old)?;
    }
    let made = place.open(OFlags::RDWR | OFlags::CREATE | OFlags::EXCL);
    let file = made.with_context(|| format!("cannot create {}; choose another file", path.display()))?;
    let made = if older.is_some() { Made::InPlaceOfOlder } else { Made::New };
    Ok((file, Begun { made, place }))
}

/// Where an existing file can be moved; `None` if there is none.
///
/// # Errors
/// If another file is there that is no recording.
fn place_of_older(place: &Place) -> anyhow::Result<Option<Place>> {
    if place.stat(false).is_err() {
        return Ok(None);
    }
    let old = place.beside(OLD)?;
    let name = || old.path().display().to_string();
    let may_be_replaced =
        may_be_replaced(&old).with_context(|| format!("cannot read {}; choose another file", name()))?;
    anyhow::ensure!(
        may_be_replaced,
        "{} is not a recording and would be overwritten; move it, or choose another file",
        name()
    );
    Ok(Some(old))
}

fn set_aside(place: &Place, old: &Place) -> anyhow::Result<()> {
    place.rename(old).with_context(|| format!("cannot rename {} to FILE.old", place.path().display()))
}

/// Removes a recording that this program created.
///
/// # Errors
/// If it cannot be removed.
pub(crate) fn remove_recording(path: &Path) -> anyhow::Result<()> {
    Ok(Place::of(path)?.remove()?)
}

/// Whether a file that was moved aside may be replaced: there is none, it is empty, or it is a recording.
///
/// # Errors
/// If it cannot be opened.
fn may_be_replaced(old: &Place) -> io::Result<bool> {
    let Ok(stat) = old.stat(false) else { return Ok(true) };
    if !is_file(&stat) || stat.st_size == 0 {
        return Ok(is_file(&stat));
    }
    let file = old.open(OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK)?;
    Ok(Recording::open(BufReader::new(file)).is_ok())
}

/// Refuses a path that already names what cannot be made again: somebody mistook an option's file for the input.
fn refuse_to_replace(place: &Place) -> anyhow::Result<()> {
    let mut head = Vec::new();
    if place.stat(false).is_ok_and(|stat| is_file(&stat))
        && let Ok(file) = place.open(OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK)
    {
        file.take(64).read_to_end(&mut head)?;
    }
    let what = match LooksLike::judge(&head) {
        LooksLike::Recording => "a recording",
        LooksLike::PerfData => "a perf.data file",
        LooksLike::Elf => "a program or library",
        _ => return Ok(()),
    };
    anyhow::bail!("{} is {what} and would be overwritten; choose another output file", place.path().display())
}

fn is_file(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

/// Writes a whole file through `fill`, readable by its owner only, like the recording it is about. It is written under
/// a temporary name first, so that a failure leaves no partial file. `-` is stdout.
///
/// # Errors
/// If `fill` fails or the file cannot be written.
pub(crate) fn write_whole(path: &Path, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> anyhow::Result<()> {
    if path == Path::new("-") {
        let mut out = io::BufWriter::new(io::stdout().lock());
        return fill(&mut out).and_then(|()| out.flush()).context("cannot write to stdout");
    }
    let context = || format!("cannot write {}", path.display());
    let write = |file| {
        let mut out = io::BufWriter::new(file);
        fill(&mut out).and_then(|()| out.flush()).with_context(context)
    };
    let (file, whole) = Whole::create(path, Older::Replaced)?;
    write(file)?;
    whole.commit()
}

/// A file that gets its name when it is complete, created by this process or by its broker.
#[derive(Debug)]
pub(crate) struct Whole(Option<Pending>);

impl Whole {
    /// Creates the file to write.
    ///
    /// # Errors
    /// If it cannot be created.
    pub(crate) fn create(path: &Path, older: Older) -> anyhow::Result<(File, Self)> {
        match client() {
            Some(client) => Ok((client.create(path, older)?, Self(None))),
            None => Pending::create(path, older).map(|(file, pending)| (file, Self(Some(pending)))),
        }
    }

    /// Gives it its name.
    ///
    /// # Errors
    /// If it cannot be renamed.
    pub(crate) fn commit(self) -> anyhow::Result<()> {
        match (self.0, client()) {
            (Some(pending), _) => pending.commit(),
            (None, Some(client)) => client.commit(),
            (None, None) => Ok(()),
        }
    }
}

/// A file that gets its final name when it is complete, and is removed otherwise.
#[derive(Debug)]
pub(crate) struct Pending {
    place: Place,
    /// The temporary file; `None` for a device or a pipe, which is written to directly.
    beside: Option<Place>,
    older: Older,
}

impl Pending {
    /// Creates the temporary file to write, next to `path`.
    ///
    /// # Errors
    /// If it cannot be created.
    pub(crate) fn create(path: &Path, older: Older) -> anyhow::Result<(File, Self)> {
        let place = Place::of(path)?;
        if let Some(file) = open_special(&place, None)? {
            return Ok((file, Self { place, beside: None, older }));
        }
        match older {
            Older::Replaced => refuse_to_replace(&place)?,
            Older::SetAside => drop(place_of_older(&place)?),
        }
        // A process that was killed may have left its file, and in a container its number is soon used again.
        let beside = place.beside(&format!(".{}-{:08x}.part", std::process::id(), fastrand::u32(..)))?;
        let file = beside.open(OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL);
        let file = file.with_context(|| format!("cannot write {}", path.display()))?;
        Ok((file, Self { place, beside: Some(beside), older }))
    }

    /// Renames the file to its final name.
    ///
    /// # Errors
    /// If it cannot be renamed.
    pub(crate) fn commit(mut self) -> anyhow::Result<()> {
        let Some(beside) = &self.beside else { return Ok(()) };
        let older = if self.older == Older::SetAside { place_of_older(&self.place)? } else { None };
        if let Some(old) = &older {
            set_aside(&self.place, old)?;
        }
        let renamed =
            beside.rename(&self.place).with_context(|| format!("cannot write {}", self.place.path().display()));
        if renamed.is_err()
            && let Some(old) = &older
        {
            // If this fails, too, it is at FILE.old.
            let _ = old.rename(&self.place);
        }
        renamed?;
        self.beside = None;
        Ok(())
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        // Errors are ignored: the error of the write is reported, and the temporary file is removed if possible.
        let _ = self.beside.as_ref().map(Place::remove);
    }
}

/// Suffix of an older recording's name.
const OLD: &str = ".old";

/// The path for what is made of a recording: its name without `.fpprof`, if it has that, and with this extension. The end of
/// another name may be all that tells it from others, such as a time.
pub(crate) fn beside(recording: &Path, extension: &str) -> PathBuf {
    let is_usual = recording.extension().is_some_and(|extension| extension == "fpprof");
    let stem = if is_usual { recording.with_extension("") } else { recording.to_owned() };
    let mut name = stem.into_os_string();
    name.push(".");
    name.push(extension);
    name.into()
}

/// Creates or truncates a file in one of this program's own directories; readable by its owner only.
///
/// # Errors
/// If it is a link, or cannot be created.
pub(crate) fn private_file(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW.bits().cast_signed();
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).custom_flags(flags).open(path)
}

/// Like [`private_file`], but opened for appending.
///
/// # Errors
/// If it is a link, or cannot be created.
pub(crate) fn private_log(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW.bits().cast_signed();
    OpenOptions::new().append(true).create(true).mode(0o600).custom_flags(flags).open(path)
}

/// Creates a directory that only its owner can access; with `parents` also its missing parents.
///
/// # Errors
/// If it cannot be created, or, without `parents`, if it exists.
pub(crate) fn private_directory(path: &Path, parents: bool) -> io::Result<()> {
    DirBuilder::new().recursive(parents).mode(0o700).create(path)
}

/// Opens a device or a pipe, which is written to directly and never replaced; `None` if `place` is neither. Waits for a
/// pipe's reader until `stop` is set.
///
/// # Errors
/// If another user may have put it, or a link to it, there: they would read what is written, or choose where it goes.
/// If it cannot be opened.
fn open_special(place: &Place, stop: Option<&StopFlag>) -> anyhow::Result<Option<File>> {
    let path = place.path();
    let Ok(named) = place.stat(false) else { return Ok(None) };
    if is_file(&named) || place.stat(true).map_or(true, |stat| is_file(&stat)) {
        return Ok(None);
    }
    anyhow::ensure!(
        named.st_uid == own_uid() || !place.is_open_to_others(),
        "{} belongs to another user, in a directory that others can write to; choose another file",
        path.display()
    );
    let context = || format!("cannot write to {}", path.display());
    let is_link = FileType::from_raw_mode(named.st_mode) == FileType::Symlink;
    let link_flags = if is_link { OFlags::empty() } else { OFlags::NOFOLLOW };
    let flags = OFlags::WRONLY | OFlags::NOCTTY | link_flags;
    let file = match stop {
        Some(stop) => patient::open(|more| place.open(flags | more), stop),
        None => place.open(flags),
    };
    let file = file.with_context(context)?;
    let opened = file.metadata().with_context(context)?;
    let is_same = is_link || (opened.dev(), opened.ino()) == (named.st_dev, named.st_ino);
    anyhow::ensure!(
        is_same && !opened.is_file(),
        "{} was replaced while it was being opened; try again",
        path.display()
    );
    Ok(Some(file))
}

#[cfg(test)]
mod tests;
