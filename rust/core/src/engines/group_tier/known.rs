//! Requests as vLLM's connector below the scheduler has them: their tables, and copies whose end is not reported.

use std::collections::{BTreeMap, BTreeSet};

use crate::engines::connector_jobs::Jobs;
use crate::store::connector::Ending;
use crate::store::MoveId;

/// A request as the connector knows it.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// For each group its blocks, `NULL` for those that are not there.
    pub tables: Vec<Vec<u32>>,
    /// For each group the first chunk that is to be offered.
    pub next: Vec<u32>,
    /// True if its next step brings its whole table.
    pub is_new: bool,
}

/// Requests, and copies whose end is not reported.
#[derive(Debug, Default)]
pub struct GroupConnector {
    /// The copies.
    pub jobs: Jobs,
    /// Requests that have ended since the last step.
    pub ended: Vec<Ending>,
    /// The requests, by their numbers.
    pub known: BTreeMap<u32, Known>,
    /// Stores that read a block which may be given to others.
    pub fenced: BTreeMap<u32, BTreeSet<MoveId>>,
}
