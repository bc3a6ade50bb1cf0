//! Second opinions on a sample: elfutils' libdw and libunwind over the same registers and stack bytes.
