use super::{Candidate, ElfFile, FileModules, Image, Location, Missing, ModuleTable, Opened, Resolver, Segment};
use crate::address_space::{FileIx, MappedFile, Timeline};
use crate::fold::{Where, locate};
use crate::replay::Spaces;
use crate::test_support::{TestDir, executable, identity, mapped, meta, symbols};
use fpprof_recording::model::{BuildId, CaptureMode, FileIdentity, ModuleBytes, Sideband};
use fpprof_unwind::{Arch, Frame, FrameFlags, FrameSource, ModuleId, Modules, TruncatedReason};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

const SOURCE: &str = "int work(int n) { return n * 3; } int main(int argc, char **argv) { return work(argc); }";
const OTHER: &str = "int main(void) { return 7; }";

fn image(segments: &[(u64, u64, u64, bool)]) -> Image {
    let segment = |&(file_offset, file_bytes, svma, executable)| Segment {
        file_offset,
        file_bytes,
        svma,
        memory_bytes: file_bytes,
        executable,
    };
    let segments = segments.iter().map(segment).collect();
    Image { segments, build_id: None, arch: None, little_endian: true, entry: None, eh_frame_hdr: None }
}

/// A timeline in which one file is mapped, executable.
fn timeline(file: &MappedFile, embedded: Option<ModuleBytes>) -> Timeline {
    let path = Path::new(std::str::from_utf8(&file.path).unwrap());
    let mapping = Sideband::Mmap(executable(1, 0x10_0000, 0x1000, 0x1000, path, file.identity));
    Timeline::new([mapping].into_iter().chain(embedded.map(Sideband::Module)))
}

/// Looks up a single file in a table.
fn look(file: &MappedFile, embedded: Option<ModuleBytes>, resolver: &dyn Resolver) -> Result<Image, Missing> {
    let timeline = timeline(file, embedded);
    let table = ModuleTable::new(&timeline, &meta(CaptureMode::Fp), resolver);
    table.image(FileIx(0)).cloned()
}

fn open(path: &Path) -> ElfFile {
    ElfFile::new(FileModules::new().open(path).unwrap()).unwrap()
}

/// Check the bias of the usual layouts: position-independent, position-dependent, and a mapping that begins inside its
/// segment.
#[test]
fn bias_of_usual_files() {
    let pie = image(&[(0, 0x600, 0, false), (0x1000, 0x2345, 0x1000, true), (0x4000, 0x100, 0x5000, false)]);
    assert_eq!(pie.bias(0x7f00_0000_1000, 0x1000, 0x3000), Some(0x7f00_0000_0000));
    assert_eq!(pie.bias(0x7f00_0000_2000, 0x2000, 0x1000), Some(0x7f00_0000_0000), "the second page of the segment");
    let fixed = image(&[(0, 0x600, 0x40_0000, false), (0x1000, 0x2345, 0x40_1000, true)]);
    assert_eq!(fixed.bias(0x40_1000, 0x1000, 0x3000), Some(0));
    assert_eq!(pie.bias(0x7f00_0000_1000, 0x9000, 0x1000), None, "no segment holds this offset");
}

/// Check that the segment's own address and offset are used, if they differ from each other and between segments.
#[test]
fn bias_of_segments_that_are_not_congruent() {
    // The layout of the forked lld of some browsers.
    let shifted = image(&[(0, 0x2_8450, 0x20_0000, false), (0x2_8460, 0x5_0000, 0x22_9460, true)]);
    assert_eq!(shifted.bias(0x5555_0022_9000, 0x2_8000, 0x5_1000), Some(0x5555_0000_0000));
    // Text is mapped from the middle of the page in which the previous segment ends.
    let shared = image(&[(0x1000, 0x1480, 0x1000, true), (0x2480, 0x2000, 0x40_2480, true)]);
    assert_eq!(shared.bias(0x10_1000, 0x1000, 0x2000), Some(0x10_0000));
    assert_eq!(shared.bias(0x50_2000, 0x2000, 0x3000), Some(0x10_0000), "the whole extent of the second segment");
    // A data segment that contains the same offset does not take precedence over code.
    let overlapping = image(&[(0, 0x9000, 0, false), (0x2000, 0x1000, 0x8000, true)]);
    assert_eq!(overlapping.bias(0x10_8000, 0x2000, 0x1000), Some(0x10_0000));
}

