//! Host names in a statically linked program.

/// Makes the C library resolve host names by `/etc/hosts` and DNS alone, in a program that is linked statically with glibc; does
/// nothing in others.
///
/// Such a program has these two inside. For any other service of `/etc/nsswitch.conf`, such as `resolve` or `myhostname`, it loads
/// the machine's plugin, which needs the machine's glibc, and crashes where that is another version.
///
/// # Sources
/// glibc, `nss/nss.h`; since 2.34 `nss_files` and `nss_dns` are part of libc.
pub fn resolve_without_plugins() {
    #[cfg(all(target_env = "gnu", target_feature = "crt-static"))]
    {
        unsafe extern "C" {
            fn __nss_configure_lookup(database: *const libc::c_char, services: *const libc::c_char) -> libc::c_int;
        }
        // SAFETY: Both are strings that end in zero; glibc copies what it needs of them, under its own lock.
        let refused = unsafe { __nss_configure_lookup(c"hosts".as_ptr(), c"files dns".as_ptr()) };
        debug_assert_eq!(refused, 0, "both services are known");
    }
}
