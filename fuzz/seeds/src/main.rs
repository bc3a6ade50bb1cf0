//! Files for the fuzzers to start from that no program writes: `seeds jitdump FILE`, and `seeds recordings DIR FILE...`, which
//! writes recordings with unpacked blocks, so that a fuzzer's changes reach what is in them.

#[path = "../../../collector/recording/tests/recording/layout.rs"]
#[expect(dead_code, reason = "the tests of the recording crate need the rest")]
mod layout;

use std::fs;
use std::path::Path;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.split_first() {
        Some((kind, [file])) if kind == "jitdump" => fs::write(file, jitdump()).expect("the directory is there"),
        Some((kind, [directory, files @ ..])) if kind == "recordings" => {
            files.iter().for_each(|file| unpack(Path::new(file), Path::new(directory)));
        }
        _ => panic!("usage: seeds jitdump FILE | seeds recordings DIR FILE..."),
    }
}

fn unpack(file: &Path, directory: &Path) {
    let packed = fs::read(file).expect("a recording");
    let blocks = layout::blocks(&packed);
    let unpacked: Vec<u8> = blocks.iter().flat_map(|block| layout::rebuilt(&packed, block, &block.parts)).collect();
    fs::write(directory.join(file.file_name().expect("a file")), unpacked).expect("the directory is there");
}

/// Two functions, of which the second moves.
fn jitdump() -> Vec<u8> {
    let mut dump = b"DTiJ".to_vec();
    dump.extend([1_u32, 40, 62, 0, 1].into_iter().flat_map(u32::to_le_bytes));
    dump.extend([5_u64, 0].into_iter().flat_map(u64::to_le_bytes));
    for (index, name) in [&b"first\0"[..], b"second\0"].into_iter().enumerate() {
        let address = 0x10_0000 + 0x100 * index as u64;
        let words = [1_u64 << 32 | 1, address, address, 16, index as u64];
        let words: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
        record(&mut dump, 0, &[&words, name, &[0x90; 16]]);
    }
    let words = [1_u64 << 32 | 1, 0x10_0400, 0x10_0100, 0x10_0400, 16, 1];
    record(&mut dump, 1, &[&words.into_iter().flat_map(u64::to_le_bytes).collect::<Vec<u8>>()]);
    dump
}

fn record(dump: &mut Vec<u8>, kind: u32, body: &[&[u8]]) {
    let body = body.concat();
    dump.extend([kind, body.len() as u32 + 16].into_iter().flat_map(u32::to_le_bytes));
    dump.extend(6_u64.to_le_bytes());
    dump.extend(body);
}
