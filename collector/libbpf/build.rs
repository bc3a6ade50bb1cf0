//! Compiles libbpf, libelf and zlib with the C compiler alone. The vendored builds of `libbpf-sys` need autotools,
//! flex, bison, gawk, make and pkg-config; this script only takes the sources from that package.

use cargo_metadata::MetadataCommand;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// libbpf's headers for BPF programs.
const BPF_HEADERS: [&str; 4] = ["bpf_core_read.h", "bpf_helper_defs.h", "bpf_helpers.h", "bpf_tracing.h"];

/// The `config.h` that elfutils' `configure` would write, as far as libelf needs it, on Linux with glibc or musl.
/// Without zstd, since no section here is compressed with it.
const ELFUTILS_CONFIG: &str = "
#define HAVE_DECL_MEMPCPY 1
#define HAVE_DECL_POWEROF2 1
#define HAVE_DECL_REALLOCARRAY 1
#define HAVE_ERR_H 1
#define HAVE_MREMAP 1
#define HAVE_STDATOMIC_H 1
#include <eu-config.h>
";

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let sources = libbpf_sys();
    let (libbpf, libelf, zlib) = (sources.join("libbpf/src"), sources.join("elfutils/libelf"), sources.join("zlib"));

    let mut objects =
        compiler().include(&zlib).define("HAVE_UNISTD_H", None).files(c_files(&zlib)).compile_intermediates();

    let config = out.join("config");
    fs::create_dir_all(&config).expect("creating a directory in OUT_DIR");
    fs::write(config.join("config.h"), ELFUTILS_CONFIG).expect("writing config.h into OUT_DIR");
    let libelf_objects = compiler()
        .includes([&config, &libelf, &sources.join("elfutils/lib"), &zlib])
        .define("_GNU_SOURCE", None)
        .define("HAVE_CONFIG_H", None)
        .files(c_files(&libelf))
        .compile_intermediates();
    objects.extend(libelf_objects);

    // One archive: with three, a linker that reads each archive once would need them in the right order.
    compiler()
        .includes([&libbpf, &sources.join("libbpf/include"), &sources.join("libbpf/include/uapi"), &libelf, &zlib])
        .define("_LARGEFILE64_SOURCE", None)
        .define("_FILE_OFFSET_BITS", "64")
        .files(c_files(&libbpf))
        .objects(objects)
        .cargo_metadata(false)
        .compile("bpf");
    // `libbpf-sys` also emits -lelf and -lz. Empty archives keep the linker from using the system's libraries.
    for name in ["libelf.a", "libz.a"] {
        fs::write(out.join(name), "!<arch>\n").expect("writing an archive into OUT_DIR");
    }
    println!("cargo::rustc-link-search=native={}", out.display());
    println!("cargo::rustc-env=FPPROF_LIBBPF_INCLUDE={}", headers(&libbpf, &out).display());
    println!("cargo::rerun-if-changed=build.rs");
}

/// The directory of the `libbpf-sys` package, wherever cargo keeps it.
fn libbpf_sys() -> PathBuf {
    let target = env::var("TARGET").expect("cargo sets TARGET");
    let metadata = MetadataCommand::new()
        .other_options(["--filter-platform".to_owned(), target])
        .exec()
        .unwrap_or_else(|error| panic!("asking cargo where the libbpf-sys package is: {error}"));
    let package = metadata.packages.iter().find(|package| package.name == "libbpf-sys");
    let package = package.expect("this crate depends on libbpf-sys");
    package.manifest_path.parent().expect("a manifest is in a folder").as_std_path().to_owned()
}

/// The compiler for the target. These libraries load programs, once: build time matters more than their speed. Their
/// symbols are hidden, since libdw brings a libelf of another version that must not be bound to this one's functions.
fn compiler() -> cc::Build {
    let mut build = cc::Build::new();
    build.std("gnu11").opt_level(1).warnings(false).flag("-fvisibility=hidden");
    build
}

fn c_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let paths = entries.map(|entry| entry.expect("reading a folder").path());
    let mut files: Vec<PathBuf> = paths.filter(|path| path.extension().is_some_and(|ending| ending == "c")).collect();
    files.sort();
    files
}

/// Copies libbpf's headers to where `#include <bpf/…>` finds them, and returns the directory.
fn headers(libbpf: &Path, out: &Path) -> PathBuf {
    let include = out.join("include");
    let folder = include.join("bpf");
    fs::create_dir_all(&folder).expect("creating a directory in OUT_DIR");
    for name in BPF_HEADERS {
        fs::copy(libbpf.join(name), folder.join(name)).unwrap_or_else(|error| panic!("copying {name}: {error}"));
    }
    include
}
