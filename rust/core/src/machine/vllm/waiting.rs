//! Waiting requests: in order of arrival with preempted requests first, or by (priority, arrival, number).

use std::collections::BTreeSet;
use std::ops::Bound;

use super::sequence::Sequence;
use super::Slot;

/// The queue of requests that are not running, by priority and then by arrival, or in order of arrival. In order of
/// arrival, preempted requests come first, the last one preempted before the others.
#[derive(Debug)]
pub(super) struct Waiting {
    by_priority: bool,
    queue: BTreeSet<(i64, u64, u32, Slot)>,
    /// Position of the first request in arrival order.
    first: u64,
    /// Position after the last request in arrival order.
    next: u64,
}

impl Waiting {
    pub fn new(by_priority: bool) -> Self {
        Self {
            by_priority,
            queue: BTreeSet::new(),
            first: 1 << 63,
            next: 1 << 63,
        }
    }

    /// Sort key of a request.
    fn key(&self, slot: Slot, s: &Sequence) -> (i64, u64, u32, Slot) {
        if self.by_priority {
            (s.position.priority, s.position.arrival_ns, s.request, slot)
        } else {
            (0, s.position.stand, 0, slot)
        }
    }

    pub fn len(&self) -> usize {
        self.queue.len()
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub fn first(&self) -> Option<Slot> {
        self.queue.first().map(|key| key.3)
    }

    /// The request behind one that waits.
    pub fn after(&self, slot: Slot, s: &Sequence) -> Option<Slot> {
        let behind = (Bound::Excluded(self.key(slot, s)), Bound::Unbounded);
        self.queue.range(behind).next().map(|key| key.3)
    }

    /// Queues a request that has arrived.
    pub fn push(&mut self, slot: Slot, s: &mut Sequence) {
        s.position.stand = self.next;
        self.next += 1;
        self.queue.insert(self.key(slot, s));
    }

    /// Queues a request that was preempted.
    pub fn push_preempted(&mut self, slot: Slot, s: &mut Sequence) {
        self.first -= 1;
        s.position.stand = self.first;
        self.queue.insert(self.key(slot, s));
    }

    /// Waiting requests, in queue order.
    pub fn iter(&self) -> impl Iterator<Item = Slot> + '_ {
        self.queue.iter().map(|key| key.3)
    }

    /// Removes a request at any position; returns true if it was waiting.
    pub fn remove(&mut self, slot: Slot, s: &Sequence) -> bool {
        self.queue.remove(&self.key(slot, s))
    }
}
