//! Names of the stubs that call other modules.

use super::names;
use crate::test_support::TestDir;
use std::collections::BTreeMap;

/// Check that stubs are named for the function they call, in our own linker's layouts and those of others, and that the
/// code that resolves the function has no name.
#[test]
fn stubs_are_named() {
    let dir = TestDir::new();
    let source = "#include <string.h>\nvoid *volatile p; int main(int c, char **v) { p = memchr(v[0], c, 3); return strtok(v[0], v[1]) != 0; }";
    for (name, args) in [
        ("lazy", &["-fcf-protection=none", "-Wl,-z,lazy"][..]),
        ("now", &["-fcf-protection=full", "-Wl,-z,ibtplt,-z,now"]),
        ("lld", &["-fuse-ld=lld"]),
    ] {
        let path = dir.compile(name, "a.c", source, &[&["-O1", "-fno-builtin"], args].concat());
        let text = dir.run("objdump", &["-d", "--no-show-raw-insn", "-j", ".plt", "-j", ".plt.sec", name]);
        let stubs: Vec<(u64, &str)> = text
            .lines()
            .filter_map(|line| {
                let (svma, name) = line.strip_suffix(">:")?.split_once(" <")?;
                Some((u64::from_str_radix(svma, 16).unwrap(), name)).filter(|(_, name)| name.ends_with("@plt"))
            })
            .collect();
        let found = names(&path, &stubs.iter().map(|&(svma, _)| svma + 2).collect::<Vec<_>>());
        let called: Vec<&str> = found.iter().flatten().map(String::as_str).collect();
        assert!(called.contains(&"memchr@plt") && called.contains(&"strtok@plt"), "{name}: {called:?} of {text}");
    }
}

/// Check that each stub of a static program is named for the function that chooses what it calls, of two linkers: one makes
/// stubs of eight bytes, the other has a symbol without a size on one of them.
#[test]
fn stubs_of_static_programs_are_named() {
    let dir = TestDir::new();
    let source = "#include <string.h>\nint (*volatile p)(const char *, const char *) = strcmp; int main(int c, char **v) { \
        return p(v[0], v[1]) + strlen(v[0]) + strspn(v[0], v[1]) + (memset(v[0], c, 1) != 0); }";
    for linker in ["bfd", "lld"] {
        let args = ["-O1", "-fno-builtin", "-static", &format!("-fuse-ld={linker}")];
        let path = dir.compile(linker, "a.c", source, &args);
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        // Lines such as `401090: jmp *0xc0f82(%rip) # 4c2018 <name>`, and `4c2018 25 R_X86_64_IRELATIVE 418c80`.
        let code = dir.run("objdump", &["-d", "--no-show-raw-insn", "-j", ".plt", "-j", ".iplt", linker]);
        let stubs: Vec<(u64, u64)> = code
            .lines()
            .filter_map(|line| {
                let (svma, jump) = line.trim().split_once(":\t")?;
                let slot = jump.split_once("# ").filter(|_| jump.contains("jmp "))?.1;
                Some((hex(svma)?, hex(slot.split(' ').next()?)?))
            })
            .collect();
        let relocations = dir.run("readelf", &["-rW", linker]);
        let resolver_of: BTreeMap<u64, u64> = relocations
            .lines()
            .filter_map(|line| {
                let words: Vec<&str> = line.split_whitespace().collect();
                Some((hex(words.first()?)?, hex(words.get(3)?)?)).filter(|_| words[2] == "R_X86_64_IRELATIVE")
            })
            .collect();
        let symbols = dir.run("nm", &[linker]);
        let found = names(&path, &stubs.iter().map(|&(svma, _)| svma + 2).collect::<Vec<_>>());
        assert!(stubs.len() > 10, "{code}");
        for ((svma, slot), found) in stubs.iter().zip(found) {
            // Lines such as `0000000000418c80 i memset`; a function may have several names.
            let resolver = format!("{:016x} ", resolver_of[slot]);
            let name = found.first().and_then(|name| name.strip_suffix("@plt")).unwrap_or_default();
            let is_right = symbols.lines().any(|line| line.starts_with(&resolver) && line.get(19..) == Some(name));
            assert!(is_right, "{linker} {svma:x}: {found:?}, {resolver}");
        }
    }
}
