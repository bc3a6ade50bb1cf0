//! The kernels to boot.

/// A processor architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arch {
    X86_64,
    Aarch64,
}

/// The features that a kernel is expected to support.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expects {
    /// All features, with eBPF.
    Ebpf,
    /// As [`Self::Ebpf`], with stack ends from `/proc`.
    Realtime,
    /// As [`Self::Ebpf`], with programs that may sign return addresses.
    SignedAddresses,
    /// Samples by perf events only, to which the default falls back.
    PerfEvent,
    /// As [`Self::Ebpf`], on many CPUs: only what depends on their number is checked.
    ManyCpus,
}

/// A Debian kernel and its machine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kernel {
    pub(crate) name: &'static str,
    /// Debian's suite, and the package in it that depends on its newest kernel.
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
    /// Debian's name of the architecture.
    pub(crate) fn debian(self) -> &'static str {
        match self {
            Self::X86_64 => "amd64",
            Self::Aarch64 => "arm64",
        }
    }

    /// Compiler options specific to the architecture: return addresses are signed.
    pub(crate) fn compiler_options(self) -> &'static [&'static str] {
        match self {
            Self::X86_64 => &[],
            Self::Aarch64 => &["-mbranch-protection=standard"],
        }
    }

    /// Prefix of the architecture's compiler and `strip`.
    pub(crate) fn tool_prefix(self) -> &'static str {
        match self {
            Self::X86_64 => "",
            Self::Aarch64 => "aarch64-linux-gnu-",
        }
    }

    /// Directories in which its shared libraries may be.
    pub(crate) fn library_folders(self) -> &'static [&'static str] {
        match self {
            Self::X86_64 => &["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/usr/lib"],
            Self::Aarch64 => {
                &["/usr/lib/aarch64-linux-gnu", "/usr/aarch64-linux-gnu/lib", "/usr/aarch64-linux-gnu/lib64"]
            }
        }
    }
}
