//! Loading of rules, by a parser that makes them up.

use super::*;
use crate::bpf::types::{limit, rule_layout};
use crate::parse::ParsedFile;
use crate::rules::table::tests::table;
use libbpf_rs::MapType;
use std::sync::atomic::AtomicUsize;

/// A parser that returns this many rules for every part, all different from other parts', or none.
#[derive(Debug, Default)]
struct Parser {
    rules_per_part: u64,
    asked: AtomicUsize,
}

impl FileParser for Parser {
    fn parse(&self, _: &File, _: u32, task: ParseTask) -> Option<ParsedFile> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let ParseTask::Rules { parts } = task else { return None };
        let of_part = |part: &Range<u64>| {
            (0..self.rules_per_part).map(move |n| part.start + 8 * n).collect::<Vec<_>>().into_iter()
        };
        let rule = |at: u64| RuleRange { start: at, end: at + 1, rule: at << 8 };
        let ranges: Vec<RuleRange> = parts.iter().flat_map(of_part).map(rule).collect();
        let found = if ranges.is_empty() { Found::Nothing } else { Found::Bytes };
        Some(ParsedFile { found, bytes: RuleRange::encode(&ranges) })
    }
}

fn loader(parser: &Arc<Parser>) -> Loader {
    let options = libbpf_rs::libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_rs::libbpf_sys::bpf_map_create_opts>() as u64,
        ..Default::default()
    };
    let files = MapHandle::create(MapType::Hash, Some("files"), 24, 4, MAX_FILES, &options).expect("a map");
    Loader {
        table: table(),
        files,
        parser: Arc::clone(parser) as Arc<dyn FileParser>,
        numbers: FxHashMap::default(),
        next_number: 1,
        blocks: FxHashMap::default(),
        refused: FxHashMap::default(),
        calls: BlockingCalls::default(),
        longest_load: Duration::MAX,
        is_over: Arc::default(),
        finds_rules: Arc::default(),
        reloads: Reloads { since: Instant::now(), n: 0 },
        do_not_fit: Arc::default(),
    }
}

/// Several files that all stand for the vDSO, which need not be opened.
fn missed(n: u64) -> (FileKey, Missed) {
    let file = FileKey { inode: 0, ctime_sec: n, ctime_nsec: 0, device: 0 };
    (file, Missed { pid: 0, file, offsets: Vec::new(), mapping: (0, 0), path: Vec::new() })
}

/// Check that with too many rules, all are forgotten: no program finds a file from before, no number is used again,
/// and later misses are loaded again.
#[test]
fn too_many_rules_are_forgotten_all_together() {
    let parser = Arc::new(Parser { rules_per_part: 200, ..Parser::default() });
    let mut loader = loader(&parser);
    let ((first, missed_first), (second, missed_second)) = (missed(1), missed(2));
    let number = |loader: &Loader, key: FileKey| {
        let value = loader.files.lookup(&key.bytes(), MapFlags::ANY).expect("a look at the map");
        value.map(|bytes| u32::from_ne_bytes(bytes.try_into().expect("a number")))
    };
    assert_eq!(loader.load(first, &missed_first, &[0]), Some(()));
    let given = number(&loader, first).expect("the first file has a number");
    assert!(loader.table.has(given, 0) && loader.table.has(given, 8 * 199) && !loader.table.has(given, 8 * 200));

    // 256 parts of 200 rules each fit in addition, and 512 do not.
    let offsets: Vec<u64> = (1..=512).map(|n| n * BLOCK_BYTES).collect();
    assert_eq!(loader.load(second, &missed_second, &offsets), Some(()));
    assert_eq!(number(&loader, first), None, "the first file is forgotten");
    assert!(!loader.table.has(given, 0));
    let of_second = number(&loader, second).expect("the second file has a number");
    assert!(loader.table.has(of_second, 512 * BLOCK_BYTES), "what was loaded last is there");

    assert_eq!(loader.load(first, &missed_first, &[0]), Some(()));
    let again = number(&loader, first).expect("the first file has a number again");
    assert!(again > of_second && of_second > given, "{given}, {of_second}, {again}");
    assert!(loader.table.has(again, 0) && !loader.table.has(given, 0));
}

/// Check that a file that was missed often is loaded in blocks, each from the first code on that has no rules yet, and a
/// loaded block again by single functions.
#[test]
fn blocks_begin_where_rules_are_missing() {
    let mut loader = loader(&Arc::new(Parser { rules_per_part: 1, ..Parser::default() }));
    let (file, missed) = missed(1);
    let singles: Vec<u64> = (1..=SINGLE_FUNCTIONS).map(|n| n * BLOCK_BYTES).collect();
    assert_eq!(loader.load(file, &missed, &singles), Some(()));
    let number = loader.number(file).expect("a number");
    let block = 100 * BLOCK_BYTES;
    let known = u64::from(GRANULE) * 3;
    loader.table.add(number, &[RuleRange { start: block - 8, end: block + known, rule: 1 << 8 }]);
    let parts = |loader: &mut Loader, offset| {
        let parts = loader.parts(file, &[offset]);
        parts.into_iter().map(|part| (part.start, part.end)).collect::<Vec<_>>()
    };
    assert_eq!(parts(&mut loader, block + 4 * known), [(block + known, block + BLOCK_BYTES)]);
    assert_eq!(loader.load(file, &missed, &[block + 4 * known]), Some(()));
    let single = block + 5 * known;
    assert_eq!(parts(&mut loader, single), [(single, single + 1)]);
}

