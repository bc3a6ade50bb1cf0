//! perf.data files that claim more than they contain.

/// A file with these event descriptions, IDs and records.
fn file(n_events: u64, ids: (u64, u64), tail: &[u8], data: (u64, u64)) -> Vec<u8> {
    let mut file = b"PERFILE2".to_vec();
    let attributes = (104_u64, n_events * 144);
    for word in [104, 144, attributes.0, attributes.1, data.0, data.1, 0, 0, 0, 0, 0, 0] {
        file.extend(u64::to_le_bytes(word));
    }
    for _ in 0..n_events {
        // PERF_TYPE_SOFTWARE, 128 bytes, cpu-clock, period 1000, IP | TID | TIME | IDENTIFIER.
        let mut attribute = vec![0; 128];
        attribute[..8].copy_from_slice(&[1, 0, 0, 0, 128, 0, 0, 0]);
        attribute[16..18].copy_from_slice(&1000_u16.to_le_bytes());
        attribute[24..32].copy_from_slice(&0x1_0007_u64.to_le_bytes());
        file.extend(attribute);
        file.extend(ids.0.to_le_bytes());
        file.extend(ids.1.to_le_bytes());
    }
    file.extend(tail);
    file
}

/// Compressed records.
fn compressed(record: &[u8], n: usize) -> Vec<u8> {
    let packed = zstd::bulk::compress(&record.repeat(n), 1).unwrap();
    let record = |part: &[u8]| {
        let len = (part.len() + 8) as u16;
        [&81_u32.to_le_bytes()[..], &[0, 0], &len.to_le_bytes(), part].concat()
    };
    packed.chunks(60_000).flat_map(record).collect()
}

/// All files with their names; none has a sample.
pub(crate) fn all() -> Vec<(&'static str, Vec<u8>)> {
    let kernel_record = |kind: u8, body: &[u8]| [&[kind, 0, 0, 0, 0, 0, body.len() as u8 + 8, 0], body].concat();
    let with_records = |records: &[u8]| file(1, (0, 0), records, (104 + 144, records.len() as u64));
    let comm = kernel_record(3, &[&[1, 0, 0, 0, 1, 0, 0, 0][..], b"a\0\0\0\0\0\0\0"].concat());
    let n_ids = 1_u64 << 20;
    let ids = vec![0; n_ids as usize * 8];
    vec![
        ("records without a body", with_records(&compressed(&kernel_record(5, &[]), 16 << 20))),
        ("threads by name", with_records(&compressed(&comm, 1 << 20))),
        ("64 events that share their numbers", file(64, (104 + 64 * 144, n_ids * 8), &ids, (0, 0))),
    ]
}