/// Check that invalid segments cause no overflow.
#[test]
fn bias_of_hostile_segments() {
    let hostile = image(&[(u64::MAX - 5, u64::MAX, u64::MAX, true), (0, u64::MAX, u64::MAX - 1, true)]);
    assert_eq!(hostile.bias(0x1000, u64::MAX - 1, u64::MAX), Some(0x1000_u64.wrapping_sub(u64::MAX - 3)));
    assert_eq!(hostile.svmas(), None);
}

/// Check that a file is accepted by its build ID, whatever its inode: a copy is the same module.
#[test]
fn equal_build_ids_are_equal_modules() {
    let dir = TestDir::new();
    let path = dir.compile("program", "a.c", SOURCE, &["-Wl,--build-id=sha1"]);
    let recorded = identity(&path, true);
    assert!(recorded.build_id.is_some());
    dir.run("cp", &["program", "copy"]);
    let found = look(&mapped(&dir.path("copy"), recorded), None, &FileModules::new()).unwrap();
    assert_eq!(found.build_id, recorded.build_id);
    assert!(found.segments.iter().any(|segment| segment.executable));
}

/// Check that a file of another build is refused by its build ID, or without one by its inode.
#[test]
fn a_replaced_file_is_refused() {
    let dir = TestDir::new();
    for (flag, with_build_id) in [("-Wl,--build-id=sha1", true), ("-Wl,--build-id=none", false)] {
        let path = dir.compile("program", "a.c", SOURCE, &[flag]);
        let file = mapped(&path, identity(&path, with_build_id));
        assert_eq!(file.identity.build_id.is_some(), with_build_id);
        assert!(look(&file, None, &FileModules::new()).is_ok(), "{flag}");
        dir.compile("new", "b.c", OTHER, &[flag]);
        // Keep the old inode alive, or the new file might get its number.
        dir.run("mv", &["program", "old"]);
        dir.run("mv", &["new", "program"]);
        assert_eq!(look(&file, None, &FileModules::new()), Err(Missing::Replaced), "{flag}");
        assert_eq!(Missing::Replaced.truncated_reason(), TruncatedReason::BuildIdMismatch);
    }
}

/// Check that a file without build ID that was modified after it was mapped is refused, although its inode is the same.
#[test]
fn a_file_modified_in_place_is_refused() {
    let dir = TestDir::new();
    let path = dir.compile("program", "a.c", SOURCE, &["-Wl,--build-id=none"]);
    let file = mapped(&path, identity(&path, false));
    assert!(look(&file, None, &FileModules::new()).is_ok());
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(60);
    std::fs::File::options().write(true).open(&path).unwrap().set_modified(later).unwrap();
    assert_eq!(look(&file, None, &FileModules::new()), Err(Missing::Modified));
}

