mod stubs;

use super::kernel::{PIECE_BYTES, is_same_kernel};
use super::{Detail, KernelMissing, KernelName, KernelSymbols, Name, Symbolizer, demangle};
use crate::address_space::{FileIx, Timeline};
use crate::modules::{FileModules, Missing, ModuleTable};
use crate::test_support::{TestDir, executable, identity, meta, symbols};
use fpprof_recording::model::{CaptureMode, FileIdentity, KernelSymbol, Meta, Sideband};
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

const SOURCE: &str = r"
volatile int sink;
static inline __attribute__((always_inline)) void innermost(int n) { sink += n * 7; }
static inline __attribute__((always_inline)) void inner(int n) { innermost(n); innermost(n + 1); }
__attribute__((noinline)) void outer(int n) { inner(n); sink ^= 1; }
static __attribute__((noinline, used)) void hidden(int n) { sink -= n; }
int main(int argc, char **argv) { outer(argc); hidden(argc); return 0; }
";

fn mapped_timeline(path: &Path) -> Timeline {
    Timeline::new([Sideband::Mmap(executable(1, 0x10_0000, 0x1000, 0x1000, path, FileIdentity::default()))])
}

fn shown(names: &[Name]) -> Vec<String> {
    names.iter().map(Name::to_string).collect()
}

/// Names at addresses of a file, outermost first.
fn names_in(
    path: &Path,
    id: FileIdentity,
    svmas: &[u64],
    files: &FileModules,
    detail: Detail,
) -> Result<Vec<Vec<String>>, Missing> {
    let timeline = Timeline::new([Sideband::Mmap(executable(1, 0x10_0000, 0x1000, 0x1000, path, id))]);
    let table = ModuleTable::new(&timeline, &meta(CaptureMode::Fp), files);
    let mut sorted = svmas.to_vec();
    sorted.sort_unstable();
    let wanted = BTreeMap::from([(FileIx(0), sorted)]);
    let symbolizer = Symbolizer::new(&table, &wanted, None, detail, NonZeroUsize::new(2).unwrap());
    svmas.iter().map(|&svma| Ok(shown(symbolizer.user(FileIx(0), svma)?))).collect()
}

fn names_with(path: &Path, id: FileIdentity, svmas: &[u64], files: &FileModules) -> Result<Vec<Vec<String>>, Missing> {
    names_in(path, id, svmas, files, Detail::Inlines)
}

fn names(path: &Path, svmas: &[u64]) -> Vec<Vec<String>> {
    names_with(path, FileIdentity::default(), svmas, &FileModules::new()).unwrap()
}

/// Every address of a function.
fn addresses(path: &Path, function: &str) -> Vec<u64> {
    let (svma, bytes) = symbols(path)[function];
    assert!(bytes > 0);
    (svma..svma + bytes).collect()
}

/// Check that inline frames are within their function, in the order of inlining, and nowhere else.
#[test]
fn inline_frames_are_found() {
    let dir = TestDir::new();
    let path = dir.compile("program", "a.c", SOURCE, &["-O2", "-g"]);
    let found = names(&path, &addresses(&path, "outer"));
    assert!(found.iter().all(|names| names.first().is_some_and(|name| name == "outer")), "{found:?}");
    assert!(found.contains(&vec!["outer".to_string(), "inner".to_string(), "innermost".to_string()]), "{found:?}");
    assert!(found.contains(&vec!["outer".to_string()]), "{found:?}");
    let found = names(&path, &addresses(&path, "hidden"));
    assert!(found.iter().all(|names| names == &["hidden"]), "{found:?}");
}

/// Check that a function with a hidden alias for its own library, as in glibc, gets its exported name.
#[test]
fn exported_names_come_first() {
    let dir = TestDir::new();
    let source = r#"
__attribute__((visibility("hidden"), noinline)) int __GI_work(int n) { return n * 7; }
extern int work(int n) __attribute__((alias("__GI_work"), visibility("default")));
int twice(int n) { return __GI_work(n) + __GI_work(n + 1); }
"#;
    let path = dir.compile("lib.so", "a.c", source, &["-O2", "-g", "-shared", "-fPIC"]);
    let found = names(&path, &addresses(&path, "work"));
    assert!(found.iter().all(|names| names == &["work"]), "{found:?}");
}

/// Check that a program without debug information is named by its symbol table, and a stripped one by its dynamic
/// symbols: functions it does not export have no name, instead of their neighbour's.
#[test]
fn stripped_files_are_named_by_their_dynamic_symbols() {
    let dir = TestDir::new();
    let path = dir.compile("program", "a.c", SOURCE, &["-O2", "-rdynamic"]);
    let (outer, hidden) = (addresses(&path, "outer"), addresses(&path, "hidden"));
    assert!(names(&path, &outer).iter().all(|names| names == &["outer"]));
    assert!(names(&path, &hidden).iter().all(|names| names == &["hidden"]));
    dir.run("strip", &["program"]);
    assert!(names(&path, &outer).iter().all(|names| names == &["outer"]));
    assert!(names(&path, &hidden).iter().all(Vec::is_empty), "{:?}", names(&path, &hidden));
}

