//! Reports of a machine until they are taken: rows, requests that finished or were prefilled, counts of a shared
//! pool.

use super::load_report::LoadReport;
use super::output_log::OutputLog;
use super::pool_counts::PoolCounts;
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
    /// Requests whose prompt has been computed, with the prompt's tokens, if these are recorded.
    pub(super) prefilled: Option<Vec<(u32, u64)>>,
    /// Log of tokens and closed requests, if clients wait for them.
    pub(super) outputs: Option<OutputLog>,
    /// Counts of blocks written and read, if it is a shared pool itself.
    pub(super) pool: Option<PoolCounts>,
    /// The load that the engine reports, if a router reads it.
    pub(super) load: Option<LoadReport>,
}
