//! The queue of a replica: first come first served, or in another order; preempted requests come first.

use std::collections::VecDeque;

use super::pending_aborts::PendingAborts;
use super::plugins::{QueuePlugin, Waiting};
use super::{Request, Slot};
use crate::names::named_values;
use crate::slab::Slab;
use crate::store::Answer;

/// Number of waiting requests that an order considers, oldest first: it bounds the cost.
const WINDOW: usize = 256;

/// RAGCache's bound: a request that was passed this many times is admitted next.
const STARVED: u32 = 32;

named_values! {
    /// Order of admission (the orders of `spec/queueing.py`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum QueueOrder {
        /// The earliest arrival first.
        #[default]
        Fcfs = "fcfs",
        /// The longest cached prefix first.
        LongestPrefix = "longest-prefix",
        /// The fewest tokens left to compute first.
        ShortestFirst = "shortest-first",
        /// The smallest priority of the trace first.
        Priority = "priority",
        /// The latest turn of a session first.
        LaterTurns = "later-turns",
        /// The largest ratio of cached to computed tokens first; a request that was passed too often comes before all.
        RagCache = "ragcache",
        /// The order of a plug-in.
        Plugin = "plug-in",
    }
}

impl QueueOrder {
    /// Sort key of a request with `cached_tokens` cached tokens: the smallest key comes first.
    fn key(self, request: &Request, cached_tokens: u64) -> (f64, f64) {
        let tokens = request.prefill_target_tokens();
        let left = tokens.saturating_sub(cached_tokens);
        match self {
            Self::Fcfs | Self::Plugin => (0.0, 0.0),
            Self::LongestPrefix => (-(cached_tokens as f64), 0.0),
            Self::ShortestFirst => (left as f64, 0.0),
            Self::Priority => (request.arrival.priority as f64, request.arrival_ns as f64),
            Self::LaterTurns => (-(request.arrival.turn as f64), 0.0),
            Self::RagCache => {
                let waits = f64::from(u8::from(request.scheduling.passed < STARVED));
                (waits, -(cached_tokens as f64) / (left.max(1) as f64))
            }
        }
    }
}

/// The waiting requests of a machine.
#[derive(Debug, Default)]
pub(super) struct ArrivalQueue {
    /// Waiting requests, in the order in which they are admitted.
    pub queue: Queue,
    /// The queue's head was refused; it is tried again when something has been freed.
    pub refused: bool,
    /// Waiting or running requests that their clients have aborted.
    pub pending_aborts: PendingAborts,
    /// Time at which the last request that was sent here reaches the scheduler.
    pub reached_ns: u64,
}

/// Requests that wait for admission, in order of arrival; preempted requests are put before all others.
#[derive(Debug, Default)]
pub struct Queue {
    order: QueueOrder,
    waiting: VecDeque<Slot>,
    /// Requests that arrived later are not visible yet (a step is decided in advance); `None`: all are visible.
    visible_until_ns: Option<u64>,
    /// Plug-in that decides under [`QueueOrder::Plugin`].
    pub(super) plugin: Option<Box<dyn QueuePlugin>>,
}

impl Queue {
    /// An empty queue.
    pub fn new(order: QueueOrder) -> Self {
        Self {
            order,
            ..Self::default()
        }
    }

    /// Number of waiting requests.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// True if no request waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Waiting requests, in order of arrival.
    pub fn iter(&self) -> impl Iterator<Item = Slot> + '_ {
        self.waiting.iter().copied()
    }

    /// Adds a request at the end.
    pub fn push_back(&mut self, slot: Slot) {
        self.waiting.push_back(slot);
    }

    /// Adds a preempted request at the front.
    pub fn push_front(&mut self, slot: Slot) {
        self.waiting.push_front(slot);
    }

    /// Hides requests that arrived after a time; `None`: hides none.
    pub fn hide_after(&mut self, ns: Option<u64>) {
        self.visible_until_ns = ns;
    }

    /// True if the scheduler can see a request.
    pub fn can_see(&self, request: &Request) -> bool {
        self.can_see_since(request.since_ns)
    }

    /// True if the scheduler can see requests that arrived at a time.
    pub fn can_see_since(&self, since_ns: u64) -> bool {
        self.visible_until_ns.is_none_or(|until| since_ns <= until)
    }

    /// The n-th candidate for the next admission, in order of arrival.
    pub fn candidate(&self, n: usize) -> Option<Slot> {
        self.waiting.get(n).copied().filter(|_| n < WINDOW)
    }

    /// The next request, or `None` if all must stay. `cached` returns the cached tokens of a request; `stays` returns
    /// true if the request must not be admitted yet.
    pub fn head(
        &mut self,
        requests: &Slab<Request>,
        mut stays: Option<impl FnMut(&Request) -> bool>,
        mut cached: impl FnMut(&Request) -> Answer<u64>,
    ) -> Answer<Option<Slot>> {
        let request = |slot: Slot| &requests[slot];
        if self.order == QueueOrder::Fcfs && stays.is_none() {
            let first = self.waiting.front().copied();
            return Ok(first.filter(|&slot| self.can_see(request(slot))));
        }
        let window = self.waiting.iter().copied().take(WINDOW);
        let mut best: Option<(Slot, (f64, f64))> = None;
        let (mut candidates, mut seen) = (Vec::new(), Vec::new());
        for slot in window.filter(|&slot| self.can_see(request(slot))) {
            let waiting = request(slot);
            if stays.as_mut().is_some_and(|stays| stays(waiting)) {
                continue;
            }
            if self.order == QueueOrder::Fcfs {
                return Ok(Some(slot));
            }
            if best.is_none() && candidates.is_empty() && waiting.scheduling.preemptions > 0 {
                return Ok(Some(slot));
            }
            let cached_tokens = cached(waiting)?;
            if self.plugin.is_some() {
                candidates.push(slot);
                seen.push(Waiting::of(waiting, cached_tokens));
                continue;
            }
            let key = self.order.key(waiting, cached_tokens);
            if best.is_none_or(|(_, least)| key < least) {
                best = Some((slot, key));
            }
        }
        match &mut self.plugin {
            Some(plugin) if !seen.is_empty() => {
                let first = plugin.first(&seen)?;
                Ok(candidates.get(first).copied())
            }
            _ => Ok(best.map(|(slot, _)| slot)),
        }
    }

    /// Removes an aborted request; returns true if it was waiting.
    pub fn remove(&mut self, slot: Slot) -> bool {
        let at = self.waiting.iter().position(|&waiting| waiting == slot);
        at.and_then(|at| self.waiting.remove(at)).is_some()
    }

    /// Removes an admitted request; the requests before it have been passed.
    pub fn take(&mut self, slot: Slot, requests: &mut Slab<Request>) {
        let at = self.waiting.iter().position(|&waiting| waiting == slot);
        let Some(at) = at else { return };
        for &passed in self.waiting.iter().take(at) {
            requests[passed].scheduling.passed += 1;
        }
        self.waiting.remove(at);
        requests[slot].scheduling.passed = 0;
    }
}
