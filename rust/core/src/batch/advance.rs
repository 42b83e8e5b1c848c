//! Running iterations: room is taken when one begins, blocks are committed and tokens counted when it ends.

use super::{Batch, BatchConfig, BatchStore, Ended, Sequence, StepRecord};
use crate::store::{Answer, LeaseId, Room, Times};

impl Batch {
    /// Runs every iteration of the stretch that begins before `now_ns`; returns the end of the current one.
    pub fn advance<S: BatchStore>(&mut self, store: &mut S, now_ns: u64) -> Answer<u64> {
        while self.iterations_left > 1 && self.end_ns < now_ns {
            self.next_iteration(store)?;
        }
        Ok(self.end_ns)
    }

    /// Cuts the stretch short at the end of the iteration that is running at `now_ns`; returns that end.
    pub fn interrupt<S: BatchStore>(&mut self, store: &mut S, now_ns: u64) -> Answer<u64> {
        self.advance(store, now_ns)?;
        self.iterations_left = self.iterations_left.min(1);
        Ok(self.end_ns)
    }

    /// Runs the rest of the stretch and ends its last iteration.
    pub fn end<S: BatchStore>(&mut self, store: &mut S) -> Answer<Ended> {
        while self.iterations_left > 1 {
            self.next_iteration(store)?;
        }
        self.fall_out_of_step();
        let mut ended = Ended::default();
        self.finish_iteration(store, Some(&mut ended))?;
        self.iterations_left = 0;
        if !ended.finished.is_empty() || self.config.late_ends {
            self.leave();
        }
        Ok(ended)
    }

    fn leave(&mut self) {
        let (late, end_ns) = (self.config.late_ends, self.end_ns);
        self.sequences.retain(|s| {
            let just_ended = s.computed == s.total && s.last_token_ns == Some(end_ns);
            s.prefilling() || s.computed < s.total || (late && just_ended)
        });
    }

    fn next_iteration<S: BatchStore>(&mut self, store: &mut S) -> Answer<()> {
        if let Some(mut step) = self.lockstep.take() {
            let answer = self.next_in_step(store, &mut step);
            self.lockstep = Some(step);
            return answer;
        }
        self.finish_iteration(store, None)?;
        self.iterations_left -= 1;
        self.begin_ns = self.end_ns;
        self.stall_ns = 0;
        let room = self.reserve_blocks(store, self.begin_ns)?;
        debug_assert_eq!(
            room,
            Room::Ready,
            "a stretch is planned within the room there is"
        );
        self.commit_scheduled(store, self.begin_ns)?;
        self.end_ns = self.begin_ns.saturating_add(self.step_ns());
        self.fall_in_step();
        Ok(())
    }

    /// As [`Batch::begin`] does for all: shares what the last added sequence will fill.
    pub fn commit_last<S: BatchStore>(&mut self, store: &mut S) -> Answer<()> {
        let last = self.sequences.last_mut();
        if let (true, Some(sequence)) = (self.config.commit_at_begin, last) {
            let filled = sequence.sure_tokens();
            let now = Times::at(self.end_ns);
            commit_full_blocks(&self.config, sequence, filled, (store, now))?;
        }
        Ok(())
    }

    /// Shares the blocks that the composed step will fill, where keys exist from scheduling on.
    pub(super) fn commit_scheduled<S: BatchStore>(
        &mut self,
        store: &mut S,
        now_ns: u64,
    ) -> Answer<()> {
        if self.config.commit_at_begin {
            for sequence in self.sequences.iter_mut().filter(|s| s.chunk > 0) {
                let filled = sequence.sure_tokens();
                let now = Times::at(now_ns);
                commit_full_blocks(&self.config, sequence, filled, (store, now))?;
            }
        }
        Ok(())
    }

    /// Blocks that decoding sequences lack for the composed step, reserved all or nothing.
    pub(super) fn reserve_blocks<S: BatchStore>(
        &mut self,
        store: &mut S,
        now_ns: u64,
    ) -> Answer<Room> {
        if self.config.room_by_step {
            return self.reserve_tokens(store, now_ns);
        }
        let block = self.config.block_size_tokens;
        let every = self.config.asks_every_step;
        let lacking = |s: &Sequence| s.lacking_blocks(block);
        let asks = |s: &Sequence| lacking(s) > 0 || (every && s.chunk > 0 && !s.prefilling());
        if !self.sequences.iter().any(asks) {
            return Ok(Room::Ready);
        }
        let wanted: Vec<(LeaseId, u64)> = self
            .sequences
            .iter()
            .filter(|s| asks(s))
            .map(|s| (s.lease, lacking(s)))
            .collect();
        let room = store.reserve(&wanted, now_ns)?;
        if room != Room::Refused {
            for sequence in &mut self.sequences {
                sequence.blocks += lacking(sequence);
            }
        }
        Ok(room)
    }

