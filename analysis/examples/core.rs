//! Prints the stacks of a core's threads: `cargo run --example core -- CORE [PROGRAM]`.

#![expect(clippy::print_stdout, reason = "the stacks are this program's output")]

use fpprof_analysis::core_dump::{Core, CoreOptions, unwind_core};
use fpprof_analysis::modules::{FileModules, Resolver as _};
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: core CORE [PROGRAM]")?;
    let program = std::env::args().nth(2);
    let files = FileModules::new();
    let open = || files.open(Path::new(&path)).map_err(|missing| missing.text());
    let core = Core::read(open()?)?;
    let unwinding = fpprof_unwind::Options::default();
    let options = CoreOptions { resolver: &files, executable: program.as_ref().map(Path::new), root: None, unwinding };
    for thread in unwind_core(&core, [open()?, open()?], &options).threads {
        println!("thread {}: {} ({})", thread.tid, thread.status, thread.reason);
        for frame in &thread.frames {
            println!("  {:#x} {}", frame.address, frame.symbol.as_deref().unwrap_or("?"));
        }
    }
    Ok(())
}
