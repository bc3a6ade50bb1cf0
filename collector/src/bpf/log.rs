//! libbpf's messages: kept, so that an error can tell what the kernel refused, and printed only on request.

use libbpf_rs::{PrintLevel, ProgramType, libbpf_sys};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

static IS_VERBOSE: AtomicBool = AtomicBool::new(false);
/// Warnings since the last load began.
static WARNINGS: Mutex<String> = Mutex::new(String::new());
/// A verifier log can have megabytes; its end is what matters.
const MAX_MESSAGE_BYTES: usize = 1 << 20;

/// Prints libbpf's messages on stderr from now on, including the verifier's log.
pub fn print_libbpf_messages() {
    IS_VERBOSE.store(true, Ordering::Relaxed);
}

/// Collects libbpf's warnings from now on, instead of printing them.
pub(crate) fn collect_messages() {
    messages().clear();
    let level = if IS_VERBOSE.load(Ordering::Relaxed) { PrintLevel::Debug } else { PrintLevel::Warn };
    libbpf_rs::set_print(Some((level, take)));
}

#[expect(clippy::needless_pass_by_value, reason = "libbpf-rs gives it so")]
fn take(level: PrintLevel, message: String) {
    if IS_VERBOSE.load(Ordering::Relaxed) {
        // If stderr is closed, the message is dropped.
        let _ = std::io::stderr().write_all(message.as_bytes());
    }
    let mut messages = messages();
    if level == PrintLevel::Warn && messages.len() + message.len() <= MAX_MESSAGE_BYTES {
        messages.push_str(&message);
    }
}

fn messages() -> std::sync::MutexGuard<'static, String> {
    WARNINGS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What was refused since the last load began, in one line; `None` if libbpf did not report it.
pub(crate) fn refusal() -> Option<String> {
    // Checked first: the verifier stumbles over other things before it reaches an unknown helper.
    let missing = missing_helpers();
    if !missing.is_empty() {
        return Some(format!("the kernel lacks the BPF helpers {} (Linux 5.17 has them)", missing.join(" and ")));
    }
    find_refusal(&messages())
}

const CALL_REFUSED: &str =
    "bpf(): Operation not permitted (a missing capability, or the seccomp profile of a container)";

/// Helpers that the programs need and that are newer than BPF ring buffers.
///
/// # Sources
/// Linux commits e6f2dd0f8067 (`bpf_loop`) and 7c7e3d31e785 (`bpf_find_vma`), both in 5.17.
const HELPERS: [(&str, libbpf_sys::bpf_func_id); 2] =
    [("bpf_find_vma", libbpf_sys::BPF_FUNC_find_vma), ("bpf_loop", libbpf_sys::BPF_FUNC_loop)];

/// Whether the kernel is too old for the programs.
pub(crate) fn lacks_helpers() -> bool {
    !missing_helpers().is_empty()
}

fn missing_helpers() -> Vec<&'static str> {
    HELPERS.iter().filter(|(_, id)| lacks_helper(*id)).map(|&(name, _)| name).collect()
}

/// Whether the kernel reports that it lacks a helper. Without an answer, the helper is not considered missing.
fn lacks_helper(id: libbpf_sys::bpf_func_id) -> bool {
    matches!(ProgramType::PerfEvent.is_helper_supported(id), Ok(false))
}

/// Warnings about things that libbpf does without, or tries again: they do not explain the final failure. Raising the
/// limit of locked memory is only needed before Linux 5.11.
const SIDE_EFFECTS: [&str; 2] = ["Failed to bump RLIMIT_MEMLOCK", "Retrying without BTF"];

/// The verifier's last line about the first program it refused, else libbpf's first line about the failure.
///
/// ```text
/// libbpf: prog 'take_sample': BPF program load failed: Invalid argument
/// libbpf: prog 'take_sample': -- BEGIN PROG LOAD LOG --
/// ...
/// invalid func unknown#181
/// processed 188 insns (limit 1000000) max_states_per_insn 0 ...
/// -- END PROG LOAD LOG --
/// ```
fn find_refusal(log: &str) -> Option<String> {
    const BEGIN: &str = "': -- BEGIN PROG LOAD LOG --";
    const END: &str = "-- END PROG LOAD LOG --";
    let Some((before, rest)) = log.split_once(BEGIN) else {
        let mut failures = log.lines().filter(|line| !SIDE_EFFECTS.iter().any(|words| line.contains(words)));
        let first = failures.next()?.trim_start_matches("libbpf: ");
        // libbpf's own test of the system call, before any of our programs is loaded.
        let is_call_refused = first.starts_with("Error in bpf_object__probe_loading(): -EPERM");
        return Some(if is_call_refused { CALL_REFUSED.to_owned() } else { first.to_owned() });
    };
    let program = before.rsplit('\'').next().unwrap_or_default();
    let verifier = rest.split(END).next().unwrap_or_default();
    let reason = verifier.lines().rfind(|line| !line.is_empty() && !line.starts_with("processed "))?.trim();
    Some(format!("the verifier rejected {program}: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that only the end of a verifier's log remains, and the program's name.
    #[test]
    fn the_verifiers_last_word_counts() {
        let log = "libbpf: prog 'take_sample': BPF program load failed: Invalid argument\n\
                   libbpf: prog 'take_sample': -- BEGIN PROG LOAD LOG --\n\
                   364: (79) r2 = *(u64 *)(r10 -120)     ; R2_w=scalar() R10=fp0\n\
                   math between map_value pointer and register with unbounded min value is not allowed\n\
                   processed 188 insns (limit 1000000) max_states_per_insn 0\n\
                   -- END PROG LOAD LOG --\nlibbpf: failed to load object 'fpprof_bpf'\n";
        let expected = "the verifier rejected take_sample: math between map_value pointer and register with unbounded min \
                        value is not allowed";
        assert_eq!(find_refusal(log).as_deref(), Some(expected));
    }

    /// Check that other failures are reported by their first line, and that an empty log gives nothing.
    #[test]
    fn other_failures_are_told_by_their_first_line() {
        let log = "libbpf: map 'segments': failed to create: -E2BIG\nlibbpf: failed to load object 'fpprof_bpf'\n";
        assert_eq!(find_refusal(log).as_deref(), Some("map 'segments': failed to create: -E2BIG"));
        assert_eq!(find_refusal(""), None);
    }

    /// Check that warnings about what libbpf does without are not reported as the reason.
    #[test]
    fn side_effects_are_no_reason() {
        let memlock = "libbpf: Failed to bump RLIMIT_MEMLOCK (err = -EPERM), you might need to do it explicitly!\n";
        let probe = "libbpf: Error in bpf_object__probe_loading(): -EPERM. Couldn't load trivial BPF \
                     program. Make sure your kernel supports BPF (CONFIG_BPF_SYSCALL=y) and/or that RLIMIT_MEMLOCK is set \
                     to big enough value.\n";
        assert_eq!(
            find_refusal(&[memlock, "libbpf: map 'segments': refused\n"].concat()).as_deref(),
            Some("map 'segments': refused")
        );
        assert_eq!(find_refusal(&[memlock, probe].concat()).as_deref(), Some(CALL_REFUSED));
        let btf = "libbpf: Error in bpf_create_map_xattr(waits): -EPERM. Retrying without BTF.\n";
        let map = "libbpf: map 'waits': failed to create: -EPERM\n";
        assert_eq!(find_refusal(&[btf, map].concat()).as_deref(), Some("map 'waits': failed to create: -EPERM"));
        assert_eq!(find_refusal(memlock), None);
    }
}
