//! Ranges of a session's own block ids, and their dense numbers.

use std::collections::HashMap;

use super::super::columns::Reading;
use super::super::intern::{IdTable, Names};
use super::super::json::Cursor;
use super::super::problem::Refusal;
use super::turns::Turn;
use crate::ids::NONE;

/// Local ids below this limit are numbered by a table, others by a map.
const TABLE: u64 = 1 << 22;

/// The ids of the current session.
#[derive(Default)]
pub struct LocalIds {
    /// Sessions before this one.
    sessions: u64,
    table: Vec<u32>,
    far: HashMap<u64, u32>,
}

impl LocalIds {
    /// Forgets the ids; the next session has its own.
    pub fn next_session(&mut self) {
        self.table.iter_mut().for_each(|slot| *slot = NONE);
        self.far.clear();
        self.sessions += 1;
    }

    /// Appends the ids of a row's ranges, such as `1-347,353-364`.
    pub fn expand(
        &mut self,
        c: &Cursor,
        turn: &Turn,
        input: u64,
        out: &mut Reading,
    ) -> Result<(), Refusal> {
        let size = out.block_size;
        let most = input.div_ceil(size);
        let text = turn.hash.as_deref().unwrap_or_default();
        let mut count = 0u64;
        for range in text.split(',').filter(|r| !r.is_empty()) {
            let (low, high) = range.split_once('-').unwrap_or((range, range));
            let parsed = low
                .parse::<u32>()
                .ok()
                .zip(high.parse::<u32>().ok())
                .filter(|(l, h)| l <= h);
            let Some((low, high)) = parsed else {
                return Err(c
                    .problem(turn.hash_at, "id", "not a range of block ids")
                    .got(range.chars().take(40).collect::<String>())
                    .expected("ranges such as 1-347,353-364"));
            };
            count += u64::from(high - low) + 1;
            if count > most {
                return Err(c
                    .problem(
                        turn.hash_at,
                        "ids-too-many",
                        "too many block ids for the prompt",
                    )
                    .got(format!("{count} ids or more for {input} tokens"))
                    .expected(format!("at most {most} ids of {size} tokens")));
            }
            for local in low..=high {
                let dense = self.number(u64::from(local), &mut out.ids).ok_or_else(|| {
                    c.problem(turn.hash_at, "id", "more than 2³²−1 distinct block ids")
                })?;
                out.columns.block_ids.push(dense);
            }
        }
        Ok(())
    }

    /// The dense number of an id of the current session; its name is session × 2³² + id.
    fn number(&mut self, local: u64, ids: &mut IdTable) -> Option<u32> {
        let next = u32::try_from(ids.len()).ok().filter(|&n| n != NONE)?;
        let slot = if local < TABLE {
            let at = local as usize;
            if at >= self.table.len() {
                self.table.resize((at + 1).next_power_of_two(), NONE);
            }
            &mut self.table[at]
        } else {
            self.far.entry(local).or_insert(NONE)
        };
        if *slot != NONE {
            return Some(*slot);
        }
        *slot = next;
        if let Names::Numbers(names) = &mut ids.names {
            names.push((self.sessions << 32) | local);
        }
        Some(next)
    }
}
