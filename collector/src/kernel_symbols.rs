//! Names of the kernel functions that were sampled, for analysis under another kernel or after a restart.

use fpprof_recording::model::{FileIdentity, KERNEL_SYMBOLS_PATH, ModuleBytes};
use rustc_hash::FxHashSet;
use std::fs::File;
use std::io::{BufRead, BufReader};

/// The most addresses kept; a busy machine uses some ten thousand.
const MAX_ADDRESSES: usize = 1 << 18;

/// The sampled kernel addresses.
#[derive(Debug, Default)]
pub(crate) struct KernelSymbols {
    addresses: FxHashSet<u64>,
}

impl KernelSymbols {
    /// Notes a kernel chain, sampled instruction first.
    pub(crate) fn note(&mut self, chain: &[u64]) {
        for &address in chain {
            if self.addresses.len() < MAX_ADDRESSES {
                self.addresses.insert(address);
            }
        }
    }

    /// The part of `/proc/kallsyms` that names them; `None` if there is nothing to name, or if the kernel hides its
    /// addresses from us.
    pub(crate) fn finish(self) -> Option<ModuleBytes> {
        if self.addresses.is_empty() {
            return None;
        }
        let table = BufReader::with_capacity(1 << 20, File::open("/proc/kallsyms").ok()?);
        let bytes = select(self.addresses, table);
        (!bytes.is_empty()).then(|| ModuleBytes {
            path: KERNEL_SYMBOLS_PATH.to_vec(),
            identity: FileIdentity::default(),
            bytes,
        })
    }
}

/// The lines of a symbol table (address, type, name, module) whose symbols are the last at or below any of the
/// addresses, or at or below the byte before it, where the call of a return address is.
fn select(addresses: FxHashSet<u64>, mut table: impl BufRead) -> Vec<u8> {
    let mut wanted: Vec<u64> = addresses.into_iter().flat_map(|address| [address, address.wrapping_sub(1)]).collect();
    wanted.sort_unstable();
    wanted.dedup();
    // For each address, the lines of the highest symbol between the preceding address and itself.
    let mut nearest: Vec<(u64, Vec<u8>)> = vec![(0, Vec::new()); wanted.len()];
    let mut line = Vec::new();
    while table.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
        let symbol = address(&line).filter(|&symbol| symbol > 0);
        let slot = symbol.and_then(|symbol| nearest.get_mut(wanted.partition_point(|&wanted| wanted < symbol)));
        if let (Some(symbol), Some((known, lines))) = (symbol, slot)
            && symbol >= *known
        {
            if symbol > *known {
                *known = symbol;
                lines.clear();
            }
            lines.extend_from_slice(&line);
        }
        line.clear();
    }
    nearest.into_iter().flat_map(|(_, lines)| lines).collect()
}

fn address(line: &[u8]) -> Option<u64> {
    let end = line.iter().position(|&byte| byte == b' ')?;
    u64::from_str_radix(std::str::from_utf8(line.get(..end)?).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that each address keeps the symbol that contains it, with its aliases, whatever the order of the table,
    /// and nothing else; and that a table without addresses gives nothing.
    #[test]
    fn what_is_needed_is_kept() {
        let table = "0000000000000300 t other\t[module]\n0000000000000100 T first\n0000000000000200 T needed\n\
            0000000000000200 T alias\n0000000000000280 d data\n0000000000000400 T after\n";
        let selected = |addresses: &[u64], table: &str| {
            String::from_utf8(select(addresses.iter().copied().collect(), table.as_bytes())).expect("text")
        };
        let needed = "0000000000000200 T needed\n0000000000000200 T alias\n";
        assert_eq!(selected(&[0x210, 0x27f], table), needed);
        // A return address at the start of another function: the call is the last instruction of the function before.
        assert_eq!(selected(&[0x300], table), "0000000000000280 d data\n0000000000000300 t other\t[module]\n");
        assert_eq!(selected(&[0x50], table), "");
        assert_eq!(selected(&[0x210], "0000000000000000 T hidden\n"), "");
    }
}
