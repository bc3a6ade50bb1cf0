//! Programs that map and unmap endlessly, or rename their threads.

use crate::support::{Ended, build, cpu_time, directory, hex_numbers, take_until};
use fpprof_collector::{Note, Request, Target};
use fpprof_recording::model::{CaptureMode, Mmap, Sideband};
use std::process::Command;
use std::time::Duration;

/// More mappings, or names, than are reported of a process in a minute and a half.
const N: usize = 100_000;

/// Check that of a flood of mappings only a part is recorded, with a note; that what the process has mapped in the end
/// is known nevertheless; and that nothing of another program is missing; whatever is mapped, wherever.
#[test]
fn floods_of_mappings_are_cut() {
    let directory = directory();
    let (flood, burn) = (build("flood", &[], directory.path()), build("burn", &[], directory.path()));
    for (what, places) in [("data", "one"), ("data", "many"), ("code", "two"), ("code", "many")] {
        let list = directory.path().join(format!("{what}-{places}"));
        let mut command = Command::new(&flood);
        let mut flooding = None;
        let mut enough = None;
        let mut other = None;
        let request = Request { mode: CaptureMode::Fp, ..Request::new(Target::System) };
        let taken = take_until(&request, |progress| {
            if progress.samples == 0 && flooding.is_some() {
                return false;
            }
            let start = || Ended(command.args([what, places, &N.to_string()]).arg(&list).spawn().expect("it runs"));
            let pid = flooding.get_or_insert_with(start).id();
            if !list.exists() {
                return false;
            }
            let burning =
                other.get_or_insert_with(|| Ended(Command::new(&burn).arg("60000").spawn().expect("it runs")));
            let &mut (own, others) = enough.get_or_insert_with(|| {
                // Until the recorder has had time to read the mappings.
                let more = Duration::from_secs(1);
                (cpu_time(pid) + more, cpu_time(burning.id()) + more)
            });
            cpu_time(pid) >= own && cpu_time(burning.id()) >= others
        });
        let (pid, other) = (flooding.expect("a flood").id(), other.expect("another program").id());
        let copy = hex_numbers(&list)[0];
        let mappings = |pid: u32| {
            taken.sideband.iter().filter_map(move |event| match event {
                Sideband::Mmap(mmap) if mmap.pid == pid => Some(mmap),
                _ => None,
            })
        };
        let (n, notes) = (mappings(pid).count(), &taken.outcome.notes);
        assert!(n < N / 2, "{what} {places}: {n} mappings are recorded; {notes:?}");
        let not_recorded = notes.iter().find_map(|note| match note {
            Note::MappingsNotRecorded { mappings, .. } => Some(*mappings),
            _ => None,
        });
        assert!(not_recorded.is_some_and(|n| n > 0), "{what} {places}: {notes:?}");
        let is_copy = |mmap: &&Mmap| mmap.start == copy && mmap.prot & 4 != 0 && mmap.path.ends_with(b"/flood");
        assert!(mappings(pid).any(|mmap| is_copy(&mmap)), "{what} {places}: the code that runs at last is known");
        let burning = mappings(other).filter(|mmap| mmap.path.ends_with(b"/burn") && mmap.prot & 4 != 0);
        assert!(burning.count() > 0 && taken.samples.iter().any(|sample| sample.pid == other), "{what} {places}");
    }
}

/// Check that of a flood of names only a part is recorded, with a note, and that the last name of the thread is known.
#[test]
fn floods_of_names_are_cut() {
    let directory = directory();
    let (program, file) = (build("renaming", &[], directory.path()), directory.path().join("renamed"));
    let mut renaming = None;
    let mut enough = None;
    let request = Request { mode: CaptureMode::Fp, ..Request::new(Target::System) };
    let taken = take_until(&request, |_| {
        let start = || Ended(Command::new(&program).arg(N.to_string()).arg(&file).spawn().expect("it runs"));
        let pid = renaming.get_or_insert_with(start).id();
        // Until the recorder has had time to read the names.
        file.exists() && cpu_time(pid) >= *enough.get_or_insert_with(|| cpu_time(pid) + Duration::from_secs(1))
    });
    let pid = renaming.expect("a program").id();
    let names = taken.sideband.iter().filter_map(|event| match event {
        Sideband::Comm(comm) if comm.pid == pid => Some(comm.comm.as_slice()),
        _ => None,
    });
    let (names, notes) = (names.collect::<Vec<_>>(), &taken.outcome.notes);
    assert!(names.len() < N / 2, "{} names are recorded; {notes:?}", names.len());
    assert_eq!(names.last(), Some(&b"last-name".as_slice()));
    assert!(notes.iter().any(|note| matches!(note, Note::NamesNotRecorded(1..))), "{notes:?}");
}