/// Check that names and inline frames come from the debug file with the build ID, not from one of another build.
#[test]
fn debug_files_are_found_by_build_id() {
    let dir = TestDir::new();
    let path = dir.compile("program", "a.c", SOURCE, &["-O2", "-g", "-Wl,--build-id=sha1"]);
    let outer = addresses(&path, "outer");
    let expected = names(&path, &outer);
    let build_id = identity(&path, true).build_id.unwrap().to_string();
    let (first, rest) = build_id.split_at(2);
    let debug = dir.path("debug").join(".build-id").join(first).join(format!("{rest}.debug"));
    std::fs::create_dir_all(debug.parent().unwrap()).unwrap();
    dir.run("objcopy", &["--only-keep-debug", "program", debug.to_str().unwrap()]);
    dir.run("strip", &["program"]);
    let files = FileModules::new().with_debug_dir(dir.path("debug"));
    assert_eq!(names_with(&path, FileIdentity::default(), &outer, &files).unwrap(), expected);
    dir.compile("other", "b.c", "int outer(void) { return 1; } int main(void) { return outer(); }", &["-g"]);
    dir.run("cp", &["other", debug.to_str().unwrap()]);
    let unnamed = names_with(&path, FileIdentity::default(), &outer, &files).unwrap();
    assert!(unnamed.iter().all(Vec::is_empty), "{unnamed:?}");
}

/// Two programs from the same source, `program` and `second`, with debug information that dwz can share.
fn two_programs() -> (TestDir, PathBuf) {
    let dir = TestDir::new();
    let path = dir.compile("program", "a.c", SOURCE, &["-O2", "-g", "-Wl,--build-id=sha1"]);
    dir.compile("second", "b.c", SOURCE, &["-O2", "-g", "-Wl,--build-id=sha1"]);
    (dir, path)
}

/// Check that the supplementary file of debug files is found by its build ID, which it has only in its sections, and by
/// the path that the debug file names, absolute or relative to its own; and that another file at that path is not used.
#[test]
fn common_debug_files_are_found() {
    let absolute = |dir: &TestDir| dir.path("common").to_str().unwrap().to_owned();
    let paths: [&dyn Fn(&TestDir) -> String; 3] =
        [&|_| "elsewhere".to_owned(), &absolute, &|_| "../../../common".to_owned()];
    for (case, path_of) in paths.iter().enumerate() {
        let (dir, path) = two_programs();
        let outer = addresses(&path, "outer");
        let expected = names(&path, &outer);
        dir.run("objcopy", &["--only-keep-debug", "program", "program.debug"]);
        dir.run("objcopy", &["--only-keep-debug", "second", "second.debug"]);
        dir.run("dwz", &["-m", "common", "-M", &path_of(&dir), "program.debug", "second.debug"]);
        dir.run("strip", &["program"]);
        let place = |file: &str| {
            let hex = identity(&dir.path(file), true).build_id.unwrap().to_string();
            let to = dir.path("debug").join(".build-id").join(&hex[..2]).join(format!("{}.debug", &hex[2..]));
            std::fs::create_dir_all(to.parent().unwrap()).unwrap();
            std::fs::copy(dir.path(file), to).unwrap();
        };
        place("program.debug");
        if case == 0 {
            place("common");
        }
        let files = FileModules::new().with_debug_dir(dir.path("debug"));
        let found = || names_with(&path, FileIdentity::default(), &outer, &files).unwrap();
        assert_eq!(found(), expected, "case {case}");
        if case > 0 {
            std::fs::copy(dir.path("second.debug"), dir.path("common")).unwrap();
            assert_ne!(found(), expected, "case {case}");
        }
    }
}

/// Check that a program that contains its debug information finds its supplementary file by the path it names, absolute
/// or relative to its own, and that another file at that path is not used.
#[test]
fn programs_find_what_they_share() {
    let absolute = |dir: &TestDir| dir.path("shared").to_str().unwrap().to_owned();
    let paths: [&dyn Fn(&TestDir) -> String; 2] = [&absolute, &|_| "shared".to_owned()];
    for (case, path_of) in paths.iter().enumerate() {
        let (dir, path) = two_programs();
        let outer = addresses(&path, "outer");
        let expected = names(&path, &outer);
        dir.run("dwz", &["-m", "shared", "-M", &path_of(&dir), "program", "second"]);
        assert_eq!(names(&path, &outer), expected, "case {case}");
        dir.run("cp", &["second", "shared"]);
        assert_ne!(names(&path, &outer), expected, "case {case}");
    }
}

