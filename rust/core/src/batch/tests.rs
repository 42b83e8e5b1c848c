//! A batch that advances in step runs, with a steady set, compared with a batch that ends every step and visits every
//! sequence. The store and the scheduler must be notified of the same things in the same order.

use std::collections::BTreeMap;

use super::{Batch, BatchConfig, Ended, Sequence};
use crate::step_time::{StepBases, StepCoefficients, StepTimeTable};
use crate::store::contract::BatchStore;
use crate::store::{Answer, LeaseBlocks, LeaseId, Reservation, Times};

/// Pseudo-random numbers: the generator of `java.util.Random`.
pub(super) struct Draws(pub(super) u64);

impl Draws {
    pub(super) fn below(&mut self, most: u64) -> u64 {
        self.0 = (self.0.wrapping_mul(0x5_DEEC_E66D)).wrapping_add(11) & ((1 << 48) - 1);
        (self.0 >> 17) % most
    }
}

/// A store that counts its free blocks and logs its calls.
#[derive(Clone, Default)]
struct Diary {
    free: u64,
    depths: BTreeMap<LeaseId, u32>,
    reported: Vec<String>,
}

impl BatchStore for Diary {
    fn reserve(&mut self, wanted: &[LeaseBlocks], now_ns: u64) -> Answer<Reservation> {
        let blocks: u64 = wanted.iter().map(|asked| asked.blocks).sum();
        let wanted: Vec<(LeaseId, u64)> = wanted.iter().map(|w| (w.lease, w.blocks)).collect();
        self.reported.push(format!("{now_ns}: reserve {wanted:?}"));
        if blocks > self.free {
            return Ok(Reservation::Refused);
        }
        self.free -= blocks;
        Ok(Reservation::Ready)
    }

    fn depth(&self, lease: LeaseId) -> Answer<u32> {
        Ok(self.depths.get(&lease).copied().unwrap_or(0))
    }

    fn commit(&mut self, lease: LeaseId, to: u32, ready: Times) -> Answer<()> {
        self.reported
            .push(format!("{lease}: {to} blocks at {ready:?}"));
        self.depths.insert(lease, to);
        Ok(())
    }

    fn spare_blocks(&self) -> u64 {
        self.free
    }
}

fn table() -> StepTimeTable {
    StepTimeTable {
        bases: StepBases {
            chunk_ns: (0..200).map(|tokens| 1_000 + 7 * tokens).collect(),
            decode_ns: (0..50).map(|sequences| 900 + 11 * sequences).collect(),
            ..StepBases::default()
        },
        coefficients: StepCoefficients {
            kv_decode_fs: 3_000_000,
            kv_mixed_fs: 5_000_000,
            pair_half_fs: 500_000,
            ..StepCoefficients::default()
        },
        longest_fs: vec![9_000_000; 50],
        ..StepTimeTable::default()
    }
}

fn drawn_config(draws: &mut Draws) -> BatchConfig {
    BatchConfig {
        block_size_tokens: 1 + draws.below(6),
        max_num_batched_tokens: 3 + draws.below(40),
        num_layers: 4,
        cache_enabled: draws.below(5) > 0,
        cache_output: draws.below(3) > 0,
        commit_ends_step_run: draws.below(3) == 0,
        late_ends: draws.below(3) == 0,
        ..BatchConfig::default()
    }
}

/// A new sequence: most have a prompt to compute, some have a computed prompt.
fn drawn_sequence(draws: &mut Draws, id: u32, block: u64) -> Sequence {
    let prompt = 1 + draws.below(30);
    let comes_computed = draws.below(4) == 0;
    let computed = if comes_computed {
        prompt
    } else {
        draws.below(prompt)
    };
    Sequence {
        id,
        request: id,
        lease: u64::from(id),
        computed,
        prefill_target: prompt,
        total: prompt + draws.below(25) + u64::from(comes_computed),
        prompt_tokens: prompt,
        blocks: prompt.div_ceil(block),
        last_token_ns: comes_computed.then_some(0),
        ..Sequence::default()
    }
}

fn compare(one: &Sequence, other: Option<Sequence>) {
    let other = other.expect("both have it");
    let of = |s: &Sequence| (s.id, s.computed, s.blocks, s.last_token_ns);
    assert_eq!(of(one), of(&other));
}

/// Two batches with the same history.
struct Pair {
    batched: (Batch, Diary),
    single: (Batch, Diary),
    block: u64,
}

impl Pair {
    /// Gives all sequences their tokens; removes the last sequence while blocks are refused.
    fn begin(&mut self, now_ns: u64) {
        loop {
            let (batch, diary) = &mut self.batched;
            let refused = batch.begin(diary, now_ns).expect("it answers") == Reservation::Refused;
            let (batch, diary) = &mut self.single;
            let also = batch.begin(diary, now_ns).expect("it answers") == Reservation::Refused;
            assert_eq!(refused, also);
            if !refused {
                break;
            }
            let gone = self
                .batched
                .0
                .pop_last()
                .expect("an empty batch needs no blocks");
            let also = self.single.0.pop_last();
            compare(&gone, also);
            self.free(gone.blocks);
        }
    }

