//! The metadata at a table's end: its schema, the position of each column of each row group, and column
//! descriptions.

use super::schema::{Chunk, Encoding, Field, DICTIONARY, PLAIN};
use super::thrift::Struct;

const SNAPPY: i32 = 1;
const REQUIRED: i32 = 0;

/// The header of a page of values, or of a dictionary.
pub fn page_header(
    encoding: Encoding,
    dictionary: bool,
    rows: usize,
    plain: usize,
    stored: usize,
) -> Vec<u8> {
    let mut own = Struct::default();
    own.i32(1, rows as i32).i32(2, encoding.number());
    let mut page = Struct::default();
    page.i32(1, if dictionary { 2 } else { 0 })
        .i32(2, plain as i32)
        .i32(3, stored as i32);
    if dictionary {
        page.inner(7, own);
    } else {
        own.i32(3, 3).i32(4, 3); // levels: RLE; a column without nulls has none
        page.inner(5, own);
    }
    page.bytes()
}

/// The whole metadata of a file.
pub fn file_metadata(fields: &[Field], groups: &[Vec<Chunk>]) -> Vec<u8> {
    let mut root = Struct::default();
    root.i32(3, REQUIRED)
        .text(4, "schema")
        .i32(5, fields.len() as i32);
    let schema = std::iter::once(root)
        .chain(fields.iter().map(element))
        .collect::<Vec<_>>();
    let rows: u64 = groups.iter().map(|group| group_rows(group)).sum();
    let mut file = Struct::default();
    file.i32(1, 2)
        .structs(2, schema.into_iter())
        .i64(3, rows)
        .structs(
            4,
            groups
                .iter()
                .enumerate()
                .map(|(index, group)| row_group(fields, group, index)),
        )
        .structs(5, fields.iter().map(meaning))
        .text(6, concat!("kvsim version ", env!("CARGO_PKG_VERSION")));
    file.bytes()
}

fn group_rows(group: &[Chunk]) -> u64 {
    group.first().map_or(0, |chunk| chunk.rows)
}

fn element(field: &Field) -> Struct {
    let mut own = Struct::default();
    own.i32(1, field.kind.physical())
        .i32(3, REQUIRED)
        .text(4, &field.name);
    if let Some(converted) = field.kind.converted() {
        own.i32(6, converted);
    }
    own
}

fn meaning(field: &Field) -> Struct {
    let mut own = Struct::default();
    own.text(1, &format!("meaning.{}", field.name))
        .text(2, &field.meaning);
    own
}

fn row_group(fields: &[Field], group: &[Chunk], index: usize) -> Struct {
    let plain: u64 = group.iter().map(|chunk| chunk.plain_bytes).sum();
    let stored: u64 = group.iter().map(|chunk| chunk.stored_bytes).sum();
    let start = group
        .first()
        .map_or(0, |c| c.dictionary_at.unwrap_or(c.data_at));
    let mut own = Struct::default();
    own.structs(
        1,
        fields
            .iter()
            .zip(group)
            .map(|(field, chunk)| column(field, chunk)),
    )
    .i64(2, plain)
    .i64(3, group_rows(group))
    .i64(5, start)
    .i64(6, stored);
    if let Ok(ordinal) = i16::try_from(index) {
        own.i16(7, ordinal);
    }
    own
}

fn column(field: &Field, chunk: &Chunk) -> Struct {
    let mut metadata = Struct::default();
    let encodings = match chunk.encoding {
        Encoding::Dictionary => vec![PLAIN, DICTIONARY],
        other => vec![other.number()],
    };
    metadata
        .i32(1, chunk.kind.physical())
        .i32s(2, &encodings)
        .one_text(3, &field.name)
        .i32(4, SNAPPY)
        .i64(5, chunk.rows)
        .i64(6, chunk.plain_bytes)
        .i64(7, chunk.stored_bytes)
        .i64(9, chunk.data_at);
    if let Some(at) = chunk.dictionary_at {
        metadata.i64(11, at);
    }
    let mut own = Struct::default();
    own.i64(2, chunk.dictionary_at.unwrap_or(chunk.data_at))
        .inner(3, metadata);
    own
}
