//! `fpprof audit` on files compiled here with known flags.

use crate::support::{Ran, fpprof, ran};
use serde_json::Value;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles thirty functions that call and thirty that do not, some of which need callee-saved registers.
fn compile(dir: &Path, name: &str, flags: &[&str]) -> PathBuf {
    let mut source = "extern int next(int);\n".to_owned();
    for n in 0..30 {
        let _ = writeln!(source, "int leaf{n}(int x, int y) {{ return x * {n} + y; }}");
        let _ = writeln!(source, "int calls{n}(int x, int y) {{ int z = next(x); return z + next(y + z) * x + {n}; }}");
    }
    let (file, out) = (dir.join(format!("{name}.c")), dir.join(name));
    fs::write(&file, source).expect("writing the source");
    crate::support::compile("gcc", &[&["-shared", "-fPIC"], flags].concat(), &out, &file);
    fs::remove_file(file).expect("removing the source");
    out
}

fn audit(args: &[&str]) -> Ran {
    ran(fpprof().arg("audit").args(args))
}

fn json(args: &[&str]) -> Value {
    let ran = ran(fpprof().args(["audit", "--json"]).args(args));
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    serde_json::from_str(&ran.stdout).expect("JSON")
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

/// Check that flags are recognised from the file alone, stripped or not: none, frame pointers, no optimisation.
#[test]
fn flags_are_recognised() {
    let dir = tempfile::tempdir().unwrap();
    let plain = compile(dir.path(), "plain", &["-O2", "-s"]);
    let framed = compile(dir.path(), "framed", &["-O2", "-fno-omit-frame-pointer", "-s"]);
    let unoptimised = compile(dir.path(), "unoptimised", &["-O0"]);
    let nonleaf = |file: &Path| json(&[path(file)])["metrics"]["nonleaf"].as_f64().unwrap();
    assert_eq!((nonleaf(&plain), nonleaf(&framed), nonleaf(&unoptimised)), (0.0, 100.0, 100.0));
    let of = json(&[path(&framed)])["total"]["functions"].clone();
    assert_eq!((of["non_leaf_framed"].as_u64(), of["leaf_framed"].as_u64()), (of["non_leaf"].as_u64(), Some(0)));
    assert_eq!(of["non_leaf"].as_u64().filter(|n| *n >= 30), of["non_leaf"].as_u64());
    let remarks = |file: &Path| json(&[path(file)])["files"][0]["remarks"].clone();
    assert_eq!(remarks(&unoptimised), serde_json::json!(["looks_unoptimised"]));
    assert_eq!(remarks(&framed), serde_json::json!([]));
}

/// Check that code is judged by `.debug_frame` where `.eh_frame` has nothing, as it is unwound; and Go's, which has no rules for
/// the frame pointer there, by Go's convention.
#[test]
fn debug_frame_counts_where_it_is_right() {
    let dir = tempfile::tempdir().unwrap();
    let without = ["-O2", "-g", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"];
    // The start code of a program has an `.eh_frame`.
    let (source, program) = (dir.path().join("calls.c"), dir.path().join("calls"));
    let function =
        |n: i32| format!("__attribute__((noinline)) int f{n}(int x) {{ return f{}(x + {n}) * 3; }}\n", n - 1);
    let functions: String = (1..40).map(function).collect();
    let first = "__attribute__((noinline, noclone)) int f0(int x) { __asm__(\"\" : \"+r\"(x)); return x; }";
    fs::write(&source, format!("{first}\n{functions}int main(int n, char **v) {{ return f39(n); }}\n"))
        .expect("written");
    for (flags, expected) in [
        (&without[..], 0.0),
        (&[&without[..], &["-fno-omit-frame-pointer"]].concat(), 100.0),
        (&[&without[..], &["-gz=zlib"]].concat(), 0.0),
    ] {
        crate::support::compile("gcc", flags, &program, &source);
        let audit = json(&[path(&program)]);
        assert_eq!(
            (&audit["files"][0]["source"], &audit["metrics"]["nonleaf"]),
            (&"eh_frame".into(), &expected.into())
        );
        assert!(audit["total"]["functions"]["non_leaf"].as_u64().is_some_and(|n| n >= 39), "{audit}");
        let mut remarks = audit["files"][0]["remarks"].as_array().expect("remarks").iter();
        let bytes = remarks.find_map(|remark| remark["only_debug_frame"].as_u64());
        assert!(bytes.is_some_and(|bytes| bytes > 400), "{audit}");
    }
    let (source, program) = (dir.path().join("hello.go"), dir.path().join("hello"));
    fs::write(&source, "package main\nfunc main() { println(1) }\n").expect("written");
    let build = ["build", "-ldflags=-compressdwarf=false", "-o"];
    let built = Command::new("go").args(build).arg(&program).arg(&source).status();
    assert!(built.expect("go is needed").success());
    let code = &json(&[path(&program)])["total"]["code"];
    assert!(code["go"].as_u64() > Some(100_000) && code["drops_caller"] == 0, "{code}");
}

/// Check that the gate's status agrees with the figures, and that a gate over nothing fails.
#[test]
fn gate_fails_below_its_share() {
    let dir = tempfile::tempdir().unwrap();
    let plain = compile(dir.path(), "plain", &["-O2"]);
    let framed = compile(dir.path(), "framed", &["-O2", "-fno-omit-frame-pointer"]);
    let gate = |args: &[&str]| audit(&[&["--fail-under", "95", "--metric", "nonleaf"], args].concat());
    assert_eq!(gate(&[path(&framed)]).status, 0);
    let failed = gate(&[path(&plain)]);
    assert_eq!(failed.status, 1);
    assert!(failed.stderr.contains("(required: 95 %)"), "{}", failed.stderr);
    assert_eq!(gate(&["--each", path(&plain), path(&framed)]).stderr.lines().count(), 1);
    fs::write(dir.path().join("text"), "no ELF").unwrap();
    assert_eq!(gate(&[path(&dir.path().join("text"))]).status, 1);
    assert_eq!(audit(&[]).status, 2);
    assert_eq!(audit(&["/nowhere/at/all"]).status, 1);
}

/// Check that paths without any file to judge are a failure, with and without a gate.
#[test]
fn nothing_to_judge_fails() {
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().join("text");
    fs::write(&text, "no ELF file").unwrap();
    for args in [&[path(&text)][..], &[path(dir.path())], &["--fail-under", "95", path(&text)]] {
        let got = audit(args);
        assert_eq!(got.status, 1, "{args:?}: {}", got.stdout);
        assert!(got.stderr.contains("no ELF file to check"), "{}", got.stderr);
    }
}

/// Check that a file with several names counts once, that links are not followed and pipes do not block, and that
/// truncated files are audited as far as possible.
#[test]
fn trees_are_walked_safely() {
    let dir = tempfile::tempdir().unwrap();
    let file = compile(dir.path(), "framed", &["-O2", "-fno-omit-frame-pointer"]);
    fs::hard_link(&file, dir.path().join("same")).unwrap();
    std::os::unix::fs::symlink("/usr", dir.path().join("link")).unwrap();
    assert!(Command::new("mkfifo").arg(dir.path().join("pipe")).status().unwrap().success());
    let whole = fs::read(&file).unwrap();
    fs::write(dir.path().join("cut"), &whole[..whole.len() / 2]).unwrap();
    let got = json(&[path(dir.path())]);
    assert_eq!((got["looked_at"].as_u64(), got["other_names"].as_u64()), (Some(3), Some(1)), "{got}");
    assert_eq!(got["n_unreadable"], 1);
    assert!(got["unreadable"][0].as_str().is_some_and(|words| words.ends_with("/cut: damaged headers")), "{got}");
    assert_eq!(got["files"].as_array().map(Vec::len), Some(1));
    assert_eq!(json(&[path(dir.path()), path(&file), path(dir.path())]), got, "nothing counts twice");
}

/// Check that code for aarch64 keeps a frame pointer only if it sets one: LLVM saves x29 and x30 as a pair in both cases.
#[test]
fn pairs_of_aarch64_are_no_frames() {
    let dir = tempfile::tempdir().unwrap();
    let mut source = "extern long g(long);\n".to_owned();
    for n in 0..30 {
        let _ = writeln!(
            source,
            "long f{n}(long a, long b, long c, long d, long e, long h, long i, long j) {{
                long k = g(a + b), l = g(b + c), m = g(c + d), n = g(d + e);
                for (long q = 0; q < a; q++) {{
                    k += g(l * q + a); l ^= g(m + b); m += g(n ^ c) * d; n += g(k + e) - h; i += g(j); j ^= g(i + {n});
                }}
                return (a + b * c) ^ ((d + e * h) ^ ((i + j * k) ^ (l + m * n)));
            }}"
        );
    }
    let (file, out) = (dir.path().join("pressure.c"), dir.path().join("pressure"));
    fs::write(&file, source).expect("written");
    let target = ["--target=aarch64-linux-gnu", "-O2", "-fPIC", "-shared", "-nostdlib", "-fuse-ld=lld"];
    for (flag, framed) in [("-fomit-frame-pointer", 0), ("-fno-omit-frame-pointer", 30)] {
        crate::support::compile("clang", &[&target[..], &[flag]].concat(), &out, &file);
        let audit = json(&[path(&out)]);
        let functions = &audit["total"]["functions"];
        assert_eq!((&functions["non_leaf"], &functions["non_leaf_framed"]), (&30.into(), &framed.into()), "{flag}");
        assert_eq!(audit["total"]["code"]["ok"] == 0, framed == 0, "{flag}: {}", audit["total"]["code"]);
    }
}