    fn free(&mut self, blocks: u64) {
        self.batched.1.free += blocks;
        self.single.1.free += blocks;
    }

    fn add(&mut self, sequence: Sequence) {
        self.single.0.add(sequence.clone());
        self.batched.0.add(sequence);
    }

    /// Runs to the end of the step run, or to the end of the step that runs at `cut_ns`; returns that time and the
    /// results.
    fn run(&mut self, now_ns: u64, stall_ns: u64, cut_ns: Option<u64>) -> (u64, Ended) {
        let (batch, diary) = &mut self.batched;
        let mut end_ns = batch.start(diary, now_ns, stall_ns).expect("it answers");
        if let Some(cut_ns) = cut_ns.filter(|cut_ns| *cut_ns < end_ns) {
            end_ns = batch.interrupt(diary, cut_ns).expect("it answers");
        }
        let ended = batch.end(diary).expect("it answers");
        let (batch, diary) = &mut self.single;
        let mut single_ns = batch.start(diary, now_ns, stall_ns).expect("it answers");
        let mut also = batch.end(diary).expect("it answers");
        while single_ns < end_ns {
            assert!(also.first_token.is_empty() && also.finished.is_empty());
            assert_eq!(
                batch.begin(diary, single_ns).expect("it answers"),
                Reservation::Ready
            );
            single_ns = batch.start(diary, single_ns, 0).expect("it answers");
            also = batch.end(diary).expect("it answers");
        }
        assert_eq!(single_ns, end_ns);
        assert_eq!(ended.first_token, also.first_token);
        assert_eq!(ended.finished, also.finished);
        assert_eq!(ended.committed, also.committed);
        (end_ns, ended)
    }

    fn check(&self) {
        let ((one, diary), (other, also)) = (&self.batched, &self.single);
        assert_eq!(diary.reported, also.reported);
        assert_eq!(one.len(), other.len());
        assert_eq!(one.counts.steps, other.counts.steps);
        assert_eq!(one.counts.generated_tokens, other.counts.generated_tokens);
        let of = |b: &Batch| {
            (
                b.counts.itl.buckets(),
                b.counts.itl.sum,
                b.counts.itl.min,
                b.counts.itl.max,
            )
        };
        assert_eq!(of(one), of(other));
        for id in 0..200 {
            assert_eq!(one.computed_tokens(id), other.computed_tokens(id));
        }
    }
}

#[test]
fn an_empty_batch_plans_one_step_and_not_as_many_as_there_are_numbers() {
    for now_ns in [0, 9] {
        let mut batch = Batch::new(drawn_config(&mut Draws(1)), table());
        let end_ns = batch.start(&Diary::default(), now_ns, 0);
        assert_eq!(end_ns, Ok(now_ns + 900));
    }
}

#[test]
fn step_runs_with_a_steady_set_equal_steps_that_visit_every_sequence() {
    for seed in 0..300 {
        let draws = &mut Draws(seed);
        let config = drawn_config(draws);
        let block = config.block_size_tokens;
        let mut single = Batch::new(config.clone(), table());
        single.log_later_tokens();
        let diary = Diary {
            free: 20 + draws.below(60),
            ..Diary::default()
        };
        let mut pair = Pair {
            batched: (Batch::new(config, table()), diary.clone()),
            single: (single, diary),
            block,
        };
        let (mut now_ns, mut next) = (0, 0);
        let mut blocks_of = BTreeMap::new();
        for _ in 0..60 {
            if next > 0 && draws.below(6) == 0 {
                let aborted = draws.below(u64::from(next)) as u32;
                if let Some(gone) = pair.batched.0.take_out(aborted) {
                    let also = pair.single.0.take_out(aborted);
                    compare(&gone, also);
                    pair.free(gone.blocks);
                }
            }
            pair.begin(now_ns);
            while pair.batched.0.budget_left() > 0 && next < 200 && draws.below(3) > 0 {
                let sequence = drawn_sequence(draws, next, pair.block);
                if sequence.blocks > pair.batched.1.free {
                    break;
                }
                pair.batched.1.free -= sequence.blocks;
                pair.single.1.free -= sequence.blocks;
                blocks_of.insert(next, sequence.total);
                pair.add(sequence);
                next += 1;
            }
            if pair.batched.0.is_empty() {
                continue;
            }
            let stall_ns = draws.below(4) / 3 * draws.below(500);
            let cut_ns = (draws.below(2) == 0).then(|| now_ns + draws.below(40_000));
            let (end_ns, ended) = pair.run(now_ns, stall_ns, cut_ns);
            for id in ended.finished {
                let held = blocks_of[&id].div_ceil(block);
                pair.free(held);
            }
            pair.check();
            now_ns = end_ns + draws.below(3) / 2 * 100;
        }
    }
}
