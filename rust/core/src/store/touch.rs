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
        self.touch = touch;
        self
    }

    /// Counts the use of a lease's found blocks, once its admission is final because its blocks are reserved.
    pub(super) fn admitted(&mut self, id: LeaseId) {
        let lease = &mut self.leases[id];
        if std::mem::replace(&mut lease.admitted, true) || self.touch == Touch::Release {
            return;
        }
        let (tail, access) = (lease.tail, lease.access);
        self.each_run((tail, 0), |store, run| {
            store.used(run, access);
            store.refresh(run);
        });
    }

    /// Makes the ready copies of a run the most recently used ones.
    pub(super) fn renew(&mut self, run: NodeId) {
        let access = self.access;
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
        self.each_run((tail, 0), |store, run| {
            store.renew(run);
            store.released(run, store.released_alone(run));
            store.refresh(run);
        });
        Ok(())
    }

    /// Marks a run as used by an admission: its copies, those in flight included, are at least as recent. The
    /// caller refreshes it.
    pub(super) fn used(&mut self, run: NodeId, access: u64) {
        if self.touch == Touch::Release {
            return;
        }
        for copy in self.copies_mut(run) {
            if copy.state != State::Absent {
                copy.access = copy.access.max(access); // a later admission may have used it already
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::keys::{BlockKeys, NO_REQUEST};
    use crate::store::{Reservation, TierConfig, Times};

    /// Two blocks on the GPU: request 0 computes block 0, request 1 block 1, request 2 needs one more.
    fn left_after_eviction(touch: Touch) -> (u32, u32) {
        let keys = BlockKeys::new(
            vec![0, 1, 2, 3],
            vec![0, 1, 2],
            1,
            vec![1; 3],
            vec![NO_REQUEST; 3],
        );
        let tier = TierConfig {
            capacity_blocks: Some(2),
            write_back: false,
        };
        let mut store = Store::new(Arc::new(keys.unwrap()), &[tier]).with_touch(touch);
        let first = store.acquire(0, 0).unwrap();
        let second = store.acquire(1, 0).unwrap();
        let reservation = store.reserve(&[(first, 1), (second, 1)], 0);
        assert_eq!(reservation, Ok(Reservation::Ready));
        store.commit(first, 1, Times::at(1)).unwrap();
        store.commit(second, 1, Times::at(1)).unwrap();
        store.release(second, 1).unwrap(); // admitted later, released earlier
        store.release(first, 2).unwrap();
        let third = store.acquire(2, 0).unwrap();
        assert_eq!(store.reserve(&[(third, 1)], 3), Ok(Reservation::Ready));
        (store.peek(0, 1).0, store.peek(1, 1).0)
    }

    #[test]
    fn of_two_requests_the_later_admitted_ends_first() {
        assert_eq!(left_after_eviction(Touch::Release), (1, 0));
        assert_eq!(left_after_eviction(Touch::Admission), (0, 1));
    }
}
