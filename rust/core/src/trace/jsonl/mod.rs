//! Rows of JSON, one per line, with the member names of various formats: Mooncake, Qwen-Bailian, LMCache.

mod block_ids;
mod destination;
mod remarks;
mod row;
mod rows;
mod session_turns;

use std::io::Read;

use super::columns::Reading;
use super::lines::Reader;
use super::{ReadError, Settings};
pub use rows::batch::{Batch, ABSENT, NUMBERS};
pub(super) use rows::JsonRows;

/// Member names and units of one format; an empty name is a member the format does not have.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    /// Members of times.
    pub times: TimeMembers,
    /// Members of tokens.
    pub tokens: TokenMembers,
    /// Members of sessions.
    pub conversation: ConversationMembers,
    /// Member of the block ids.
    pub ids: String,
    /// Member of the row (from 0) that a closed-loop row waits for.
    pub after: String,
    /// Member of the priority.
    pub priority: String,
    /// Member that states if prompts are whole.
    pub structure: String,
}

/// Names and unit of the members that hold times.
#[derive(Clone, Debug, Default)]
pub struct TimeMembers {
    /// Member of the arrival.
    pub time: String,
    /// Nanoseconds per unit of the arrival.
    pub time_unit_ns: u64,
    /// Member of the pause before a turn.
    pub delay: String,
    /// Member of the time from arrival until the client aborted the request.
    pub abort: String,
}

/// Names and unit of the members that hold numbers of tokens.
#[derive(Clone, Debug, Default)]
pub struct TokenMembers {
    /// Member of the input tokens.
    pub input: String,
    /// Member of the output tokens.
    pub output: String,
    /// Member of the tokens of a prompt that repeat earlier turns.
    pub history: String,
    /// Member of the tokens that the ids cover, for ids that continue into the answer.
    pub named: String,
    /// Units of the length members per token (bytes per token, or 1).
    pub per_token: u64,
}

/// Names of the members that assign a row to a conversation.
#[derive(Clone, Debug, Default)]
pub struct ConversationMembers {
    /// Member of the session.
    pub session: String,
    /// Member of the turn.
    pub turn: String,
    /// Member of the kind of request.
    pub label: String,
    /// Member of a row's own name, for sessions as chains of rows.
    pub chat: String,
    /// Member of the predecessor's name; −1 or null for none.
    pub parent: String,
}

/// Reads every row of `source`; `pulse` is called at intervals with the bytes read and may stop the reading.
pub fn read<R: Read>(
    source: R,
    schema: &Schema,
    settings: &Settings,
    pulse: impl FnMut(u64) -> bool,
) -> Result<(Reading, R), ReadError> {
    let mut reader = Reader::new(source);
    let mut rows = JsonRows::new(schema.clone(), *settings);
    reader.read(&mut rows, usize::MAX, pulse)?;
    Ok(reader.finish(rows.finish()))
}
