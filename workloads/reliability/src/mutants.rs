//! Damaged perf.data files of each kind that perf writes, each imported or exported by a separate process.

use crate::cost;
use crate::found::Found;
use crate::place::Place;
use crate::process::{end_of, printed, spawn, words};
use crate::suite::figures;
use anyhow::{Context as _, ensure};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(5);
const MOST_MB: f64 = 256.0;
/// Extreme values for lengths, offsets and counts.
const EXTREMES: [u64; 8] = [0, 1, 7, 0xffff, 0x7fff_ffff, 0xffff_ffff, 1 << 63, u64::MAX];

/// The kinds of file, by perf's options.
const KINDS: [(&str, &[&str]); 4] = [
    ("usual", &["-e", "cpu-clock"]),
    ("pipe", &["-e", "cpu-clock"]),
    ("compressed", &["-e", "cpu-clock", "-z"]),
    ("group", &["-e", "{cpu-clock,page-faults}:S"]),
];

pub(crate) fn measure(place: &Place) -> anyhow::Result<Found> {
    let dir = place.dir()?;
    let (mut files, mut bytes) = (Vec::new(), 0);
    for (kind, options) in KINDS {
        let file = dir.path().join(kind);
        let mut perf = Command::new("perf");
        perf.args(["record", "-q"]).args(options).args(["-F", "199", "--call-graph", "dwarf,1024", "-o"]);
        if kind == "pipe" {
            perf.arg("-").stdout(File::create(&file)?);
        } else {
            perf.arg(&file);
        }
        perf.args(["--", "sh", "-c", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"]);
        ensure!(perf.stderr(Stdio::null()).status()?.success(), "perf failed on {kind}");
        printed(place.fpprof().arg("import").arg(&file).arg("-o").arg(dir.path().join("whole")))?;
        bytes += fs::metadata(&file)?.len();
        files.push(file);
    }
    let n = place.sizes.mutants.to_string();
    let part = place.part("mutants").arg(&place.fpprof).arg(&n).args(&files).stderr(Stdio::piped()).spawn()?;
    let output = part.wait_with_output()?;
    let stderr = words(&output.stderr);
    ensure!(output.status.success(), "{stderr}");
    let figures = figures(&stderr);
    let (crashes, slow, peak_mb) = (figures.number("crashes")?, figures.number("slow")?, figures.number("peak_mb")?);
    let figure = format!(
        "{n} damaged files of {} KB (usual, from a pipe, compressed, of a group of events), imported or exported: {} read, \
         {} refused, {crashes} crashes, {slow} longer than {} s (longest {} s), {peak_mb:.0} MB at most",
        bytes / KINDS.len() as u64 / 1000,
        figures.text("read")?,
        figures.text("refused")?,
        LIMIT.as_secs(),
        figures.text("longest_s")?
    );
    Ok(Found::new(crashes == 0.0 && slow == 0.0 && peak_mb <= MOST_MB, figure))
}

/// The outcome of importing or exporting a damaged file.
#[derive(Debug)]
enum End {
    Read,
    Refused,
    Crashed,
    Slow,
}

/// The main function of the separate process, which has no other children.
pub(crate) fn run(args: &[OsString]) -> anyhow::Result<()> {
    let [fpprof, n, files @ ..] = args else { anyhow::bail!("fpprof, how many, and of what files?") };
    let n: u32 = n.to_str().context("a number")?.parse()?;
    let whole: Vec<Vec<u8>> = files.iter().map(fs::read).collect::<Result<_, _>>()?;
    let (dir, next) = (tempfile::tempdir()?, AtomicU32::new(0));
    let work = || -> anyhow::Result<Vec<(End, Duration)>> {
        let mut ends = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= n {
                return Ok(ends);
            }
            // Each file is read by both commands.
            let (pair, kind) = (number / 2, number as usize / 2 % whole.len().max(1));
            let command = if number % 2 == 0 { "import" } else { "export" };
            let bytes = damaged(whole.get(kind).context("no file")?, pair);
            ends.push(read_by(Path::new(fpprof), command, dir.path(), number, &bytes)?);
        }
    };
    let n_threads = std::thread::available_parallelism()?.get();
    let ends = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..n_threads).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join().ok().context("a thread failed")?).collect::<Vec<_>>()
    });
    let ends: Vec<_> = ends.into_iter().collect::<anyhow::Result<Vec<_>>>()?.into_iter().flatten().collect();
    let count = |is_it: fn(&End) -> bool| ends.iter().filter(|(end, _)| is_it(end)).count();
    let longest = ends.iter().map(|(_, time)| *time).max().unwrap_or_default();
    let mut stderr = std::io::stderr();
    writeln!(
        stderr,
        "figures read={} refused={} crashes={} slow={} longest_s={:.2}",
        count(|end| matches!(end, End::Read)),
        count(|end| matches!(end, End::Refused)),
        count(|end| matches!(end, End::Crashed)),
        count(|end| matches!(end, End::Slow)),
        longest.as_secs_f64()
    )?;
    writeln!(stderr, "{}", cost::of_children()?)?;
    Ok(())
}

