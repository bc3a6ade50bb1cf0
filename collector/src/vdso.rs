//! The vDSO: kernel code that is mapped into every process and is in no file.
//!
//! A process may write to its own copy. So the bytes are taken from our own processes, never from profiled ones.

use crate::proc::parse_maps;
use fpprof_recording::model::{FileIdentity, Mmap, ModuleBytes};
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::process::{Child, Command, Stdio};

/// The kernel's name for it in all processes.
const NAME: &[u8] = b"[vdso]";
/// The name in recordings for the vDSO of 32-bit processes.
const NAME_OF_32_BITS: &[u8] = b"[vdso32]";
/// 32-bit processes have nothing mapped from here on, and the kernel puts other processes' vDSO far above.
const FIRST_ABOVE_32_BITS: u64 = 1 << 32;
/// Larger than the vDSO of any kernel.
const MAX_BYTES: u64 = 64 << 10;

/// An i386 program that writes a byte to show that it runs, waits until its standard input is written to or closed, and
/// ends: `write(1, stack, 1)`, `read(0, stack, 1)`, `exit(0)`.
///
/// # Sources
/// System V ABI, "ELF Header" and "Program Header"; `arch/x86/entry/syscalls/syscall_32.tbl` of the kernel.
#[rustfmt::skip]
const PROGRAM: [u8; 109] = [
    // Header: 32 bits, little-endian, version 1; executable, i386; entry, program headers at 52, no section headers.
    0x7f, b'E', b'L', b'F', 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    2, 0, 3, 0, 1, 0, 0, 0, 0x54, 0x80, 0x04, 0x08, 52, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 52, 0, 32, 0, 1, 0, 0, 0,
    0, 0, 0, 0,
    // One segment, all of this file, readable and executable.
    1, 0, 0, 0, 0, 0, 0, 0, 0x00, 0x80, 0x04, 0x08, 0x00, 0x80, 0x04, 0x08,
    109, 0, 0, 0, 109, 0, 0, 0, 5, 0, 0, 0, 0x00, 0x10, 0, 0,
    // push $1; pop %ebx; mov %esp,%ecx; push $1; pop %edx; push $4; pop %eax; int $0x80
    0x6a, 1, 0x5b, 0x89, 0xe1, 0x6a, 1, 0x5a, 0x6a, 4, 0x58, 0xcd, 0x80,
    // xor %ebx,%ebx; push $3; pop %eax; int $0x80; push $1; pop %eax; int $0x80
    0x31, 0xdb, 0x6a, 3, 0x58, 0xcd, 0x80, 0x6a, 1, 0x58, 0xcd, 0x80,
];

/// The vDSO of 64-bit processes.
pub(crate) fn of_64_bits() -> Option<ModuleBytes> {
    of_process(std::process::id(), NAME)
}

/// The vDSO of 64-bit processes as a file in memory.
///
/// # Errors
/// If there is none, or no memory for it.
pub(crate) fn file() -> io::Result<File> {
    let module = of_64_bits().ok_or(io::ErrorKind::NotFound)?;
    let mut file = File::from(memfd_create("fpprof-vdso", MemfdFlags::CLOEXEC)?);
    file.write_all(&module.bytes)?;
    Ok(file)
}

/// The vDSO of 32-bit processes, from one started for this purpose. `None` if that is impossible: if the kernel runs no
/// such programs, or none from memory.
pub(crate) fn of_32_bits() -> Option<ModuleBytes> {
    if cfg!(not(target_arch = "x86_64")) {
        return None;
    }
    let mut child = start().ok()?;
    // The process only has its vDSO once it runs, some time after it was started.
    let runs = child.stdout.as_mut().is_some_and(|stdout| stdout.read_exact(&mut [0]).is_ok());
    let found = runs.then(|| of_process(child.id(), NAME_OF_32_BITS)).flatten();
    // It would also end by itself, since nobody writes to its standard input; even if this process is killed.
    let _ = child.kill();
    let _ = child.wait();
    found
}

fn start() -> io::Result<Child> {
    // Kernels before 6.3 do not know `MFD_EXEC`.
    let memory = [MemfdFlags::CLOEXEC | MemfdFlags::EXEC, MemfdFlags::CLOEXEC];
    let memory = memory.into_iter().find_map(|flags| memfd_create("fpprof-vdso32", flags).ok());
    let mut file = File::from(memory.ok_or_else(io::Error::last_os_error)?);
    file.write_all(&PROGRAM)?;
    let mut command = Command::new(format!("/proc/self/fd/{}", file.as_raw_fd()));
    command.env_clear().stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    command.spawn()
}

fn of_process(pid: u32, path: &[u8]) -> Option<ModuleBytes> {
    let maps = std::fs::read(format!("/proc/{pid}/maps")).ok()?;
    let entry = parse_maps(&maps).find(|entry| entry.path == NAME)?;
    let mut bytes = vec![0; usize::try_from((entry.end - entry.start).min(MAX_BYTES)).ok()?];
    File::open(format!("/proc/{pid}/mem")).ok()?.read_exact_at(&mut bytes, entry.start).ok()?;
    Some(ModuleBytes { path: path.to_vec(), identity: FileIdentity::default(), bytes })
}

/// Renames the mapping of a 32-bit process's vDSO as in recordings; returns whether it is one.
pub(crate) fn name_32_bits(mmap: &mut Mmap) -> bool {
    let is_one = mmap.path == NAME && mmap.start < FIRST_ABOVE_32_BITS;
    if is_one {
        mmap.path = NAME_OF_32_BITS.to_vec();
    }
    is_one
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that both exist, each as an ELF file of its size.
    #[test]
    fn both_are_found() {
        let class = |module: Option<ModuleBytes>| module.and_then(|module| module.bytes.get(..5).map(<[u8]>::to_vec));
        assert_eq!(class(of_64_bits()).as_deref(), Some(&b"\x7fELF\x02"[..]));
        if cfg!(target_arch = "x86_64") {
            assert_eq!(class(of_32_bits()).as_deref(), Some(&b"\x7fELF\x01"[..]));
        }
    }
}
