#![no_main]
libfuzzer_sys::fuzz_target!(|input: &[u8]| fpprof_fuzz_parsers::debug_frame(input));
