//! Records as the kernel lays them out.

use super::*;

struct Bytes(Vec<u8>);

impl Bytes {
    fn u32(mut self, value: u32) -> Self {
        self.0.extend_from_slice(&value.to_ne_bytes());
        self
    }

    fn u64(mut self, value: u64) -> Self {
        self.0.extend_from_slice(&value.to_ne_bytes());
        self
    }

    fn text(mut self, text: &[u8]) -> Self {
        self.0.extend_from_slice(text);
        self.0.resize((self.0.len() + 1).next_multiple_of(8), 0);
        self
    }

    /// Adds a header, and the trailer of `event`.
    fn record(self, kind: u32, misc: u32, event: u64) -> Vec<u8> {
        let body = self.u32(1).u32(2).u64(1234).u64(0).u64(event).0;
        let size = u16::try_from(body.len() + 8).expect("small");
        let misc = u16::try_from(misc).expect("16 bits");
        [&kind.to_ne_bytes()[..], &misc.to_ne_bytes(), &size.to_ne_bytes(), &body].concat()
    }
}

fn mmap2(identity: impl Fn(Bytes) -> Bytes) -> Bytes {
    let place = Bytes(Vec::new()).u32(10).u32(11).u64(0x40_0000).u64(0x1000).u64(0x2000);
    identity(place).u32(5).u32(2).text(b"/bin/true")
}

fn inode(bytes: Bytes) -> Bytes {
    bytes.u32(8).u32(1).u64(4711).u64(3)
}

fn all(bytes: &[u8]) -> Vec<Body> {
    Records { bytes }.map(|record| record.body()).collect()
}

fn mapping(identity: FileIdentity) -> Body {
    Body::Mmap(Mmap {
        time_ns: 1234,
        pid: 10,
        tid: 11,
        start: 0x40_0000,
        len: 0x1000,
        file_offset: 0x2000,
        prot: 5,
        flags: 2,
        path: b"/bin/true".to_vec(),
        identity,
        synthesized: false,
    })
}

/// Check that a mapping is read with device and inode, also if the kernel left the mark of somebody else's build ID on
/// it.
#[test]
fn mappings_have_device_and_inode() {
    let identity =
        FileIdentity { dev_major: 8, dev_minor: 1, inode: 4711, inode_generation: 3, ..FileIdentity::default() };
    for misc in [0, bindings::PERF_RECORD_MISC_MMAP_BUILD_ID] {
        let record = mmap2(inode).record(bindings::PERF_RECORD_MMAP2, misc, 7);
        assert_eq!(all(&record), [mapping(identity)]);
    }
}

/// Check that all other requested types of records are read, one after the other, and unknown ones skipped.
#[test]
fn other_records() {
    let comm = Bytes(Vec::new()).u32(10).u32(11).text(b"a b");
    let fork = || Bytes(Vec::new()).u32(20).u32(10).u32(21).u32(11).u64(99);
    let bytes = [
        comm.record(bindings::PERF_RECORD_COMM, bindings::PERF_RECORD_MISC_COMM_EXEC, 7),
        fork().record(bindings::PERF_RECORD_FORK, 0, 7),
        Bytes(Vec::new()).u64(1).record(0xffff, 0, 7),
        fork().record(bindings::PERF_RECORD_EXIT, 0, 7),
        Bytes(Vec::new()).u64(7).u64(30).record(bindings::PERF_RECORD_LOST, 0, 7),
        Bytes(Vec::new()).u64(50).u64(7).u64(7).record(bindings::PERF_RECORD_THROTTLE, 0, 7),
        Bytes(Vec::new()).u64(60).u64(7).u64(7).record(bindings::PERF_RECORD_UNTHROTTLE, 0, 7),
    ]
    .concat();
    let bodies = all(&bytes);
    let expected = [
        Body::Comm(Comm { time_ns: 1234, pid: 10, tid: 11, comm: b"a b".to_vec(), exec: true, start_ticks: 0 }),
        Body::Fork(Fork { time_ns: 99, pid: 20, tid: 21, parent_pid: 10, parent_tid: 11 }),
        Body::Other,
        Body::Exit(Exit { time_ns: 99, pid: 20, tid: 21 }),
        Body::Lost(30),
        Body::Throttle { time_ns: 50 },
        Body::Unthrottle { time_ns: 60 },
    ];
    assert_eq!(bodies, expected);
}

/// Check that bytes cut anywhere, and impossible sizes, end the reading without harm.
#[test]
fn cut_rings_end() {
    let whole = mmap2(inode).record(bindings::PERF_RECORD_MMAP2, 0, 7);
    for len in 0..whole.len() {
        assert_eq!(all(&whole[..len]), [], "cut to {len} bytes");
    }
    for size in [0u16, 7, u16::MAX] {
        let mut bad = whole.clone();
        bad[6..8].copy_from_slice(&size.to_ne_bytes());
        assert_eq!(all(&bad), []);
    }
    let mut short = whole;
    short[6..8].copy_from_slice(&16u16.to_ne_bytes());
    assert_eq!(all(&short).first(), Some(&Body::Other));
}

/// Check that the process of a mapping without code can be read from its record, and that other records have none.
#[test]
fn mappings_without_code_are_distinguished() {
    let place = |prot: u32| {
        let place = Bytes(Vec::new()).u32(10).u32(11).u64(0x40_0000).u64(0x1000).u64(0x2000);
        inode(place).u32(prot).u32(2).text(b"//anon")
    };
    let of = |bytes: &[u8]| Records { bytes }.next().and_then(|record| record.data_mapping());
    assert_eq!(of(&place(3).record(bindings::PERF_RECORD_MMAP2, 0, 7)), Some((10, 1234)));
    assert_eq!(of(&place(5).record(bindings::PERF_RECORD_MMAP2, 0, 7)), None);
    assert_eq!(of(&place(3).record(bindings::PERF_RECORD_COMM, 0, 7)), None);
    assert_eq!(of(&Bytes(Vec::new()).u32(10).record(bindings::PERF_RECORD_MMAP2, 0, 7)), None);
}
