//! Prints the licences of everything that is linked into a static `fpprof` for the target in the first argument, or into the
//! program of the manifest in the second.
#![forbid(unsafe_code)]

use anyhow::Context as _;
use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package, PackageId};
use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::io::{self, Write};
use walkdir::WalkDir;

const HEAD: &str = "\
fpprof is licensed under Apache-2.0 OR MIT, its BPF program under GPL-2.0 OR BSD-2-Clause. The program of this package is
linked statically with what is listed here. Of the C libraries among it
  - libbpf is LGPL-2.1 OR BSD-2-Clause,
  - libelf (elfutils) is LGPL-3.0-or-later OR GPL-2.0-or-later,
  - the GNU C library is LGPL-2.1-or-later (https://www.gnu.org/licenses/old-licenses/lgpl-2.1.html),
  - libgcc is GPL-3.0-or-later with the GCC Runtime Library Exception (https://www.gnu.org/licenses/gcc-exception-3.1.html),
  - zlib is Zlib, zstd BSD-3-Clause OR GPL-2.0, liblzma 0BSD, libdeflate MIT.
To link it anew with another version of one of them, build it from fpprof's source as its README says; the sources of libbpf,
libelf and zlib are in the package libbpf-sys on crates.io.
";

const QUERY_HEAD: &str = "\
fpprof-query is licensed under Apache-2.0 OR MIT. The program of this package is linked statically with what is listed here. Of
the C libraries among it
  - the GNU C library is LGPL-2.1-or-later (https://www.gnu.org/licenses/old-licenses/lgpl-2.1.html),
  - libgcc is GPL-3.0-or-later with the GCC Runtime Library Exception (https://www.gnu.org/licenses/gcc-exception-3.1.html),
  - zstd is BSD-3-Clause OR GPL-2.0.
To link it anew with another version of one of them, build it from fpprof's source as its README says.
";

/// How the names of licence files start, in capitals.
const STARTS: [&str; 6] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];

fn main() -> anyhow::Result<()> {
    let target = env::args().nth(1).context("usage: notices TARGET [MANIFEST]")?;
    write(&target, env::args().nth(2).as_deref(), &mut io::stdout().lock())
}

pub(crate) fn write(target: &str, manifest: Option<&str>, out: &mut impl Write) -> anyhow::Result<()> {
    let mut command = MetadataCommand::new();
    command.other_options(["--filter-platform".to_owned(), target.to_owned()]);
    let head = manifest.map_or(HEAD, |manifest| {
        command.manifest_path(manifest);
        QUERY_HEAD
    });
    let metadata = command.exec()?;
    let linked = linked(&metadata)?;
    writeln!(out, "{head}\nRust crates, and the licences they name:\n")?;
    let mut texts = BTreeMap::<String, BTreeSet<String>>::new();
    for package in &linked {
        let name = format!("{} {}", package.name, package.version);
        writeln!(out, "  {name}: {}", package.license.as_deref().unwrap_or("see below"))?;
        for text in texts_of(package)? {
            texts.entry(text).or_default().insert(name.clone());
        }
    }
    for (text, names) in texts {
        let names: Vec<_> = names.into_iter().collect();
        writeln!(out, "\n{}\n{}\n\n{text}", "-".repeat(100), names.join(", "))?;
    }
    Ok(())
}

/// The packages of others whose code ends up in the program: what it depends on at run time, macros aside.
fn linked(metadata: &Metadata) -> anyhow::Result<Vec<&Package>> {
    let resolve = metadata.resolve.as_ref().context("cargo metadata gave no dependency graph")?;
    let mut seen = BTreeSet::<&PackageId>::new();
    let mut next = vec![resolve.root.as_ref().context("the workspace has no root package")?];
    while let Some(id) = next.pop() {
        let is_macro = |package: &Package| package.targets.iter().any(|target| target.is_proc_macro());
        if is_macro(&metadata[id]) || !seen.insert(id) {
            continue;
        }
        let node = resolve.nodes.iter().find(|node| node.id == *id).context("a package without a node")?;
        let is_linked =
            |kinds: &[cargo_metadata::DepKindInfo]| kinds.iter().any(|kind| kind.kind == DependencyKind::Normal);
        next.extend(node.deps.iter().filter(|dep| is_linked(&dep.dep_kinds)).map(|dep| &dep.pkg));
    }
    let mut linked: Vec<_> =
        seen.into_iter().map(|id| &metadata[id]).filter(|package| package.source.is_some()).collect();
    linked.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
    Ok(linked)
}

/// The licence files of a package and of the C sources it brings.
fn texts_of(package: &Package) -> anyhow::Result<Vec<String>> {
    let folder = package.manifest_path.parent().context("a manifest is in a folder")?;
    let mut texts = Vec::new();
    for entry in WalkDir::new(folder).max_depth(2).sort_by_file_name() {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().to_ascii_uppercase();
        if STARTS.iter().any(|start| name.starts_with(start)) && entry.file_type().is_file() {
            let text = fs::read_to_string(entry.path()).with_context(|| entry.path().display().to_string())?;
            texts.push(text.replace('\r', "").trim_end().to_owned());
        }
    }
    Ok(texts)
}