/// Check that only regular ELF files are read: no directory, no pipe (nor waiting for one), no device, no text, no
/// truncated file, and nothing outside the root through `..`.
#[test]
fn only_regular_elf_files_are_read() {
    let dir = TestDir::new();
    let look = |path: &Path| look(&mapped(path, FileIdentity::default()), None, &FileModules::new()).map(|_| ());
    dir.run("mkfifo", &["pipe"]);
    assert_eq!(look(&dir.path("pipe")), Err(Missing::NotRegular));
    assert_eq!(look(&dir.path("")), Err(Missing::NotRegular));
    assert_eq!(look(Path::new("/dev/zero0")), Err(Missing::NotFound));
    assert_eq!(look(Path::new("/dev/null")), Err(Missing::NotRegular));
    for path in ["/proc/kmsg", "/proc/self/mem", "/sys/kernel/profiling", "/sys/kernel/notes"] {
        assert_eq!(look(Path::new(path)), Err(Missing::OfKernel), "{path}");
    }
    assert_eq!(look(&dir.path("nothing")), Err(Missing::NotFound));
    std::fs::write(dir.path("text"), "\x7fELF is how it begins").unwrap();
    assert_eq!(look(&dir.path("text")), Err(Missing::NotElf));
    std::fs::write(dir.path("empty"), "").unwrap();
    assert_eq!(look(&dir.path("empty")), Err(Missing::NotElf));
    let path = dir.compile("program", "a.c", SOURCE, &[]);
    assert_eq!(look(&path), Ok(()));
    let sideways = format!("{}/../{}", path.display(), "program");
    assert_eq!(look(Path::new(&sideways)), Err(Missing::NotFound));
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..100]).unwrap();
    assert_eq!(look(&path), Err(Missing::NotElf));
}

/// Check that a file is found under another root, where its inode is ignored but its build ID must be right.
#[test]
fn another_root_is_searched() {
    let (dir, machine) = (TestDir::new(), TestDir::new());
    let path = dir.compile("program", "a.c", SOURCE, &["-Wl,--build-id=sha1"]);
    let recorded = identity(&path, true);
    let root = machine.path("root");
    let copy = root.join(path.strip_prefix("/").unwrap());
    std::fs::create_dir_all(copy.parent().unwrap()).unwrap();
    std::fs::rename(&path, &copy).unwrap();
    let resolver = FileModules::new().with_root(&root);
    assert!(look(&mapped(&path, recorded), None, &FileModules::new()).is_err());
    assert!(look(&mapped(&path, recorded), None, &resolver).is_ok());
    let other = FileIdentity { build_id: BuildId::new(b"other"), ..recorded };
    assert_eq!(look(&mapped(&path, other), None, &resolver), Err(Missing::Replaced));
}

/// Check that bytes in the recording take precedence over any file, so that a deleted program is available.
#[test]
fn bytes_in_the_recording_come_first() {
    let dir = TestDir::new();
    let path = dir.compile("program", "a.c", SOURCE, &[]);
    let identity = identity(&path, true);
    let bytes = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let file = mapped(&path.with_file_name("program (deleted)"), identity);
    let module = ModuleBytes { path: file.path.clone(), identity, bytes };
    assert_eq!(look(&file, None, &FileModules::new()), Err(Missing::NotFound));
    let found = |file: &MappedFile| look(file, Some(module.clone()), &FileModules::new()).map(|image| image.build_id);
    assert_eq!(found(&file), Ok(identity.build_id));
    // An earlier process had ended before its file was opened.
    let unread = FileIdentity { build_id: None, ..identity };
    assert_eq!(found(&MappedFile { identity: unread, ..file.clone() }), Ok(identity.build_id));
    assert_eq!(found(&mapped(&path, unread)), Err(Missing::NotFound), "another path");
    // Overwritten in place: nobody knows which version it was.
    let other = FileIdentity { build_id: BuildId::new(b"other"), ..identity };
    let modules = [identity, other].map(|identity| Sideband::Module(ModuleBytes { identity, ..module.clone() }));
    let mapping = |identity| {
        Sideband::Mmap(executable(
            1,
            0x10_0000,
            0x1000,
            0x1000,
            Path::new(std::str::from_utf8(&file.path).unwrap()),
            identity,
        ))
    };
    for (identity, is_found) in [(identity, true), (other, true), (unread, false)] {
        let timeline = Timeline::new([mapping(identity)].into_iter().chain(modules.clone()));
        let resolver = FileModules::new();
        let table = ModuleTable::new(&timeline, &meta(CaptureMode::Fp), &resolver);
        assert_eq!(table.image(FileIx(0)).is_ok(), is_found, "{identity:?}");
    }
}

