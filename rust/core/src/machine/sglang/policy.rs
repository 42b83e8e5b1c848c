//! Who of the queue is looked at first.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::settings::SchedulePolicy;
use super::SglangScheduler;
use crate::engines::radix_store::RadixStore;

/// A longer queue is left as it is under `lpm`, and so many of its first are touched (`WAITING_QUEUE_PREFIX_MATCH_MAX`).
const MOST_MATCHED: usize = 128;
/// One in so many passes touches what the waiting requests would find (`WAITING_PREFIX_REFRESH_INTERVAL`).
const REFRESH_INTERVAL: u64 = 32;
/// A prefix of more tokens is not looked for among the waiting requests, and one of as many or more that
/// another of them shows puts a request behind (`IN_BATCH_PREFIX_CACHING_*_THRESHOLD`).
const IN_BATCH_TOKENS: u64 = 32;

impl SglangScheduler {
    /// Puts the queue in order; look-ups make what they find recent.
    pub(super) fn order_waiting(&mut self, store: &mut RadixStore) {
        let mut policy = self.config.schedule_policy;
        if policy == SchedulePolicy::LongestPrefix && self.waiting.len() > MOST_MATCHED {
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
                let sequences = &self.sequences;
                self.waiting
                    .sort_by_key(|&slot| Reverse(sequences[slot].max_new));
                self.refresh(store);
            }
            SchedulePolicy::Fcfs => self.refresh(store),
        }
    }

    /// Looks all waiting requests up; returns those that go behind, since another shows their prefix.
    fn look_up_waiting(&mut self, store: &mut RadixStore) -> BTreeSet<super::Slot> {
        let pages = IN_BATCH_TOKENS.div_ceil(self.config.page_size);
        let (mut shown, mut behind) = (BTreeSet::new(), BTreeSet::new());
        for &slot in &self.waiting {
            let s = &mut self.sequences[slot];
            s.found = store.find(s.request, s.known());
            if s.found.tokens <= IN_BATCH_TOKENS && s.known() >= pages * self.config.page_size {
                let key = store.key(s.request, pages as u32 - 1);
                if !shown.insert(key) {
                    behind.insert(slot);
                }
            }
        }
        behind
    }

    /// Now and then touches what the first of the queue would find, the very first last.
    fn refresh(&mut self, store: &mut RadixStore) {
        if self.waiting.is_empty() || !store.evicts_least_recent() {
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
