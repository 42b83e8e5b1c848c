//! Iterations in which every sequence decodes one token: they cost what changes, not what runs.
//!
//! From the second such iteration of a stretch on all sequences had their last token at the same moment, and each
//! grows by one. So only sums are kept, and the sequences that fill a block are looked at when they do.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::advance::commit_full_blocks;
use super::{Batch, BatchStore, StepRecord};
use crate::step_time::StepShape;
use crate::store::{Answer, LeaseId, Room, Times};

/// What is kept of a batch whose sequences decode in step.
#[derive(Debug)]
pub(super) struct Lockstep {
    /// Iterations ended since the sequences were last brought up to date.
    pub(super) done: u64,
    /// The shape of the current iteration.
    pub(super) shape: StepShape,
    /// Which iteration's end fills a block, and whose: the next one first.
    fills: BinaryHeap<Reverse<(u64, u32)>>,
}

impl Batch {
    /// Goes on in step from the current iteration, where all sequences can.
    pub(super) fn fall_in_step(&mut self) {
        let config = &self.config;
        let each_step = config.asks_every_step || config.commit_at_begin || config.room_by_step;
        if self.iterations_left <= 2 || each_step {
            return;
        }
        let begin_ns = self.begin_ns;
        let in_step = self.sequences.iter().all(|s| {
            s.chunk == 1
                && !s.prefilling()
                && s.computed < s.total
                && s.last_token_ns == Some(begin_ns)
        });
        if !in_step {
            return;
        }
        let block = config.block_size_tokens;
        let fills = self.sequences.iter().zip(0..);
        let fills = fills.map(|(s, place)| Reverse((block - s.computed % block, place)));
        self.lockstep = Some(Lockstep {
            done: 0,
            shape: self.shape(),
            fills: fills.collect(),
        });
    }

    /// Ends the current iteration and begins the next one, in step.
    pub(super) fn next_in_step<S: BatchStore>(
        &mut self,
        store: &mut S,
        step: &mut Lockstep,
    ) -> Answer<()> {
        let (end_ns, sequences) = (self.end_ns, self.sequences.len() as u64);
        let computing_ns = end_ns - self.begin_ns;
        self.steps += 1;
        self.generated_tokens += sequences;
        self.itl.add(computing_ns, sequences);
        if let Some(log) = &mut self.log {
            log.push(StepRecord {
                begin_ns: self.begin_ns,
                duration_ns: computing_ns,
                prefill_tokens: 0,
                decode_sequences: sequences,
            });
        }
        step.done += 1;
        let block = self.config.block_size_tokens;
        let ready = Times {
            first_layer_ns: self.begin_ns + computing_ns / self.config.num_layers.max(1),
            ready_ns: end_ns,
        };
        let mut wanted: Vec<(LeaseId, u64)> = Vec::new();
        while let Some(&Reverse((filled, place))) = step.fills.peek() {
            if filled > step.done {
                break;
            }
            step.fills.pop();
            step.fills.push(Reverse((filled + block, place)));
            let sequence = &mut self.sequences[place as usize];
            let computed = sequence.computed + step.done;
            commit_full_blocks(&self.config, sequence, computed, (&mut *store, ready))?;
            if computed + 1 > sequence.blocks * block {
                sequence.blocks += 1;
                wanted.push((sequence.lease, 1));
            }
        }
        self.iterations_left -= 1;
        self.begin_ns = end_ns;
        self.stall_ns = 0;
        if !wanted.is_empty() {
            let room = store.reserve(&wanted, self.begin_ns)?;
            debug_assert_eq!(
                room,
                Room::Ready,
                "a stretch is planned within the room there is"
            );
        }
        step.shape.decode_kv_tokens += sequences;
        step.shape.decode_max_kv_tokens += 1;
        self.end_ns = self.begin_ns.saturating_add(self.duration_ns(&step.shape));
        Ok(())
    }

    /// Brings the sequences up to date.
    pub(super) fn fall_out_of_step(&mut self) {
        let Some(step) = self.lockstep.take() else {
            return;
        };
        for sequence in &mut self.sequences {
            sequence.computed += step.done;
            sequence.last_token_ns = Some(self.begin_ns);
        }
    }
}