/// Check that the bytes of one file are not used for another with the same build ID, which whoever builds a file
/// chooses: a process that maps the real library gets the real library, and only one that maps the copy gets the copy.
#[test]
fn bytes_of_an_equal_build_id_are_not_another_files() {
    let dir = TestDir::new();
    let path = dir.compile("library", "a.c", SOURCE, &["-Wl,--build-id=0x1234"]);
    let copy = dir.compile("copy", "b.c", OTHER, &["-Wl,--build-id=0x1234"]);
    let (real, other) = (identity(&path, true), identity(&copy, true));
    assert_eq!(real.build_id, other.build_id);
    let bytes = std::fs::read(&copy).unwrap();
    let memfd = ModuleBytes { path: b"/memfd:copy (deleted)".to_vec(), identity: other, bytes: bytes.clone() };
    let mapping =
        |pid, path: &Path, identity| Sideband::Mmap(executable(pid, 0x10_0000, 0x1000, 0x1000, path, identity));
    let mappings = [mapping(1, &path, real), mapping(2, Path::new("/memfd:copy (deleted)"), other)];
    let timeline = Timeline::new(mappings.into_iter().chain([Sideband::Module(memfd)]));
    let resolver = FileModules::new();
    let table = ModuleTable::new(&timeline, &meta(CaptureMode::Fp), &resolver);
    assert!(matches!(table.location(FileIx(0)), Ok(Location::Path(found)) if found == path));
    assert!(matches!(table.location(FileIx(1)), Ok(Location::Bytes(found)) if found == bytes));
}

/// Check that unwind information is loaded once for files with the same bytes in the recording, and separately for
/// others.
#[test]
fn files_with_the_same_bytes_are_loaded_once() {
    let dir = TestDir::new();
    let (path, other) = (dir.compile("program", "a.c", SOURCE, &[]), dir.compile("other", "b.c", OTHER, &[]));
    let files = [(1, &path), (2, &path), (3, &other)].map(|(inode, path)| {
        let identity = FileIdentity { inode, ..identity(path, true) };
        (format!("/gone/{inode} (deleted)"), identity, std::fs::read(path).unwrap())
    });
    let events = files.iter().flat_map(|(path, identity, bytes)| {
        let mapping = executable(1, identity.inode << 20, 0x1000, 0x1000, Path::new(path), *identity);
        let module = ModuleBytes { path: path.clone().into_bytes(), identity: *identity, bytes: bytes.clone() };
        [Sideband::Mmap(mapping), Sideband::Module(module)]
    });
    let (timeline, resolver) = (Timeline::new(events), FileModules::new());
    let table = ModuleTable::new(&timeline, &meta(CaptureMode::Fp), &resolver);
    let [first, second, third] = [0, 1, 2].map(|id| table.module(ModuleId(id)).unwrap());
    assert!(std::ptr::eq(first, second) && !std::ptr::eq(first, third));
}

/// Opens files like the file system, and records which.
#[derive(Debug, Default)]
struct Watched {
    files: FileModules,
    opened: Mutex<Vec<PathBuf>>,
}

impl Resolver for Watched {
    fn candidates(&self, file: &MappedFile) -> Vec<Candidate> {
        self.files.candidates(file)
    }

    fn debug_candidates(&self, build_id: BuildId) -> Vec<PathBuf> {
        self.files.debug_candidates(build_id)
    }

    fn link_candidates(&self, path: &Path, name: &[u8]) -> Vec<PathBuf> {
        self.files.link_candidates(path, name)
    }

    fn open(&self, path: &Path) -> Result<Opened, Missing> {
        self.opened.lock().unwrap().push(path.to_path_buf());
        self.files.open(path)
    }
}

