//! Running iterations: blocks are reserved when an iteration begins (`reserve.rs`), blocks are committed and tokens
//! counted when it ends.

use super::steady_set::Member;
use super::{Batch, BatchConfig, Committed, Ended, Sequence, StepRecord};
use crate::ids::BlockRange;
use crate::store::contract::BatchStore;
use crate::store::{Answer, Reservation, Times};

impl Batch {
    /// Runs every iteration of the step run that begins before `now_ns`; returns the end of the current iteration.
    pub fn advance<S: BatchStore + ?Sized>(&mut self, store: &mut S, now_ns: u64) -> Answer<u64> {
        while self.step_run.iterations_left > 1 && self.step_run.end_ns < now_ns {
            self.next_iteration(store)?;
        }
        Ok(self.step_run.end_ns)
    }

    /// Cuts the step run short at the end of the iteration that is running at `now_ns`; returns that end.
    pub fn interrupt<S: BatchStore + ?Sized>(&mut self, store: &mut S, now_ns: u64) -> Answer<u64> {
        self.advance(store, now_ns)?;
        self.step_run.iterations_left = self.step_run.iterations_left.min(1);
        Ok(self.step_run.end_ns)
    }

    /// Runs the rest of the step run and ends its last iteration.
    pub fn end<S: BatchStore + ?Sized>(&mut self, store: &mut S) -> Answer<Ended> {
        while self.step_run.iterations_left > 1 {
            self.next_iteration(store)?;
        }
        let mut ended = Ended::default();
        self.finish_iteration(store, Some(&mut ended))?;
        self.step_run.iterations_left = 0;
        if !ended.finished.is_empty() || self.config.late_ends {
            self.leave();
        }
        Ok(ended)
    }

    fn leave(&mut self) {
        let (late, end_ns) = (self.config.late_ends, self.step_run.end_ns);
        self.others
            .retain(|s| s.prefilling() || s.computed < s.total || (late && s.ends_at(end_ns)));
    }

    fn next_iteration<S: BatchStore + ?Sized>(&mut self, store: &mut S) -> Answer<()> {
        self.finish_iteration(store, None)?;
        self.step_run.iterations_left -= 1;
        self.step_run.begin_ns = self.step_run.end_ns;
        self.step_run.stall_ns = 0;
        if !self.is_quiet() {
            let reservation = self.reserve_blocks(store, self.step_run.begin_ns)?;
            debug_assert_eq!(
                reservation,
                Reservation::Ready,
                "a step run is planned within the free blocks"
            );
            self.commit_scheduled(0, store, self.step_run.begin_ns)?;
        }
        let planned = self.step_run.planned_ends.pop_front();
        self.step_run.end_ns = planned.expect("every iteration of a step run is planned");
        Ok(())
    }

    /// Shares the blocks that the last added sequence will fill, as [`Batch::begin`] does for all sequences.
    pub fn commit_last<S: BatchStore + ?Sized>(&mut self, store: &mut S) -> Answer<()> {
        let last = self.others.len().saturating_sub(1);
        self.commit_scheduled(last, store, self.step_run.end_ns)
    }

    /// Shares the blocks that the composed step will fill, from the sequence at position `first` on. Does nothing unless
    /// block keys exist from scheduling on.
    pub(super) fn commit_scheduled<S: BatchStore + ?Sized>(
        &mut self,
        first: usize,
        store: &mut S,
        now_ns: u64,
    ) -> Answer<()> {
        if self.config.commit_at_begin {
            for sequence in self.others[first..].iter_mut().filter(|s| s.chunk > 0) {
                let filled = sequence.sure_tokens();
                let now = Times::at(now_ns);
                commit_full_blocks(&self.config, sequence, filled, store, now)?;
            }
        }
        Ok(())
    }

    fn finish_iteration<S: BatchStore + ?Sized>(
        &mut self,
        store: &mut S,
        mut ended: Option<&mut Ended>,
    ) -> Answer<()> {
        let end_ns = self.step_run.end_ns;
        self.counts.steps += 1;
        let shape = self.logs.steps.is_some().then(|| self.shape());
        if let (Some(log), Some(shape)) = (&mut self.logs.steps, shape) {
            log.push(StepRecord::of(&shape, self.step_run.begin_ns, end_ns));
        }
        let in_steady_set = self.steady.len() as u64;
        let waited_ns = self.steady.tick(end_ns);
        self.counts.itl.add(waited_ns, in_steady_set);
        self.counts.generated_tokens += in_steady_set;
        if ended.is_none() && self.is_quiet() {
            return Ok(());
        }
        let computing_ns = end_ns - self.step_run.begin_ns - self.step_run.stall_ns;
        let ready = Times {
            first_layer_ns: end_ns - computing_ns + computing_ns / self.config.num_layers.max(1),
            ready_ns: end_ns,
        };
        let filled = self.steady.filled().to_vec();
        let mut filled = filled.into_iter().peekable();
        for at in 0..self.others.len() {
            let order = self.others[at].order;
            while let Some(member) = filled.next_if(|member| member.order < order) {
                self.fill_block(store, member, ready, ended.as_deref_mut())?;
            }
            if self.others[at].chunk > 0 {
                self.grow(store, at, ready, ended.as_deref_mut())?;
            }
        }
        for member in filled {
            self.fill_block(store, member, ready, ended.as_deref_mut())?;
        }
        if let Some(ended) = ended {
            self.leave_steady_set();
            let over = self.others.iter().filter(|s| s.ends_at(end_ns));
            ended.finished.extend(over.map(|s| s.id));
        }
        self.join_steady_set();
        Ok(())
    }

