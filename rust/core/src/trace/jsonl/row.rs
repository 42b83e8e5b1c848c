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
    pub times: RowTimes,
    pub tokens: RowTokens,
    pub conversation: RowConversation<'a>,
    pub after: Option<i32>,
    pub priority: Option<i64>,
    pub new_input_only: bool,
    pub at: RowPositions,
}

/// The times of a row, in ns.
#[derive(Default)]
pub struct RowTimes {
    pub time: Option<i64>,
    pub delay: Option<i64>,
    pub abort: Option<i64>,
}

/// The tokens of a row.
#[derive(Default)]
pub struct RowTokens {
    pub input: Option<u64>,
    pub output: Option<u64>,
    pub history: Option<i64>,
    pub named: Option<u64>,
}

/// The conversation of a row, and its turn there.
#[derive(Default)]
pub struct RowConversation<'a> {
    pub session: Option<Cow<'a, str>>,
    pub turn: Option<i32>,
    pub label: Option<bool>,
    pub chat: Option<Cow<'a, str>>,
    pub parent: Option<Cow<'a, str>>,
}

/// Positions of values in the row's text, for refusals.
#[derive(Default)]
pub struct RowPositions {
    pub time: usize,
    pub ids: usize,
    pub chat: usize,
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
            self.at.ids = from;
            block_ids(c, &mut into)?;
            1
        } else if is(&s.times.time) {
            self.at.time = from;
            self.times.time = optional(c, |c| time(c, &s.times.time, s.times.time_unit_ns))?;
            2
        } else if is(&s.tokens.input) {
            self.tokens.input = Some(length(c, &s.tokens.input, s.tokens.per_token)?);
            4
        } else if is(&s.tokens.output) {
            self.tokens.output =
                Some(integer(c, &s.tokens.output, 0, MOST_TOKENS)?.div_ceil(s.tokens.per_token));
            8
        } else if is(&s.conversation.session) {
            self.conversation.session = name(c, &s.conversation.session)?;
            16
        } else if is(&s.conversation.turn) {
            self.conversation.turn = Some(integer(c, &s.conversation.turn, 0, MOST_TOKENS)? as i32);
            32
        } else if is(&s.times.delay) {
            self.times.delay = optional(c, |c| time(c, &s.times.delay, s.times.time_unit_ns))?;
            64
        } else if is(&s.conversation.label) {
            self.conversation.label = Some(truth(c, &s.conversation.label)?);
            128
        } else if is(&s.after) {
            self.after = Some(waits_for(c, s, into.ordinal)?);
            1024
        } else if is(&s.tokens.history) {
            self.tokens.history = Some(integer(c, &s.tokens.history, 0, MOST_TOKENS)? as i64);
            2048
        } else if is(&s.priority) {
            self.priority = optional(c, |c| signed(c, &s.priority, MOST_TOKENS))?;
            8192
        } else if is(&s.tokens.named) {
            self.tokens.named = Some(length(c, &s.tokens.named, s.tokens.per_token)?);
            16384
        } else if is(&s.times.abort) {
            self.times.abort = optional(c, |c| time(c, &s.times.abort, s.times.time_unit_ns))?;
            32768
        } else if is(&s.structure) {
            self.new_input_only = structure(c)?;
            4096
        } else if is(&s.conversation.chat) {
            self.at.chat = from;
            self.conversation.chat = name(c, &s.conversation.chat)?;
            256
        } else if is(&s.conversation.parent) {
            self.conversation.parent = name(c, &s.conversation.parent)?.filter(|p| p != "-1");
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