/// Check that without a build ID a file below the given root takes precedence over the one at the same path on this
/// machine, with a warning.
#[test]
fn the_named_root_comes_first() {
    let dir = TestDir::new();
    let path = dir.compile("program", "a.c", SOURCE, &["-O2"]);
    let hidden = addresses(&path, "hidden");
    let root = dir.path("root");
    let copy = root.join(path.strip_prefix("/").unwrap());
    std::fs::create_dir_all(copy.parent().unwrap()).unwrap();
    dir.compile(copy.to_str().unwrap(), "b.c", &SOURCE.replace("hidden", "remote"), &["-O2"]);
    let id = FileIdentity::default();
    let timeline = Timeline::new([Sideband::Mmap(executable(1, 0x10_0000, 0x1000, 0x1000, &path, id))]);
    let warned = |files: &FileModules, name: &str| {
        let table = ModuleTable::new(&timeline, &meta(CaptureMode::Fp), files);
        let wanted = BTreeMap::from([(FileIx(0), hidden.clone())]);
        let symbols = Symbolizer::new(&table, &wanted, None, Detail::Symbols, NonZeroUsize::MIN);
        assert_eq!(shown(symbols.user(FileIx(0), hidden[0]).unwrap()), [name]);
        symbols.warnings().join("\n")
    };
    assert_eq!(warned(&FileModules::new(), "hidden"), "");
    let warning = warned(&FileModules::new().with_root(&root).from_another_machine(), "remote");
    assert!(warning.contains(&format!("used {}", copy.display())), "{warning}");
}

/// Check that a file that is not the mapped one gives no names at all.
#[test]
fn a_replaced_file_gives_no_names() {
    let dir = TestDir::new();
    let path = dir.compile("program", "a.c", SOURCE, &["-Wl,--build-id=sha1"]);
    let (id, outer) = (identity(&path, true), addresses(&path, "outer"));
    assert!(names_with(&path, id, &outer, &FileModules::new()).is_ok());
    dir.compile("program", "b.c", &SOURCE.replace('7', "9"), &["-Wl,--build-id=sha1"]);
    assert_eq!(names_with(&path, id, &outer, &FileModules::new()), Err(Missing::Replaced));
}

/// Check that assembly labels without a size name the code up to the next label, and that local labels name nothing.
#[test]
fn assembly_labels_without_a_size_name_their_code() {
    let source = "
        .text
        .globl main, second
        main: nop; nop
        .Llocal: nop; ret
        second: nop; ret
        .size second, . - second
        .type second, @function
    ";
    let dir = TestDir::new();
    let path = dir.compile("program", "a.s", source, &[]);
    let all = symbols(&path);
    let (main, second) = (all["main"].0, all["second"].0);
    let found = names(&path, &(main..second + 2).collect::<Vec<_>>());
    assert_eq!(found.iter().filter(|names| *names == &["main"]).count(), 4, "{found:?}");
    assert_eq!(found.last().unwrap(), &["second"]);
}

/// Check that each instruction of a stub for aarch64 has its name, also if stubs are longer than usual (BTI).
#[test]
fn stubs_of_aarch64_are_named() {
    let dir = TestDir::new();
    let source = "void f1(void), f2(void), f3(void); void caller(void) { f1(); f2(); f3(); }";
    std::fs::write(dir.path("a.c"), source).unwrap();
    for (options, stub_bytes) in [(&[][..], 16), (&["-mbranch-protection=bti", "-Wl,-z,force-bti"], 24)] {
        let args = ["--target=aarch64-linux-gnu", "-O1", "-fPIC", "-shared", "-nostdlib", "-fuse-ld=lld", "-o", "a.so"];
        dir.run("clang", &[&args, options, &["a.c"]].concat());
        let sections = dir.run("readelf", &["-SW", "a.so"]);
        let plt = sections.lines().find_map(|line| line.split_once(" .plt ")).unwrap_or_else(|| panic!("{sections}"));
        let start = u64::from_str_radix(plt.1.split_whitespace().nth(1).unwrap(), 16).unwrap();
        // The first one has 32 bytes.
        let stub = |n: u64| start + 32 + n * stub_bytes..start + 32 + (n + 1) * stub_bytes;
        for n in 0..3 {
            let found = names(&dir.path("a.so"), &stub(n).step_by(4).collect::<Vec<_>>());
            let expected = format!("f{}@plt", n + 1);
            assert!(found.iter().all(|names| *names == [expected.as_str()]), "{options:?}: {expected} and {found:?}");
        }
    }
}

