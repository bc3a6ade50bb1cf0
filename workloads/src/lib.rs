//! Programs whose stacks are known, and real workloads.
