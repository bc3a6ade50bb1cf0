//! Kernel symbols, from the kernel's own table.

use crate::modules::{ReadSeek, Resolver};
use bstr::ByteSlice as _;
use fpprof_recording::model::{KernelSymbol, Meta};
use memchr::memchr;
use std::borrow::Cow;
use std::cmp::Reverse;
use std::io::{self, BufReader, Read};
use std::ops::RangeInclusive;
use std::path::Path;

/// The most bytes of a table of kernel symbols; usual ones have 5 to 20 MiB.
const MAX_TABLE_BYTES: u64 = 256 << 20;
/// The most bytes of `/proc/stat`, which grows with CPUs and interrupts.
const MAX_PROC_BYTES: u64 = 16 << 20;
/// Bytes of such a table read at once.
pub(super) const PIECE_BYTES: usize = 1 << 14;
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
            Self::Unplaced => "the recording does not have the kernel's load address",
            Self::Restricted => {
                "kernel addresses are hidden; run as root, or: sysctl kernel.kptr_restrict=0 kernel.perf_event_paranoid=1"
            }
            Self::Unreadable => "cannot read /proc/kallsyms",
        }
    }
}

/// A kernel function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelName<'a> {
    /// Its name.
    pub name: Cow<'a, str>,
    /// The kernel module it is in; `None` for the kernel itself.
    pub module: Option<Cow<'a, str>>,
}

/// The functions of a kernel at some addresses.
#[derive(Debug)]
pub struct KernelSymbols {
    /// The requested addresses, ascending.
    wanted: Vec<u64>,
    /// For each of them, the number of its symbol.
    nearest: Vec<Option<usize>>,
    symbols: Vec<Symbol>,
}

/// A kept symbol.
#[derive(Debug)]
struct Symbol {
    address: u64,
    is_code: bool,
    /// The name, and after a tab the module in brackets.
    line: Vec<u8>,
}

impl KernelSymbols {
    /// Reads a table in the format of `/proc/kallsyms`: address, type, name, and the module in brackets. Keeps the
    /// symbols of the `wanted` addresses only: a table has some 100,000 lines, of which a profile needs some hundreds.
    ///
    /// # Errors
    /// [`KernelMissing::Restricted`] if all addresses are zero, [`KernelMissing::Unreadable`] if it cannot be read or
    /// is empty, [`KernelMissing::OtherBoot`] if `present` is given and not in it.
    pub fn read(table: impl Read, wanted: &[u64], present: Option<&KernelSymbol>) -> Result<Self, KernelMissing> {
        let mut wanted = wanted.to_vec();
        wanted.sort_unstable();
        wanted.dedup();
        let mut symbols = Self { nearest: vec![None; wanted.len()], wanted, symbols: Vec::new() };
        let mut gap = Gap::default();
        let (mut is_empty, mut is_hidden, mut is_present) = (true, true, present.is_none());
        let read = for_each_piece(table, |piece, next| {
            if let Some(skipped) = ascending(piece, next)
                && !symbols.has_wanted(&skipped)
                && present.is_none_or(|symbol| !skipped.contains(&symbol.address))
            {
                (is_empty, is_hidden) = (false, false);
                return;
            }
            for entry in piece.lines().filter_map(Entry::parse) {
                is_empty = false;
                is_hidden &= entry.address == 0;
                is_present |= present
                    .is_some_and(|symbol| entry.address == symbol.address && entry.line == symbol.name.as_bytes());
                symbols.note(&entry, &mut gap);
            }
        });
        read.map_err(|_| KernelMissing::Unreadable)?;
        match (is_empty, is_hidden, is_present) {
            (true, ..) => Err(KernelMissing::Unreadable),
            (_, true, _) => Err(KernelMissing::Restricted),
            (.., false) => Err(KernelMissing::OtherBoot),
            (false, false, true) => {
                let mut below = None;
                symbols.nearest.iter_mut().for_each(|nearest| {
                    below = nearest.or(below);
                    *nearest = below;
                });
                Ok(symbols)
            }
        }
    }