/// Imports or exports a file; keeps a file that reveals a fault.
fn read_by(fpprof: &Path, command: &str, dir: &Path, number: u32, bytes: &[u8]) -> anyhow::Result<(End, Duration)> {
    let [file, out, log] = ["data", "out", "log"].map(|name| dir.join(format!("{number}.{name}")));
    fs::write(&file, bytes)?;
    let begun = Instant::now();
    let mut read = Command::new(fpprof);
    read.arg(command).arg(&file).arg("-o").arg(&out).stdout(Stdio::null()).stderr(File::create(&log)?);
    let mut read = spawn(&mut read)?;
    let status = end_of(&mut read, LIMIT);
    let took = begun.elapsed();
    let stderr = fs::read(&log).map(|bytes| words(&bytes))?;
    let end = match status.map(|status| status.code()) {
        Err(_) => End::Slow,
        // If the parsing process dies, the first process survives and reports it, so the message is searched as well.
        Ok(_) if ["panicked", "crashed", "signal"].iter().any(|word| stderr.contains(word)) => End::Crashed,
        Ok(Some(0)) => End::Read,
        Ok(Some(1)) => End::Refused,
        Ok(_) => End::Crashed,
    };
    if matches!(end, End::Crashed | End::Slow) {
        let kept = std::env::temp_dir().join(format!("fpprof-mutant-{number}"));
        fs::copy(&file, &kept)?;
        writeln!(std::io::stderr(), "{end:?}: {}: {stderr}", kept.display())?;
    }
    for path in [file, out, log] {
        // There may be no output file.
        let _ = fs::remove_file(path);
    }
    Ok((end, took))
}

/// A damaged copy; the same number gives the same damage.
fn damaged(whole: &[u8], number: u32) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(u64::from(number));
    let mut bytes = whole.to_vec();
    // Half of the mutants damage only the start of the file: the header, the attributes and the first records.
    let reach = if random.bool() { bytes.len().min(2048) } else { bytes.len() };
    for _ in 0..random.u32(1..16) {
        let at = random.usize(..reach);
        match random.u8(..4) {
            0 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << random.u8(..8)),
            1 => bytes.iter_mut().skip(at).take(random.usize(1..32)).for_each(|byte| *byte = random.u8(..)),
            2 => {
                let extreme = random.choice(EXTREMES).unwrap_or_default().to_le_bytes();
                let (width, at) = (1 << random.u8(1..4), at & !7);
                bytes.iter_mut().skip(at).zip(extreme).take(width).for_each(|(byte, new)| *byte = new);
            }
            _ => {
                let from = random.usize(..bytes.len());
                let part: Vec<u8> = bytes.iter().skip(from).take(random.usize(1..256)).copied().collect();
                bytes.iter_mut().skip(at).zip(part).for_each(|(byte, new)| *byte = new);
            }
        }
    }
    if random.u8(..8) == 0 {
        bytes.truncate(random.usize(..bytes.len()));
    }
    bytes
}
