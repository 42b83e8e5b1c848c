//! WEKA agentic sessions: one session a line, its rows with think times, sub-agents, and ranges of local ids.

mod ranges;
mod session;
mod turns;

use std::io::Read;

use super::columns::Reading;
use super::lines::{line_problem, Lines};
use super::{ReadError, Settings};
use session::File;

/// Read every session. A sub-agent's rows are a session of their own that starts at its launch; within a
/// session each row but the first waits its think time behind the row before it.
pub fn read<R: Read>(
    source: R,
    settings: &Settings,
    mut pulse: impl FnMut(u64) -> bool,
) -> Result<(Reading, R), ReadError> {
    let mut lines = Lines::new(source);
    let mut file = File::new(settings.block_size);
    let mut number = 0;
    loop {
        if !pulse(lines.bytes) {
            return Err(ReadError::Stopped);
        }
        let problem = match lines.next_line() {
            Ok(None) => break,
            Ok(Some(line)) => {
                number = line.number;
                match file.line(&line) {
                    Ok(()) => continue,
                    Err(problem) => problem,
                }
            }
            Err(error) => {
                let problem = line_problem(error, number + 1)?;
                if !settings.skip {
                    return Err(ReadError::Trace(problem));
                }
                file.out.skipped.add(*problem);
                break;
            }
        };
        if !settings.skip {
            return Err(ReadError::Trace(problem));
        }
        file.out.skipped.add(*problem);
    }
    let mut reading = file.finish();
    reading.lines = number;
    reading.bytes = lines.bytes;
    Ok((reading, lines.into_source()))
}
