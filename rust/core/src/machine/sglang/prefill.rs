//! A step that computes prompts: the chunked prompt, then the requests of the queue that fit (`PrefillAdder`).

use super::super::engine_notes::Cached;
use super::super::{Replica, Slot};
use super::sequence::Sequence;
use super::step::Step;
use super::{Desk, SglangScheduler};
use crate::convert::{fit, whole};
use crate::engines::radix_store::RadixStore;
use crate::store::Answer;

/// Remaining capacity of a step while its prompts are chosen.
#[derive(Debug)]
pub(super) struct Adder {
    /// Prompt tokens left in the step (`max_prefill_tokens`).
    input: i64,
    /// Prompt tokens left in the chunk (`chunked_prefill_size`).
    chunk: i64,
    /// Tokens taken by this step and expected for answers.
    pub total_offset: f64,
    /// Tokens taken by this step alone.
    current_offset: u64,
    slots: Vec<Slot>,
    /// Requests that left for one of these.
    pub preempted: Vec<Slot>,
    new_chunked: Option<Slot>,
}

/// Decision after a request of the queue: consider the next one, or end the step's admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Continue,
    NoCapacity,
    Stop,
}

impl Adder {
    pub fn remaining(&self, store: &RadixStore) -> f64 {
        store.spare_tokens() as f64 - self.total_offset
    }

    fn verdict(&self, store: &RadixStore) -> Verdict {
        if self.remaining(store) <= 0.0 || store.spare_tokens() <= self.current_offset {
            Verdict::NoCapacity
        } else if self.input <= 0 || self.chunk <= 0 {
            Verdict::Stop
        } else {
            Verdict::Continue
        }
    }

    /// Counts a chunk of `tokens` tokens, in whole pages, and the expected tokens of its answer.
    fn reserve(&mut self, tokens: u64, answer: u64, page: u64) {
        let paged = tokens.div_ceil(page) * page;
        self.total_offset += (paged + page + answer) as f64;
        self.current_offset += paged + page;
        self.input -= fit::<i64>(paged);
        self.chunk -= fit::<i64>(paged);
    }
}

/// The part of a prompt that a step computes, and the tokens reserved for the answer.
#[derive(Clone, Copy, Debug)]
struct Share {
    tokens: u64,
    answer: u64,
    /// True if the prompt continues after it.
    is_chunk: bool,
}

impl Sequence {
    /// Selects the tokens to compute behind a prefix of `prefix` tokens, or the reason to admit no request.
    fn selected(
        &self,
        prefix: u64,
        adder: &Adder,
        store: &RadixStore,
        page: u64,
    ) -> Result<Share, Verdict> {
        let lacking = self.extend.filled - self.found.tokens;
        let whole = (lacking + self.to_come() + page) as f64;
        if whole >= store.spare_tokens_with(self.found) as f64 - adder.total_offset {
            return Err(Verdict::NoCapacity);
        }
        let tokens = self.extend.filled - prefix;
        if fit::<i64>(tokens.div_ceil(page) * page) <= adder.chunk {
            return Ok(Share {
                tokens,
                answer: self.whole_answer(),
                is_chunk: false,
            });
        }
        // a chunk ends with a page
        let most = fit::<u64>(adder.chunk.max(0)) / page * page;
        match (prefix + most) / page * page - prefix {
            0 => Err(Verdict::Stop),
            tokens => Ok(Share {
                tokens,
                answer: 0,
                is_chunk: true,
            }),
        }
    }
}

