//! Kernel symbols, from the kernel's own table.

use crate::modules::{ReadSeek, Resolver};
use fpprof_recording::model::{KernelSymbol, Meta};
use memchr::{memchr, memchr_iter};
use std::io::Read;
use std::path::Path;

/// The most bytes of a table of kernel symbols; usual ones have 5 to 20 MiB.
const MAX_TABLE_BYTES: u64 = 256 << 20;
/// The most bytes of `/proc/stat`, which grows with CPUs and interrupts.
const MAX_PROC_BYTES: u64 = 16 << 20;
/// Bytes of a line of such a table, about.
const MEAN_LINE_BYTES: usize = 40;
/// Upper limit of a symbol's extent: memory beyond it is not described by the table.
const MAX_FUNCTION_BYTES: u64 = 1 << 20;
/// Why there are no kernel symbols.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KernelMissing {
    /// The recording is from another machine or another kernel.
    OtherKernel,
    /// The machine was rebooted since; the kernel is at other addresses now.
    OtherBoot,
    /// The recording has neither its time nor an address of the kernel.
    Unplaced,
    /// The kernel hides its addresses from this user (`kptr_restrict`).
    Restricted,
    /// The table cannot be read.
    Unreadable,
}

impl KernelMissing {
    /// As text, to follow "kernel frames have no names: ".
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::OtherKernel => "the recording was made on another kernel",
            Self::OtherBoot => {
                "the machine was rebooted since the recording, and the kernel's addresses changed (KASLR)"
            }
            Self::Unplaced => "the recording does not have the kernel's load address; import the perf.data file again",
            Self::Restricted => "kernel addresses are hidden; run as root, or: sysctl kernel.kptr_restrict=0",
            Self::Unreadable => "cannot read /proc/kallsyms",
        }
    }
}

/// A kernel function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelName<'a> {
    /// Its name.
    pub name: &'a str,
    /// The kernel module it is in; `None` for the kernel itself.
    pub module: Option<&'a str>,
}

/// The functions of a kernel.
#[derive(Debug, Default)]
pub struct KernelSymbols {
    /// The table as it was read.
    text: String,
    entries: Vec<Entry>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    address: u64,
    is_code: bool,
    /// Range of the line in `text`: name, and after a tab the module in brackets.
    line: (u32, u32),
}

impl KernelSymbols {
    /// Reads a table in the format of `/proc/kallsyms`: address, type, name, and the module in brackets.
    ///
    /// # Errors
    /// [`KernelMissing::Restricted`] if all addresses are zero, [`KernelMissing::Unreadable`] if it cannot be read or
    /// is empty.
    pub fn read(table: impl Read) -> Result<Self, KernelMissing> {
        let mut bytes = Vec::new();
        table.take(MAX_TABLE_BYTES).read_to_end(&mut bytes).map_err(|_| KernelMissing::Unreadable)?;
        let text =
            String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
        let mut symbols = Self { entries: Vec::with_capacity(text.len() / MEAN_LINE_BYTES), text };
        let mut from = 0;
        for to in memchr_iter(b'\n', symbols.text.as_bytes()).chain([symbols.text.len()]) {
            let line = symbols.text.as_bytes().get(from..to).unwrap_or_default();
            symbols.entries.extend(Entry::parse(line, from));
            from = to.saturating_add(1);
        }
        if symbols.entries.is_empty() {
            return Err(KernelMissing::Unreadable);
        }
        if symbols.entries.iter().all(|entry| entry.address == 0) {
            return Err(KernelMissing::Restricted);
        }
        let mut entries = std::mem::take(&mut symbols.entries);
        // A stable sort uses the order that is there: the kernel's own symbols come by address. Names decide between aliases only.
        entries.sort_by(|a, b| {
            let rank = |entry: &Entry| (entry.is_code, !symbols.line(entry).starts_with('_'));
            let by_name = || rank(a).cmp(&rank(b)).then_with(|| symbols.line(b).cmp(symbols.line(a)));
            a.address.cmp(&b.address).then_with(by_name)
        });
        symbols.entries = entries;
        Ok(symbols)
    }

    /// Whether the table has a symbol at its recorded address.
    #[must_use]
    pub fn has(&self, symbol: &KernelSymbol) -> bool {
        let from = self.entries.partition_point(|entry| entry.address < symbol.address);
        let mut here = self.entries.iter().skip(from).take_while(|entry| entry.address == symbol.address);
        here.any(|entry| self.line(entry) == symbol.name)
    }