/// Check that a function with a size has its name also after many labels without one.
#[test]
fn labels_inside_a_function_do_not_name_it() {
    let labels: String = (0..200).map(|n| format!("label{n}: nop\n")).collect();
    let source = format!(".text\n.globl main\n.type main, @function\nmain: nop\n{labels}ret\n.size main, . - main\n");
    let dir = TestDir::new();
    let path = dir.compile("program", "a.s", &source, &[]);
    let found = names(&path, &addresses(&path, "main"));
    assert!(found.len() > 200 && found.iter().all(|names| names == &["main"]), "{found:?}");
}

/// Check that lines are not those of a function that the linker discarded: the line table has it at address 0, so it
/// seems to extend over what is there.
#[test]
fn discarded_functions_give_no_lines() {
    let long: String = (0..2000).map(|n| format!("sink = {n}; ")).collect();
    let source = format!(
        "volatile int sink;\nvoid discarded(void) {{ {long} }}\n__attribute__((noinline)) int kept(int n) {{\n\
         return n * 3;\n}}\nint main(int n, char **v) {{ return kept(n); }}\n"
    );
    let dir = TestDir::new();
    let args = ["-O1", "-g", "-ffunction-sections", "-fuse-ld=bfd", "-Wl,--gc-sections"];
    let path = dir.compile("program", "a.c", &source, &args);
    let kept = addresses(&path, "kept");
    assert!(kept[0] < 20_000, "the discarded function does not reach {:#x}", kept[0]);
    let found = names_in(&path, FileIdentity::default(), &kept, &FileModules::new(), Detail::Lines).unwrap();
    let is_right = |names: &Vec<String>| ["kept (a.c:3)", "kept (a.c:4)", "kept (a.c:5)"].contains(&names[0].as_str());
    assert!(found.iter().all(is_right), "{found:?}");
}

/// Check that code has lines if the DWARF has them, but no functions.
#[test]
fn lines_need_no_functions() {
    let dir = TestDir::new();
    let source =
        "volatile int sink;\nvoid __attribute__((noinline)) burn(void) {\nsink = 3;\n}\nint main(void) {\nburn();\n}\n";
    std::fs::write(dir.path("a.c"), source).unwrap();
    dir.run("clang", &["-O1", "-gline-tables-only", "-o", "program", "a.c"]);
    let path = dir.path("program");
    let burn = addresses(&path, "burn");
    let found = names_in(&path, FileIdentity::default(), &burn, &FileModules::new(), Detail::Lines).unwrap();
    assert!(found.iter().all(|names| names == &["burn (a.c:3)"] || names == &["burn (a.c:4)"]), "{found:?}");
    assert!(names(&path, &burn).iter().all(|names| names == &["burn"]));
}

/// Check that C++ and Rust names are demangled, in DWARF and in symbol tables, including those with a version.
#[test]
fn names_are_demangled() {
    assert_eq!(demangle(b"_ZN5space3fooEibc"), "space::foo(int, bool, char)");
    assert_eq!(
        demangle(b"_ZNSt6vectorIiSaIiEE9push_backERKi"),
        "std::vector<int, std::allocator<int> >::push_back(int const&)"
    );
    assert_eq!(demangle(b"_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE"), "core::fmt::Write::write_fmt");
    assert_eq!(demangle(b"_RNvC6_123foo3bar"), "123foo::bar");
    for of_c in ["main", "RC4_skey", "__RC4_skey", "ZN3foo3barE", "__ZN3foo3barE"] {
        assert_eq!(demangle(of_c.as_bytes()), of_c);
    }
    assert_eq!(demangle(b"_Zbroken"), "_Zbroken");
    assert_eq!(demangle(b"_ZThn16_N1A1fEv"), "non-virtual thunk to A::f()");
    assert_eq!(demangle(b"_ZTv0_n24_N1AD1Ev"), "virtual thunk to A::~A()");
    assert_eq!(demangle(b"_ZTch0_h16_N2Dd2clEi"), "covariant return thunk to Dd::cl(int)");
    assert_eq!(demangle(b"_ZTcv0_n24_v0_n32_N2Dd2clEi"), "covariant return thunk to Dd::cl(int)");
    for symbol in ["_ZTh", "_ZThn16", "_ZThn16_", "_ZTv0_N1A1fEv"] {
        assert_eq!(demangle(symbol.as_bytes()), symbol);
    }
    let nested = ["_Z", &"Thn16_".repeat(2000), "N1A1fEv"].concat();
    assert!(!demangle(nested.as_bytes()).contains("thunk to non"), "thunks lead to functions");
    let dir = TestDir::new();
    let source = "namespace space { __attribute__((noinline)) int foo(int n) { return n; } } int main() { return space::foo(1); }";
    for args in [&["-g", "-lstdc++"][..], &["-lstdc++"]] {
        let path = dir.compile("program", "a.cpp", source, args);
        let found = names(&path, &addresses(&path, "_ZN5space3fooEi"));
        assert!(found.iter().all(|names| names == &["space::foo(int)"]), "{found:?}");
    }
}

