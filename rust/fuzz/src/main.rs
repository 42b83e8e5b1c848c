//! Gives mutated bytes to the readers of traces and to the table writer: `KVSIM_FUZZ` names the target.
//!
//! A finding is a panic, an overflow, or two readings of the same bytes that differ.
#![no_main]

use std::io::{Cursor, Read};
use std::sync::OnceLock;

use kvsim_core::parquet::{Cells, Field, Kind, Lists, TableWriter};
use kvsim_core::trace::columns::{Columns, Reading};
use kvsim_core::trace::csv::{CsvSchema, TimeForm};
use kvsim_core::trace::jsonl::{ConversationMembers, Schema, TimeMembers, TokenMembers};
use kvsim_core::trace::row_reader::RowReader;
use kvsim_core::trace::source::Source;
use kvsim_core::trace::{csv, jsonl, weka, Order, ReadError, Settings};
use libfuzzer_sys::fuzz_target;

/// Most decompressed bytes that a target reads: a small file can hold gigabytes.
const MOST: u64 = 1 << 22;

fuzz_target!(|data: &[u8]| {
    static TARGET: OnceLock<String> = OnceLock::new();
    let target = TARGET.get_or_init(|| std::env::var("KVSIM_FUZZ").unwrap_or_default());
    let Some((&choice, rest)) = data.split_first() else {
        return;
    };
    match target.as_str() {
        "jsonl" => rows(rest, choice),
        "csv" => lines(rest, choice),
        "weka" => sessions(rest, choice),
        "compressed" => compressed(data),
        "parquet" => table(choice, rest),
        "lists" => lists(rest, choice),
        _ => panic!("KVSIM_FUZZ: jsonl, csv, weka, compressed, parquet or lists"),
    }
});

/// Settings out of the first byte of an input.
fn settings(choice: u8) -> Settings {
    Settings {
        block_size: 1 << (choice >> 5),
        skip: choice & 1 != 0,
        order: [Order::Error, Order::Sort, Order::Keep, Order::Sort][usize::from(choice >> 1 & 3)],
        keep_unknown: choice & 8 != 0,
        ..Settings::default()
    }
}

/// A reading's columns are equally long, and its ids lie within its rows; a refusal names a line.
fn checked(reading: Result<Reading, ReadError>) {
    match reading {
        Ok(reading) => same_length(&reading.columns),
        Err(ReadError::Trace(problem)) => assert!(problem.line > 0, "{problem:?}"),
        Err(ReadError::Io(_) | ReadError::Stopped) => {}
    }
}

fn same_length(columns: &Columns) {
    let rows = columns.len();
    assert_eq!(columns.input_tokens.len(), rows);
    assert_eq!(columns.output_tokens.len(), rows);
    assert_eq!(columns.session.len(), rows);
    assert_eq!(columns.turn.len(), rows);
    assert_eq!(columns.id_offsets.len(), rows + 1);
    let ids = columns.block_ids.len() as i64;
    assert_eq!(columns.id_offsets.last(), Some(&ids));
    assert!(columns.id_offsets.windows(2).all(|pair| pair[0] <= pair[1]));
}

/// Rows of JSON, at once and in windows of two.
fn rows(data: &[u8], choice: u8) {
    let settings = &settings(choice);
    let chained = choice & 16 != 0;
    let name = |text: &str| text.to_owned();
    let schema = Schema {
        times: TimeMembers {
            time: name("timestamp"),
            time_unit_ns: 1_000_000,
            delay: name("delay"),
            abort: name("abort"),
        },
        tokens: TokenMembers {
            input: name("input_length"),
            output: name("output_length"),
            history: name("history"),
            named: name("named"),
            per_token: 1,
        },
        conversation: ConversationMembers {
            session: name("session_id"),
            turn: name("turn"),
            label: name("type"),
            chat: name(if chained { "chat_id" } else { "" }),
            parent: name(if chained { "parent_chat_id" } else { "" }),
        },
        ids: name("hash_ids"),
        after: name("after"),
        priority: name("priority"),
        structure: name("structure"),
    };
    let whole = jsonl::read(data, &schema, settings, |_| true).map(|(reading, _)| reading);
    in_windows(RowReader::new(data, schema, *settings), whole);
}

/// WEKA sessions, at once and in windows of two rows.
fn sessions(data: &[u8], choice: u8) {
    let settings = &settings(choice);
    let whole = weka::read(data, settings, |_| true).map(|(reading, _)| reading);
    in_windows(RowReader::of_weka(data, settings), whole);
}