/// Check that an image's packages are found through its own database, that its absolute links stay inside it, and that
/// paths are printed relative to it.
#[test]
fn images_are_audited_from_within() {
    let root = tempfile::tempdir().unwrap();
    let lists = root.path().join("var/lib/dpkg/info");
    fs::create_dir_all(&lists).unwrap();
    fs::create_dir_all(root.path().join("usr/lib")).unwrap();
    std::os::unix::fs::symlink("/usr/lib", root.path().join("lib")).unwrap();
    compile(&root.path().join("usr/lib"), "libx.so", &["-O2", "-fno-omit-frame-pointer"]);
    fs::write(lists.join("libx1:amd64.list"), "/.\n/lib\n/lib/libx.so\n/lib/gone\n/etc/passwd\n").unwrap();
    let got = json(&["--root", path(root.path()), "--package", "libx1"]);
    assert_eq!(got["files"][0]["path"], "/usr/lib/libx.so");
    assert_eq!(got["packages"][0]["name"], "libx1");
    assert_eq!(got["looked_at"], 1, "the list names /etc/passwd, which is not in the image");
    let all = json(&["--root", path(root.path())]);
    assert_eq!(all["packages"], got["packages"]);
    let missing = audit(&["--root", path(root.path()), "--package", "liby1"]);
    assert_eq!((missing.status, missing.stderr.contains("liby1 is not installed")), (1, true), "{}", missing.stderr);
}

