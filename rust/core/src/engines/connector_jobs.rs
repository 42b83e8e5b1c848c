//! Copies that vLLM's connector has decided, until their end is reported (`TransferJobStatus`).

use std::collections::{BTreeMap, BTreeSet};

use super::held_keys::HeldKeys;
use crate::store::{MoveId, Order};

/// A copy whose end is not reported yet.
#[derive(Debug)]
pub struct Job {
    /// Its request.
    pub request: u32,
    /// Keys of chunks that it loads; empty for a store.
    pub loads: Vec<u64>,
}

/// A request that has ended since the last step.
#[derive(Debug)]
pub struct Ended {
    /// Its request.
    pub request: u32,
    /// Leading blocks that it had computed and kept keys of.
    pub keyed: u32,
}

/// Copies of a pool's connector.
#[derive(Debug, Default)]
pub struct Jobs {
    /// Copies whose end is not reported.
    pub open: BTreeMap<MoveId, Job>,
    /// Copies that have ended and are not reported.
    pub arrived: Vec<MoveId>,
    /// Stores of requests that have ended: their blocks may be given to others.
    pub fenced: BTreeSet<MoveId>,
    /// Keys that loads read.
    pub loading: HeldKeys,
    /// Loads decided since the last step.
    pub loads: Vec<Order>,
    /// Stores that the next step waits for.
    pub flushed: BTreeSet<MoveId>,
    /// Blocks given out since the last step.
    pub given: Vec<u32>,
    /// Requests that have ended since the last step.
    pub ended: Vec<Ended>,
}

impl Jobs {
    /// Keeps the end of a copy until it is reported; returns false if it is none of the connector's.
    pub fn arrives(&mut self, id: MoveId) -> bool {
        let is_own = self.open.contains_key(&id);
        if is_own {
            self.arrived.push(id);
        }
        is_own
    }

    /// Copies of a request.
    pub fn of(&self, request: u32) -> impl Iterator<Item = MoveId> + '_ {
        let own = self
            .open
            .iter()
            .filter(move |(_, job)| job.request == request);
        own.map(|(&id, _)| id)
    }

    /// Adds copies of a request; `loads`: keys that they read.
    pub fn start(&mut self, orders: &[Order], request: u32, loads: &[u64]) {
        for order in orders {
            let loads = loads.to_vec();
            self.open.insert(order.id, Job { request, loads });
        }
    }
}
