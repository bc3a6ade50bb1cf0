//! Contents of packages other than the binary: manual pages, completions, licences.
#![allow(dead_code, reason = "the programs of packaging/ have a `main` of their own")]

#[path = "../packaging/manual.rs"]
mod manual;
#[path = "../packaging/notices.rs"]
mod notices;

use std::fs;
use std::process::Command;

/// The names of the manual pages of `command` and of all its subcommands, except hidden ones.
fn pages(command: &clap::Command, name: &str) -> Vec<String> {
    let visible = command.get_subcommands().filter(|one| !one.is_hide_set());
    let below = visible.flat_map(|one| pages(one, &format!("{name}-{}", one.get_name())));
    below.chain([format!("{name}.1")]).collect()
}

/// Check that every subcommand has a manual page with its description, and that bash can load the completions.
#[test]
fn manual_pages_and_completions_are_whole() {
    let share = tempfile::tempdir().expect("a temporary directory");
    manual::write(share.path()).expect("writing pages and completions");

    let names = pages(&fpprof::command(), "fpprof");
    assert!(names.iter().any(|name| name == "fpprof-flags-run.1"), "{names:?}");
    for name in &names {
        let page = fs::read_to_string(share.path().join("man/man1").join(name)).expect(name);
        assert!(page.contains(".SH DESCRIPTION") && page.contains(".SH OPTIONS"), "{name}:\n{page}");
    }
    let made = fs::read_dir(share.path().join("man/man1")).expect("the pages").count();
    assert_eq!(made, names.len(), "pages of hidden commands");

    let script = share.path().join("bash-completion/completions/fpprof");
    let complete =
        "source \"$0\"; COMP_WORDS=(fpprof flameg); COMP_CWORD=1; _fpprof fpprof flameg fpprof; echo ${COMPREPLY[@]}";
    let output = Command::new("bash").args(["-ec", complete]).arg(script).output().expect("bash is needed");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "flamegraph", "{output:?}");
    for file in ["zsh/site-functions/_fpprof", "fish/vendor_completions.d/fpprof.fish"] {
        let text = fs::read_to_string(share.path().join(file)).expect(file);
        assert!(text.contains("call-graph") && text.contains("flamegraph"), "{file}:\n{text}");
    }
}

/// Check that the notices have the licences of the linked C libraries, and none of build or test dependencies.
#[test]
fn notices_hold_what_is_linked() {
    let mut notices = Vec::new();
    notices::write("x86_64-unknown-linux-gnu", None, &mut notices).expect("writing the notices");
    let notices = String::from_utf8(notices).expect("notices are UTF-8");
    let phrases = ["GNU LESSER GENERAL PUBLIC LICENSE", "Jean-loup Gailly", "  libbpf-sys 1.7.0", "  clap 4."];
    for phrase in phrases {
        assert!(notices.contains(phrase), "no `{phrase}`");
    }
    for name in ["proptest", "clap_derive", "libbpf-cargo", "cc"] {
        assert!(!notices.contains(&format!("\n  {name} ")), "{name} is not linked");
    }
}
