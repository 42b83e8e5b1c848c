//! WEKA agentic sessions: one session per line, its rows with think times, sub-agents, and ranges of local
//! ids.

mod ranges;
mod session;
mod turns;

use std::io::Read;

use super::columns::Reading;
use super::lines::Reader;
use super::{ReadError, Settings};
pub use session::WekaRows;

/// Reads every session. A sub-agent's rows are a session of their own that starts at its launch. Within a
/// session each row but the first waits its think time after the row before it.
pub fn read<R: Read>(
    source: R,
    settings: &Settings,
    pulse: impl FnMut(u64) -> bool,
) -> Result<(Reading, R), ReadError> {
    let mut reader = Reader::new(source);
    let mut rows = WekaRows::new(settings);
    reader.read(&mut rows, usize::MAX, pulse)?;
    Ok(reader.finish(rows.finish()))
}
