//! Control groups: finding the requested one and the kernel's identifier for it.

use crate::error::Error;
use libbpf_rs::btf::{Btf, types};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A control group to profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cgroup {
    /// Its cgroupfs directory.
    pub(crate) path: PathBuf,
    /// The kernel's cgroup ID, which is the inode of the directory.
    pub(crate) id: u64,
    /// ID of one controller of its version 1 hierarchy; `None` in version 2.
    pub(crate) subsystem: Option<u32>,
}

/// A mounted hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Hierarchy {
    device: (u32, u32),
    mount: PathBuf,
    /// Mount options, including the controllers; `None` for version 2.
    controllers: Option<Vec<String>>,
}

impl Cgroup {
    /// Finds the control group `asked` for: a directory, or a name below the mount of a hierarchy, as in perf; version
    /// 2 is tried first.
    pub(crate) fn find(asked: &Path) -> Result<Self, Error> {
        let hierarchies = hierarchies(&String::from_utf8_lossy(&fs::read("/proc/self/mountinfo").unwrap_or_default()));
        let name = asked.strip_prefix("/").unwrap_or(asked);
        let mounts = hierarchies.iter().map(|hierarchy| hierarchy.mount.join(name));
        for path in std::iter::once(asked.to_path_buf()).chain(mounts) {
            let Ok(metadata) = fs::metadata(&path) else { continue };
            let device = (libc::major(metadata.dev()), libc::minor(metadata.dev()));
            let Some(hierarchy) = hierarchies.iter().find(|hierarchy| hierarchy.device == device) else { continue };
            if metadata.is_dir() {
                let subsystem = hierarchy.controllers.as_deref().map(|names| subsystem(names, &path)).transpose()?;
                return Ok(Self { path, id: metadata.ino(), subsystem });
            }
        }
        let mounts = hierarchies.iter().map(|hierarchy| hierarchy.mount.display().to_string()).collect::<Vec<_>>();
        Err(Error::NoSuchCgroup { asked: asked.to_path_buf(), mounts: mounts.join(", ") })
    }
}

/// The hierarchies in `/proc/self/mountinfo`, version 2 first.
///
/// # Sources
/// `proc_pid_mountinfo(5)`. A blank in a path is written as `\040`; hierarchies mounted at such a path are not found.
fn hierarchies(mountinfo: &str) -> Vec<Hierarchy> {
    let mut hierarchies: Vec<_> = mountinfo.lines().filter_map(hierarchy).collect();
    hierarchies.sort_by_key(|hierarchy| hierarchy.controllers.is_some());
    hierarchies
}

fn hierarchy(line: &str) -> Option<Hierarchy> {
    let (mount, file_system) = line.split_once(" - ")?;
    let mut mount = mount.split(' ').skip(2);
    let (major, minor) = mount.next()?.split_once(':')?;
    let device = (major.parse().ok()?, minor.parse().ok()?);
    let mount = PathBuf::from(mount.nth(1)?);
    let mut file_system = file_system.split(' ');
    let controllers = match file_system.next()? {
        "cgroup2" => None,
        "cgroup" => Some(file_system.nth(1)?.split(',').map(str::to_owned).collect()),
        _ => return None,
    };
    Some(Hierarchy { device, mount, controllers })
}

/// The kernel's ID of one of the controllers among the mount options `names`.
///
/// # Sources
/// `enum cgroup_subsys_id` in `include/linux/cgroup-defs.h`; the controller `blkio` is called `io` there.
fn subsystem(names: &[String], path: &Path) -> Result<u32, Error> {
    let btf = Btf::from_vmlinux().map_err(Error::bpf)?;
    let ids = btf.type_by_name::<types::Enum<'_>>("cgroup_subsys_id");
    let number = |wanted: &str| {
        let wanted = format!("{}_cgrp_id", if wanted == "blkio" { "io" } else { wanted });
        let id = ids.as_ref()?.iter().find(|id| id.name.is_some_and(|name| *name == *wanted))?;
        u32::try_from(id.value).ok()
    };
    names.iter().find_map(|name| number(name)).ok_or_else(|| Error::CgroupWithoutController(path.to_path_buf()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that hierarchies of both versions are found, version 2 first, and other file systems are not.
    #[test]
    fn hierarchies_are_found() {
        let text = "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
                    30 22 0:26 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct\n\
                    31 22 0:35 / /sys/fs/cgroup/unified rw,nosuid shared:4 master:2 - cgroup2 cgroup2 rw,nsdelegate\n\
                    rubbish - cgroup\n\n";
        let found = hierarchies(text);
        let names: Vec<_> = found.iter().map(|hierarchy| hierarchy.mount.to_str().unwrap_or_default()).collect();
        assert_eq!(names, ["/sys/fs/cgroup/unified", "/sys/fs/cgroup/cpu"]);
        assert_eq!((found[0].device, &found[0].controllers), ((0, 35), &None));
        assert_eq!(found[1].controllers.as_deref(), Some(&["rw", "cpu", "cpuacct"].map(str::to_owned)[..]));
    }
}
