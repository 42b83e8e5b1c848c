//! What a machine reports until it is taken: rows, requests that finished or were prefilled, counts of a shared pool.

use super::outputs::OutputLog;
use super::pool::PoolCounts;
use super::rows::Rows;

/// The reports of one machine.
#[derive(Debug, Default)]
pub struct Reports {
    /// Rows of requests and events.
    pub rows: Rows,
    /// Blocks of first admissions that came from a shared pool.
    pub pool_hit_blocks: u64,
    /// Requests that have finished.
    pub(super) closed: Vec<u32>,
    /// Requests whose prompt has been computed and its tokens, where that is kept.
    pub(super) prefilled: Option<Vec<(u32, u64)>>,
    /// Where tokens and closed requests are logged, where clients wait for them.
    pub(super) outputs: Option<OutputLog>,
    /// What it took and gave, where it is a shared pool itself.
    pub(super) pool: Option<PoolCounts>,
}
