use super::super::config::StoreConfig;
use super::*;
use fpprof_reports::parquet::counters::{self, Counter, Counters};
use fpprof_reports::store::merge;
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::Field;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};

const NOON_US: u64 = 1_795_694_400_000_000;
const MINUTE_US: u64 = 60_000_000;

fn store(dir: &Path, host: &str) -> Store {
    let config = StoreConfig { path: dir.join("store"), ..StoreConfig::default() };
    Store::open(&config, host).expect("a store")
}

/// Writes a table of counters with one row.
fn write(store: &Store, start_unix_us: u64, value: i64) {
    let counter = Counter { name: "recorded", event: "cpu-clock".to_owned(), cause: String::new(), value };
    let duration = Duration::from_secs(60);
    let counters = Counters { start_unix_us, duration, host: store.host().to_owned(), counters: vec![counter] };
    let mut bytes = Vec::new();
    counters::write(&counters, &mut bytes).expect("a table");
    store.write(Table::Counters, start_unix_us, &bytes).expect("written");
}

/// Merges as the process without privileges does.
fn merged(files: Vec<File>) -> Result<Vec<u8>, (Outcome, anyhow::Error)> {
    let mut bytes = Vec::new();
    match merge(files, &mut bytes) {
        Ok(()) => Ok(bytes),
        Err(error) => Err((Outcome::Damaged, error.into())),
    }
}

/// The sum of all values, as an engine adds them up: it lists the files, then opens one after the other. An error if a file is
/// gone.
fn sum(store: &Path) -> io::Result<(usize, i64)> {
    let files = WalkDir::new(store.join("counters")).min_depth(2).max_depth(2);
    let files: Vec<_> = files.into_iter().collect::<Result<_, _>>()?;
    let mut sum = 0;
    for file in &files {
        let reader = SerializedFileReader::new(File::open(file.path())?).expect("Parquet");
        for row in reader.get_row_iter(None).expect("rows") {
            let row = row.expect("a row");
            let value = row.get_column_iter().find(|(name, _)| *name == "value").expect("a value").1.clone();
            let Field::Long(value) = value else { panic!("{value}") };
            sum += value;
        }
    }
    Ok((files.len(), sum))
}

fn outcomes(compaction: &mut Compaction, until_us: u64, now: Instant) -> Vec<Outcome> {
    let cleaned = compaction.clean(now);
    assert!(cleaned.is_ok(), "{cleaned:?}");
    let steps = compaction.step(until_us.cast_signed(), now, merged);
    steps.into_iter().map(|(outcome, _)| outcome).collect()
}

/// Check that a reader that adds up the files in a loop, beginning anew when a file is gone, always finds the same sum while
/// hour after hour is merged; and that one file of each hour remains.
#[test]
fn readers_find_every_row_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = store(dir.path(), "web-1");
    let minutes = 6 * 60;
    (0..minutes).for_each(|minute| write(&store, NOON_US + minute * MINUTE_US, 1));
    let is_over = AtomicBool::new(false);
    let n_sums = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut n_sums = 0;
            while !is_over.load(Ordering::Relaxed) || n_sums == 0 {
                match sum(store.path()) {
                    Ok((_, sum)) => {
                        assert_eq!(sum, minutes.cast_signed());
                        n_sums += 1;
                    }
                    Err(error) => assert_eq!(error.kind(), io::ErrorKind::NotFound, "{error}"),
                }
            }
            n_sums
        });
        let mut compaction = Compaction::new(&store);
        let (begun, until) = (Instant::now(), NOON_US + 6 * 60 * MINUTE_US);
        let mut found = Vec::new();
        for hour in 0..7 {
            let now = begun + 2 * GRACE * hour;
            found.push(outcomes(&mut compaction, until, now));
            // What was replaced stays for a while, and until then the day is left alone.
            found.push(outcomes(&mut compaction, until, now));
            std::thread::sleep(Duration::from_millis(20));
        }
        // Before anything can panic, or the reader would never end.
        is_over.store(true, Ordering::Relaxed);
        for (n, outcomes) in found.iter().enumerate() {
            let expected: &[Outcome] = if n % 2 == 0 && n < 12 { &[Outcome::Merged] } else { &[] };
            assert_eq!(outcomes, expected, "call {n}");
        }
        reader.join().expect("the reader")
    });
    assert!(n_sums > 0);
    assert_eq!(sum(store.path()).expect("its files"), (6, minutes.cast_signed()));
    assert_eq!(WalkDir::new(beside(store.path(), "web-1")).min_depth(2).into_iter().count(), 0);
}

