//! The steady decode set: sequences that get one token each in every iteration. The cost of an iteration depends on
//! the number of changes, not on the size of the set.
//!
//! All members had their last token at the same moment, and each grows by one token. So the set keeps the sum and the
//! maximum of the lengths, and indexes block fills and ends by iteration number. Other members are not visited.

use std::collections::BTreeSet;

use super::Sequence;
use crate::slab::Slab;
use crate::step_time::StepShape;
use crate::store::LeaseId;

/// Position of a sequence in the set: first in batch order, then its slot in [`SteadySet::sequences`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Member {
    pub(super) order: u64,
    slot: u32,
}

/// The sequences that decode in every iteration. Token counts in `sequences` are those at the time of joining.
#[derive(Debug, Default)]
pub(super) struct SteadySet {
    block_size_tokens: u64,
    sequences: Slab<Sequence>,
    /// Iterations ended; `ends` and `next_fill` are counted in these.
    done: u64,
    /// Time of the last token of all members.
    last_token_ns: u64,
    /// Shape of the current iteration for these sequences.
    shape: StepShape,
    /// Members by the iteration of their last token, in ascending order.
    ends: BTreeSet<(u64, Member)>,
    /// Members by the iterations in which they fill a block, modulo the block size.
    fills: BTreeSet<(u64, Member)>,
    /// Members that filled a block with the last finished iteration, in batch order.
    filled: Vec<Member>,
    /// First iteration that can fill another block.
    next_fill: u64,
}

impl SteadySet {
    pub(super) fn new(block_size_tokens: u64) -> Self {
        Self {
            block_size_tokens: block_size_tokens.max(1),
            next_fill: u64::MAX,
            ..Self::default()
        }
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Shape of the current iteration for these sequences.
    pub(super) fn shape(&self) -> StepShape {
        self.shape
    }

    /// Adds a sequence that got a token with the last finished iteration.
    pub(super) fn join(&mut self, mut sequence: Sequence) {
        sequence.joined_steady = self.done;
        self.shape.add_decode(sequence.computed);
        let order = sequence.order;
        let slot = self.sequences.take();
        let member = Member { order, slot };
        self.ends.insert((self.end(&sequence), member));
        self.fills.insert((self.fill(&sequence), member));
        let over = sequence.computed % self.block_size_tokens;
        if over == 0 {
            let at = self.filled.partition_point(|m| m < &member);
            self.filled.insert(at, member);
        }
        let next_fill = self.done + self.block_size_tokens - over;
        self.next_fill = self.next_fill.min(next_fill);
        self.sequences[slot] = sequence;
    }

    /// Removes a sequence and updates its counts.
    pub(super) fn leave(&mut self, member: Member) -> Sequence {
        let mut sequence = self.sequences.remove(member.slot);
        self.ends.remove(&(self.end(&sequence), member));
        self.fills.remove(&(self.fill(&sequence), member));
        self.filled.retain(|m| m != &member);
        sequence.computed = self.computed(&sequence);
        sequence.last_token_ns = Some(self.last_token_ns);
        self.shape.decode_sequences -= 1;
        self.shape.decode_kv_tokens -= sequence.computed;
        if sequence.computed == self.shape.decode_max_kv_tokens {
            let lengths = self.members().map(|member| self.computed_tokens(member));
            self.shape.decode_max_kv_tokens = lengths.max().unwrap_or(0);
        }
        sequence
    }

    /// Ends an iteration: every sequence has one token more. Returns the time since the token before.
    pub(super) fn tick(&mut self, end_ns: u64) -> u64 {
        self.done += 1;
        self.shape.decode_kv_tokens += self.shape.decode_sequences;
        self.shape.decode_max_kv_tokens += u64::from(self.shape.decode_sequences > 0);
        self.look_for_filled();
        end_ns - std::mem::replace(&mut self.last_token_ns, end_ns)
    }

    /// Members that filled a block with the last finished iteration, in batch order.
    pub(super) fn filled(&self) -> &[Member] {
        &self.filled
    }

    fn look_for_filled(&mut self) {
        self.filled.clear();
        if self.done < self.next_fill {
            return;
        }
        let now = self.done % self.block_size_tokens;
        let mut fills = self.fills.range((now, FIRST)..);
        let mut next = fills.next();
        while let Some(&(_, member)) = next.filter(|(at, _)| *at == now) {
            self.filled.push(member);
            next = fills.next();
        }
        self.next_fill = match (next, self.fills.first()) {
            (Some((at, _)), _) => self.done + (at - now),
            (None, Some((at, _))) => self.done + (at + self.block_size_tokens - now),
            (None, None) => u64::MAX,
        };
    }

    /// Members that need a block for their next token, and their leases, in batch order.
    pub(super) fn lacking(&self) -> Vec<(Member, LeaseId)> {
        let mut lacking = Vec::new();
        for &member in &self.filled {
            let sequence = &self.sequences[member.slot];
            if self.computed(sequence) == sequence.blocks * self.block_size_tokens {
                lacking.push((member, sequence.lease));
            }
        }
        lacking
    }

    /// Members that got their last token with the last finished iteration.
    pub(super) fn ended(&self) -> Vec<Member> {
        let ended = self.ends.iter().take_while(|(at, _)| *at <= self.done);
        ended.map(|&(_, member)| member).collect()
    }

    /// A sequence and its tokens with KV.
    pub(super) fn get_mut(&mut self, member: Member) -> (&mut Sequence, u64) {
        let computed = self.computed_tokens(member);
        (&mut self.sequences[member.slot], computed)
    }

    /// Tokens of a sequence that have KV.
    pub(super) fn computed_tokens(&self, member: Member) -> u64 {
        self.computed(&self.sequences[member.slot])
    }

    /// Finds a sequence by the caller's identifier.
    pub(super) fn find(&self, id: u32) -> Option<Member> {
        self.members().find(|m| self.sequences[m.slot].id == id)
    }

    /// The last member in batch order.
    pub(super) fn last(&self) -> Option<Member> {
        self.members().max()
    }

    /// Iterations until the first member finishes; `u64::MAX` if the set is empty.
    pub(super) fn until_end(&self) -> u64 {
        let first = self.ends.first();
        first.map_or(u64::MAX, |(at, _)| (at - self.done).max(1))
    }

    /// Iterations until a member fills a block.
    pub(super) fn until_fill(&self) -> u64 {
        self.fills_to_come().next().unwrap_or(u64::MAX)
    }

    /// Distances in iterations to the block fills within the next `block_size_tokens` iterations: one for each
    /// sequence.
    fn fills_to_come(&self) -> impl Iterator<Item = u64> + '_ {
        let (block, now) = (self.block_size_tokens, self.done % self.block_size_tokens);
        let later = self.fills.range((now + 1, FIRST)..);
        let again = self.fills.range(..(now + 1, FIRST));
        let later = later.map(move |(at, _)| at - now);
        later.chain(again.map(move |(at, _)| at + block - now))
    }

