//! Rows of JSON, one a line, under any of the field's member names: Mooncake, Qwen-Bailian, LMCache.

mod block_ids;
mod places;
mod remarks;
mod row;
mod rows;

use std::io::Read;

use super::columns::Reading;
use super::lines::{line_problem, Lines};
use super::{ReadError, Settings};
use rows::Rows;

/// Member names and units of one format; an empty name is a member the format does not have.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    /// Member of the arrival.
    pub time: String,
    /// Nanoseconds of one unit of the arrival.
    pub time_unit_ns: u64,
    /// Member of the input tokens.
    pub input: String,
    /// Member of the output tokens.
    pub output: String,
    /// Member of the block ids.
    pub ids: String,
    /// Member of the session.
    pub session: String,
    /// Member of the turn.
    pub turn: String,
    /// Member of the pause before a turn.
    pub delay: String,
    /// Member of the kind of request.
    pub label: String,
    /// Row (from 0) a closed-loop row waits for; history tokens of a prompt; whether prompts are whole.
    pub after: String,
    /// Member of the tokens of a prompt that repeat earlier turns.
    pub history: String,
    /// Member that says whether prompts are whole.
    pub structure: String,
    /// A row's own name and its predecessor's (−1 or null for none): sessions as chains of rows.
    pub chat: String,
    /// Member of the predecessor's name.
    pub parent: String,
    /// Units of the length members in a token (bytes a token, or 1).
    pub per_token: u64,
}

/// Read every row of `source`; `pulse` is called now and then with the bytes read and may stop the reading.
pub fn read<R: Read>(
    source: R,
    schema: &Schema,
    settings: &Settings,
    mut pulse: impl FnMut(u64) -> bool,
) -> Result<(Reading, R), ReadError> {
    let mut lines = Lines::new(source);
    let mut rows = Rows::new(schema, *settings);
    let mut number = 0;
    let mut next_pulse = PULSE_BYTES;
    loop {
        if lines.bytes >= next_pulse {
            next_pulse = lines.bytes + PULSE_BYTES;
            if !pulse(lines.bytes) {
                return Err(ReadError::Stopped);
            }
        }
        let stop = match lines.next_line() {
            Ok(None) => break,
            Ok(Some(line)) => {
                number = line.number;
                rows.line(&line).map_err(ReadError::Trace)?;
                continue;
            }
            Err(error) => line_problem(error, number + 1)?,
        };
        rows.refuse(stop).map_err(ReadError::Trace)?;
        break;
    }
    let mut reading = rows.finish();
    reading.lines = number;
    reading.bytes = lines.bytes;
    Ok((reading, lines.into_source()))
}

const PULSE_BYTES: u64 = 1 << 24;
