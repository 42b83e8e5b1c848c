//! Recency: blocks become recent as a request releases them, or as a request that uses them is admitted.

use super::node::State;
use super::{Answer, Store};
use crate::ids::{LeaseId, NodeId};

/// Event that makes a block recent on the tiers that have it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Touch {
    /// Release by a request that held it.
    #[default]
    Release,
    /// Admission of a request that uses or creates it; a release does not make it recent.
    Admission,
}

impl Store {
    /// Sets the event that makes blocks recent. Call it before anything is stored.
    pub fn with_touch(mut self, touch: Touch) -> Self {
        self.rules.touch = touch;
        self
    }

    /// Counts the use of a lease's found blocks, once its admission is final because its blocks are reserved.
    pub(super) fn admitted(&mut self, id: LeaseId) {
        let lease = &mut self.leases[id];
        if std::mem::replace(&mut lease.admitted, true) || self.rules.touch == Touch::Release {
            return;
        }
        let (tail, access) = (lease.tail, lease.access);
        self.each_run(tail, 0, |store, run| {
            store.used(run, access);
            store.refresh(run);
        });
    }

    /// Makes the ready copies of a run the most recently used ones.
    pub(super) fn renew(&mut self, run: NodeId) {
        let access = self.clock.access;
        for copy in self.copies_mut(run) {
            if copy.state == State::Ready {
                copy.access = access;
            }
        }
    }

    /// Makes the first `end` blocks of a request's path the most recently used, on every tier.
    pub fn touch(&mut self, request: u32, end: u32) -> Answer<()> {
        let tail = self.node_at(request, end)?;
        self.next_access();
        self.each_run(tail, 0, |store, run| {
            store.renew(run);
            store.released(run, store.released_alone(run));
            store.refresh(run);
        });
        Ok(())
    }

    /// Marks a run as used by an admission: its copies, those in flight included, are at least as recent. The
    /// caller refreshes it.
    pub(super) fn used(&mut self, run: NodeId, access: u64) {
        if self.rules.touch == Touch::Release {
            return;
        }
        for copy in self.copies_mut(run) {
            if copy.state != State::Absent {
                copy.access = copy.access.max(access); // a later admission may have used it already
            }
        }
    }
}
