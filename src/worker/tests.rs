use super::Older;
use super::broker::answer;
use super::message::{Reply, Request, receive, send};
use super::parser::Patience;
use super::{Files, Modules, Owners};
use fpprof_analysis::address_space::MappedFile;
use fpprof_analysis::modules::{FileModules, Missing, Resolver as _};
use fpprof_recording::model::FileIdentity;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::fs::File;
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

fn bytes_of(path: &Path) -> Vec<u8> {
    path.as_os_str().as_bytes().to_vec()
}

/// Check that a worker gets ELF files, the files of the command line and the kernel's own tables, but nothing else.
#[test]
fn only_what_is_needed_is_opened() {
    let dir = tempfile::tempdir().unwrap();
    let [named, secret] = ["named", "secret"].map(|name| dir.path().join(name));
    std::fs::write(&named, "named").unwrap();
    std::fs::write(&secret, "secret").unwrap();
    let files = Files::new([named.as_path()], []);
    let ask = |request| answer(request, &files, &Arc::new(FileModules::new()), &mut None, &mut || None);
    let this = std::env::current_exe().unwrap();
    for path in [&named, &this, Path::new("/proc/kallsyms")] {
        let (reply, file) = ask(Request::Module(bytes_of(path), None));
        assert!(matches!(reply, Reply::Module(_)) && file.is_some(), "{}: {reply:?}", path.display());
    }
    let (reply, file) = ask(Request::Module(bytes_of(&secret), None));
    assert!(matches!(reply, Reply::Missing(Missing::NotElf)) && file.is_none(), "{reply:?}");
    let (reply, file) = ask(Request::Module(bytes_of(&this), Some((0, 0, 1))));
    assert!(matches!(reply, Reply::Missing(Missing::Replaced)) && file.is_none(), "{reply:?}");
    let paths = [&secret, Path::new("/nowhere"), &this, &named];
    let (reply, file) = ask(Request::FirstModule(paths.map(bytes_of).to_vec()));
    assert!(matches!(reply, Reply::FirstModule(2, _)) && file.is_some(), "{reply:?}");
    let (reply, file) = ask(Request::FirstModule(vec![bytes_of(&secret)]));
    assert!(matches!(reply, Reply::Missing(_)) && file.is_none(), "{reply:?}");
    let (reply, file) = ask(Request::Module(bytes_of(Path::new("/proc/version")), None));
    assert!(matches!(reply, Reply::Missing(Missing::OfKernel)) && file.is_none(), "{reply:?}");
    let (reply, file) = ask(Request::Input(bytes_of(&named)));
    let mut text = String::new();
    File::from(file.unwrap()).read_to_string(&mut text).unwrap();
    assert!(matches!(reply, Reply::Done) && text == "named", "{reply:?}");
    for path in [&secret, &this, Path::new("-")] {
        let (reply, file) = ask(Request::Input(bytes_of(path)));
        assert!(matches!(reply, Reply::Failed(Some(_), _)) && file.is_none(), "{}: {reply:?}", path.display());
    }
    let create = |path: &Path, older| Request::Create(bytes_of(path), older);
    for request in [create(&secret, Older::Replaced), create(&named, Older::SetAside), Request::Commit] {
        let (reply, file) = ask(request);
        assert!(matches!(reply, Reply::Failed(None, _)) && file.is_none(), "{reply:?}");
    }
    assert_eq!(std::fs::read_to_string(&secret).unwrap(), "secret");
}

/// Check that a user's files are left out after some parser failures, and everybody's after more; that others' files
/// are parsed until then, and all files again after some time.
#[test]
fn failing_files_are_left_out_for_a_while() {
    const SECOND_NS: u64 = 1_000_000_000;
    let mut patience = Patience::default();
    let fails = |patience: &mut Patience, user| {
        let n = (0..100).take_while(|_| {
            let is_allowed = patience.allows(user, 5);
            is_allowed.then(|| patience.failed(user, 5)).is_some()
        });
        n.count()
    };
    assert_eq!(fails(&mut patience, 1000), 5);
    assert!(patience.allows(0, 5), "another user");
    let others: usize = (1..10).map(|user| fails(&mut patience, user)).sum();
    assert_eq!(others, 12, "as many as there are for all");
    assert!(!patience.allows(0, 5), "nobody's are parsed any more");
    assert!(patience.allows(0, 5 + 5 * SECOND_NS) && !patience.allows(1000, 5 + 5 * SECOND_NS));
    assert!(patience.allows(1000, 5 + 31 * SECOND_NS), "for ever it is not");
}

