//! The columns of a block of samples: each kind of value in a place of its own, so that zstd finds its repetitions.

use super::varint::Cursor;

macro_rules! columns {
    ($($(#[$meta:meta])* $name:ident,)*) => {
        /// Columns being written.
        #[derive(Debug, Default)]
        pub(crate) struct Columns { $($(#[$meta])* pub(crate) $name: Vec<u8>,)* }

        impl Columns {
            /// Names in the order of the file.
            pub(crate) const NAMES: &'static [&'static str] = &[$(stringify!($name),)*];

            /// Bytes in all columns.
            pub(crate) fn len(&self) -> usize {
                0 $(+ self.$name.len())*
            }

            /// Empties the columns; they keep their memory.
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
            /// `None` if there are more or fewer than a block of any version has. The last four came with versions 2, 4,
            /// 5 and 7; before, there was nothing to say in them.
            pub(crate) fn new(mut columns: impl ExactSizeIterator<Item = &'a [u8]>) -> Option<Self> {
                let n_columns = Columns::NAMES.len();
                if !(n_columns - 4..=n_columns).contains(&columns.len()) {
                    return None;
                }
                Some(Self { $($name: Cursor::new(columns.next().unwrap_or(&[])),)* })
            }

            /// Whether nothing is left in any column.
            pub(crate) fn all_read(&self) -> bool {
                true $(&& self.$name.is_empty())*
            }
        }
    };
}

columns! {
    /// One byte a sample, see [`super::state::flag`].
    flags,
    /// Number of the CPU within the block.
    cpu,
    /// New CPUs.
    new_cpus,
    /// Time against the CPU's sample before, as difference of differences.
    time,
    /// Ticks and losses of the CPU against its sample before.
    counters,
    /// Event and weight, where they differ from the CPU's sample before.
    event,
    /// Number of the thread within the block.
    thread,
    /// New threads: process and thread.
    new_threads,
    /// End of the stack, where it differs from the thread's sample before.
    stack_end,
    /// Which registers differ from the thread's sample before.
    register_mask,
    /// The registers that do, as words.
    registers,
    /// Holes of the chunk.
    holes,
    /// End of the chunk, against the stack's end.
    stack_len,
    /// Number of runs of changed words of a chunk.
    n_runs,
    /// Words from one run to the next, and words in the run if they are few.
    runs,
    /// Words in the runs with more.
    long_runs,
    /// Changed words.
    stack_words,
    /// Frames of the frame-pointer chain that follow from the registers and the stack.
    fp_predicted,
    /// The rest of the frame-pointer chain, as a chain.
    fp_chain,
    /// Frame addresses of that rest.
    fp_frames,
    /// Kernel chain.
    kernel_chain,
    /// New chains: length and how much of the end is that of the new chain before.
    new_chains,
    /// Addresses of new chains, as words.
    chain_words,
    /// Words seen for the first time in the block.
    literals,
    /// Samples whose chunk was cut because the ring was filling up. Not in version 1.
    shed,
    /// Bytes of a chunk below the stack pointer. Not before version 4.
    below_sp,
    /// Samples of threads on their alternate signal stacks, with what is known of the stacks they have left. Not before
    /// version 5.
    interrupted,
    /// Samples with walks by call frame information: how they ended, and the frames. Not before version 7.
    cfi,
}
