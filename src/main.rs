//! The `fpprof` command: parse, plan, run, exit code.

fn main() {}
