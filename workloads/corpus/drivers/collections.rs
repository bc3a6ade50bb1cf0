//! Typical work of Rust programs: maps, sorting, formatting, boxed trees, calls through traits. Prints a checksum.
//! Built as a static library with a C `main`, so that any linker can lay it out.

use std::collections::{BTreeMap, HashMap};
use std::ffi::c_int;
use std::fmt::Write as _;
use std::hash::{BuildHasherDefault, DefaultHasher};

/// Deterministic pseudo-random numbers (Marsaglia's xorshift).
struct Numbers(u64);

impl Iterator for Numbers {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        Some(self.0)
    }
}

trait Node {
    fn sum(&self, depth: u64) -> u64;
}

struct Leaf(u64);

struct Pair(Box<dyn Node>, Box<dyn Node>);

impl Node for Leaf {
    fn sum(&self, depth: u64) -> u64 {
        self.0.rotate_left(depth as u32 & 63)
    }
}

impl Node for Pair {
    fn sum(&self, depth: u64) -> u64 {
        self.0.sum(depth + 1).wrapping_add(self.1.sum(depth + 2))
    }
}

fn tree(depth: u32, numbers: &mut Numbers) -> Box<dyn Node> {
    match depth {
        0 => Box::new(Leaf(numbers.next().unwrap_or(0))),
        _ => Box::new(Pair(tree(depth - 1, numbers), tree(depth - 1, numbers))),
    }
}

fn words(numbers: &mut Numbers) -> u64 {
    let mut by_length: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    // A hasher without a random seed, so that every run does the same work.
    let mut counts: HashMap<String, u64, BuildHasherDefault<DefaultHasher>> = HashMap::default();
    for number in numbers.take(4000) {
        let mut word = String::new();
        let _ = write!(word, "{:x}-{}", number & 0xfff, number >> 60);
        *counts.entry(word.clone()).or_default() += number & 7;
        by_length.entry(word.len()).or_default().push(word);
    }
    by_length.values_mut().for_each(|words| words.sort());
    let longest = by_length.values().flatten().map(|word| counts.get(word).copied().unwrap_or(0));
    longest.fold(0, |sum, count| sum.wrapping_mul(31).wrapping_add(count))
}

/// The usage is `collections REPETITIONS`.
#[no_mangle]
pub extern "C" fn main() -> c_int {
    let Some(repetitions) = std::env::args().nth(1).and_then(|word| word.parse::<u32>().ok()) else {
        eprintln!("usage: collections REPETITIONS");
        return 2;
    };
    let mut numbers = Numbers(88_172_645_463_325_252);
    let mut sum = 0_u64;
    for _ in 0..repetitions {
        sum = sum.wrapping_mul(31).wrapping_add(tree(12, &mut numbers).sum(0)).wrapping_add(words(&mut numbers));
    }
    println!("{sum}");
    0
}
