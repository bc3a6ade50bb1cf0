//! Derives from the path of a control group the service, container and pod that its processes belong to.
//!
//! Service managers and container runtimes name their control groups after what runs in them. No other source is used:
//! the names are those at the time of the recording, and whoever may create control groups can choose others.
//!
//! ```text
//! /system.slice/nginx.service                                          service nginx.service
//! /system.slice/docker-ID.scope                                        container ID
//! /kubepods.slice/kubepods-podUID.slice/cri-containerd-ID.scope        container ID, pod UID
//! ```
//!
//! # Sources
//! Units: systemd's "The New Control Group Interfaces", `cg_path_get_unit` and `cg_unescape` in `src/basic/cgroup-util.c`,
//! systemd.unit(5) on escapes. Containers: the drivers `systemd` and `cgroupfs` of runc (`libcontainer/cgroups`,
//! `docs/systemd.md`), which name scopes `PREFIX-ID.scope`; `getCgroupsPath` of containerd's CRI plugin; `libpod` of podman;
//! `lxc.cgroup.dir` in lxc.container.conf(5). Pods: `pkg/kubelet/cm/cgroup_manager_linux.go` of Kubernetes.

/// What a process belongs to, according to its control group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attribution {
    /// The systemd unit, a service or a scope, such as `nginx.service` or `session-3.scope`: the innermost, except for
    /// the scope of a container. Escapes are resolved (`\x2d` is `-`).
    pub service: Option<String>,
    /// The innermost container: its ID of 64 hexadecimal digits, or its name for LXC.
    pub container: Option<String>,
    /// The UID of the Kubernetes pod, as `kubectl` shows it.
    pub pod: Option<String>,
}

impl Attribution {
    /// Parses the path of a control group, as returned by [`Timeline::cgroup`](crate::address_space::Timeline::cgroup).
    #[must_use]
    pub fn of(path: &[u8]) -> Self {
        let path = String::from_utf8_lossy(path);
        let mut found = Self::default();
        let mut parent = "";
        for name in path.split('/') {
            if let Some(container) = container(parent, name) {
                found.container = Some(container.to_owned());
            } else if let Some(unit) = unit(name) {
                found.service = Some(unit);
            }
            if path.contains("kubepods")
                && let Some(pod) = pod(name)
            {
                found.pod = Some(pod);
            }
            parent = name;
        }
        found
    }

    /// Whether nothing is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The container of a group `name` within a group `parent`.
fn container<'a>(parent: &str, name: &'a str) -> Option<&'a str> {
    let lxc = name.strip_prefix("lxc.payload.").or_else(|| (parent == "lxc").then_some(name));
    if lxc.is_some_and(|name| !name.is_empty()) {
        return lxc;
    }
    // `ID`, `RUNTIME-ID`, `RUNTIME-ID.scope` or `SLICE:RUNTIME:ID`.
    let name = name.strip_suffix(".scope").unwrap_or(name);
    let (runtime, id) = name.rsplit_once(['-', ':']).unwrap_or(("", name));
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let is_id = id.len() == 64 && id.bytes().all(is_hex);
    // The monitor of a podman or CRI-O container runs outside it.
    (is_id && !runtime.ends_with("conmon")).then_some(id)
}

/// The systemd unit of a group of this name.
fn unit(name: &str) -> Option<String> {
    // systemd adds a `_` to names that could be taken for kernel files.
    let name = name.strip_prefix('_').unwrap_or(name);
    let stem = name.strip_suffix(".service").or_else(|| name.strip_suffix(".scope"))?;
    (!stem.is_empty()).then(|| unescaped(name))
}

