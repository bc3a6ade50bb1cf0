//! Calls that may block for long: opening files that profiled processes name, and reading their memory.
//!
//! A file may be on a network or FUSE file system whose server does not answer. A process that waits for such a server may
//! hold the lock of its address space meanwhile, and whoever reads `/proc/PID/maps` waits for that lock. So another thread
//! makes such calls, and the caller waits for a limited time. A thread that did not return in time is abandoned, and its
//! place is not asked again until it does return. The total time spent waiting for one user is limited as well. Time in
//! which our own threads were ready and waited for a CPU does not count: where programs keep all CPUs busy, every call
//! takes long, and no file system is to blame.

use super::effective_uid;
use crate::share::Credit;
use crate::sys::monotonic_ns;
use fpprof_recording::model::Mmap;
use rustc_hash::FxBuildHasher;
use std::fs::File;
use std::hash::BuildHasher as _;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, SyncSender, channel, sync_channel};
use std::thread::ThreadId;
use std::time::Duration;

/// Limits of time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// How long a call is waited for.
    patience: Duration,
    /// The wait budget for all calls for a user: this long in a burst, and one [`PART`]th of the time on average.
    of_user: Duration,
    /// Duration up to which a call is not charged.
    usual: Duration,
}

pub(super) const FILES: Limits =
    Limits { patience: Duration::from_secs(1), of_user: Duration::from_millis(1500), usual: Duration::from_millis(5) };
/// To list 65,000 mappings, about the usual limit, takes some 30 ms. The samples wait meanwhile, so the
/// patience is shorter; the budget allows [`MAX_STUCK_OF_USER`] processes that do not answer.
pub(super) const MEMORY: Limits =
    Limits { patience: Duration::from_millis(500), of_user: Duration::from_secs(4), usual: Duration::from_millis(50) };
/// For files that are opened in the background, where no samples wait.
const BACKGROUND: Limits =
    Limits { patience: Duration::from_secs(1), of_user: Duration::from_secs(10), usual: Duration::from_millis(5) };
const PART: u64 = 50;
/// The most threads that wait for answers.
const MAX_STUCK: usize = 64;
/// The most of them for one user, who can have any number of file systems and processes.
const MAX_STUCK_OF_USER: usize = 8;

/// What a call is for: a user, and what does not answer if one of its calls does not return.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    user: u32,
    what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// Files on a device (major, minor).
    Device(u32, u32),
    /// The memory of a process.
    Memory(u32),
}

impl Place {
    /// The place of a mapped file.
    pub(crate) fn of(mmap: &Mmap) -> Self {
        Self::of_process(mmap.pid, What::Device(mmap.identity.dev_major, mmap.identity.dev_minor))
    }

    /// The place of something without a known device, below a process's root directory.
    pub(crate) fn below_root_of(pid: u32) -> Self {
        Self::of_process(pid, What::Device(0, 0))
    }

    /// The directory of a file, where the processes that name the file are not known; each directory counts as a user.
    #[must_use]
    pub fn directory_of(file: &Path) -> Self {
        let hash = FxBuildHasher.hash_one(file.parent());
        Self { user: u32::try_from(hash >> 32).unwrap_or(u32::MAX), what: What::Device(0, 0) }
    }

    /// The memory of a process.
    pub(super) fn memory_of(pid: u32) -> Self {
        Self::of_process(pid, What::Memory(pid))
    }

    /// The user of its processes.
    pub(crate) fn user(self) -> u32 {
        self.user
    }

    fn of_process(pid: u32, what: What) -> Self {
        // If the process is gone, its files can still be opened by their paths.
        Self { user: effective_uid(pid).unwrap_or(u32::MAX), what }
    }
}

/// Makes calls that may block for long, such as opening files of a server that does not answer. Waits for one at a time.
#[derive(Debug)]
pub struct BlockingCalls {
    limits: Limits,
    /// An idle thread.
    idle: Option<CallThread>,
    stuck: Vec<Stuck>,
    credit: Credit,
    n_left_out: u64,
    /// Of the thread that made or waited for the last call; `None` before the first.
    delay: Option<(ThreadId, RunDelay)>,
}

/// The time that a thread has waited for a CPU.
///
/// # Sources
/// `proc_pid_schedstat` in the kernel's `fs/proc/base.c`.
#[derive(Debug)]
struct RunDelay(Option<File>);

impl RunDelay {
    fn of_this_thread() -> Self {
        // A kernel without this counts no such time.
        Self(File::open("/proc/thread-self/schedstat").ok())
    }

    fn ns(&self) -> u64 {
        let mut text = [0; 64];
        let read = self.0.as_ref().and_then(|file| file.read_at(&mut text, 0).ok()).unwrap_or(0);
        let text = text.get(..read).and_then(|text| str::from_utf8(text).ok()).unwrap_or_default();
        text.split_ascii_whitespace().nth(1).and_then(|ns| ns.parse().ok()).unwrap_or(0)
    }
}

/// The beginning of a call.
#[derive(Debug, Clone, Copy)]
struct Begun {
    at_ns: u64,
    /// What the thread had waited for a CPU by then.
    delay_ns: u64,
}

