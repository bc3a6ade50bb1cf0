//! The kernels that are booted.

/// A processor architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arch {
    X86_64,
    Aarch64,
}

/// What the kernel is expected to allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expects {
    /// Everything, with eBPF.
    Ebpf,
    /// The same, with stack ends from `/proc`.
    Realtime,
    /// As [`Self::Ebpf`], with return addresses that programs may sign.
    SignedAddresses,
    /// Samples by perf events only; the default falls back to them.
    PerfEvent,
    /// As [`Self::Ebpf`], on many CPUs: only what their number changes is looked at.
    ManyCpus,
}

/// A kernel of Debian's and the machine it runs on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kernel {
    pub(crate) name: &'static str,
    /// Debian's suite, and the package there that depends on its newest kernel.
    pub(crate) suite: &'static str,
    pub(crate) package: &'static str,
    pub(crate) arch: Arch,
    pub(crate) cpus: u32,
    pub(crate) memory_mib: u32,
    pub(crate) expects: Expects,
}

const CLOUD: Kernel = Kernel {
    name: "6.1",
    suite: "bookworm",
    package: "linux-image-cloud-amd64",
    arch: Arch::X86_64,
    cpus: 2,
    memory_mib: 1024,
    expects: Expects::Ebpf,
};

/// All kernels, oldest first.
pub(crate) const KERNELS: &[Kernel] = &[
    Kernel { name: "5.10", suite: "bullseye", expects: Expects::PerfEvent, ..CLOUD },
    CLOUD,
    Kernel { name: "6.1-64cpus", cpus: 64, memory_mib: 4096, expects: Expects::ManyCpus, ..CLOUD },
    Kernel { name: "6.12", suite: "trixie", ..CLOUD },
    Kernel { name: "6.12-rt", suite: "trixie", package: "linux-image-rt-amd64", expects: Expects::Realtime, ..CLOUD },
    Kernel { name: "7.3", suite: "trixie-backports", ..CLOUD },
    Kernel {
        name: "arm64",
        suite: "trixie",
        package: "linux-image-cloud-arm64",
        arch: Arch::Aarch64,
        expects: Expects::SignedAddresses,
        ..CLOUD
    },
];

impl Arch {
    /// Debian's name.
    pub(crate) fn debian(self) -> &'static str {
        match self {
            Self::X86_64 => "amd64",
            Self::Aarch64 => "arm64",
        }
    }

    /// Options of the compiler that only it has: return addresses are signed.
    pub(crate) fn compiler_options(self) -> &'static [&'static str] {
        match self {
            Self::X86_64 => &[],
            Self::Aarch64 => &["-mbranch-protection=standard"],
        }
    }

    /// What the names of its compiler and `strip` begin with.
    pub(crate) fn tool_prefix(self) -> &'static str {
        match self {
            Self::X86_64 => "",
            Self::Aarch64 => "aarch64-linux-gnu-",
        }
    }

    /// Where its shared libraries may lie.
    pub(crate) fn library_folders(self) -> &'static [&'static str] {
        match self {
            Self::X86_64 => &["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/usr/lib"],
            Self::Aarch64 => {
                &["/usr/lib/aarch64-linux-gnu", "/usr/aarch64-linux-gnu/lib", "/usr/aarch64-linux-gnu/lib64"]
            }
        }
    }
}
