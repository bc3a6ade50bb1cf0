//! Finds the libraries of the chosen features and links them dynamically.

/// elfutils 0.188 is the first with `dwfl_frame_reg`.
#[cfg(feature = "libdw")]
const LIBDW: Library = Library {
    feature: "libdw",
    package: "libdw",
    at_least: "0.188",
    install: "libdw-dev on Debian and Ubuntu, elfutils-devel on Fedora, elfutils on Arch Linux",
};

/// The `-generic` library holds the remote unwinder of the host's architecture.
#[cfg(feature = "libunwind")]
const LIBUNWIND: Library = Library {
    feature: "libunwind",
    package: "libunwind-generic",
    at_least: "1.6",
    install: "libunwind-dev on Debian and Ubuntu, libunwind-devel on Fedora, libunwind on Arch Linux",
};

#[cfg(any(feature = "libdw", feature = "libunwind"))]
struct Library {
    feature: &'static str,
    package: &'static str,
    at_least: &'static str,
    install: &'static str,
}

#[cfg(any(feature = "libdw", feature = "libunwind"))]
impl Library {
    fn link(&self) {
        let Self { feature, package, at_least, install } = self;
        if let Err(error) = pkg_config::Config::new().atleast_version(at_least).probe(package) {
            panic!(
                "the feature `{feature}` needs {package} {at_least} or newer and its pkg-config file: install {install}, \
                 or build without the feature\n{error}"
            );
        }
    }
}

fn main() {
    #[cfg(feature = "libdw")]
    LIBDW.link();
    #[cfg(feature = "libunwind")]
    {
        let arch = std::env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
        assert!(arch == "x86_64", "the feature `libunwind` is for x86_64 hosts: this one is {arch}");
        LIBUNWIND.link();
    }
}
