use super::delta::{self, Wrap};
use super::{bits, dictionary, Cells, Field, Kind, TableWriter};

fn field(name: &str, kind: Kind) -> Field {
    Field {
        name: name.into(),
        kind,
        meaning: String::new(),
    }
}

/// Unpacks the output of `bits::pack`.
fn unpacked(bytes: &[u8], width: u8, count: usize) -> Vec<u64> {
    let bit = |at: usize| u64::from(bytes[at / 8] >> (at % 8) & 1);
    let width = usize::from(width);
    (0..count)
        .map(|i| (0..width).fold(0, |value, b| value | bit(i * width + b) << b))
        .collect()
}

fn varint(bytes: &[u8], at: &mut usize) -> u64 {
    let (mut value, mut shift) = (0, 0);
    loop {
        let byte = bytes[*at];
        *at += 1;
        value |= u64::from(byte & 0x7F) << shift;
        shift += 7;
        if byte < 0x80 {
            return value;
        }
    }
}

fn signed(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// Reads `DELTA_BINARY_PACKED` as the format's specification states.
fn read_deltas(bytes: &[u8], wrap: Wrap) -> Vec<i64> {
    let mut at = 0;
    let (block, miniblocks) = (varint(bytes, &mut at), varint(bytes, &mut at));
    let total = varint(bytes, &mut at) as usize;
    let mut values = vec![signed(varint(bytes, &mut at))];
    let miniblock = (block / miniblocks) as usize;
    while values.len() < total {
        let least = signed(varint(bytes, &mut at));
        let widths = bytes[at..at + miniblocks as usize].to_vec();
        at += widths.len();
        for width in widths {
            if values.len() >= total {
                break;
            }
            let size = usize::from(width) * miniblock / 8;
            for above in unpacked(&bytes[at..at + size], width, miniblock) {
                let difference = least.wrapping_add(above as i64);
                let next = values[values.len() - 1].wrapping_add(difference);
                values.push(if wrap == Wrap::I32 {
                    i64::from(next as i32)
                } else {
                    next
                });
            }
            at += size;
        }
    }
    values.truncate(total);
    values
}

#[test]
fn differences_are_read_back_whatever_the_values() {
    let mut seed = 7u64;
    let mut random = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        seed
    };
    for rows in [1, 2, 31, 32, 33, 128, 129, 130, 1000] {
        for shift in [0, 20, 40, 62] {
            let values: Vec<i64> = (0..rows).map(|_| random() as i64 >> shift).collect();
            let mut out = Vec::new();
            delta::encode(&mut out, &values, Wrap::I64);
            assert_eq!(read_deltas(&out, Wrap::I64), values);
        }
        let values: Vec<i64> = (0..rows).map(|_| i64::from(random() as i32)).collect();
        let mut out = Vec::new();
        delta::encode(&mut out, &values, Wrap::I32);
        assert_eq!(read_deltas(&out, Wrap::I32), values);
    }
}

#[test]
fn the_ends_of_each_type_are_read_back() {
    let values = [i64::MIN, i64::MAX, 0, -1, i64::MAX, i64::MIN];
    let mut out = Vec::new();
    delta::encode(&mut out, &values, Wrap::I64);
    assert_eq!(read_deltas(&out, Wrap::I64), values);
    let values = [
        i64::from(i32::MIN),
        i64::from(i32::MAX),
        0,
        i64::from(i32::MIN),
    ];
    let mut out = Vec::new();
    delta::encode(&mut out, &values, Wrap::I32);
    assert_eq!(read_deltas(&out, Wrap::I32), values);
}

#[test]
fn runs_and_single_indices_are_read_back() {
    let codes: Vec<u32> = (0..500u32)
        .map(|i| if i % 97 < 40 { 3 } else { i * 7 % 12 })
        .collect();
    let mut out = Vec::new();
    dictionary::encode(&mut out, &codes, 12);
    let (bits, mut at, mut read) = (out[0], 1, Vec::new());
    while read.len() < codes.len() {
        let head = varint(&out, &mut at);
        if head & 1 == 0 {
            read.extend(std::iter::repeat_n(
                u32::from(out[at]),
                (head >> 1) as usize,
            ));
            at += 1;
        } else {
            let size = (head >> 1) as usize * usize::from(bits);
            let group = unpacked(&out[at..at + size], bits, (head >> 1) as usize * 8);
            read.extend(group.iter().map(|&code| code as u32));
            at += size;
        }
    }
    assert_eq!(read[..codes.len()], codes);
    assert_eq!(at, out.len());
}

#[test]
fn many_distinct_values_get_no_dictionary() {
    assert!(dictionary::distinct(&(0..2000).collect::<Vec<_>>()).is_none());
    let (words, codes) = dictionary::distinct(&[5, 7, 5, -1]).unwrap();
    assert_eq!((words, codes), (vec![5, 7, -1], vec![0, 1, 0, 2]));
}

#[test]
fn a_width_holds_the_largest() {
    for (largest, width) in [(0, 0), (1, 1), (2, 2), (255, 8), (256, 9), (u64::MAX, 64)] {
        assert_eq!(bits::width(largest), width);
    }
}

#[test]
fn what_is_no_table_is_refused() {
    let fields = vec![field("a", Kind::I64), field("b", Kind::Text)];
    let mut table = TableWriter::new(Vec::new(), fields).unwrap();
    assert!(table.column(Cells::Numbers(&[1])).is_err());
    table.begin_group(1).unwrap();
    assert!(table.column(Cells::Numbers(&[1, 2])).is_err());
    table.column(Cells::Numbers(&[1])).unwrap();
    assert!(table.begin_group(1).is_err());
    assert!(table.column(Cells::Numbers(&[1])).is_err());
    table.column(Cells::Texts(&[0], &["x".to_owned()])).unwrap();
    assert!(table.column(Cells::Numbers(&[1])).is_err());
    assert!(table.finish().is_ok());
}
