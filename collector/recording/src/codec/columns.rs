//! The columns of a block of samples: each kind of value is stored separately, so that zstd finds repetitions.

use super::varint::Cursor;

macro_rules! columns {
    ($($(#[$meta:meta])* $name:ident,)*) => {
        /// Columns being written.
        #[derive(Debug, Default)]
        pub(crate) struct Columns { $($(#[$meta])* pub(crate) $name: Vec<u8>,)* }

        impl Columns {
            /// Names, in the order of the file.
            pub(crate) const NAMES: &'static [&'static str] = &[$(stringify!($name),)*];

            /// Total size of the columns.
            pub(crate) fn len(&self) -> usize {
                0 $(+ self.$name.len())*
            }

            /// Clears the columns; they keep their memory.
            pub(crate) fn clear(&mut self) {
                $(self.$name.clear();)*
            }

            /// The columns in the order of the file.
            pub(crate) fn all(&self) -> [&[u8]; Self::NAMES.len()] {
                [$(&self.$name,)*]
            }
        }

        /// Columns being read.
        #[derive(Debug, Default)]
        pub(crate) struct Cursors<'a> { $(pub(crate) $name: Cursor<'a>,)* }

        impl<'a> Cursors<'a> {
            /// `None` if their number is not that of any version. The last five were added in versions 2, 4, 5, 7 and
            /// 9; in earlier versions they count as empty.
            pub(crate) fn new(mut columns: impl ExactSizeIterator<Item = &'a [u8]>) -> Option<Self> {
                let n_columns = Columns::NAMES.len();
                if !(n_columns - 5..=n_columns).contains(&columns.len()) {
                    return None;
                }
                Some(Self { $($name: Cursor::new(columns.next().unwrap_or(&[])),)* })
            }

            /// Whether all columns were read to their end.
            pub(crate) fn all_read(&self) -> bool {
                true $(&& self.$name.is_empty())*
            }
        }
    };
}

columns! {
    /// One byte per sample, see [`super::state::flag`].
    flags,
    /// Number of the CPU within the block.
    cpu,
    /// New CPUs.
    new_cpus,
    /// Time relative to the CPU's previous sample, as a difference of differences.
    time,
    /// Ticks and losses of the CPU relative to its previous sample.
    counters,
    /// Event and weight, if they differ from the CPU's previous sample.
    event,
    /// Number of the thread within the block.
    thread,
    /// New threads: process and thread ID.
    new_threads,
    /// End of the stack, if it differs from the thread's previous sample.
    stack_end,
    /// Mask of registers that differ from the thread's previous sample.
    register_mask,
    /// The values of these registers, as words.
    registers,
    /// Holes of the chunk.
    holes,
    /// End of the chunk, relative to the stack's end.
    stack_len,
    /// Number of runs of changed words of a chunk.
    n_runs,
    /// Words from one run to the next, and the length of the run if it is short.
    runs,
    /// Lengths of longer runs, in words.
    long_runs,
    /// Changed words.
    stack_words,
    /// Number of frames of the frame-pointer chain that follow from the registers and the stack.
    fp_predicted,
    /// The rest of the frame-pointer chain, as a chain.
    fp_chain,
    /// Frame addresses of the rest.
    fp_frames,
    /// Kernel chain.
    kernel_chain,
    /// New chains: length, and how much of the end is shared with the previous new chain.
    new_chains,
    /// Addresses of new chains, as words.
    chain_words,
    /// Words that appear for the first time in the block.
    literals,
    /// Samples whose chunk was shortened because the ring was filling up. Not in version 1.
    shed,
    /// Bytes of a chunk below the stack pointer. Not before version 4.
    below_sp,
    /// Samples of threads on their alternate signal stacks, with the interrupted stacks. Not before version 5.
    interrupted,
    /// Samples with walks by call frame information: how they ended, and the frames. Not before version 7.
    cfi,
    /// Samples that repeat others. Not before version 9.
    repeats,
}
