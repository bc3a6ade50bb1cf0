//! Frame-pointer chains.

use crate::support::{assert_most, build, directory, hex_numbers, run, take};
use fpprof_collector::Request;
use fpprof_recording::model::{Abi, CaptureMode, FpEnd, FpFrame};
use std::path::Path;
use std::process::Command;

/// Check that the chain of a program with frame pointers is, in every mode that has one, exactly the one the program
/// itself sees: return addresses and frame addresses, also beyond the copied part of the stack.
#[test]
fn chain_is_what_the_program_sees() {
    let directory = directory();
    let program = build("chain", &["-O0", "-fno-omit-frame-pointer"], directory.path());
    let (small, large) =
        (CaptureMode::Both { stack_bytes: 1024, every: 1 }, CaptureMode::Both { stack_bytes: 65_536, every: 1 });
    for mode in [CaptureMode::Fp, small, large] {
        let truth = directory.path().join("truth");
        let taken = take(&run(&program, &["120", truth.to_str().expect("a path")], mode));
        let truth = read_chain(&truth);
        assert_eq!(truth.len(), 42);
        let leaf = truth[0].frame_address;
        let in_leaf =
            taken.samples.iter().filter(|sample| sample.user_fp.get(1).is_some_and(|f| f.frame_address == leaf));
        let chains: Vec<_> = in_leaf.map(|sample| &sample.user_fp[1..]).collect();
        assert_most(chains.len(), taken.samples.len(), "samples in the leaf");
        for chain in chains {
            assert_eq!(chain.get(..truth.len()), Some(truth.as_slice()), "{mode:?}");
        }
        if mode == CaptureMode::Fp {
            assert!(taken.samples.iter().all(|sample| sample.user_regs.is_none() && sample.stack.is_empty()));
        }
    }
}

/// Check that the step of the walk, compiled for the host, accepts and refuses what it should.
#[test]
fn step_on_the_host() {
    let directory = directory();
    let program = build("walk_host", &["-O0", "-fno-omit-frame-pointer", "-Wextra", "-Werror"], directory.path());
    let status = Command::new(program).status().expect("the program runs");
    assert_eq!(status.code(), Some(0), "number of the case that went wrong");
}

/// Check that a chain is cut at 512 frames and marked so; and that the frames it has are right.
#[test]
fn long_chains_are_cut() {
    let directory = directory();
    let program = build("chain", &["-O0", "-fno-omit-frame-pointer", "-DDEPTH=600"], directory.path());
    let truth = directory.path().join("truth");
    let taken = take(&run(&program, &["150", truth.to_str().expect("a path")], CaptureMode::Fp));
    let truth = read_chain(&truth);
    let cut = taken.samples.iter().filter(|sample| sample.fp_end == FpEnd::MaxDepth);
    let cut: Vec<_> = cut.filter(|sample| sample.user_fp.get(1) == truth.first()).collect();
    assert_most(cut.len(), taken.samples.len(), "samples that are cut");
    for sample in cut {
        assert_eq!(sample.user_fp.len(), 512);
        assert_eq!(sample.user_fp.get(1..), truth.get(..511));
    }
}

fn read_chain(file: &Path) -> Vec<FpFrame> {
    let numbers = hex_numbers(file);
    let pairs = numbers.as_chunks::<2>().0.iter();
    pairs.map(|&[address, frame_address]| FpFrame { address, frame_address }).collect()
}

fn symbol(program: &Path, name: &str) -> u64 {
    let nm = Command::new("nm").arg(program).output().expect("nm runs");
    let text = String::from_utf8(nm.stdout).expect("text");
    let line = text.lines().find(|line| line.ends_with(&format!(" {name}"))).expect("the symbol");
    u64::from_str_radix(line.split(' ').next().expect("an address"), 16).expect("a number")
}

/// Check that a program is sampled from its first instruction on, with the right word size, and nothing before it: all
/// samples of a program without a C library are in its three functions.
#[test]
fn bare_programs_of_64_and_32_bits() {
    let directory = directory();
    for (flag, abi) in [("-m64", Abi::Bits64), ("-m32", Abi::Bits32)] {
        let flags =
            [flag, "-O0", "-ffreestanding", "-nostdlib", "-static", "-fno-pie", "-no-pie", "-fno-omit-frame-pointer"];
        let program = build("bare", &flags, directory.path());
        let request = run(&program, &[], CaptureMode::Both { stack_bytes: 4096, every: 1 });
        let taken = take(&Request { keep_raw_stacks: true, ..request });
        let (leaf, caller, start) = (symbol(&program, "leaf"), symbol(&program, "caller"), symbol(&program, "_start"));
        let mut in_leaf = 0;
        for sample in taken.samples.iter().filter(|sample| !sample.in_kernel) {
            let regs = sample.user_regs.expect("registers");
            assert_eq!(regs.abi, abi);
            assert!((leaf..start + 256).contains(&regs.ip()), "{:#x}", regs.ip());
            let chain: Vec<u64> = sample.user_fp.iter().map(|frame| frame.address).collect();
            // The entry point has no return address: in its place is the number of arguments.
            if let [ip, in_caller, in_start, 1] = chain[..] {
                let expected = (leaf..caller).contains(&ip) && (caller..start).contains(&in_caller) && in_start > start;
                assert!(expected, "{chain:x?}");
                assert_eq!(sample.fp_end, FpEnd::Zero);
                in_leaf += 1;
            }
        }
        assert_most(in_leaf, taken.samples.len(), "samples with the chain leaf, caller, _start");
    }
}