    /// The function that contains an address, one of those that were wanted.
    #[must_use]
    pub fn find(&self, address: u64) -> Option<KernelName<'_>> {
        let at = self.wanted.binary_search(&address).ok()?;
        let symbol = self.symbols.get((*self.nearest.get(at)?)?)?;
        if !symbol.is_code || address.wrapping_sub(symbol.address) > MAX_FUNCTION_BYTES {
            return None;
        }
        let mut parts = symbol.line.split_str(b"\t");
        let name = parts.next().filter(|name| !name.is_empty())?.to_str_lossy();
        let module = parts.next().map(|module| module.trim_with(|c| matches!(c, '[' | ']')).to_str_lossy());
        Some(KernelName { name, module })
    }

    /// Whether one of the wanted addresses is in a range.
    fn has_wanted(&self, range: &RangeInclusive<u64>) -> bool {
        let from = self.wanted.partition_point(|wanted| wanted < range.start());
        self.wanted.get(from).is_some_and(|wanted| wanted <= range.end())
    }

    /// Keeps a symbol if it is the best so far for the wanted address at or above it.
    fn note(&mut self, entry: &Entry<'_>, gap: &mut Gap) {
        // The kernel's own symbols come by address: most are in the gap of the one before.
        if !gap.contains(entry.address) {
            *gap = Gap::around(entry.address, &self.wanted);
        }
        let Some(nearest) = self.nearest.get_mut(gap.below) else { return };
        let known = nearest.and_then(|known| self.symbols.get_mut(known));
        match known {
            Some(known) if entry.key() > Entry::of(known).key() => {
                // Not a new one: the symbols below a wanted address may be most of the table.
                (known.address, known.is_code) = (entry.address, entry.is_code);
                known.line.clear();
                known.line.extend_from_slice(entry.line);
            }
            Some(_) => {}
            None => {
                *nearest = Some(self.symbols.len());
                let &Entry { address, is_code, line } = entry;
                self.symbols.push(Symbol { address, is_code, line: line.to_vec() });
            }
        }
    }
}

/// Calls `visit` with each piece of a table, whole lines, and the one after it.
fn for_each_piece(table: impl Read, mut visit: impl FnMut(&[u8], &[u8])) -> io::Result<()> {
    let mut table = BufReader::with_capacity(PIECE_BYTES, table.take(MAX_TABLE_BYTES));
    let (mut piece, mut next) = (Vec::new(), Vec::new());
    loop {
        next.clear();
        table.by_ref().take(PIECE_BYTES as u64).read_to_end(&mut next)?;
        io::BufRead::read_until(&mut table, b'\n', &mut next)?;
        visit(&piece, &next);
        if next.is_empty() {
            return Ok(());
        }
        std::mem::swap(&mut piece, &mut next);
    }
}

/// The addresses from the first symbol of a piece to that of the next one, if they ascend and none is of a module. The
/// kernel's own symbols do: most pieces of its table have no symbol that is needed, and are skipped.
///
/// # Sources
/// `get_symbol_pos` in `kernel/kallsyms.c` of Linux does a binary search in them. Those of modules, which
/// `/proc/kallsyms` shows after them, are in no order.
fn ascending(piece: &[u8], next: &[u8]) -> Option<RangeInclusive<u64>> {
    let own = |line| Entry::parse(line).filter(|entry| memchr(b'\t', entry.line).is_none());
    let (first, last, after) =
        (own(piece.lines().next()?)?, own(piece.lines().next_back()?)?, own(next.lines().next()?)?);
    (first.address <= last.address && last.address < after.address).then_some(first.address..=after.address)
}

/// The addresses between two neighbouring wanted ones, without the lower of them.
#[derive(Debug, Default)]
struct Gap {
    /// The number of the wanted address that ends it.
    below: usize,
    first: u64,
    last: u64,
}

impl Gap {
    fn around(address: u64, wanted: &[u64]) -> Self {
        let below = wanted.partition_point(|&wanted| wanted < address);
        let first = below.checked_sub(1).and_then(|lower| wanted.get(lower)).map_or(0, |lower| lower.saturating_add(1));
        Self { below, first, last: wanted.get(below).copied().unwrap_or(u64::MAX) }
    }

    fn contains(&self, address: u64) -> bool {
        (self.first..=self.last).contains(&address)
    }
}

/// A line of a table.
#[derive(Debug, Clone, Copy)]
struct Entry<'a> {
    address: u64,
    is_code: bool,
    line: &'a [u8],
}

impl<'a> Entry<'a> {
    /// Parses a line; `None` if it is no symbol. Most are not needed, so this must be quick.
    fn parse(line: &'a [u8]) -> Option<Self> {
        let line = line.trim_ascii_end();
        // The kernel writes 16 digits.
        let usual = (line.get(16) == Some(&b' ')).then_some(16);
        let n_digits = usual.or_else(|| memchr(b' ', line)).filter(|&n| (1..=16).contains(&n))?;
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
        let &[b' ', kind, b' ', ref line @ ..] = rest else { return None };
        Some(Self { address, is_code: matches!(kind, b't' | b'T' | b'w' | b'W'), line })
    }

    fn of(symbol: &'a Symbol) -> Self {
        Self { address: symbol.address, is_code: symbol.is_code, line: &symbol.line }
    }

    /// Greatest for the symbol that names an address: the nearest, then among aliases code, one without a leading
    /// underscore, and the first by name.
    fn key(&self) -> (u64, bool, bool, Reverse<&[u8]>) {
        (self.address, self.is_code, !self.line.starts_with(b"_"), Reverse(self.line))
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
