//! One row of JSON: its known members and their permitted values.

use std::borrow::Cow;

use super::super::json::field::{
    integer, length, name, optional, signed, time, truth, MOST_TOKENS,
};
use super::super::json::Cursor;
use super::super::problem::Refusal;
use super::block_ids::block_ids;
use super::destination::Destination;
use super::Schema;

/// The values of one row's known members.
#[derive(Default)]
pub struct Row<'a> {
    pub time: Option<i64>,
    pub time_at: usize,
    pub input: Option<u64>,
    pub output: Option<u64>,
    pub ids_at: usize,
    pub session: Option<Cow<'a, str>>,
    pub turn: Option<i32>,
    pub delay: Option<i64>,
    pub label: Option<bool>,
    pub after: Option<i32>,
    pub history: Option<i64>,
    pub priority: Option<i64>,
    pub named: Option<u64>,
    pub abort: Option<i64>,
    pub new_input_only: bool,
    pub chat: Option<Cow<'a, str>>,
    pub chat_at: usize,
    pub parent: Option<Cow<'a, str>>,
}

impl<'a> Row<'a> {
    /// Reads the value of a known member and returns its bit; None for an unknown member, whose value is not
    /// read.
    #[inline]
    pub fn member(
        &mut self,
        key: &[u8],
        c: &mut Cursor<'a>,
        s: &Schema,
        mut into: Destination,
    ) -> Result<Option<u32>, Refusal> {
        let is = |name: &str| key == name.as_bytes() && !key.is_empty();
        let from = c.at;
        Ok(Some(if is(&s.ids) {
            self.ids_at = from;
            block_ids(c, &mut into)?;
            1
        } else if is(&s.time) {
            self.time_at = from;
            self.time = optional(c, |c| time(c, &s.time, s.time_unit_ns))?;
            2
        } else if is(&s.input) {
            self.input = Some(length(c, &s.input, s.per_token)?);
            4
        } else if is(&s.output) {
            self.output = Some(integer(c, &s.output, 0, MOST_TOKENS)?.div_ceil(s.per_token));
            8
        } else if is(&s.session) {
            self.session = name(c, &s.session)?;
            16
        } else if is(&s.turn) {
            self.turn = Some(integer(c, &s.turn, 0, MOST_TOKENS)? as i32);
            32
        } else if is(&s.delay) {
            self.delay = optional(c, |c| time(c, &s.delay, s.time_unit_ns))?;
            64
        } else if is(&s.label) {
            self.label = Some(truth(c, &s.label)?);
            128
        } else if is(&s.after) {
            self.after = Some(waits_for(c, s, into.ordinal)?);
            1024
        } else if is(&s.history) {
            self.history = Some(integer(c, &s.history, 0, MOST_TOKENS)? as i64);
            2048
        } else if is(&s.priority) {
            self.priority = optional(c, |c| signed(c, &s.priority, MOST_TOKENS))?;
            8192
        } else if is(&s.named) {
            self.named = Some(length(c, &s.named, s.per_token)?);
            16384
        } else if is(&s.abort) {
            self.abort = optional(c, |c| time(c, &s.abort, s.time_unit_ns))?;
            32768
        } else if is(&s.structure) {
            self.new_input_only = structure(c)?;
            4096
        } else if is(&s.chat) {
            self.chat_at = from;
            self.chat = name(c, &s.chat)?;
            256
        } else if is(&s.parent) {
            self.parent = name(c, &s.parent)?.filter(|p| p != "-1");
            512
        } else {
            return Ok(None);
        }))
    }
}

/// The row that a row waits for, which must be above it.
fn waits_for(c: &mut Cursor, schema: &Schema, ordinal: u64) -> Result<i32, Refusal> {
    let from = c.at;
    let row = integer(c, &schema.after, 0, MOST_TOKENS)?;
    if row >= ordinal {
        return Err(c
            .problem(from, "session", "a row that waits for one not above it")
            .got(row.to_string())
            .expected(format!("a row (from 0) before row {ordinal}")));
    }
    Ok(row as i32)
}

/// True if a row states that it holds only the new input of its turn.
fn structure(c: &mut Cursor) -> Result<bool, Refusal> {
    let from = c.at;
    match c.skip_value()? {
        b"\"new_input_only\"" => Ok(true),
        b"\"full_history_plus_new_input\"" => Ok(false),
        _ => Err(c
            .problem(from, "structure", "unknown prompt structure")
            .got(c.excerpt(from))
            .expected("new_input_only or full_history_plus_new_input")),
    }
}