impl Default for BlockingCalls {
    fn default() -> Self {
        Self::new(FILES)
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A call that has not returned.
#[derive(Debug)]
struct Stuck {
    place: Place,
    thread: CallThread,
    has_returned: Arc<AtomicBool>,
}

/// A thread that makes calls, and ends when its sender is dropped.
#[derive(Debug)]
struct CallThread(Sender<Call>);

type Call = Box<dyn FnOnce(&RunDelay) + Send>;

impl BlockingCalls {
    /// For files that are opened in the background: a call takes at most a second, and those for one place 10 seconds and one
    /// part in 50 of the time.
    #[must_use]
    pub fn in_background() -> Self {
        Self::new(BACKGROUND)
    }

    pub(super) fn new(limits: Limits) -> Self {
        let credit = Credit::new(nanoseconds(limits.of_user), PART);
        Self { limits, idle: None, stuck: Vec::new(), credit, n_left_out: 0, delay: None }
    }

    /// Makes a call on this thread and charges it to the user of the place; `None` at once if the user's budget is used
    /// up.
    pub(crate) fn wait<T>(&mut self, place: Place, what: impl FnOnce() -> T) -> Option<T> {
        let begun = self.begin(place)?;
        let value = what();
        // The process that works for this one waits for a CPU about as long as this thread.
        let delay_ns = self.delay_ns().saturating_sub(begun.delay_ns);
        self.end(place, begun, delay_ns);
        Some(value)
    }

    fn begin(&mut self, place: Place) -> Option<Begun> {
        let at_ns = monotonic_ns();
        self.credit.forget(at_ns);
        let has_credit = self.credit.has(place.user, at_ns);
        self.n_left_out += u64::from(!has_credit);
        has_credit.then(|| Begun { at_ns, delay_ns: self.delay_ns() })
    }

    /// Charges the time of a call, but not that in which this thread waited for a CPU, and another one as long as given.
    fn end(&mut self, place: Place, begun: Begun, delay_elsewhere_ns: u64) {
        let now_ns = monotonic_ns();
        let delay_ns = self.delay_ns().saturating_sub(begun.delay_ns).saturating_add(delay_elsewhere_ns);
        let not_charged_ns = delay_ns.saturating_add(nanoseconds(self.limits.usual));
        if let Some(ns) = now_ns.saturating_sub(begun.at_ns).checked_sub(not_charged_ns) {
            self.credit.spend(place.user, now_ns, ns);
        }
    }

    fn delay_ns(&mut self) -> u64 {
        let this_thread = std::thread::current().id();
        self.delay.take_if(|(thread, _)| *thread != this_thread);
        self.delay.get_or_insert_with(|| (this_thread, RunDelay::of_this_thread())).1.ns()
    }

    /// How often a call was refused because its user's budget was used up.
    pub(crate) fn n_left_out(&self) -> u64 {
        self.n_left_out
    }

    /// Makes a call on another thread; `None` if it does not return in time, or at once if an earlier call to the place
    /// has not returned yet, or if its user's budget is used up.
    pub fn call<T: Send + 'static>(&mut self, place: Place, what: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        self.take_back();
        let n_of_user = self.stuck.iter().filter(|stuck| stuck.place.user == place.user).count();
        let is_silent = self.stuck.iter().any(|stuck| stuck.place == place);
        if is_silent || n_of_user >= MAX_STUCK_OF_USER || self.stuck.len() >= MAX_STUCK {
            return None;
        }
        let begun = self.begin(place)?;
        let (value, delay_ns) = self.make(place, what).unzip();
        self.end(place, begun, delay_ns.unwrap_or(0));
        value
    }

    /// The value of a call, and how long its thread waited for a CPU.
    fn make<T: Send + 'static>(&mut self, place: Place, what: impl FnOnce() -> T + Send + 'static) -> Option<(T, u64)> {
        let thread = self.idle.take().map_or_else(CallThread::start, Ok).ok()?;
        let (answer, answered) = sync_channel(1);
        let has_returned = Arc::new(AtomicBool::new(false));
        thread.0.send(returning(what, answer, Arc::clone(&has_returned))).ok()?;
        match answered.recv_timeout(self.limits.patience) {
            Ok(value) => {
                self.idle = Some(thread);
                Some(value)
            }
            Err(_) => {
                self.stuck.push(Stuck { place, thread, has_returned });
                None
            }
        }
    }

    /// Frees the places whose calls have returned.
    fn take_back(&mut self) {
        let idle = &mut self.idle;
        for Stuck { thread, .. } in self.stuck.extract_if(.., |stuck| stuck.has_returned.load(Ordering::Acquire)) {
            idle.get_or_insert(thread);
        }
    }
}