/// Check that overloaded functions have distinct names, by DWARF and by symbols alone.
#[test]
fn overloads_are_distinguished() {
    let dir = TestDir::new();
    let source = "namespace a { __attribute__((noinline)) double f(int n) { return n; } \
                  __attribute__((noinline)) double f(double n) { return n; } } \
                  int main() { return a::f(1) != a::f(1.0); }";
    let path = dir.compile("program", "a.cpp", source, &["-g", "-lstdc++"]);
    for (symbol, expected) in [("_ZN1a1fEi", "a::f(int)"), ("_ZN1a1fEd", "a::f(double)")] {
        for detail in [Detail::Symbols, Detail::Inlines] {
            let svmas = addresses(&path, symbol);
            let found = names_in(&path, FileIdentity::default(), &svmas, &FileModules::new(), detail).unwrap();
            assert!(found.iter().all(|names| names == &[expected]), "{detail:?} {found:?}");
        }
    }
}

/// Check that Rust functions have their paths if DWARF has line tables only, and that inlined functions keep their
/// names from DWARF.
#[test]
fn line_tables_take_paths_from_symbols() {
    let dir = TestDir::new();
    let source = "pub mod map { #[inline(never)] pub fn get(n: usize) -> usize { twice(n) } \
                  #[inline(always)] fn twice(n: usize) -> usize { std::hint::black_box(n) * 2 } } \
                  fn main() { std::process::exit(map::get(std::env::args().count()) as i32); }";
    std::fs::write(dir.path("a.rs"), source).unwrap();
    dir.run("rustc", &["-O", "-C", "debuginfo=line-tables-only", "-o", "program", "a.rs"]);
    let path = dir.path("program");
    let all = symbols(&path);
    let (svma, bytes) = all.iter().find(|(name, _)| name.contains("3map3get")).map(|(_, place)| *place).unwrap();
    let found = names(&path, &(svma..svma + bytes).collect::<Vec<_>>());
    let ends = |name: &String, end: &str| name.ends_with(end);
    assert!(found.iter().all(|names| ends(&names[0], "::map::get")), "{found:?}");
    assert!(found.iter().any(|names| names.get(1).is_some_and(|name| ends(name, "twice"))), "{found:?}");
}

/// Check that hostile symbols give a bounded name: a long one, one that grows when demangled, a deeply nested one, and
/// one that is not text.
#[test]
fn hostile_symbols_are_bounded() {
    let long = demangle(&b"x".repeat(1 << 20));
    assert!(long.len() <= 4096 && long.ends_with('…'));
    // Each substitution doubles the output.
    let mut doubling = String::from("_Z1fI1aE");
    for at in 0..30 {
        doubling.push_str(&format!("S{}_S{}_", at % 10, at % 10));
    }
    assert!(demangle(doubling.as_bytes()).len() <= 4096);
    let nested = format!("_Z1f{}i", "P".repeat(10_000));
    assert!(demangle(nested.as_bytes()).len() <= 4096);
    let templates = format!("_Z1f{}i{}", "I1a".repeat(4_000), "E".repeat(4_000));
    assert!(demangle(templates.as_bytes()).len() <= 4096);
    let rust = format!("_RNv{}C1a1b", "Nv".repeat(5_000));
    assert!(demangle(rust.as_bytes()).len() <= 4096);
    assert_eq!(demangle(b"a\xff\xfe"), "a\u{fffd}\u{fffd}");
}

const TABLE: &str = "\
ffffffff81000000 T _stext
ffffffff81000000 T startup_64
ffffffff81001000 t helper
ffffffff81002000 D some_data
ffffffff81003000 T last
ffffffffc0001000 t module_work\t[nbd]
";

/// Check that kernel addresses get the function that contains them, with its module, and no name in data or far beyond.
#[test]
fn kernel_functions_are_found() {
    let core = |name: &'static str| Some(KernelName { name: name.into(), module: None });
    let expected = [
        (0xffff_ffff_8100_0fff, core("startup_64")),
        (0xffff_ffff_8100_1000, core("helper")),
        (0xffff_ffff_8100_1008, core("helper")),
        (0xffff_ffff_8100_2004, None),
        (0xffff_ffff_8100_3004, core("last")),
        (0xffff_ffff_9000_0000, None),
        (0xffff_ffff_c000_1008, Some(KernelName { name: "module_work".into(), module: Some("nbd".into()) })),
        (0x1000, None),
    ];
    let wanted: Vec<u64> = expected.iter().map(|&(address, _)| address).collect();
    let reversed: String = TABLE.lines().rev().flat_map(|line| [line, "\n"]).collect();
    for table in [TABLE, &reversed] {
        let kernel = KernelSymbols::read(table.as_bytes(), &wanted, None).unwrap();
        for (address, name) in &expected {
            assert_eq!(kernel.find(*address), *name, "{address:#x}");
        }
        assert_eq!(kernel.find(0xffff_ffff_8100_1004), None, "it was not asked for");
    }
}

