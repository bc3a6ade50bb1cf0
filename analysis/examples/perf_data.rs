//! Prints perf's samples as folded stacks: `perf record --call-graph dwarf ...`, then
//! `cargo run --example perf_data -- perf.data`.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the stacks are this program's output")]

use fpprof_analysis::import::perf_events;
use fpprof_analysis::modules::FileModules;
use fpprof_analysis::{Options, fold_perf_data};
use std::fs::File;
use std::io::BufReader;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: perf_data PERF_DATA")?;
    let open = || File::open(&path).map(BufReader::new);
    let files = FileModules::new();
    let stacks = fold_perf_data(perf_events(&mut open()?)?, &mut open()?, &Options::new(&files))?;
    for stack in &stacks.folded.stacks {
        let frames = stack.frames.iter().filter_map(|&frame| stacks.folded.frames.get(frame as usize));
        let names: Vec<&str> = frames.map(|frame| frame.name.as_str()).collect();
        println!("{};{} {}", stack.comm, names.join(";"), stack.samples);
    }
    eprintln!("{} samples", stacks.imported.samples);
    Ok(())
}