    /// Moves the sequences that had their last token from the steady set to the other sequences.
    fn leave_steady_set(&mut self) {
        for member in self.steady.ended() {
            let sequence = self.steady.leave(member);
            let at = self.others.partition_point(|s| s.order < sequence.order);
            self.others.insert(at, sequence);
        }
    }

    /// Moves the sequences that only decode from now on to the steady set, in configurations that have one.
    fn join_steady_set(&mut self) {
        let (end_ns, block) = (self.step_run.end_ns, self.config.block_size_tokens);
        // A sequence added after the blocks were reserved got its first token without a block, which it requests
        // first.
        let joins = |s: &Sequence| s.in_step(end_ns) && s.computed <= s.blocks * block;
        if !self.has_steady_set() || !self.others.iter().any(joins) {
            return;
        }
        let others = std::mem::take(&mut self.others).into_iter();
        let (joining, others): (Vec<Sequence>, _) = others.partition(joins);
        self.others = others;
        for sequence in joining {
            self.steady.join(sequence);
        }
    }

    /// Shares the blocks that a sequence of the steady set has filled.
    fn fill_block<S: BatchStore + ?Sized>(
        &mut self,
        store: &mut S,
        member: Member,
        ready: Times,
        ended: Option<&mut Ended>,
    ) -> Answer<()> {
        let (sequence, computed) = self.steady.get_mut(member);
        let id = sequence.id;
        let committed = commit_full_blocks(&self.config, sequence, computed, store, ready)?;
        self.note_committed(id, committed, ended);
        Ok(())
    }

    fn note_committed(&self, id: u32, committed: Option<BlockRange>, ended: Option<&mut Ended>) {
        if let (true, Some(blocks), Some(ended)) =
            (self.config.commit_ends_step_run, committed, ended)
        {
            ended.committed.push(Committed {
                sequence: id,
                blocks,
            });
        }
    }

    /// True if no sequence of the steady set has filled a block and there are no other sequences.
    fn is_quiet(&self) -> bool {
        self.others.is_empty() && self.steady.filled().is_empty()
    }
    /// Adds the tokens of the iteration that ends to a sequence outside the steady set.
    fn grow<S: BatchStore + ?Sized>(
        &mut self,
        store: &mut S,
        at: usize,
        ready: Times,
        mut ended: Option<&mut Ended>,
    ) -> Answer<()> {
        let sequence = &mut self.others[at];
        let drafts = sequence.drafts();
        let mut tokens = sequence.chunk;
        if let (true, Some(rules)) = (drafts > 0, &self.config.speculation) {
            let accepted = rules.accepted(sequence.request, sequence.computed, drafts);
            self.counts.accepted.count(drafts, accepted);
            tokens = (1 + accepted).min(sequence.total - sequence.computed);
        }
        sequence.computed += tokens;
        let computed = sequence.computed;
        let committed = commit_full_blocks(&self.config, sequence, computed, store, ready)?;
        self.note_committed(self.others[at].id, committed, ended.as_deref_mut());
        let sequence = &mut self.others[at];
        if sequence.prefilling() || computed > sequence.total {
            return Ok(());
        }
        let brought = if drafts > 0 { tokens } else { 1 };
        self.counts.generated_tokens += brought;
        if let (Some(later), Some(_)) = (&mut self.logs.later_tokens, sequence.last_token_ns) {
            later.extend((0..brought).map(|_| sequence.id));
        }
        match sequence.last_token_ns.replace(ready.ready_ns) {
            Some(last_ns) => self.counts.itl.add(ready.ready_ns - last_ns, 1),
            None => {
                let ended = ended.expect("a first token ends a step run");
                ended.first_token.push(sequence.id);
            }
        }
        Ok(())
    }
}

/// Shares the blocks that are full now; returns their range.
pub(super) fn commit_full_blocks<S: BatchStore + ?Sized>(
    config: &BatchConfig,
    sequence: &mut Sequence,
    computed: u64,
    store: &mut S,
    ready: Times,
) -> Answer<Option<BlockRange>> {
    // Most steps fill no block and the number of shared blocks never falls, so the store need not be queried.
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
    let blocks = BlockRange {
        start: depth,
        end: full,
    };
    Ok((full > depth).then_some(blocks))
}