/// Check that a module is opened on first use, that its unwind tables are complete, and that it is not opened for each
/// look-up.
#[test]
fn modules_are_read_when_they_are_needed() {
    let dir = TestDir::new();
    let path = dir.compile("program", "a.c", SOURCE, &[]);
    let file = mapped(&path, identity(&path, true));
    let (timeline, resolver) = (timeline(&file, None), Watched::default());
    let table = ModuleTable::new(&timeline, &meta(CaptureMode::Fp), &resolver);
    assert_eq!(resolver.opened.lock().unwrap().len(), 0);
    table.image(FileIx(0)).unwrap();
    assert_eq!(*resolver.opened.lock().unwrap(), [path]);
    let (usable, unusable) = table.module(ModuleId(0)).unwrap().count_entries();
    assert!(usable >= 3 && unusable == 0, "{usable} {unusable}");
    let n_opened = resolver.opened.lock().unwrap().len();
    table.module(ModuleId(0)).unwrap();
    table.image(FileIx(0)).unwrap();
    assert_eq!(resolver.opened.lock().unwrap().len(), n_opened);
    assert_eq!(table.module(ModuleId(1)).err(), Some(TruncatedReason::ModuleUnavailable));
}

/// Check that the files of an address space are opened when a frame is in them, or when all are asked for; and that a debug
/// file that is nowhere is looked for once.
#[test]
fn mapped_files_are_opened_for_frames() {
    let dir = TestDir::new();
    let [path, other] = ["program", "other"].map(|name| dir.compile(name, "a.c", SOURCE, &[]));
    let mapping = |at, path: &Path| Sideband::Mmap(executable(1, at, 0x1000, 0x1000, path, identity(path, true)));
    let timeline = Timeline::new([mapping(0x10_0000, &path), mapping(0x20_0000, &other)]);
    let resolver = Watched::default();
    let opened = || resolver.opened.lock().unwrap().clone();
    let table = ModuleTable::new(&timeline, &meta(CaptureMode::Fp), &resolver);
    let space = Spaces::new(&timeline, &table).get(timeline.place(1, 1, u64::MAX).space);
    assert_eq!(opened(), [""; 0].map(PathBuf::from));
    let flags = FrameFlags { is_instruction: true, ..FrameFlags::default() };
    let frame = Frame { address: 0x10_0010, cfa: 0, source: FrameSource::Registers, flags };
    assert_eq!(locate(&frame, &space, &table, 0), Where::Module(FileIx(0), 0x1010));
    assert_eq!(opened(), [path.as_path()]);
    let placed = space.modules(&table).iter().map(|module| (module.file, module.bias, module.start));
    let expected = [(FileIx(0), 0x0f_f000, 0x10_0000), (FileIx(1), 0x1f_f000, 0x20_0000)];
    assert_eq!((placed.collect::<Vec<_>>().as_slice(), opened()), (&expected[..], vec![path, other]));
    assert!(table.open_debug(FileIx(0)).is_none());
    let n_opened = opened().len();
    assert!(n_opened > 2 && table.open_debug(FileIx(0)).is_none());
    assert_eq!(opened().len(), n_opened);
}

/// Check that a file that changes between verification and reading is refused.
#[test]
fn a_file_that_changes_after_it_was_verified_is_refused() {
    let dir = TestDir::new();
    let path = dir.compile("program", "a.c", SOURCE, &[]);
    let file = mapped(&path, identity(&path, true));
    let (timeline, resolver) = (timeline(&file, None), FileModules::new());
    let table = ModuleTable::new(&timeline, &meta(CaptureMode::Fp), &resolver);
    table.image(FileIx(0)).unwrap();
    dir.compile("program", "b.c", OTHER, &[]);
    assert_eq!(table.module(ModuleId(0)).err(), Some(TruncatedReason::BuildIdMismatch));
    assert_eq!(table.open(FileIx(0)).err(), Some(Missing::Modified));
}

