//! perf's own stacks, from the output of `perf script`, so that perf is judged by its own unwinding.

use anyhow::Context as _;
use fpprof_analysis::experiment::StackEnds;
use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The outermost user frame of a stack: a file, and the offset in it of the byte before the return address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Outermost {
    pub(crate) module: PathBuf,
    pub(crate) file_offset: u64,
}

/// The reason recorded for perf's stacks that do not reach a root: perf gives none.
const UNLABELLED: &str = "unlabelled";
/// The reason recorded for samples without any user frame.
const NO_USER_FRAME: &str = "no_user_frame";

/// Start of the upper half of the address space, the kernel's on x86-64.
const KERNEL_START: u64 = 1 << 63;

/// Lets perf unwind a file, and counts by process name the stacks whose outermost frame satisfies `is_root`. perf prints names of
/// threads: `names` has those of processes.
///
/// # Errors
/// If perf cannot be run or fails.
pub(crate) fn stack_ends(
    perf_data: &Path,
    names: &HashMap<u32, String>,
    mut is_root: impl FnMut(&Outermost) -> bool,
) -> anyhow::Result<BTreeMap<String, StackEnds>> {
    let mut command = Command::new("perf");
    command.args(["script", "--no-inline", "-F", "comm,pid,tid,time,ip,sym,dso", "-i"]).arg(perf_data);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().context("cannot start perf script")?;
    let out = child.stdout.take().context("perf's output")?;
    let stacks = read(BufReader::new(out), names)?;
    let status = child.wait().context("waiting for perf script")?;
    anyhow::ensure!(status.success(), "perf script ended with {status}");
    Ok(judge(&stacks, &mut is_root))
}

/// Samples by process name and outermost user frame.
type Outer = HashMap<(String, Option<Outermost>), u64>;

fn read(mut input: impl BufRead, names: &HashMap<u32, String>) -> anyhow::Result<Outer> {
    let mut stacks = Outer::new();
    let mut current: Option<(String, Option<Outermost>)> = None;
    let mut line = Vec::new();
    loop {
        line.clear();
        let n = input.read_until(b'\n', &mut line).context("reading what perf prints")?;
        let text = String::from_utf8_lossy(&line);
        if n == 0 || text.trim().is_empty() {
            if let Some(stack) = current.take() {
                *stacks.entry(stack).or_default() += 1;
            }
        } else if let Some((_, outermost)) = &mut current {
            *outermost = frame(&text).or(outermost.take());
        } else {
            current = process(&text, names).map(|name| (name, None));
        }
        if n == 0 {
            return Ok(stacks);
        }
    }
}

/// The name of the process of a line `COMM PID/TID TIME:`: the thread's if it is not known. The comm itself may contain spaces.
fn process(line: &str, names: &HashMap<u32, String>) -> Option<String> {
    let (rest, _time) = line.trim().rsplit_once(char::is_whitespace)?;
    let (comm, ids) = rest.trim_end().rsplit_once(char::is_whitespace)?;
    let pid = ids.split_once('/').and_then(|(pid, _)| pid.parse().ok());
    Some(pid.and_then(|pid: u32| names.get(&pid)).map_or_else(|| comm.trim().to_owned(), String::clone))
}

/// Parses `OFFSET SYMBOL (FILE)`: perf prints user addresses as offsets in their file; `None` for a kernel frame.
fn frame(line: &str) -> Option<Outermost> {
    let line = line.trim();
    let file_offset = u64::from_str_radix(line.split_whitespace().next()?, 16).ok()?;
    let file = line.strip_suffix(')')?.rsplit_once(" (")?.1;
    (file_offset < KERNEL_START).then(|| Outermost { module: PathBuf::from(file), file_offset })
}

fn judge(stacks: &Outer, is_root: &mut impl FnMut(&Outermost) -> bool) -> BTreeMap<String, StackEnds> {
    let mut by_comm: BTreeMap<String, StackEnds> = BTreeMap::new();
    for ((comm, outermost), &samples) in stacks {
        let ends = by_comm.entry(comm.clone()).or_default();
        ends.samples += samples;
        match outermost {
            Some(frame) if is_root(frame) => ends.complete += samples,
            Some(_) => *ends.truncated.entry(UNLABELLED.to_owned()).or_default() += samples,
            None => *ends.truncated.entry(NO_USER_FRAME.to_owned()).or_default() += samples,
        }
    }
    by_comm
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "\
my prog 16290/16290  1702.611508: 
	ffffffff815cc52a kvfree_call_rcu ([kernel.kallsyms])
	           20ca3 mmap64 (/usr/lib/ld.so)
	           1ab77 _start (/usr/lib/ld.so)

my thread 16290/16291  1702.612504: 
	           9810d _int_malloc (/usr/lib/libc.so.6)

fio 1/1  1702.7: 
	ffffffff815cc52a kvfree_call_rcu ([kernel.kallsyms])
";

    /// Check that the outermost user frame decides, and that samples without one are counted separately.
    #[test]
    fn the_outermost_user_frame_decides() {
        let names = HashMap::from([(16290, "my prog".to_owned())]);
        let stacks = read(PRINTED.as_bytes(), &names).unwrap();
        let ends = judge(&stacks, &mut |frame| frame.file_offset == 0x1ab77);
        let prog = &ends["my prog"];
        assert_eq!((prog.samples, prog.complete, prog.truncated[UNLABELLED]), (2, 1, 1));
        assert_eq!((ends["fio"].samples, ends["fio"].truncated[NO_USER_FRAME]), (1, 1));
    }
}