impl SglangScheduler {
    /// Composes a step of prompts, with the running requests' tokens if chunks are mixed. Returns `None` if there is
    /// no prompt to compute, or none fits.
    pub(super) fn prefill_step(&mut self, desk: &mut Desk<'_>) -> Answer<Option<Step>> {
        self.is_full &= self.batch_size() > 0 && !self.preempts();
        if (self.is_full || self.waiting.is_empty()) && self.chunked.is_none() {
            return Ok(None);
        }
        if self.allocatable(0) == 0 && self.chunked.is_none() && !self.preempts() {
            self.is_full = true;
            return Ok(None);
        }
        self.order_waiting(desk.store);
        let mut adder = self.adder();
        if let Some(slot) = self.chunked {
            if !self.continue_prefill(desk.store, &mut adder, slot) {
                return Ok(None);
            }
        }
        self.add_waiting(desk, &mut adder)?;
        let sequences = &self.sequences;
        self.waiting.retain(|&p| !sequences[p].is_chosen());
        for slot in std::mem::take(&mut adder.preempted) {
            self.waits(slot);
            self.ask(desk, slot, None)?;
        }
        if adder.slots.is_empty() {
            return Ok(None);
        }
        self.chunked = adder.new_chunked.or(self.chunked);
        if let Some(slot) = self.chunked {
            self.sequences[slot].extend.middle_chunks += 1;
        }
        let load = self.load(desk)?;
        let mut step = self.take_chunks(desk.replica, desk.store, &adder.slots, desk.now_ns)?;
        step.load = load;
        if self.config.enable_mixed_chunk && self.batch_size() > 0 {
            self.mix(desk, &mut step)?;
        }
        Ok(Some(step))
    }

    /// Number of additional requests that may get KV of their own, without those of this step that have some already.
    fn allocatable(&self, held: u64) -> u64 {
        let most = self.config.max_running_requests;
        let alongside = most.saturating_sub(self.batch_size());
        alongside.min((most + held).saturating_sub(self.held))
    }

    fn adder(&self) -> Adder {
        let mixed = if self.config.enable_mixed_chunk {
            self.batch_size()
        } else {
            0
        };
        let mut expected = 0.0;
        for &slot in &self.running {
            expected += self.sequences[slot].to_come() as f64 * self.ratio.current;
        }
        Adder {
            input: fit::<i64>(self.config.max_prefill_tokens) - fit::<i64>(mixed),
            chunk: fit::<i64>(self.config.chunked_prefill_size) - fit::<i64>(mixed),
            total_offset: mixed as f64 + expected,
            current_offset: mixed,
            slots: Vec::new(),
            preempted: Vec::new(),
            new_chunked: None,
        }
    }

    /// Gives the chunked prompt its next chunk; false if the device has too few free blocks for it.
    fn continue_prefill(&mut self, store: &RadixStore, adder: &mut Adder, slot: Slot) -> bool {
        let page = self.config.page_size;
        let mut most = adder.chunk.min(fit(whole(adder.remaining(store))));
        if most <= 0 {
            most = adder.chunk;
        }
        let s = &mut self.sequences[slot];
        s.extend.filled = s.known();
        let lacking = s.extend.filled - s.extend.prefix;
        let tokens = lacking.min(fit::<u64>(most.max(0)));
        let pages = (s.extend.prefix + tokens).div_ceil(page) - s.extend.prefix.div_ceil(page);
        if tokens == 0 || pages * page > store.spare_tokens() {
            s.extend.end = s.extend.prefix;
            return false;
        }
        (s.extend.end, s.extend.chunk) = (s.extend.prefix + tokens, tokens);
        adder.slots.push(slot);
        if tokens < lacking {
            adder.reserve(tokens, 0, page);
        } else {
            adder.reserve(tokens, s.whole_answer(), page);
            self.chunked = None;
        }
        true
    }

    fn add_waiting(&mut self, desk: &mut Desk<'_>, adder: &mut Adder) -> Answer<()> {
        let release = self.config.release;
        let held = if release.keeps_row_of_chunk {
            adder.slots.len() as u64
        } else {
            0
        };
        for at in 0..self.waiting.len() {
            if release.stops_at_spent_budget && adder.verdict(desk.store) == Verdict::Stop {
                break;
            }
            if adder.slots.len() as u64 >= self.allocatable(held) {
                self.is_full = true;
            }
            let slot = self.waiting[at];
            if self.is_full && !self.preempt_for(desk, adder, slot) {
                break;
            }
            if !self.is_prefetched(desk, slot)? {
                continue;
            }
            let s = &mut self.sequences[slot];
            s.extend.filled = s.known();
            s.found = self.config.find(desk.store, s, s.extend.filled - 1);
            if self.asks_for_lost(desk, slot)? {
                continue;
            }
            let verdict = self.add_one(desk, adder, slot);
            if verdict == Verdict::NoCapacity {
                self.is_full = !adder.slots.is_empty() || self.batch_size() > 0;
            }
            if verdict != Verdict::Continue {
                break;
            }
        }
        Ok(())
    }