    /// Room for the tokens of the composed step, all or nothing, where room is counted in tokens.
    fn reserve_tokens<S: BatchStore>(&mut self, store: &mut S, now_ns: u64) -> Answer<Room> {
        let lacking = |s: &Sequence| (s.computed + s.chunk).saturating_sub(s.blocks);
        let asks = self.sequences.iter().filter(|s| s.chunk > 0);
        let wanted: Vec<(LeaseId, u64)> = asks
            .map(|s| (s.lease, lacking(s)))
            .filter(|&(_, tokens)| tokens > 0)
            .collect();
        if wanted.is_empty() {
            return Ok(Room::Ready);
        }
        let room = store.reserve(&wanted, now_ns)?;
        if room != Room::Refused {
            for sequence in self.sequences.iter_mut().filter(|s| s.chunk > 0) {
                sequence.blocks += lacking(sequence);
            }
        }
        Ok(room)
    }

    fn finish_iteration<S: BatchStore>(
        &mut self,
        store: &mut S,
        mut ended: Option<&mut Ended>,
    ) -> Answer<()> {
        let end_ns = self.end_ns;
        self.steps += 1;
        let shape = self.log.is_some().then(|| self.shape());
        if let (Some(log), Some(shape)) = (&mut self.log, shape) {
            log.push(StepRecord {
                begin_ns: self.begin_ns,
                duration_ns: end_ns - self.begin_ns,
                prefill_tokens: shape.new_tokens,
                decode_sequences: shape.decode_sequences,
            });
        }
        let computing_ns = end_ns - self.begin_ns - self.stall_ns;
        let ready = Times {
            first_layer_ns: end_ns - computing_ns + computing_ns / self.config.num_layers.max(1),
            ready_ns: end_ns,
        };
        let (mut gap_ns, mut gap_times) = (0, 0);
        for sequence in self.sequences.iter_mut().filter(|s| s.chunk > 0) {
            let drafts = sequence.drafts();
            let mut tokens = sequence.chunk;
            if let (true, Some(rules)) = (drafts > 0, &self.config.speculation) {
                let accepted = rules.accepted(sequence.request, sequence.computed, drafts);
                self.accepted.count(drafts, accepted);
                tokens = (1 + accepted).min(sequence.total - sequence.computed);
            }
            sequence.computed += tokens;
            let computed = sequence.computed;
            let committed =
                commit_full_blocks(&self.config, sequence, computed, (&mut *store, ready))?;
            if let (true, Some((from, to)), Some(ended)) = (
                self.config.commit_ends_stretch,
                committed,
                ended.as_deref_mut(),
            ) {
                ended.committed.push((sequence.id, from, to));
            }
            if sequence.prefilling() || computed > sequence.total {
                continue;
            }
            let brought = if drafts > 0 { tokens } else { 1 };
            self.generated_tokens += brought;
            if let (Some(later), Some(_)) = (&mut self.later_tokens, sequence.last_token_ns) {
                later.extend((0..brought).map(|_| sequence.id));
            }
            match sequence.last_token_ns.replace(end_ns) {
                Some(last) if end_ns - last == gap_ns => gap_times += 1,
                Some(last) => {
                    self.itl.add(gap_ns, gap_times);
                    (gap_ns, gap_times) = (end_ns - last, 1);
                }
                None => {
                    let ended = ended.as_deref_mut().expect("a first token ends a stretch");
                    ended.first_token.push(sequence.id);
                }
            }
            if sequence.computed == sequence.total {
                ended
                    .as_deref_mut()
                    .expect("a finish ends a stretch")
                    .finished
                    .push(sequence.id);
            }
        }
        self.itl.add(gap_ns, gap_times);
        Ok(())
    }
}

/// Shares the blocks that are full now; returns their range.
pub(super) fn commit_full_blocks<S: BatchStore>(
    config: &BatchConfig,
    sequence: &mut Sequence,
    computed: u64,
    (store, ready): (&mut S, Times),
) -> Answer<Option<(u32, u32)>> {
    // Most steps fill no block, and what a lease shares never falls: the store need not be asked.
    if computed < sequence.next_full_tokens || !config.cache_enabled || computed > sequence.total {
        return Ok(None);
    }
    let tokens = if config.cache_output {
        computed
    } else {
        computed.min(sequence.prompt_tokens)
    };
    let block = config.block_size_tokens;
    let full = (tokens / block) as u32;
    let depth = store.depth(sequence.lease)?;
    if full > depth {
        store.commit(sequence.lease, full, ready)?;
    }
    sequence.next_full_tokens = (u64::from(full) + 1) * block;
    Ok((full > depth).then_some((depth, full)))
}
