//! The eBPF collector, its loader, and the process events beside the samples.