/// Check that an hour that is not over stays, that a later file of a merged hour is merged, too, under a name that was not there, and
/// that the age of the merged file is that of its last one.
#[test]
fn hours_are_merged_when_they_are_over() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = store(dir.path(), "web-1");
    let hour = 60 * MINUTE_US;
    [1, 2, 61, 62].iter().for_each(|minute| write(&store, NOON_US + minute * MINUTE_US, 1));
    let mut compaction = Compaction::new(&store);
    let now = Instant::now();
    assert!(outcomes(&mut compaction, NOON_US + hour - 1, now).is_empty());
    let day = store.path().join("counters/day=2026-11-26");
    let last = day.join("120200.000000Z-web-1.parquet");
    let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
    let files = [last.clone(), day.join("120100.000000Z-web-1.parquet")];
    for (file, seconds) in files.iter().zip([0, 5]) {
        let time = modified - Duration::from_secs(seconds);
        File::options().write(true).open(file).and_then(|file| file.set_modified(time)).expect("its time");
    }
    assert_eq!(outcomes(&mut compaction, NOON_US + hour, now), [Outcome::Merged]);
    let name = "120100.000000Z_120200.000000Z-web-1.parquet";
    let time = std::fs::metadata(day.join(name)).and_then(|metadata| metadata.modified()).expect("its time");
    assert_eq!((sum(store.path()).expect("files"), time), ((3, 4), modified));
    write(&store, NOON_US + MINUTE_US + 1, 1);
    assert_eq!(outcomes(&mut compaction, NOON_US + hour, now + 2 * GRACE), [Outcome::Merged]);
    assert!(!day.join(name).exists() && day.join("120100.000000Z_120200.000001Z-web-1.parquet").exists());
    assert_eq!(sum(store.path()).expect("files"), (3, 5));
}

/// Check that a damaged file keeps its hour as it is and is reported once, and that a day with files of another machine, or with
/// anything else, is left alone.
#[test]
fn what_is_not_understood_stays() {
    let dir = tempfile::tempdir().expect("a directory");
    let own = store(dir.path(), "web-1");
    let day_us = 24 * 60 * MINUTE_US;
    for day in 0..3 {
        [1, 2].iter().for_each(|minute| write(&own, NOON_US + day * day_us + minute * MINUTE_US, 1));
    }
    write(&store(dir.path(), "web-2"), NOON_US + MINUTE_US, 1);
    let days = own.path().join("counters");
    symlink("/etc/hostname", days.join("day=2026-11-27/120500.000000Z-web-1.parquet")).expect("a link");
    std::fs::write(days.join("day=2026-11-28/120200.000000Z-web-1.parquet"), "damaged").expect("written");
    let before: Vec<_> = WalkDir::new(&days).sort_by_file_name().into_iter().flatten().map(|e| e.into_path()).collect();
    let mut compaction = Compaction::new(&own);
    let now = Instant::now();
    let until = NOON_US + 3 * day_us;
    assert_eq!(outcomes(&mut compaction, until, now), [Outcome::Damaged]);
    assert_eq!(outcomes(&mut compaction, until, now), [Outcome::Shared, Outcome::Shared]);
    assert!(outcomes(&mut compaction, until, now).is_empty());
    let after: Vec<_> = WalkDir::new(&days).sort_by_file_name().into_iter().flatten().map(|e| e.into_path()).collect();
    assert_eq!(before, after);
}