/// Check that functions of loaded blocks that are loaded again count, unless they have no rules; and that many of them
/// within a minute do not fit.
#[test]
fn what_is_loaded_again_and_again_does_not_fit() {
    let mut loader = loader(&Arc::new(Parser { rules_per_part: 1, ..Parser::default() }));
    let (file, missed) = missed(1);
    let blocks: Vec<u64> = (1..=SINGLE_FUNCTIONS + 1).map(|n| n * BLOCK_BYTES).collect();
    assert_eq!(loader.load(file, &missed, &blocks), Some(()));
    assert_eq!(loader.reloads.n, 0);
    let block = (SINGLE_FUNCTIONS + 1) * BLOCK_BYTES;
    let functions: Vec<u64> = (1..=MAX_RELOADS as u64).map(|n| block + n * 0x100).collect();
    assert_eq!(loader.load(file, &missed, functions.get(1..).unwrap()), Some(()));
    assert_eq!(loader.reloads.n, MAX_RELOADS - 1);
    assert!(!loader.do_not_fit.load(Ordering::Relaxed));
    let now = loader.reloads.since;
    assert!(!loader.reloads.are_too_many(1, now + 2 * RELOADS_WITHIN), "a minute is over");
    assert_eq!(loader.load(file, &missed, &[block + 0x80]), Some(()));
    assert_eq!(loader.reloads.n, 2);
    loader.reloads.n = MAX_RELOADS - 1;
    let number = loader.number(file).expect("a number");
    let stop = u64::from(rule_layout::RULE_STOP.0 | rule_layout::RULE_NO_CFI.0 << rule_layout::RULE_STOP_SHIFT.0);
    loader.table.add(number, &[RuleRange { start: block + 0x40, end: block + 0x42, rule: stop }]);
    for offset in [0x40, 0x77] {
        let part = block + offset..block + offset + 1;
        loader.count_reloads(file, number, std::slice::from_ref(&part));
    }
    assert!(!loader.do_not_fit.load(Ordering::Relaxed), "walks end there, or there is no rule");
    assert_eq!(loader.load(file, &missed, &functions), Some(()));
    assert!(loader.do_not_fit.load(Ordering::Relaxed));
}

/// Check that after the last number the first is used again, and that no file keeps its number then.
#[test]
fn numbers_start_over() {
    let mut loader = loader(&Arc::new(Parser { rules_per_part: 1, ..Parser::default() }));
    let ((first, missed_first), (second, missed_second)) = (missed(1), missed(2));
    let last = limit::KEY_NUMBERS.0 - 1;
    assert!(RuleTable::is_number(last) && !RuleTable::is_number(last + 1));
    loader.next_number = last;
    assert_eq!(loader.load(first, &missed_first, &[0]), Some(()));
    assert!(loader.table.has(last, 0));
    assert_eq!(loader.load(second, &missed_second, &[0]), Some(()));
    assert!(loader.table.has(1, 0) && !loader.table.has(last, 0));
    assert_eq!(loader.numbers.into_iter().collect::<Vec<_>>(), [(second, 1)]);
}

/// Check that a file without rules is left alone, for longer each time, and that no other file is.
#[test]
fn files_without_rules_are_left_alone() {
    let parser = Arc::new(Parser::default());
    let mut loader = loader(&parser);
    let ((file, of_file), (other, of_other)) = (missed(1), missed(2));
    let begun = Instant::now();
    let n_asked = |loader: &mut Loader, key, missed: &Missed, after: Duration| {
        let before = parser.asked.load(Ordering::Relaxed);
        assert!(!loader.look_at(key, missed, &[0], begun + after));
        parser.asked.load(Ordering::Relaxed) - before
    };
    assert_eq!(n_asked(&mut loader, file, &of_file, Duration::ZERO), 1);
    assert_eq!(n_asked(&mut loader, file, &of_file, FIRST_REFUSAL / 2), 0);
    assert_eq!(n_asked(&mut loader, other, &of_other, FIRST_REFUSAL / 2), 1);
    assert_eq!(n_asked(&mut loader, file, &of_file, FIRST_REFUSAL), 1);
    assert_eq!(n_asked(&mut loader, file, &of_file, FIRST_REFUSAL * 2), 0);
    assert_eq!(n_asked(&mut loader, file, &of_file, FIRST_REFUSAL * 3), 1);
    // Finally it is parsed every 10 s, and no sooner.
    let each_second = |n| LONGEST_REFUSAL + Duration::from_secs(n);
    let in_an_hour = (1..3600).map(|n| n_asked(&mut loader, file, &of_file, each_second(n))).sum::<usize>();
    assert!((355..=368).contains(&in_an_hour), "{in_an_hour}");
    // After a long pause, the backoff starts over.
    let later = Duration::from_secs(7200);
    assert_eq!(n_asked(&mut loader, file, &of_file, later), 1);
    assert_eq!(n_asked(&mut loader, file, &of_file, later + FIRST_REFUSAL), 1);
}
