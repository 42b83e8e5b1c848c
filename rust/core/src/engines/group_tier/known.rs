//! Requests as vLLM's connector below the scheduler has them: their tables, and copies whose end is not reported.

use std::collections::{BTreeMap, BTreeSet};

use crate::convert::fit;
use crate::engines::connector_jobs::Jobs;
use crate::engines::groups::manager::GroupManager;
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

impl Known {
    /// Returns a request that has no blocks yet.
    pub fn new(groups: usize) -> Self {
        Self {
            tables: vec![Vec::new(); groups],
            next: vec![0; groups],
            is_new: true,
        }
    }

    /// Adds the blocks that a request has got since its last step; returns how many it had before, by group.
    pub fn extend(&mut self, manager: &GroupManager, request: u32) -> Vec<usize> {
        if std::mem::take(&mut self.is_new) {
            self.tables.iter_mut().for_each(Vec::clear);
        }
        let before = self.tables.iter().map(Vec::len).collect();
        for (group, table) in self.tables.iter_mut().enumerate() {
            let positions = fit::<u32>(table.len())..manager.positions(request, group);
            table.extend(positions.map(|at| manager.block_at(request, group, at)));
        }
        before
    }
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
