//! The columns of a table, and their types in a file: plain data.

use crate::names::named_values;

/// Parquet's number of the plain encoding.
pub(super) const PLAIN: i32 = 0;
const DELTA_BINARY_PACKED: i32 = 5;
/// Parquet's number of the encoding by dictionary index.
pub(super) const DICTIONARY: i32 = 8;

named_values! {
    /// The value types of a column, under the names of numpy's dtypes.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Kind {
        /// `bool`.
        Bool = "bool",
        /// `uint8`.
        U8 = "uint8",
        /// `int16`.
        I16 = "int16",
        /// `int32`.
        I32 = "int32",
        /// `int64`.
        I64 = "int64",
        /// UTF-8 texts with few distinct values.
        Text = "str",
    }
}

impl Kind {
    /// Parquet's number of the stored type.
    pub(super) fn physical(self) -> i32 {
        match self {
            Self::Bool => 0,
            Self::U8 | Self::I16 | Self::I32 => 1,
            Self::I64 => 2,
            Self::Text => 6,
        }
    }

    /// Parquet's number of the logical type, if it differs from the stored type.
    pub(super) fn converted(self) -> Option<i32> {
        match self {
            Self::Text => Some(0),
            Self::U8 => Some(11),
            Self::I16 => Some(16),
            _ => None,
        }
    }
}

/// A column of a table: name, type and description (`meaning.<name>` in the file).
#[derive(Clone, Debug)]
pub struct Field {
    /// Name of the column.
    pub name: String,
    /// Type of the values.
    pub kind: Kind,
    /// Description for people.
    pub meaning: String,
}

/// The encodings of a page.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// Values one after another.
    Plain,
    /// Differences of consecutive values.
    Delta,
    /// Indices into the dictionary page.
    Dictionary,
}

impl Encoding {
    /// Parquet's number of the encoding.
    pub(super) fn number(self) -> i32 {
        match self {
            Self::Plain => PLAIN,
            Self::Delta => DELTA_BINARY_PACKED,
            Self::Dictionary => DICTIONARY,
        }
    }
}

/// One column of one row group in the file.
pub struct Chunk {
    pub kind: Kind,
    pub encoding: Encoding,
    pub rows: u64,
    pub dictionary_at: Option<u64>,
    pub data_at: u64,
    /// Bytes of the pages with their headers, before and after compression.
    pub plain_bytes: u64,
    pub stored_bytes: u64,
}
