//! What a recording leaves in the kernel: nothing. In a process of its own, so that everything found there is ours.

use fpprof_collector::{Request, StopFlag, Target, doctor, record};
use fpprof_recording::model::CaptureMode;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// The type of this process's open file descriptors, with the ID if it is a BPF program, map or link.
fn kernel_objects() -> BTreeSet<(String, u32)> {
    let mut objects = BTreeSet::new();
    for entry in std::fs::read_dir("/proc/self/fd").expect("descriptors").flatten() {
        let Ok(kind) = std::fs::read_link(entry.path()) else { continue };
        let kind = kind.to_string_lossy().into_owned();
        if !kind.contains("bpf") && !kind.contains("perf_event") {
            continue;
        }
        let info = format!("/proc/self/fdinfo/{}", entry.file_name().to_string_lossy());
        let info = std::fs::read_to_string(info).unwrap_or_default();
        let id = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        let id = id("prog_id:").or_else(|| id("map_id:")).or_else(|| id("link_id:")).unwrap_or(0);
        objects.insert((kind, id));
    }
    objects
}

fn exists(kind: &str, id: u32) -> bool {
    match kind {
        "anon_inode:bpf-prog" => libbpf_rs::Program::fd_from_id(id).is_ok(),
        "anon_inode:bpf-map" => libbpf_rs::MapHandle::from_map_id(id).is_ok(),
        "anon_inode:bpf_link" => libbpf_rs::query::LinkInfoIter::default().any(|link| link.id == id),
        // Perf events have no ID: their file descriptors must be gone, which the caller checks.
        _ => false,
    }
}

/// Check that programs, maps, links and events exist while recording, and are gone afterwards: after a recording, after
/// one that was refused late, and after a run of the doctor.
#[test]
fn nothing_is_left_behind() {
    let before = kernel_objects();
    let mut during = BTreeSet::new();
    let mut request = Request::new(Target::Command { argv: vec!["sleep".into(), "60".into()] });
    request.mode = CaptureMode::Both { stack_bytes: 65_536, every: 1 };
    request.duration = Some(Duration::from_millis(300));
    let stop = StopFlag::new().expect("a flag");
    record(&request, Vec::new(), &stop, &mut |_| during.extend(kernel_objects())).expect("recording works here");
    let kinds: BTreeSet<&str> = during.iter().map(|(kind, _)| kind.as_str()).collect();
    let expected = ["anon_inode:[perf_event]", "anon_inode:bpf-map", "anon_inode:bpf-prog", "anon_inode:bpf_link"];
    for kind in expected {
        assert!(kinds.contains(kind), "{kind} is not among {kinds:?}");
    }
    assert_eq!(kernel_objects(), before);
    // The kernel frees objects asynchronously.
    let deadline = Instant::now() + Duration::from_secs(60);
    while during.iter().any(|(kind, id)| exists(kind, *id)) {
        assert!(Instant::now() < deadline, "still there: {during:?}");
        std::thread::yield_now();
    }
    let not_a_program = tempfile::NamedTempFile::new().expect("a file");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(not_a_program.path(), mode).expect("its rights");
    request.target = Target::Command { argv: vec![not_a_program.path().into()] };
    record(&request, Vec::new(), &stop, &mut |_| {}).expect_err("an empty file is no program");
    assert_eq!(kernel_objects(), before);
    let missing: Vec<_> = doctor::probe().into_iter().filter(|check| !check.ok()).collect();
    assert_eq!(missing, [], "these tests need what recording needs");
    assert_eq!(kernel_objects(), before);
}