/// Wraps a call so that it reports its return. If the value comes too late, it is dropped first: it may be an open
/// file, and closing that may also take long.
fn returning<T: Send + 'static>(
    what: impl FnOnce() -> T + Send + 'static,
    answer: SyncSender<(T, u64)>,
    has_returned: Arc<AtomicBool>,
) -> Call {
    Box::new(move |delay| {
        let before_ns = delay.ns();
        let value = what();
        let unwanted = answer.send((value, delay.ns().saturating_sub(before_ns))).err();
        drop(unwanted);
        has_returned.store(true, Ordering::Release);
    })
}

impl CallThread {
    fn start() -> io::Result<Self> {
        let (calls, to_make) = channel::<Call>();
        let make = move || {
            let delay = RunDelay::of_this_thread();
            to_make.into_iter().for_each(|call| call(&delay));
        };
        std::thread::Builder::new().name("fpprof-open".to_owned()).spawn(make)?;
        Ok(Self(calls))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    /// A call that blocks until it is released.
    fn held() -> (Sender<()>, impl FnOnce() + Send + 'static) {
        let (let_go, wait) = channel::<()>();
        (let_go, move || _ = wait.recv())
    }

    const fn place(user: u32, minor: u32) -> Place {
        Place { user, what: What::Device(0, minor) }
    }

    /// Check that calls return their values, and are made by the same thread each time.
    #[test]
    fn calls_return() {
        let mut calls = BlockingCalls::default();
        let ids: Vec<_> = (0..3).map(|_| calls.call(place(0, 1), || std::thread::current().id()).unwrap()).collect();
        assert!(ids.iter().all(|&id| id == ids[0] && id != std::thread::current().id()), "{ids:?}");
    }

    /// Check that a place whose call does not return costs one wait, that others are asked meanwhile, and that it is
    /// asked again once the call has returned.
    #[test]
    fn silent_places_are_left_alone() {
        let mut calls = BlockingCalls::default();
        let (let_go, never) = held();
        assert_eq!(calls.call(place(1, 1), never), None);
        let began = Instant::now();
        for _ in 0..1000 {
            assert_eq!(calls.call(place(1, 1), || 1), None, "it is silent");
        }
        assert!(began.elapsed() < FILES.patience, "nobody waited");
        assert_eq!(calls.call(place(1, 2), || 2), Some(2), "another device");
        assert_eq!(calls.call(place(2, 1), || 3), Some(3), "another user");
        drop(let_go);
        while calls.call(place(1, 1), || 4).is_none() {}
    }

    /// Check that the total wait for a user whose files answer slowly is limited, and that others are asked meanwhile.
    #[test]
    fn slow_places_have_a_limit() {
        const TAKES: Duration = Duration::from_millis(200);
        let mut calls = BlockingCalls::default();
        let slow = || std::thread::sleep(TAKES);
        let opened = (0..).take_while(|&minor| calls.call(place(1, minor), slow).is_some()).count();
        assert!((1..=8).contains(&opened), "{opened}");
        assert_eq!((calls.n_left_out(), calls.wait(place(1, 100), || 1), calls.n_left_out()), (1, None, 2));
        assert_eq!((calls.wait(place(2, 0), || 2), calls.call(place(2, 0), || 3)), (Some(2), Some(3)));
    }

    /// Check that calls of a user are not limited because programs keep all CPUs busy: together they take far more than the
    /// limit.
    #[test]
    fn busy_cpus_are_no_slow_places() {
        let is_over = Arc::new(AtomicBool::new(false));
        let n_busy = 6 * std::thread::available_parallelism().unwrap().get();
        let spins = |is_over: Arc<AtomicBool>| move || while !is_over.load(Ordering::Relaxed) {};
        let busy: Vec<_> = (0..n_busy).map(|_| std::thread::spawn(spins(Arc::clone(&is_over)))).collect();
        let mut calls = BlockingCalls::default();
        let mut beyond_usual = Duration::ZERO;
        let works = || {
            let began = Instant::now();
            while began.elapsed() < Duration::from_millis(1) {}
        };
        for n in 0.. {
            let began = Instant::now();
            let made = if n % 2 == 0 { calls.call(place(1, 1), works) } else { calls.wait(place(1, 1), works) };
            assert_eq!(made, Some(()), "after {n} calls, {beyond_usual:?} beyond what is usual");
            beyond_usual += began.elapsed().saturating_sub(FILES.usual);
            if beyond_usual > 2 * FILES.of_user {
                break;
            }
        }
        is_over.store(true, Ordering::Relaxed);
        busy.into_iter().for_each(|thread| thread.join().unwrap());
    }

    /// Check that a user with many silent file systems is no longer asked, while others are.
    #[test]
    fn users_have_a_limit() {
        let mut calls = BlockingCalls::default();
        let held: Vec<_> = (0..u32::try_from(MAX_STUCK_OF_USER).unwrap())
            .map(|minor| {
                let (let_go, never) = held();
                assert_eq!(calls.call(place(1, minor), never), None);
                calls.credit = BlockingCalls::default().credit;
                let_go
            })
            .collect();
        assert_eq!(calls.call(place(1, 100), || ()), None);
        assert_eq!(calls.call(place(2, 100), || 5), Some(5));
        drop(held);
        while calls.call(place(1, 100), || ()).is_none() {}
    }
}