/// Check that a user's files are left out for a while when they have taken more time than there is.
#[test]
fn slow_files_are_left_out_for_a_while() {
    const SECOND_NS: u64 = 1_000_000_000;
    let mut patience = Patience::default();
    patience.took(1000, 0, Duration::from_secs(31));
    // One second too much, of which there is one in ten.
    let allowed = [(1000, 9), (0, 9), (1000, 10)].map(|(user, now_s)| patience.allows(user, now_s * SECOND_NS));
    assert_eq!(allowed, [false, true, true]);
}

/// Check that with fewer owners, the files of others are not read, and those of the kernel always are.
#[test]
fn files_of_other_owners_are_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let of_user = dir.path().join("program");
    std::fs::write(&of_user, "bytes").unwrap();
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&of_user, Some(1000), None).unwrap();
    }
    let paths = [of_user.as_path(), Path::new("/bin/sh"), Path::new("/proc/kallsyms")];
    for (owners, expected) in
        [(Owners::All, [true, true, true]), (Owners::Root, [false, true, true]), (Owners::Nobody, [false, false, true])]
    {
        let modules = Modules::new(FileModules::new()).with_owners(owners);
        assert_eq!(paths.map(|path| modules.open(path).is_ok()), expected, "{owners:?}");
        let used = [b"/bin/sh".as_slice(), b"[vdso]"].map(|path| {
            let file = MappedFile { path: path.to_vec(), identity: FileIdentity::default(), first_mapped_ns: 0 };
            modules.uses_recorded_bytes(&file)
        });
        assert_eq!(used, [owners == Owners::All, true]);
    }
}

/// Check that an output gets its name only when it is complete, and is removed otherwise.
#[test]
fn outputs_are_whole_or_gone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("output");
    let files = Files::new([], [path.as_path()]);
    let mut pending = None;
    let mut ask = |request| answer(request, &files, &Arc::new(FileModules::new()), &mut pending, &mut || None);
    assert!(matches!(ask(Request::Create(bytes_of(&path), Older::Replaced)).0, Reply::Done));
    assert!(!path.exists());
    assert!(matches!(ask(Request::Commit).0, Reply::Done));
    assert!(path.exists());
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(ask(Request::Create(bytes_of(&path), Older::Replaced)).0, Reply::Done));
    drop(pending);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// Check that a file arrives with its message, that the longest path fits, and that the end of the other side is
/// noticed.
#[test]
fn messages_carry_files() {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    let longest = vec![0xff; 4096];
    let this = File::open(std::env::current_exe().unwrap()).unwrap();
    send(&ours, &Request::Module(longest.clone(), None), Some(this.as_fd())).unwrap();
    let (request, file) = receive::<Request>(&theirs).unwrap().unwrap();
    assert!(matches!(request, Request::Module(path, None) if path == longest));
    assert_eq!(File::from(file.unwrap()).metadata().unwrap().len(), this.metadata().unwrap().len());
    drop(ours);
    assert!(receive::<Request>(&theirs).unwrap().is_none());
}

/// Check that an overlong path, from a hostile recording, is an error of its own and does not break the connection.
#[test]
fn paths_that_are_too_long_are_not_sent() {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    for length in [8 << 10, 64 << 10, 1 << 20] {
        let error = send(&ours, &Request::Module(vec![0xff; length], None), None).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::NAMETOOLONG.raw_os_error()), "{length} bytes");
    }
    send(&ours, &Request::Commit, None).unwrap();
    assert!(matches!(receive::<Request>(&theirs), Ok(Some((Request::Commit, None)))));
}