    /// The function that contains an address.
    #[must_use]
    pub fn find(&self, address: u64) -> Option<KernelName<'_>> {
        let above = self.entries.partition_point(|entry| entry.address <= address);
        let entry = self.entries.get(above.checked_sub(1)?)?;
        if !entry.is_code || address.wrapping_sub(entry.address) > MAX_FUNCTION_BYTES {
            return None;
        }
        let mut parts = self.line(entry).split('\t');
        let name = parts.next().filter(|name| !name.is_empty())?;
        Some(KernelName { name, module: parts.next().map(|module| module.trim_matches(['[', ']'])) })
    }

    fn line(&self, entry: &Entry) -> &str {
        self.text.get(entry.line.0 as usize..entry.line.1 as usize).unwrap_or_default()
    }
}

impl Entry {
    /// Parses a line that begins there in the text; `None` if it is no symbol. A table has some 100,000 lines, of which few
    /// are looked up, so this must be quick.
    fn parse(line: &[u8], from: usize) -> Option<Self> {
        let line = line.trim_ascii_end();
        let n_digits = memchr(b' ', line).filter(|&n| (1..=16).contains(&n))?;
        let (digits, rest) = line.split_at(n_digits);
        let mut address = 0;
        for &byte in digits {
            let digit = match byte {
                b'0'..=b'9' => byte - b'0',
                b'a'..=b'f' => byte - b'a' + 10,
                b'A'..=b'F' => byte - b'A' + 10,
                _ => return None,
            };
            address = address << 4 | u64::from(digit);
        }
        let &[b' ', kind, b' ', ..] = rest else { return None };
        let name = u32::try_from(from.checked_add(n_digits)?.checked_add(3)?).ok()?;
        let end = u32::try_from(from.checked_add(line.len())?).ok()?;
        Some(Self { address, is_code: matches!(kind, b't' | b'T' | b'w' | b'W'), line: (name, end) })
    }
}

/// Opens the table of the running kernel, if the recording was made since this kernel was booted.
///
/// # Errors
/// Why its names would be wrong, or why there are none.
pub fn open_kernel_symbols(meta: &Meta, resolver: &dyn Resolver) -> Result<Box<dyn ReadSeek>, KernelMissing> {
    let open = |path: &str| Ok(resolver.open(Path::new(path)).map_err(|_| KernelMissing::Unreadable)?.reader);
    let read = |path: &str| {
        let mut text = String::new();
        open(path)?.take(MAX_PROC_BYTES).read_to_string(&mut text).map_err(|_| KernelMissing::Unreadable)?;
        Ok(text)
    };
    is_same_kernel(meta, read("/proc/sys/kernel/osrelease")?.trim(), &read("/proc/stat")?)?;
    open("/proc/kallsyms")
}

/// Whether the kernel that runs now, booted at `btime` of `stat`, is the one of the recording.
///
/// A kernel booted after the recording began is another one. One booted before is the same if the recording's own
/// clock, which counts from the boot, agrees; time spent suspended only makes the computed boot time later. perf does
/// not record the time of day: for its files, an address of the kernel is compared with the table.
///
/// # Sources
/// proc(5), `/proc/stat`: `btime`, boot time in seconds since 1970. `CLOCK_MONOTONIC` does not count suspended time.
pub(super) fn is_same_kernel(meta: &Meta, release: &str, stat: &str) -> Result<(), KernelMissing> {
    const SLACK_NS: i128 = 2_000_000_000;
    if meta.host.kernel != release {
        return Err(KernelMissing::OtherKernel);
    }
    if meta.start_unix_ns == 0 {
        return meta.host.kernel_symbol.as_ref().map(|_| ()).ok_or(KernelMissing::Unplaced);
    }
    let boot_s = stat.lines().find_map(|line| line.strip_prefix("btime ")).and_then(|text| text.trim().parse().ok());
    let boot_ns = i128::from(boot_s.unwrap_or(i64::MAX)).saturating_mul(1_000_000_000);
    let recorded_boot_ns = i128::from(meta.start_unix_ns).saturating_sub(i128::from(meta.start_ns));
    let is_started_later = boot_ns > i128::from(meta.start_unix_ns);
    let is_clock_of_another = recorded_boot_ns < boot_ns.saturating_sub(SLACK_NS);
    if is_started_later || is_clock_of_another { Err(KernelMissing::OtherBoot) } else { Ok(()) }
}