/// Check that the names of a large table do not depend on its order, although parts of one in order are not looked at.
#[test]
fn large_tables_are_read_in_any_order() {
    let line = |n: u64| match n % 7 {
        0 => format!("{:016x} D data_{n}\n", 0x1000 + n / 3 * 64),
        _ => format!("{:016x} t function_{n}\n", 0x1000 + n / 3 * 64),
    };
    let of_module = |n: u64| format!("{:016x} t work_{n}\t[nbd]\n", 0x100_0000 + n * 7919 % 5000 * 16);
    let lines: Vec<String> = (0..20_000).map(line).chain((0..5000).map(of_module)).collect();
    let reversed: String = lines.iter().rev().map(String::as_str).collect();
    let table = lines.concat();
    let has_same_names = |wanted: &[u64]| {
        let [kernel, expected] =
            [&table, &reversed].map(|table| KernelSymbols::read(table.as_bytes(), wanted, None).unwrap());
        wanted.iter().all(|&address| kernel.find(address) == expected.find(address))
            && wanted.iter().any(|&address| kernel.find(address).is_some())
    };
    for step in [90_000, 4000, 70, 1] {
        let wanted: Vec<u64> = (0..0x7_0000).step_by(step).chain((0xff_f000..0x101_4000).step_by(step)).collect();
        assert!(has_same_names(&wanted), "{step}");
    }
    // A part may end between two symbols of an address.
    let n_core = table.find('\t').unwrap();
    let piece_end = |from: &usize| {
        let end = from + PIECE_BYTES;
        Some(end + table.get(end..n_core)?.find('\n')? + 1)
    };
    for next in std::iter::successors(Some(0), piece_end).skip(1) {
        let address = u64::from_str_radix(&table[next..next + 16], 16).unwrap();
        assert!([1, 64].iter().all(|more| has_same_names(&[address + more])), "{address:#x}");
    }
    let symbol = |address| KernelSymbol { name: "function_1000".to_owned(), address, build_id: None };
    let read = |address| KernelSymbols::read(table.as_bytes(), &[], Some(&symbol(address))).err();
    assert_eq!((read(0x1000 + 333 * 64), read(0x1000 + 334 * 64)), (None, Some(KernelMissing::OtherBoot)));
}

/// Check that a table of zeros is recognised as restricted, and an empty or foreign one as unreadable.
#[test]
fn hidden_kernel_tables_are_known() {
    let hidden = "0000000000000000 T _stext\n0000000000000000 t helper\n";
    let read = |table: &[u8]| KernelSymbols::read(table, &[0x1000], None).err();
    assert_eq!(read(hidden.as_bytes()), Some(KernelMissing::Restricted));
    assert_eq!(read(b""), Some(KernelMissing::Unreadable));
    assert_eq!(read(b"\xff\xfe\n\n x y\nzz T name\n"), Some(KernelMissing::Unreadable));
}

/// Check that the running kernel's table is used only for a recording made since it was booted.
#[test]
fn kernel_names_need_the_same_start_of_the_same_kernel() {
    let mut meta = meta(CaptureMode::Fp);
    (meta.start_ns, meta.start_unix_ns) = (500_000_000_000, 1_700_000_500_000_000_000);
    let stat = |boot: u64| format!("cpu 1 2 3\nbtime {boot}\nprocesses 9\n");
    let same = |release: &str, boot: u64| is_same_kernel(&meta, release, &stat(boot));
    assert_eq!(same("6.18.0", 1_700_000_000), Ok(()));
    assert_eq!(same("6.18.0", 1_699_999_000), Ok(()), "1,000 s of suspend before the recording");
    assert_eq!(same("6.18.1", 1_700_000_000), Err(KernelMissing::OtherKernel));
    assert_eq!(same("6.18.0", 1_700_001_000), Err(KernelMissing::OtherBoot), "started after the recording");
    assert_eq!(same("6.18.0", 1_700_000_100), Err(KernelMissing::OtherBoot), "the recorded clock began before");
    assert_eq!(is_same_kernel(&meta, "6.18.0", "cpu"), Err(KernelMissing::OtherBoot));
    // perf's files have no time of day, but an address of the kernel.
    meta.start_unix_ns = 0;
    let same = |meta: &Meta| is_same_kernel(meta, "6.18.0", &stat(1_700_000_000));
    assert_eq!(same(&meta), Err(KernelMissing::Unplaced));
    let symbol = |name: &str, address| KernelSymbol { name: name.to_owned(), address, build_id: None };
    meta.host.kernel_symbol = Some(symbol("_text", 0x1000));
    assert_eq!(same(&meta), Ok(()));
    let table = &b"1000 T _text\n1000 T _stext\n2000 t helper\n"[..];
    let read = |name, address| KernelSymbols::read(table, &[], Some(&symbol(name, address))).err();
    assert_eq!((read("_text", 0x1000), read("_stext", 0x1000)), (None, None));
    let other = Some(KernelMissing::OtherBoot);
    assert_eq!((read("_text", 0x2000), read("_text", 0x1800)), (other, other));
}