/// Check that an hour whose merge fails lets the others be merged, and is tried again ever later.
#[test]
fn a_failure_does_not_hold_up_other_hours() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = store(dir.path(), "web-1");
    [1, 2, 61, 62].iter().for_each(|minute| write(&store, NOON_US + minute * MINUTE_US, 1));
    let mut compaction = Compaction::new(&store);
    let until = NOON_US + 2 * 60 * MINUTE_US;
    let begun = Instant::now();
    let fails = |compaction: &mut Compaction, seconds| {
        let now = begun + Duration::from_secs(seconds);
        let steps = compaction.step(until.cast_signed(), now, |_| Err((Outcome::Failed, anyhow::anyhow!("too slow"))));
        steps.into_iter().map(|(outcome, _)| outcome).collect::<Vec<_>>()
    };
    assert_eq!([0, 0].map(|at| fails(&mut compaction, at)), [[Outcome::Failed], [Outcome::Failed]], "each hour");
    assert_eq!([0, 59].map(|at| fails(&mut compaction, at)), [[], []]);
    assert_eq!(fails(&mut compaction, 60), [Outcome::Failed]);
    assert_eq!(outcomes(&mut compaction, until, begun + Duration::from_secs(60)), [Outcome::Merged], "the other hour");
    let later = begun + Duration::from_secs(60);
    assert!(outcomes(&mut compaction, until, later + 2 * GRACE - Duration::from_secs(1)).is_empty());
    assert_eq!(outcomes(&mut compaction, until, later + 2 * GRACE), [Outcome::Merged]);
    assert_eq!(sum(store.path()).expect("files"), (2, 4));
}

/// Check that where the directories cannot be exchanged, nothing changes, and that it is not tried again.
#[test]
fn a_refusal_is_final() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = store(dir.path(), "web-1");
    [1, 2].iter().for_each(|minute| write(&store, NOON_US + minute * MINUTE_US, 1));
    // Another file system.
    let elsewhere = tempfile::tempdir_in("/dev/shm").expect("a directory");
    symlink(elsewhere.path(), store.path().join("compacting")).expect("a link");
    let mut compaction = Compaction::new(&store);
    let until = NOON_US + 60 * MINUTE_US;
    assert_eq!(outcomes(&mut compaction, until, Instant::now()), [Outcome::Refused]);
    assert!(outcomes(&mut compaction, until, Instant::now()).is_empty());
    assert_eq!(sum(store.path()).expect("files"), (2, 2));
    assert!(!compaction.beside(Path::new("counters/day=2026-11-26")).exists());
}

/// Check that what a crash left is removed by the next agent after a while, whether it was before or after the exchange, and that a file of
/// another machine in it is put back; likewise of this machine before it was renamed, but not of one for which somebody writes.
#[test]
fn leftovers_of_a_crash_are_removed() {
    let dir = tempfile::tempdir().expect("a directory");
    let own = store(dir.path(), "web-1");
    write(&own, NOON_US, 1);
    let left = beside(own.path(), "web-1").join("counters/day=2026-11-26");
    std::fs::create_dir_all(&left).expect("made");
    std::fs::copy(
        own.path().join("counters/day=2026-11-26/120000.000000Z-web-1.parquet"),
        left.join("120000.000000Z_120000.000001Z-web-1.parquet"),
    )
    .expect("copied");
    let foreign = "120000.000000Z-web-2.parquet";
    std::fs::write(left.join(foreign), "of web-2").expect("written");
    let day = "counters/day=2026-11-25";
    let [renamed, others, begins] = ["before", "web-2", "web-3"].map(|host| beside(own.path(), host).join(day));
    for (of, host) in [(&renamed, "before"), (&others, "web-2"), (&begins, "web-3")] {
        std::fs::create_dir_all(of).expect("made");
        std::fs::write(of.join(format!("120000.000000Z-{host}.parquet")), "replaced").expect("written");
    }
    std::fs::write(renamed.join(foreign), "of web-2").expect("written");
    let _of_others = self::store(dir.path(), "web-2");
    let mut compaction = Compaction::new(&own);
    let _begins = self::store(dir.path(), "web-3");
    assert!(outcomes(&mut compaction, NOON_US, Instant::now()).is_empty());
    assert!(left.exists(), "somebody may be listing it");
    outcomes(&mut compaction, NOON_US, Instant::now() + GRACE);
    assert!(!left.exists());
    assert!(own.path().join("counters/day=2026-11-26").join(foreign).exists());
    assert_eq!([&renamed, &others, &begins].map(|left| left.exists()), [false, true, true]);
    assert!(own.path().join(day).join(foreign).exists());
}