/// Check that the decoder and the rows agree on every plain frame of a Rust program, in which nothing is written in assembly.
#[test]
fn rows_agree_with_the_decoder() {
    let dir = tempfile::tempdir().unwrap();
    let (source, program) = (dir.path().join("program.rs"), dir.path().join("program"));
    fs::write(&source, "fn main() { println!(\"{:?}\", std::env::args()); }").unwrap();
    crate::support::compile("rustc", &["-O", "-C", "force-frame-pointers"], &program, &source);
    let got = json(&["--disassemble", path(&program)]);
    let seen = &got["disassembled"];
    let n = |key: &str| seen[key].as_u64().unwrap();
    assert!(n("functions") > 200 && n("prologues") > 20, "{seen}");
    assert_eq!(n("prologues"), n("prologues_framed"), "{seen}");
    assert!(n("framed_only") * 100 <= n("prologues"), "{seen}");
}

/// Check that the page is written in addition to the table, and refers to no other file.
#[test]
fn page_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let file = compile(dir.path(), "framed", &["-O2", "-fno-omit-frame-pointer"]);
    let page = dir.path().join("audit.html");
    assert_eq!(audit(&[path(&file), "--html", path(&page)]).status, 0);
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("class=\"histogram\"") && !page.contains("<script"), "{page}");
    let release = fs::read_to_string("/etc/os-release").unwrap();
    let name = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME=")).unwrap();
    for expected in [name.trim_matches('"'), env!("CARGO_PKG_VERSION")] {
        assert!(page.contains(expected), "{expected}: {page}");
    }
    let (before, _) = page.split_once(" UTC").unwrap();
    let date = &before[before.len() - "2026-11-26 07:12".len()..];
    assert!(date.starts_with("20") && date.as_bytes()[4] == b'-' && date.as_bytes()[13] == b':', "{date}");
}
