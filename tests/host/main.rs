//! The command from outside, where the machine has to be changed for it: how cores are named, what ordinary users may
//! do, what is mounted, and control groups. Each test puts back what it changed. Needs root; run by `just test-host` only.

#[path = "../../collector/tests/host/changed.rs"]
mod changed;
mod cores;
#[path = "../../collector/tests/host/group.rs"]
mod group;
mod groups;
mod ordinary_users;
mod silent_files;
#[path = "../support/mod.rs"]
mod support;

use changed::Changed;

/// Another content of a file of the kernel's.
fn changed_file(path: &str, content: &str) -> Changed {
    let before = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let changed = Changed::undone_by("printf %s \"$1\" > \"$2\"", &[before.trim_end(), path]);
    std::fs::write(path, content).unwrap_or_else(|error| panic!("{path}: {error}: run these tests as root"));
    changed
}