/// The ranges covered by a file's unwind tables.
fn covered(path: &Path) -> Vec<(u64, u64)> {
    let file = mapped(path, FileIdentity::default());
    let (timeline, resolver) = (timeline(&file, None), FileModules::new());
    let table = ModuleTable::new(&timeline, &meta(CaptureMode::Fp), &resolver);
    let mut ranges = Vec::new();
    table.module(ModuleId(0)).unwrap().for_each_range(|range| ranges.push((range.start, range.end)));
    ranges
}

/// Check that a file without section headers has the same call frame information, found by its program headers.
#[test]
fn call_frame_information_is_found_without_section_headers() {
    let dir = TestDir::new();
    let path = dir.compile("program", "a.c", SOURCE, &[]);
    let expected = covered(&path);
    let mut bytes = std::fs::read(&path).unwrap();
    // e_shoff, then e_shentsize, e_shnum and e_shstrndx.
    bytes[0x28..0x30].fill(0);
    bytes[0x3a..0x40].fill(0);
    std::fs::write(&path, bytes).unwrap();
    assert!(open(&path).sections().is_empty());
    assert!(expected.len() >= 3);
    assert_eq!(covered(&path), expected);
}

/// Check that all sections of call frame information with the same name are used: two functions, each with its only FDE
/// in one of them.
#[test]
fn all_sections_of_call_frame_information_count() {
    const SOURCE: &str = "
        .text
        .globl _start
        .type first, @function
first:  nop
        ret
        .size first, . - first
        .type second, @function
_start:
second: nop
        nop
        ret
        .size second, . - second
        .macro rows section, function, bytes
        .section \\section, \"a\", @progbits
        .balign 8
1:      .long 20, 0
        .byte 1
        .ascii \"zR\\0\"
        .byte 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1, 0, 0
2:      .long 20
3:      .long 3b - 1b
        .long \\function - .
        .long \\bytes
        .byte 0, 0, 0, 0, 0, 0, 0, 0
        .endm
        rows .rows1, first, 2
        rows .rows2, second, 3
        .section .note.GNU-stack,\"\",@progbits
";
    let dir = TestDir::new();
    let path = dir.compile("program", "a.s", SOURCE, &["-nostdlib", "-static", "-Wl,--build-id=none"]);
    let renamed = ["--rename-section", ".rows1=.eh_frame", "--rename-section", ".rows2=.eh_frame", "program"];
    dir.run("objcopy", &renamed);
    let symbols = symbols(&path);
    let expected = [("first", 2), ("second", 3)].map(|(name, bytes)| (symbols[name].0, symbols[name].0 + bytes));
    assert_eq!(covered(&path), expected);
}

/// Check that an x32 program, 64-bit code in a 32-bit file, has rows like any other.
#[test]
fn x32_programs_have_rows() {
    const ALONE: &str = "int work(int n) { return n * 3; } void _start(void) { work(1); for (;;); }";
    let dir = TestDir::new();
    let path = dir.compile("x32", "a.c", ALONE, &["-mx32", "-nostdlib", "-static", "-O0"]);
    assert_eq!(open(&path).image().arch, Some(Arch::X86_64));
    let (svma, bytes) = symbols(&path)["work"];
    assert!(covered(&path).contains(&(svma, svma + bytes)));
}

