//! Tests of the command that have to change the machine: core patterns, rights of ordinary users, mounts, and control
//! groups. Each test restores what it changed. Needs root; only run by `just test-host`.

#[path = "../../collector/tests/host/changed.rs"]
mod changed;
mod cores;
#[path = "../../collector/tests/host/group.rs"]
mod group;
mod groups;
mod new_cpus;
mod ordinary_users;
mod silent_files;
#[path = "../support/mod.rs"]
mod support;

use changed::Changed;

/// Changes the content of a kernel file until the result is dropped.
fn changed_file(path: &str, content: &str) -> Changed {
    let before = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let changed = Changed::undone_by("printf %s \"$1\" > \"$2\"", &[before.trim_end(), path]);
    std::fs::write(path, content).unwrap_or_else(|error| panic!("{path}: {error}: run these tests as root"));
    changed
}
