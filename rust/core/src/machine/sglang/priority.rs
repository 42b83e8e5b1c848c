//! Running requests that leave for a waiting one of a better priority (`preempt_to_schedule`).

use std::cmp::Reverse;

use super::super::Slot;
use super::prefill::Adder;
use super::{Desk, SglangScheduler};

impl SglangScheduler {
    /// True if running requests may leave for others.
    pub(super) fn preempts(&self) -> bool {
        let rules = self.config.priority;
        rules.is_some_and(|rules| rules.preempts_above.is_some())
    }

    /// Puts a request at the end of the queue.
    pub(super) fn waits(&mut self, slot: Slot) {
        self.entries += 1;
        self.sequences[slot].entered = self.entries;
        self.waiting.push(slot);
    }

    /// Takes back running requests until a waiting one fits, those of the worst priority and the latest first. False,
    /// and nothing is changed, if it would not fit then.
    pub(super) fn preempt_for(
        &mut self,
        desk: &mut Desk<'_>,
        adder: &mut Adder,
        slot: Slot,
    ) -> bool {
        let rules = self.config.priority;
        let Some(threshold) = rules.and_then(|rules| rules.preempts_above) else {
            return false;
        };
        let s = &self.sequences[slot];
        let (least, threshold) = (i128::from(s.priority), i128::from(threshold));
        let (known, found) = (s.extend.filled as f64, s.found.tokens as f64);
        let mut lacking = known - found + s.whole_answer() as f64 - adder.remaining(desk.store);
        let mut worst = self.running.clone();
        worst.sort_by_key(|&p| Reverse((self.sequences[p].priority, self.sequences[p].entered)));
        let mut leaving = Vec::new();
        for other in worst {
            let s = &self.sequences[other];
            if i128::from(s.priority) - least <= threshold {
                break;
            }
            leaving.push(other);
            lacking -= s.to_come() as f64 * self.ratio.current;
            if lacking <= 0.0 {
                break;
            }
        }
        if leaving.is_empty() || lacking > 0.0 {
            return false;
        }
        let (running, mut gone) = (std::mem::take(&mut self.running), 0);
        let before = running.len() as u64 + self.lingering;
        for other in running {
            if !leaving.contains(&other) {
                self.running.push(other);
                continue;
            }
            gone += 1;
            adder.total_offset -= self.sequences[other].to_come() as f64 * self.ratio.current;
            self.take_back(desk, other, before - gone);
        }
        adder.preempted.extend(leaving);
        true
    }
}