    /// Number of the next `iterations` that can run with `spare` more blocks, not counting the needs of the first
    /// one.
    pub(super) fn iterations_within(&self, spare: u64, iterations: u64) -> u64 {
        let members = self.len() as u64;
        let (rounds, rest) = match spare.checked_div(members) {
            Some(rounds) => (
                rounds.saturating_mul(self.block_size_tokens),
                spare % members,
            ),
            None => return iterations,
        };
        if rounds >= iterations {
            return iterations;
        }
        let too_many = self.fills_to_come().nth(rest as usize);
        iterations.min(rounds + too_many.unwrap_or(self.block_size_tokens))
    }

    /// Blocks requested at the starts of the next `iterations`, not counting the first one.
    pub(super) fn blocks(&self, iterations: u64) -> u64 {
        let (block, now) = (self.block_size_tokens, self.done % self.block_size_tokens);
        let (rounds, rest) = ((iterations - 1) / block, (iterations - 1) % block);
        let past = now + rest + 1;
        let within = self.fills.range((now + 1, FIRST)..(past, FIRST)).count();
        let again = self.fills.range(..(past.saturating_sub(block), FIRST));
        rounds
            .saturating_mul(self.len() as u64)
            .saturating_add((within + again.count()) as u64)
    }

    fn members(&self) -> impl Iterator<Item = Member> + '_ {
        self.ends.iter().map(|&(_, member)| member)
    }

    fn computed(&self, sequence: &Sequence) -> u64 {
        sequence.computed + (self.done - sequence.joined_steady)
    }

    /// Iteration of its last token.
    fn end(&self, sequence: &Sequence) -> u64 {
        sequence.joined_steady + (sequence.total - sequence.computed)
    }

    /// Iterations that fill one of its blocks, modulo the block size.
    fn fill(&self, sequence: &Sequence) -> u64 {
        let block = self.block_size_tokens;
        (sequence.joined_steady + block - sequence.computed % block) % block
    }
}

/// Sorts before all members.
const FIRST: Member = Member { order: 0, slot: 0 };