/// Check that symbol tables alone name the function without inlined ones, and that lines are added on request.
#[test]
fn detail_is_as_asked_for() {
    let dir = TestDir::new();
    let path = dir.compile("program", "a.c", SOURCE, &["-O2", "-g"]);
    let outer = addresses(&path, "outer");
    let files = FileModules::new();
    let named = |detail| names_in(&path, FileIdentity::default(), &outer, &files, detail).unwrap();
    assert!(named(Detail::Symbols).iter().all(|names| names == &["outer"]));
    let lines = named(Detail::Lines);
    assert!(lines.iter().all(|names| names[0].starts_with("outer (a.c:")), "{lines:?}");
    let innermost = "innermost (a.c:3)".to_string();
    assert!(lines.iter().any(|names| names.last() == Some(&innermost)), "{lines:?}");
}

/// Check that the names are the same whether debug sections are compressed with zlib, with zstd, in the old format, or
/// not at all.
#[test]
fn compressed_debug_sections_are_read() {
    let dir = TestDir::new();
    let path = dir.compile("program", "a.c", SOURCE, &["-O2", "-g"]);
    let outer = addresses(&path, "outer");
    let expected = names(&path, &outer);
    assert!(expected.iter().any(|names| names.len() > 1));
    for format in ["zlib", "zstd"] {
        dir.run("objcopy", &[&format!("--compress-debug-sections={format}"), "program", format]);
        let sections = dir.run("readelf", &["-SW", format]);
        assert!(sections.lines().any(|line| line.contains(".debug_info") && line.contains(" C ")), "{sections}");
        assert_eq!(names(&dir.path(format), &outer), expected, "{format}");
    }
    dir.run("objcopy", &["--compress-debug-sections=zlib-gnu", "program", "old"]);
    assert!(dir.run("readelf", &["-SW", "old"]).contains(".zdebug_info"));
    assert_eq!(names(&dir.path("old"), &outer), expected);
}

/// Check that inline frames and lines are the same if they are in the file of a unit (`.dwo`), also beside type units, or of all
/// units (`.dwp`), that another unit's file is not used, and that there is a warning about missing ones.
#[test]
fn split_debug_information_is_read() {
    let source = format!("struct pair {{ int a; long b; }} pair; {SOURCE}");
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let dir = TestDir::new();
        let whole = dir.compile("whole", "a.c", &source, &["-O2", version]);
        let outer = addresses(&whole, "outer");
        let lines = |path: &Path| {
            let (timeline, files) = (mapped_timeline(path), FileModules::new());
            let table = ModuleTable::new(&timeline, &meta(CaptureMode::Fp), &files);
            let wanted = BTreeMap::from([(FileIx(0), outer.clone())]);
            let symbolizer = Symbolizer::new(&table, &wanted, None, Detail::Lines, NonZeroUsize::new(1).unwrap());
            let names = outer.iter().map(|&svma| shown(symbolizer.user(FileIx(0), svma).unwrap()));
            (names.collect::<Vec<_>>(), symbolizer.warnings().iter().any(|warning| warning.contains(".dwo")))
        };
        let expected = lines(&whole);
        assert!(expected.0.iter().any(|names| names.len() == 3) && !expected.1, "{expected:?}");
        let typed = dir.compile("typed", "a.c", &source, &["-O2", version, "-gsplit-dwarf", "-fdebug-types-section"]);
        assert_eq!(lines(&typed), expected, "{version}: type units");
        let split = dir.compile("split", "a.c", &source, &["-O2", version, "-gsplit-dwarf"]);
        assert_eq!(addresses(&split, "outer"), outer);
        assert_eq!(lines(&split), expected, "{version}");
        let unit = dir.path("split-a.dwo");
        if version == "-gdwarf-4" {
            // GNU's dwp 2.40 crashes on version 5, and LLVM's 14 may not terminate.
            dir.run("dwp", &["-e", "split"]);
            std::fs::remove_file(&unit).unwrap();
            assert_eq!(lines(&split), expected, "a package");
            std::fs::rename(dir.path("split.dwp"), dir.path("elsewhere.dwp")).unwrap();
        } else {
            std::fs::remove_file(&unit).unwrap();
        }
        let (names, is_missing) = lines(&split);
        assert!(is_missing && names.iter().all(|names| names.len() == 1 && names[0].starts_with("outer")), "{names:?}");
        dir.compile("other", "b.c", "int main(void) { return 0; }", &["-O2", version, "-gsplit-dwarf"]);
        std::fs::rename(dir.path("other-b.dwo"), &unit).unwrap();
        assert!(lines(&split).1, "{version}: another unit");
    }
}

