//! Signal handlers on alternate stacks: the interrupted stack is copied as well.

use crate::support::stacks::{Stack, commonest, stacks};
use crate::support::{compile, record, report, source, until_enough};
use std::path::Path;

/// Whether a stack is that of `signals.c` from the leaf to `begin`; the C library's code between a handler and the
/// interrupted function has no name.
fn is_exact(stack: &Stack) -> bool {
    let parts =
        [&["burn", "on_illegal", "*"][..], &["there"; 9], &["on_fault", "*"], &["here"; 9], &["begin"]].concat();
    let (inner, outer) = stack.names.split_at(stack.names.len().min(parts.len()));
    let is_chain =
        inner.len() == parts.len() && inner.iter().zip(&parts).all(|(name, part)| *part == "*" || name == part);
    let is_begun_by = |name: &str| outer.first().is_some_and(|begun| begun == name);
    is_chain && stack.class == "complete" && (is_begun_by("main") || is_begun_by("thread"))
}

fn samples<'a>(stacks: impl IntoIterator<Item = &'a Stack>) -> u64 {
    stacks.into_iter().map(|stack| stack.samples).sum()
}

/// Records the program with chunks of this size, until there are enough samples.
fn recorded(program: &Path, file: &Path, call_graph: &str) -> Vec<Stack> {
    let in_burn = |stack: &Stack| stack.names.first().is_some_and(|name| name == "burn");
    until_enough(call_graph, |seconds| {
        let command = [program.to_str().expect("a path of plain characters"), &seconds.to_string()];
        record(file, &["-q", "-F", "997", "--call-graph", call_graph], &command);
        let found: Vec<_> = stacks(file, "dwarf").into_iter().filter(in_burn).collect();
        (samples(&found) >= 500).then_some(found)
    })
}

/// Check that stacks continue from a handler on an alternate stack to the program's start, in the first thread and in
/// another, with a second signal on top, however the program was compiled; and that the chunk size in the report is
/// what they need, to within some hundred bytes, since stacks begin at random addresses.
#[test]
fn stacks_of_handlers_reach_their_roots() {
    let dir = tempfile::tempdir().unwrap();
    let (program, file) = (dir.path().join("signals"), dir.path().join("recording"));
    for flags in [["-O2", "-fomit-frame-pointer"], ["-O1", "-fno-omit-frame-pointer"]] {
        compile("gcc", &[&flags[..], &["-pthread"]].concat(), &program, &source("signals.c"));
        let found = recorded(&program, &file, "both,65536");
        let (all, exact) = (samples(&found), samples(found.iter().filter(|stack| is_exact(stack))));
        assert!(exact * 100 >= all * 95, "{flags:?}: {exact} of {all} are exact: {}", commonest(&found));
        for begun in ["main", "thread"] {
            let theirs = found.iter().filter(|stack| stack.names.iter().any(|name| name == begun));
            assert!(samples(theirs) * 5 >= all, "{flags:?}: few samples of {begun}: {}", commonest(&found));
        }
    }
    let needed = report(&file, &[])["chunk_sizes"][0]["smallest_bytes"]["99"].as_u64().expect("a size");
    let found = recorded(&program, &file, &format!("dwarf,{}", needed + 256));
    let exact = samples(found.iter().filter(|stack| is_exact(stack)));
    assert!(exact * 100 >= samples(&found) * 95, "{needed} bytes do: {}", commonest(&found));
    let found = recorded(&program, &file, &format!("dwarf,{}", needed - 256));
    let cut = samples(found.iter().filter(|stack| stack.stop == "chunk_end"));
    assert!(cut * 5 >= samples(&found), "less than {needed} bytes do not: {}", commonest(&found));
}