/// Windows of two rows give the same arrivals as a whole reading, or are refused with it.
fn in_windows(mut windows: RowReader<&[u8]>, whole: Result<Reading, ReadError>) {
    let mut arrivals = Vec::new();
    let refused = loop {
        let more = windows.read(2, |_| true);
        arrivals.extend(windows.take().arrival_ns);
        match more {
            Ok(true) => {}
            Ok(false) => break false,
            Err(_) => break true,
        }
    };
    assert_eq!(refused, whole.is_err());
    if let Ok(reading) = &whole {
        assert_eq!(arrivals, reading.columns.arrival_ns);
    }
    checked(whole);
}

/// Lists of ids of a column chunk, read to the end: a damaged chunk has none, or some before the damage.
fn lists(data: &[u8], choice: u8) {
    let count = usize::from(choice >> 1);
    let Some(mut lists) = Lists::of_chunk(data, choice & 1 != 0, count) else {
        return;
    };
    assert!(lists.offsets.windows(2).all(|pair| pair[0] <= pair[1]));
    for row in 0..count {
        let (mut ids, asked) = (0, lists.offsets[row + 1] - lists.offsets[row]);
        let read = lists.list(row, |values| {
            ids += values.len() as i64;
            Ok::<(), ()>(())
        });
        match read {
            Some(_) => assert_eq!(ids, asked),
            None => return,
        }
    }
}

fn lines(data: &[u8], choice: u8) {
    let name = |text: &str| text.to_owned();
    let schema = CsvSchema {
        time: name("t"),
        form: match choice & 16 {
            0 => TimeForm::Date,
            _ => TimeForm::Number { unit_ns: 1_000_000 },
        },
        input: name("i"),
        output: name("o"),
        session: name(if choice & 4 == 0 { "" } else { "s" }),
    };
    checked(csv::read(data, &schema, &settings(choice), |_| true).map(|(read, _)| read));
}

/// A source read at once, and after a look at its head in small pieces.
fn compressed(data: &[u8]) {
    let open = || Source::new(Box::new(Cursor::new(data.to_vec())));
    let Ok(source) = open() else { return };
    let mut whole = Vec::new();
    let ended = source.take(MOST).read_to_end(&mut whole);
    let Ok(mut source) = open() else { return };
    let head = source.head(64).to_vec();
    let mut pieces = Vec::new();
    let again = (&mut source).take(MOST).read_to_end(&mut pieces);
    assert_eq!(ended.is_ok(), again.is_ok());
    // before an error as many bytes come as a decoder had given out
    let both = whole.len().min(pieces.len());
    assert!(pieces.starts_with(&head) && whole[..both] == pieces[..both]);
    assert!(again.is_err() || whole == pieces);
    assert!(again.is_err() || source.finish().is_ok_and(|digest| digest.len() == 64));
}

/// A table of one column of numbers and one of texts, in two row groups.
fn table(choice: u8, data: &[u8]) {
    let kinds = [Kind::Bool, Kind::U8, Kind::I16, Kind::I32, Kind::I64];
    let kind = kinds[usize::from(choice) % kinds.len()];
    let numbers: Vec<i64> = data
        .chunks(8)
        .map(|bytes| bytes.iter().fold(0, |sum: i64, &b| sum << 8 | i64::from(b)))
        .map(|number| match kind {
            Kind::Bool => number & 1,
            Kind::U8 => i64::from(number as u8),
            Kind::I16 => i64::from(number as i16),
            Kind::I32 => i64::from(number as i32),
            Kind::I64 | Kind::Text => number,
        })
        .collect();
    let words: Vec<String> = (0..=choice).map(|n| "w".repeat(usize::from(n))).collect();
    let codes: Vec<u32> = numbers
        .iter()
        .map(|n| (n.unsigned_abs() % words.len() as u64) as u32)
        .collect();
    let field = |name: &str, kind| Field {
        name: name.into(),
        kind,
        meaning: String::new(),
    };
    let mut writer =
        TableWriter::new(Vec::new(), vec![field("n", kind), field("t", Kind::Text)]).unwrap();
    for part in [0..numbers.len() / 3, numbers.len() / 3..numbers.len()] {
        writer.begin_group(part.len()).unwrap();
        writer
            .column(Cells::Numbers(&numbers[part.clone()]))
            .unwrap();
        writer.column(Cells::Texts(&codes[part], &words)).unwrap();
    }
    let file = writer.finish().unwrap();
    let end = file.len();
    let metadata = u32::from_le_bytes(file[end - 8..end - 4].try_into().unwrap());
    assert!(file.starts_with(b"PAR1") && file.ends_with(b"PAR1") && metadata as usize + 12 <= end);
}