/// Check that `.debug_frame` is read if it is compressed, and if it is in the debug file with the build ID.
#[test]
fn debug_frame_is_found_compressed_and_in_debug_files() {
    let dir = TestDir::new();
    let compiled = |format: &str| {
        let compressed = format!("-Wl,--compress-debug-sections={format}");
        let args = ["-g", "-fno-asynchronous-unwind-tables", "-Wl,--build-id=sha1", &compressed];
        dir.compile("program", "a.c", SOURCE, &args)
    };
    let zstd = compiled("zstd");
    let (svma, bytes) = symbols(&zstd)["work"];
    assert!(covered(&zstd).contains(&(svma, svma + bytes)), "zstd");
    let path = compiled("zlib");
    let (svma, bytes) = symbols(&path)["work"];
    let has_work = |ranges: &[(u64, u64)]| ranges.contains(&(svma, svma + bytes));
    assert!(has_work(&covered(&path)));
    // As written by binutils until 2.25: the section has another name.
    dir.run("objcopy", &["--compress-debug-sections=zlib-gnu", "program", "old"]);
    assert!(dir.run("readelf", &["-SW", "old"]).contains(".zdebug_frame"));
    assert!(has_work(&covered(&dir.path("old"))));
    let build_id = identity(&path, true).build_id.unwrap().to_string();
    let (first, rest) = build_id.split_at(2);
    let debug = dir.path("debug").join(".build-id").join(first).join(format!("{rest}.debug"));
    std::fs::create_dir_all(debug.parent().unwrap()).unwrap();
    let debug_text = debug.to_str().unwrap();
    dir.run("objcopy", &["--only-keep-debug", "program", debug_text]);
    dir.run("strip", &["program"]);
    assert!(!has_work(&covered(&path)), "nothing is left in the file");
    let file = mapped(&path, FileIdentity::default());
    let (timeline, resolver) = (timeline(&file, None), FileModules::new().with_debug_dir(dir.path("debug")));
    let table = ModuleTable::new(&timeline, &meta(CaptureMode::Fp), &resolver);
    let mut ranges = Vec::new();
    table.module(ModuleId(0)).unwrap().for_each_range(|range| ranges.push((range.start, range.end)));
    assert!(has_work(&ranges));
}

/// Check that a compressed section that claims an excessive compression ratio is not read.
#[test]
fn compression_bombs_are_refused() {
    let dir = TestDir::new();
    std::fs::write(dir.path("zeros"), vec![0; 8 << 20]).unwrap();
    let source = ".section .debug_frame,\"\",@progbits\n.incbin \"zeros\"\n.globl main\n.text\nmain: ret\n";
    std::fs::write(dir.path("a.s"), source).unwrap();
    let status = Command::new("gcc")
        .args(["-o", "program", "a.s", "-Wl,--compress-debug-sections=zlib"])
        .current_dir(dir.path(""))
        .status()
        .unwrap();
    assert!(status.success());
    let elf = open(&dir.path("program"));
    let sections = elf.sections();
    let section = sections.iter().find(|section| section.name == b".debug_frame").unwrap();
    assert_eq!(section.full_bytes(), 8 << 20);
    assert_eq!(elf.read(section, 1 << 30), None);
}

/// Check that no truncation and no flipped byte of a real file makes the parser panic or read without bounds.
#[test]
fn damaged_files_are_survived() {
    let dir = TestDir::new();
    let path = dir.compile("program", "a.c", SOURCE, &["-g"]);
    let good = std::fs::read(&path).unwrap();
    let try_it = |bytes: Vec<u8>| {
        let stat = super::FileStat::default();
        let Ok(elf) = ElfFile::new(Opened { reader: Box::new(std::io::Cursor::new(bytes)), stat }) else { return };
        let sections = elf.sections();
        for section in &sections {
            let _ = elf.read(section, 1 << 20);
        }
        let _ = super::unwind_sections::unwind_sections(&elf, fpprof_unwind::Arch::X86_64, || None);
    };
    for len in (0..good.len()).step_by(97) {
        try_it(good[..len].to_vec());
    }
    let n_headers = 0x40 + 13 * 56;
    let section_headers = usize::try_from(u64::from_le_bytes(good[0x28..0x30].try_into().unwrap())).unwrap();
    for at in (0..n_headers).chain(section_headers..good.len()) {
        for value in [0x00, 0x7f, 0xff] {
            let mut bytes = good.clone();
            bytes[at] = value;
            try_it(bytes);
        }
    }
}
