//! Files with excessive lengths and counts.

use super::{data, import, new_record, recorded, set_word, with_records, word};
use crate::import::ImportError;
use crate::import::records::user;
use std::time::{Duration, Instant};

/// Check that no length in the header is trusted: none causes more memory to be allocated than the file has bytes.
#[test]
fn lengths_of_the_header_are_not_believed() {
    let file = &recorded().fp;
    // attr_size, attrs, data, event_types; then the table of features.
    let table = data(file).end;
    for at in (16..72).step_by(8).chain((table..table + 160).step_by(8)) {
        for value in [1, 1 << 20, 1 << 40, (1 << 63) - 1, 1 << 63, u64::MAX - 7, u64::MAX] {
            let mut changed = file.clone();
            set_word(&mut changed, at, value);
            if let Ok((imported, _)) = import(&changed) {
                assert!(imported.samples > 0, "{at}: {value:#x}");
            }
        }
    }
}

/// Check that counts inside features are not trusted.
#[test]
fn counts_of_features_are_not_believed() {
    let file = &recorded().fp;
    let table = data(file).end;
    let n_features: u32 = (72..104).step_by(8).map(|at| word(file, at).count_ones()).sum();
    for feature in 0..n_features as usize {
        let at = usize::try_from(word(file, table + feature * 16)).unwrap();
        let mut changed = file.clone();
        let end = file.len().min(at + 8);
        changed[at..end].fill(0xff);
        let (imported, _) = import(&changed).unwrap_or_else(|error| panic!("feature {feature}: {error}"));
        assert!(imported.samples > 0);
    }
}

/// Check that data after an AUXTRACE record is skipped, and that a length beyond the file ends the import.
#[test]
fn auxiliary_data_is_passed_over() {
    let file = &recorded().fp;
    let whole = &file[data(file)];
    let (before, _) = import(file).unwrap();
    let aux = |len: u64, bytes: usize| {
        let head = new_record(user::AUXTRACE, &[&len.to_le_bytes()[..], &[0; 32]].concat());
        let records = [&head[..], &vec![0xaa; bytes], whole].concat();
        import(&with_records(file, &records))
    };
    let (imported, _) = aux(1000, 1000).unwrap();
    assert_eq!((imported.samples, imported.left_out.get("AUXTRACE")), (before.samples, Some(&1)));
    for len in [1 << 40, 1 << 62, u64::MAX] {
        assert!(matches!(aux(len, 0), Err(ImportError::Damaged(_))), "{len:#x} bytes of it");
    }
}

/// Check that a few KiB that would decompress to gigabytes are refused early.
#[test]
fn compressed_bombs_are_refused() {
    let file = &recorded().compressed;
    // Ten GiB of ignored records, 32 KiB each.
    let record = new_record(user::FIRST + 60, &[0; 32760]);
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    let mut packed = Vec::new();
    while packed.len() < 1 << 20 {
        for _ in 0..1024 {
            std::io::Write::write_all(&mut encoder, &record).unwrap();
        }
        packed.append(encoder.get_mut());
    }
    let records: Vec<u8> = packed.chunks(60_000).flat_map(|part| new_record(user::COMPRESSED, part)).collect();
    let bomb = with_records(file, &records);
    let start = Instant::now();
    let error = import(&bomb).unwrap_err();
    assert!(matches!(error, ImportError::Bomb(_)), "{error}");
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

/// Check that incomplete or invalid records in a compressed stream are reported as damage.
#[test]
fn invalid_compressed_data_is_reported() {
    let file = &recorded().compressed;
    let rubbish = with_records(file, &new_record(user::COMPRESSED, &[0xff; 64]));
    assert!(matches!(import(&rubbish), Err(ImportError::Damaged(words)) if words.contains("decompress")));
    let zeros = zstd::bulk::compress(&[0; 64], 1).unwrap();
    let short = with_records(file, &new_record(user::COMPRESSED, &zeros));
    assert!(matches!(import(&short), Err(ImportError::Damaged(words)) if words.contains("shorter")));
    let half = zstd::bulk::compress(&new_record(9, &[0; 64])[..40], 1).unwrap();
    let half = with_records(file, &new_record(user::COMPRESSED, &half));
    assert!(matches!(import(&half), Err(ImportError::Damaged(words)) if words.contains("truncated")));
    let long = [&u64::MAX.to_le_bytes()[..], &[0; 8]].concat();
    let long = with_records(file, &new_record(user::COMPRESSED2, &long));
    assert!(matches!(import(&long), Err(ImportError::Damaged(words)) if words.contains("too long")));
}
