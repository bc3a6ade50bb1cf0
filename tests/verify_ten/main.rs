//! Ten real programs under the oracle of `fpprof verify`: `dwarf` is nearly always exact, and never wrong without a
//! flag. The test also makes the table of `just verify-ten`.

#[path = "../support/mod.rs"]
mod support;
#[path = "../support/verify_table.rs"]
mod table;

use fpprof_workloads::{build, programs};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use support::{fpprof, number, ran};
use table::{Table, percent};

/// Minimum share of exact `dwarf` stacks, per cent of all. It is lower than [`LEAST_EXACT`] because the share of
/// checked start code, which has no call frame information, varies between runs.
const LEAST_EXACT_OF_ALL: f64 = 99.5;
/// The same share among stacks that do not end at a frame without call frame information.
const LEAST_EXACT: f64 = 99.8;
/// Number of operations of fio, which does some five million per second on its own. With fewer, most of what is stepped
/// is its start and its end, in start-up code of some hundred libraries that has no call frame information.
const OPERATIONS: &str = "--number_ios=400000";
/// Minimum number of checked instructions for a meaningful result.
const LEAST_CHECKED: u64 = 20_000;

/// The source that gcc compiles.
const SMALL: &str = r"
static unsigned table[256];
static void fill(void)
{
    for (unsigned i = 0; i < 256; i++) {
        unsigned crc = i;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ 0xedb88320 : crc >> 1;
        table[i] = crc;
    }
}
unsigned crc32(const unsigned char *bytes, unsigned long n)
{
    unsigned crc = ~0u;
    if (!table[1])
        fill();
    while (n--)
        crc = table[(crc ^ *bytes++) & 255] ^ crc >> 8;
    return ~crc;
}
";

/// A program, and the distance between its windows.
struct Subject {
    name: &'static str,
    command: Vec<String>,
    /// Turns between two windows; 0 checks every instruction.
    leap: u64,
}

fn subject(name: &'static str, leap: u64, command: &[&str]) -> Subject {
    let command = command.iter().map(|&word| word.to_owned()).collect();
    Subject { name, command, leap }
}

/// The ten programs, with their input files in `dir`.
fn subjects(dir: &Path) -> Vec<Subject> {
    let text: String = (0..4000_u32).map(|n| format!("{} line\n", n.wrapping_mul(2_654_435_761) % 100_000)).collect();
    let file = dir.join("text");
    std::fs::write(&file, text).expect("the input can be written");
    let file = file.to_str().expect("a path of plain characters");
    let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/workloads/programs");
    let exception = programs().iter().find(|program| program.name == "exception").expect("it is there");
    let exception = build(exception, dir).expect("the program can be built");
    let exception = exception.to_str().expect("a path of plain characters");
    let compiler = compiler();
    let source = dir.join("small.c");
    std::fs::write(&source, SMALL).expect("the input can be written");
    let source = source.to_str().expect("a path of plain characters");
    let sql = "create table t(a, b); \
               with recursive n(i) as (select 1 union all select i + 1 from n where i < 300) \
               insert into t select i, i * 7 % 101 from n; \
               select b, count(*), sum(a) from t group by b order by 2 desc, 1 limit 3;";
    let script = "my %n; for my $i (1..1000) { $n{$i % 97} .= chr(65 + $i % 26) } \
                  print join(',', map { length } @n{sort keys %n}), \"\\n\"";
    let fio = ["fio", "--name=null", "--ioengine=null", "--size=100g", OPERATIONS, "--thread"];
    vec![
        subject("ls", 100, &["ls", "-l", "/usr/include"]),
        subject("grep -r", 100, &["grep", "-rn", "burn(void)", sources]),
        subject("sqlite3", 1000, &["sqlite3", ":memory:", sql]),
        subject("python3", 4000, &["/usr/bin/python3", "-c", "print(sum(i * i for i in range(1000)))"]),
        subject("gzip", 300, &["gzip", "-c", file]),
        subject("fio", 4000, &fio),
        subject("C++ exception", 400, &[exception, "8"]),
        subject("sort", 1000, &["sort", "--parallel=1", file]),
        subject("perl", 1000, &["perl", "-e", script]),
        subject("cc1", 8000, &[&compiler, "-quiet", "-O1", source, "-o", "/dev/null"]),
    ]
}

/// The path of gcc's compiler proper.
fn compiler() -> String {
    let output = Command::new("gcc").arg("-print-prog-name=cc1").output().expect("gcc is there");
    let path = String::from_utf8(output.stdout).expect("a path of plain characters");
    let path = PathBuf::from(path.trim());
    assert!(path.is_absolute(), "gcc has no cc1 of its own: {}", path.display());
    path.to_str().expect("a path of plain characters").to_owned()
}

/// `verify --json` of a program in a fixed environment.
fn verify(subject: &Subject) -> Value {
    let mut command = fpprof();
    command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env("LC_ALL", "C").env("HOME", "/");
    command.args(["verify", "--json", "--show", "20"]);
    if subject.leap > 0 {
        command.args(["--leap", &subject.leap.to_string(), "--seed", "1"]);
    }
    let ran = ran(command.arg("--").args(&subject.command));
    assert_eq!(ran.status, 0, "{}: {}", subject.name, ran.stderr);
    serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{}: {error}: {}", subject.name, ran.stdout))
}

/// Check that `dwarf` is nearly always exact in ten real programs, and never wrong without a flag.
#[test]
fn ten_programs_are_exact() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut table = Table::new("Real programs against their true stacks", "verify-ten", "");
    for subject in subjects(dir.path()) {
        let report = verify(&subject);
        assert_eq!(report["run"]["ended"], "exited with status 0", "{}", subject.name);
        table.add(subject.name, report);
    }
    table.publish(|_| true);
    let mut faults = Vec::new();
    for row in table.rows() {
        let (of_all, wrong) = (row.exact("dwarf"), row.wrong("dwarf"));
        let described = row.checked.saturating_sub(row.without_cfi());
        let exact = percent(number(row.verdicts("dwarf"), "exact"), described);
        let is_exact = exact >= LEAST_EXACT && of_all >= LEAST_EXACT_OF_ALL;
        if !is_exact || wrong > 0 || row.checked < LEAST_CHECKED {
            let (name, checked) = (&row.name, row.checked);
            faults.push(format!(
                "{name}: {of_all:.3} % of {checked} and {exact:.3} % of {described} exact, {wrong} wrong"
            ));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