/// A name with its escapes resolved: `\x` and two hexadecimal digits stand for a byte.
fn unescaped(name: &str) -> String {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.as_bytes();
    while let Some((&first, others)) = rest.split_first() {
        let (byte, others) = escaped(rest).unwrap_or((first, others));
        bytes.push(byte);
        rest = others;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Decodes an escape at the start: the byte, and the rest.
fn escaped(text: &[u8]) -> Option<(u8, &[u8])> {
    let (digits, rest) = text.strip_prefix(b"\\x")?.split_at_checked(2)?;
    let digits =
        std::str::from_utf8(digits).ok().filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    Some((u8::from_str_radix(digits, 16).ok()?, rest))
}

/// The pod of a group of this name: `podUID`, or `…-podUID.slice`, where systemd requires `_` instead of `-`.
fn pod(name: &str) -> Option<String> {
    let name = name.split(':').next().unwrap_or(name);
    let name = name.strip_suffix(".slice").unwrap_or(name);
    let (before, uid) = name.rsplit_once("pod")?;
    let is_uid = uid.bytes().all(|byte| byte.is_ascii_hexdigit() || matches!(byte, b'-' | b'_'));
    // The UID of a static pod is a check sum without hyphens.
    let is_uid = is_uid && matches!(uid.len(), 32 | 36);
    (is_uid && (before.is_empty() || before.ends_with('-'))).then(|| uid.replace('_', "-"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ID: &str = "7eb263389e5eea068ad3d0c208ea4dd02ba86fa0b2ebd44f63adc391351fba6d";
    const OUTER: &str = "2403ccfe427f1dc7b6120dccb9ac58c2f8456950380d587a9f33ea7f00dd303d";
    const POD: &str = "0125ec2f-b64a-4868-8f5b-94b56cbab864";

    /// A path, and its service, container and pod.
    type Case<'a> = (&'a str, Option<&'a str>, Option<&'a str>, Option<&'a str>);

    /// Checks paths in which `ID`, `OUTER`, `POD` and `P_O_D` (the same with `_`) stand for those.
    fn check(cases: &[Case<'_>]) {
        let full = |text: &str| {
            let text = text.replace("P_O_D", &POD.replace('-', "_")).replace("POD", POD);
            text.replace("OUTER", OUTER).replace("ID", ID)
        };
        for &(path, service, container, pod) in cases {
            let [service, container, pod] = [service, container, pod].map(|text| text.map(full));
            assert_eq!(Attribution::of(full(path).as_bytes()), Attribution { service, container, pod }, "{path}");
        }
    }

    /// Check that the innermost unit of a path is the service, with its escapes resolved, and that slices, mounts and a
    /// unit's own subgroups are not.
    #[test]
    fn units_of_systemd() {
        check(&[
            ("/system.slice/nginx.service", Some("nginx.service"), None, None),
            ("/system.slice/system-getty.slice/getty@tty1.service", Some("getty@tty1.service"), None, None),
            ("/system.slice/postgresql.service/worker", Some("postgresql.service"), None, None),
            ("/system.slice/_cpu.service", Some("cpu.service"), None, None),
            (
                r"/system.slice/system-serial\x2dgetty.slice/serial-getty@ttyS0.service",
                Some("serial-getty@ttyS0.service"),
                None,
                None,
            ),
            (
                r"/user.slice/user-1000.slice/user@1000.service/app.slice/app-gnome-org.gnome.Terminal\x2dserver-12.scope",
                Some("app-gnome-org.gnome.Terminal-server-12.scope"),
                None,
                None,
            ),
            ("/user.slice/user-1000.slice/session-3.scope", Some("session-3.scope"), None, None),
            ("/user.slice/user-1000.slice/user@1000.service/init.scope", Some("init.scope"), None, None),
            ("/init.scope", Some("init.scope"), None, None),
            (r"/system.slice/dev-disk-by\x2dlabel.mount", None, None, None),
            (r"/a\x2.service/b\xzz\x2d\x2f.service", Some(r"b\xzz-/.service"), None, None),
            ("/system.slice", None, None, None),
            ("/system.slice/.service", None, None, None),
            ("/", None, None, None),
            ("", None, None, None),
        ]);
    }

    /// Check that containers are found for the naming of each runtime, with and without systemd, in both versions of
    /// control groups, the innermost of nested ones; and that a container's monitor is not in it.
    #[test]
    fn containers_of_each_runtime() {
        let id = Some("ID");
        check(&[
            // Docker: version 2 with systemd, version 1, Docker in a container, and systemd in a container.
            ("/system.slice/docker-ID.scope", None, id, None),
            ("/docker/ID", None, id, None),
            ("/docker/OUTER/docker/ID", None, id, None),
            ("/system.slice/docker-ID.scope/system.slice/cron.service", Some("cron.service"), id, None),
            ("/docker/ID/system.slice/opendkim.service", Some("opendkim.service"), id, None),
            ("/../../system.slice/docker-ID.scope", None, id, None),
            ("/system.slice/docker.service", Some("docker.service"), None, None),
            ("/ecs/8f03e41243824aea923aca126495f665/ID", None, id, None),
            // containerd on its own, podman, and podman services.
            ("/system.slice/nerdctl-ID.scope", None, id, None),
            ("/machine.slice/libpod-ID.scope/container", None, id, None),
            ("/libpod_parent/libpod-ID", None, id, None),
            (
                "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-ID.scope/container",
                Some("user@1000.service"),
                id,
                None,
            ),
            ("/system.slice/web.service/libpod-payload-ID", Some("web.service"), id, None),
            ("/machine.slice/libpod-conmon-ID.scope", Some("libpod-conmon-ID.scope"), None, None),
            // LXC, LXD and Incus, and Proxmox.
            ("/lxc/web/system.slice/nginx.service", Some("nginx.service"), Some("web"), None),
            ("/lxc.payload.web-1", None, Some("web-1"), None),
            ("/lxc.payload.web/system.slice/docker-ID.scope", None, id, None),
            ("/lxc.monitor.web", None, None, None),
            ("/lxc/101/ns/init.scope", Some("init.scope"), Some("101"), None),
            // Not 64 digits, or not hexadecimal.
            ("/docker/abc123", None, None, None),
            ("/system.slice/docker-IDa.scope", Some("docker-IDa.scope"), None, None),
            ("/lxc/", None, None, None),
        ]);
    }

    /// Check that pods and their containers are found, for each quality-of-service class, with kubelet's drivers
    /// `systemd` and `cgroupfs`, and with each runtime.
    #[test]
    fn pods_of_kubernetes() {
        let (id, pod) = (Some("ID"), Some("POD"));
        let slices = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podP_O_D.slice";
        let below = |name: &str| format!("{slices}/{name}");
        for name in ["cri-containerd-ID.scope", "crio-ID.scope", "docker-ID.scope", "cri-containerd-ID.scope/init"] {
            check(&[(&below(name), None, id, pod)]);
        }
        check(&[
            ("/kubepods.slice/kubepods-podP_O_D.slice/cri-containerd-ID.scope", None, id, pod),
            ("/kubepods/burstable/podPOD/ID", None, id, pod),
            ("/kubepods/podPOD/ID", None, id, pod),
            ("/kubepods/besteffort/podPOD", None, None, pod),
            ("/kubepods/besteffort/podPOD/crio-ID", None, id, pod),
            (
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podP_O_D.slice/crio-conmon-ID.scope",
                Some("crio-conmon-ID.scope"),
                None,
                pod,
            ),
            ("/kubepods-besteffort-podP_O_D.slice:cri-containerd:ID", None, id, pod),
            (
                "/system.slice/containerd.service/kubepods-besteffort-podP_O_D.slice:cri-containerd:ID",
                Some("containerd.service"),
                id,
                pod,
            ),
            // A Kubernetes node in a container (kind).
            (
                "/system.slice/docker-OUTER.scope/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-podP_O_D.slice/cri-containerd-ID.scope",
                None,
                id,
                pod,
            ),
            // A static pod, and a group that is not a Kubernetes pod.
            (
                "/kubepods/burstable/pod1f0f9ee3ac3ff0e0fbfbf0f4a8ec1b3b/ID",
                None,
                id,
                Some("1f0f9ee3ac3ff0e0fbfbf0f4a8ec1b3b"),
            ),
            ("/machine.slice/podPOD", None, None, None),
            ("/machine.slice/machine-libpod_pod_OUTER.slice/libpod-ID.scope", None, id, None),
            ("/kubepods/burstable", None, None, None),
            ("/kubepods.slice/kubepods-burstable-podx.slice", None, None, None),
        ]);
    }

    /// Check that an unrecognised path gives an empty result, and a recognised one does not.
    #[test]
    fn unrecognised_paths_give_nothing() {
        assert!(Attribution::of(b"/user.slice").is_empty() && !Attribution::of(b"/init.scope").is_empty());
    }

    proptest! {
        /// Check that any bytes can be parsed.
        #[test]
        fn any_path_is_read(path in prop::collection::vec(any::<u8>(), 0..200), name in r"(\\x?[0-9a-f-]{0,3}|/|:|pod|lxc|kubepods|\.scope){0,20}") {
            let _ = (Attribution::of(&path), Attribution::of(name.as_bytes()));
        }
    }
}
