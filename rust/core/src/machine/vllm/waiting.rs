//! Who waits: in order of arrival with preempted ones in front, or by (priority, arrival, number).

use std::collections::{BTreeSet, VecDeque};

use super::super::Place;
use super::Sequence;

/// The queue of requests that are not running.
#[derive(Debug)]
pub(super) enum Waiting {
    ByArrival(VecDeque<Place>),
    ByPriority(BTreeSet<(i64, u64, u32, Place)>),
}

fn key(place: Place, s: &Sequence) -> (i64, u64, u32, Place) {
    (s.priority, s.arrival_ns, s.request, place)
}

impl Waiting {
    pub fn new(by_priority: bool) -> Self {
        if by_priority {
            Self::ByPriority(BTreeSet::new())
        } else {
            Self::ByArrival(VecDeque::new())
        }
    }

    pub fn len(&self) -> usize {
        match self {
            Self::ByArrival(queue) => queue.len(),
            Self::ByPriority(queue) => queue.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn first(&self) -> Option<Place> {
        match self {
            Self::ByArrival(queue) => queue.front().copied(),
            Self::ByPriority(queue) => queue.first().map(|key| key.3),
        }
    }

    /// Queues a request that has arrived.
    pub fn push(&mut self, place: Place, s: &Sequence) {
        match self {
            Self::ByArrival(queue) => queue.push_back(place),
            Self::ByPriority(queue) => {
                queue.insert(key(place, s));
            }
        }
    }

    /// Queues a request that was preempted.
    pub fn push_preempted(&mut self, place: Place, s: &Sequence) {
        match self {
            Self::ByArrival(queue) => queue.push_front(place),
            Self::ByPriority(queue) => {
                queue.insert(key(place, s));
            }
        }
    }

    /// Who waits, the first one first.
    pub fn iter(&self) -> Box<dyn Iterator<Item = Place> + '_> {
        match self {
            Self::ByArrival(queue) => Box::new(queue.iter().copied()),
            Self::ByPriority(queue) => Box::new(queue.iter().map(|key| key.3)),
        }
    }

    /// Takes a request out, wherever it stands; whether it waits.
    pub fn remove(&mut self, place: Place, s: &Sequence) -> bool {
        match self {
            Self::ByArrival(queue) => {
                let at = queue.iter().position(|&waiting| waiting == place);
                at.and_then(|at| queue.remove(at)).is_some()
            }
            Self::ByPriority(queue) => queue.remove(&key(place, s)),
        }
    }
}