    /// Adds the next request of the queue with as much of its prompt as fits in the chunk.
    fn add_one(&mut self, desk: &mut Desk<'_>, adder: &mut Adder, slot: Slot) -> Verdict {
        let page = self.config.page_size;
        let s = &mut self.sequences[slot];
        let found = s.found;
        let whole = s.selected(found.loaded().tokens, adder, desk.store, page);
        let mut share = match whole {
            Ok(share) => share,
            Err(verdict) => return verdict,
        };
        if found.host_tokens > 0 {
            s.is_loading = desk.store.load_back(s.request, found, desk.now_ns);
            if s.is_loading {
                s.found = found.loaded();
            } else {
                // what was to be loaded is computed, and may no longer fit
                share = match s.selected(found.tokens, adder, desk.store, page) {
                    Ok(share) => share,
                    Err(verdict) => return verdict,
                };
            }
        }
        if share.is_chunk {
            adder.new_chunked = Some(slot);
        }
        let (prefix, tokens) = (s.found.tokens, share.tokens);
        (s.extend.prefix, s.extend.end, s.extend.chunk) = (prefix, prefix + tokens, tokens);
        let cached = Cached {
            blocks: fit::<u32>(prefix / page),
            tokens: prefix,
            found_tokens: prefix,
            lower_blocks: fit::<u32>((prefix - found.tokens) / page),
            is_first: !std::mem::replace(&mut s.was_admitted, true),
        };
        desk.store.hold(s.request, s.found);
        self.prefetches.forget(s.request);
        adder.slots.push(slot);
        adder.reserve(tokens, share.answer, page);
        desk.admitted(slot, cached, &mut self.log);
        adder.verdict(desk.store)
    }

    /// Allocates the chunks of a step.
    fn take_chunks(
        &mut self,
        desk: &Replica,
        store: &mut RadixStore,
        slots: &[Slot],
        now_ns: u64,
    ) -> Answer<Step> {
        let chunks = slots.iter().map(|&slot| self.sequences[slot].extend.chunk);
        let tokens: u64 = chunks.sum();
        store.evict_until_free(tokens + self.config.slack(slots.len() as u64), now_ns);
        let mut step = Step {
            computes_prompts: true,
            chunked: self.chunked,
            ..Step::default()
        };
        for &slot in slots {
            let s = &mut self.sequences[slot];
            store.grow(s.request, s.extend.end)?;
            self.held += u64::from(!std::mem::replace(&mut s.is_held, true));
            s.is_retracted = false;
            s.committed = s.extend.end;
            let tokens = std::mem::take(&mut s.extend.chunk);
            s.steps_in_flight += 1;
            step.shape
                .add_chunk(tokens, s.extend.prefix, desk.batch.table());
            step.add(slot, false);
        }
        Ok(step)
    }

    /// Adds the running requests to a step of prompts as decodes, if there are free blocks for all of them.
    fn mix(&mut self, desk: &mut Desk<'_>, step: &mut Step) -> Answer<()> {
        self.lingering = 0;
        self.leave_finishing();
        if self.running.is_empty() || !self.can_decode(desk.store, &self.running, desk.now_ns) {
            return Ok(());
        }
        let running = std::mem::take(&mut self.running);
        self.take_decodes(desk.replica, desk.store, &running, step, desk.now_ns)?;
        for &slot in &running {
            let s = &mut self.sequences[slot];
            (s.extend.end, s.extend.filled) = (s.committed, s.known());
        }
        Ok(())
    }
}
