//! Order of the queue.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::settings::SchedulePolicy;
use super::SglangScheduler;
use crate::convert::fit;
use crate::engines::radix_store::RadixStore;

/// A longer queue keeps its order under `lpm`, and at most this many of its first requests are touched
/// (`WAITING_QUEUE_PREFIX_MATCH_MAX`).
const MOST_MATCHED: usize = 128;
/// Number of passes between two touches of the prefixes of waiting requests (`WAITING_PREFIX_REFRESH_INTERVAL`).
const REFRESH_INTERVAL: u64 = 32;
/// Requests with a longer cached prefix are not compared with other waiting requests. A request that shares a prefix
/// of this length or more with another waiting request is put last (`IN_BATCH_PREFIX_CACHING_*_THRESHOLD`).
const IN_BATCH_TOKENS: u64 = 32;

impl SglangScheduler {
    /// Sorts the queue; look-ups make the blocks they find recent.
    pub(super) fn order_waiting(&mut self, store: &mut RadixStore) {
        let mut policy = self.config.schedule_policy;
        if policy == SchedulePolicy::LongestPrefix && self.waiting.len() > MOST_MATCHED {
            policy = SchedulePolicy::Fcfs;
        }
        let is_prefix = matches!(
            policy,
            SchedulePolicy::LongestPrefix | SchedulePolicy::DepthFirst
        );
        if is_prefix && !self.config.cache_enabled {
            policy = SchedulePolicy::Fcfs;
        }
        match policy {
            SchedulePolicy::LongestPrefix => {
                let behind = self.look_up_waiting(store);
                let sequences = &self.sequences;
                self.waiting.sort_by_key(|&slot| {
                    let is_behind = behind.contains(&slot);
                    let matched = sequences[slot].matched();
                    (is_behind, Reverse(if is_behind { 0 } else { matched }))
                });
            }
            SchedulePolicy::DepthFirst => {
                self.look_up_waiting(store);
                let found = self.waiting.iter().map(|&p| self.sequences[p].found.node);
                let order = store.depth_first(&found.collect::<Vec<_>>());
                self.waiting = order.into_iter().map(|at| self.waiting[at]).collect();
            }
            SchedulePolicy::LongestOutput => {
                let (sequences, by_priority) = (&self.sequences, self.config.priority.is_some());
                self.waiting.sort_by_key(|&slot| {
                    let s = &sequences[slot];
                    let priority = if by_priority { s.priority } else { 0 };
                    (priority, Reverse(s.max_new))
                });
                self.refresh(store);
            }
            SchedulePolicy::Fcfs => {
                if self.config.priority.is_some() {
                    let sequences = &self.sequences;
                    self.waiting
                        .sort_by_key(|&slot| (sequences[slot].priority, sequences[slot].entered));
                }
                self.refresh(store);
            }
        }
    }

    /// Looks up all waiting requests; returns those to put last, since another request has their prefix.
    fn look_up_waiting(&mut self, store: &mut RadixStore) -> BTreeSet<super::Slot> {
        let pages = IN_BATCH_TOKENS.div_ceil(self.config.page_size);
        let (mut shown, mut behind) = (BTreeSet::new(), BTreeSet::new());
        for &slot in &self.waiting {
            let s = &mut self.sequences[slot];
            s.found = store.find(s.request, s.known());
            if s.found.tokens <= IN_BATCH_TOKENS && s.known() >= pages * self.config.page_size {
                let key = store.key(s.request, fit::<u32>(pages) - 1);
                if !shown.insert(key) {
                    behind.insert(slot);
                }
            }
        }
        behind
    }

    /// At intervals, touches the cached prefixes of the first requests in the queue, the very first last.
    fn refresh(&mut self, store: &mut RadixStore) {
        let is_refreshed = self.config.cache_enabled && store.evicts_least_recent();
        if self.waiting.is_empty() || !is_refreshed {
            return;
        }
        let is_due = self.refreshes % REFRESH_INTERVAL == 0;
        self.refreshes += 1;
        if is_due {
            for &slot in self.waiting.iter().take(MOST_MATCHED).rev() {
                let s = &self.sequences[slot];
                store.find(s.request, s.known());
            }
        }
    }
}
