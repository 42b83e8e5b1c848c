//! Tests of the numbers of block ids.

use super::intern::{IdTable, Seen};
use crate::ids::NONE;

fn add(table: &mut IdTable, id: u64) -> u32 {
    table.number(id).unwrap()
}

#[test]
fn ids_keep_their_number_when_the_table_grows() {
    let mut table = IdTable::default();
    let ids: Vec<u64> = (0..3_000_000u64)
        .map(|k| {
            if k % 3 == 0 {
                k
            } else {
                k.wrapping_mul(0x9e37_79b9_7f4a_7c15)
            }
        })
        .collect();
    for (k, &id) in ids.iter().enumerate().take(400_000) {
        assert_eq!(add(&mut table, id), k as u32);
    }
    for (k, &id) in ids.iter().enumerate().take(400_000) {
        assert_eq!(add(&mut table, id), k as u32);
    }
    table.roll_back(10);
    assert_eq!(add(&mut table, ids[9]), 9);
    assert_eq!(add(&mut table, ids[11]), 10);
    assert_eq!(add(&mut table, u64::MAX), 11);
    assert!(table.text("a").is_none());
}

#[test]
fn integers_of_any_size_are_named_by_their_digits() {
    let mut table = IdTable::default();
    assert_eq!(table.number(7), Some(0));
    assert_eq!(table.number(u64::MAX), Some(1));
    assert_eq!(table.integer("-1"), Some(2));
    assert_eq!(table.number(7), Some(0));
    assert_eq!(table.integer("18446744073709551616"), Some(3));
    assert_eq!(table.number(u64::MAX), Some(1));
    assert_eq!(table.number(8), Some(4));
    assert_eq!(table.integer("-1"), Some(2));
    assert_eq!(table.text("7"), None, "a text is no integer");
    table.roll_back(2);
    assert_eq!(table.integer("-1"), Some(2));
    table.roll_back(0);
    assert_eq!(table.text("7"), Some(0));
    assert_eq!(table.integer("-1"), None);
}

#[test]
fn kept_ids_stay_the_same_as_the_first_integer_beyond_64_bits_comes() {
    let mut table = IdTable::default();
    for id in [5, 1 << 40] {
        let tokens = add(&mut table, id);
        table.note_seen(
            Seen {
                parent: NONE,
                tokens,
            },
            7,
        );
    }
    table.keep(&[1]);
    assert_eq!(add(&mut table, 9), 2);
    assert_eq!(table.integer("-1"), Some(3));
    let again = [table.number(1 << 40), table.number(9), table.integer("-1")];
    assert_eq!(again, [Some(1), Some(2), Some(3)]);
    assert_eq!(table.number(5), Some(4), "forgotten, so it is new");
    assert_eq!(
        (table.name(1), table.name(3)),
        ((1u64 << 40).to_string(), "-1".into())
    );
}

#[test]
fn ids_that_are_kept_have_their_number_and_forgotten_ones_come_anew() {
    let mut table = IdTable::default();
    for id in [5, 1 << 40, 9] {
        let number = add(&mut table, id);
        let parent = NONE;
        table.note_seen(
            Seen {
                parent,
                tokens: number,
            },
            7,
        );
    }
    table.keep(&[1]);
    assert_eq!((add(&mut table, 1 << 40), table.len()), (1, 3));
    assert_eq!((table.first_line(1), table.first_line(0)), (Some(7), None));
    assert_eq!((add(&mut table, 5), add(&mut table, 77)), (3, 4));
    assert_eq!(
        (table.name(1), table.name(4)),
        ((1u64 << 40).to_string(), "77".into())
    );
    table.roll_back(4);
    assert_eq!(add(&mut table, 78), 4);
    assert!(table.text("a").is_none());
    table.keep(&[]);
    assert_eq!(add(&mut table, 5), 5);
}

#[test]
fn texts_and_numbers_do_not_mix() {
    let mut table = IdTable::default();
    assert_eq!(table.text("0x1f"), Some(0));
    assert_eq!(table.text("0x1f"), Some(0));
    assert_eq!(table.number(3), None);
    table.roll_back(0);
    assert_eq!(table.number(3), Some(0));
}