/// Check that the debug file named by a program without a build ID is used if its check sum is right, next to the
/// program, in `.debug` and below the debug directory, and that another file is not.
#[test]
fn debug_files_are_found_by_link() {
    let dir = TestDir::new();
    let path = dir.compile("program", "a.c", SOURCE, &["-O2", "-g", "-Wl,--build-id=none"]);
    let hidden = addresses(&path, "hidden");
    dir.run("objcopy", &["--only-keep-debug", "program", "program.debug"]);
    dir.run("strip", &["program"]);
    dir.run("objcopy", &["--add-gnu-debuglink=program.debug", "program"]);
    let below = dir.path("debug").join(path.parent().unwrap().strip_prefix("/").unwrap());
    let files = FileModules::new().with_debug_dir(dir.path("debug"));
    let named = || names_with(&path, FileIdentity::default(), &hidden, &files).unwrap();
    let is_named = |names: &[Vec<String>]| names.iter().all(|names| names == &["hidden"]);
    assert!(is_named(&named()));
    let debug = dir.path("program.debug");
    for dir in [dir.path(".debug"), below] {
        std::fs::create_dir_all(&dir).unwrap();
        let moved = dir.join("program.debug");
        std::fs::rename(&debug, &moved).unwrap();
        assert!(is_named(&named()), "{}", dir.display());
        std::fs::rename(&moved, &debug).unwrap();
    }
    let mut bytes = std::fs::read(&debug).unwrap();
    bytes.push(0);
    std::fs::write(&debug, bytes).unwrap();
    assert!(named().iter().all(Vec::is_empty), "{:?}", named());
}

/// Check that debug files that name each other, and one that names itself as supplementary file, are each read once.
#[test]
fn debug_links_in_a_circle_end() {
    let dir = TestDir::new();
    let path = dir.compile("program", "a.c", SOURCE, &["-O2", "-g", "-Wl,--build-id=0x0123456789abcdef"]);
    let hidden = addresses(&path, "hidden");
    dir.run("objcopy", &["--only-keep-debug", "program", "program.debug"]);
    dir.run("strip", &["program"]);
    let shared = [b"program.debug\0".as_slice(), &[0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef]].concat();
    std::fs::write(dir.path("shared"), shared).unwrap();
    dir.run("objcopy", &["--add-section", ".gnu_debugaltlink=shared", "program.debug"]);
    dir.run("objcopy", &["--add-gnu-debuglink=program", "program.debug"]);
    dir.run("objcopy", &["--add-gnu-debuglink=program.debug", "program"]);
    let names = names_with(&path, FileIdentity::default(), &hidden, &FileModules::new()).unwrap();
    assert!(names.iter().all(|names| names == &["hidden"]), "{names:?}");
}

/// Check that the compressed symbols in a stripped program name the functions it does not export, and that damaged ones
/// are ignored.
#[test]
fn symbols_inside_are_found() {
    let dir = TestDir::new();
    let path = dir.compile("program", "a.c", SOURCE, &["-O2"]);
    let hidden = addresses(&path, "hidden");
    dir.run("objcopy", &["--only-keep-debug", "program", "mini"]);
    dir.run("xz", &["mini"]);
    dir.run("strip", &["program"]);
    assert!(names(&path, &hidden).iter().all(Vec::is_empty));
    dir.run("cp", &["program", "damaged"]);
    dir.run("objcopy", &["--add-section", ".gnu_debugdata=mini.xz", "program"]);
    assert!(names(&path, &hidden).iter().all(|names| names == &["hidden"]));
    let mut bytes = std::fs::read(dir.path("mini.xz")).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    std::fs::write(dir.path("mini.xz"), bytes).unwrap();
    dir.run("objcopy", &["--add-section", ".gnu_debugdata=mini.xz", "damaged"]);
    assert!(names(&dir.path("damaged"), &hidden).iter().all(Vec::is_empty));
}
