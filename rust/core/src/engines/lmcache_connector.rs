//! LMCache's connector below vLLM's scheduler (0.5.6, `integration/vllm/vllm_v1_adapter.py`; `save_unfull_chunk` and
//! `save_decode_cache` off): what a request has found, and what each step loads and saves.
//!
//! A look-up pins what it finds and holds until its request is admitted. The step loads first and saves last, so a
//! decided step is kept here until it has been computed. A request that is aborted while it waits leaves its pins to
//! the monitor of pins.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use crate::convert::fit;
use crate::store::MoveId;

/// `pin_timeout_sec`.
const PIN_TIMEOUT_NS: u64 = 300_000_000_000;

/// An admitted request until its step is decided (`LoadSpec`).
#[derive(Debug, Clone, Default)]
struct Load {
    /// Chunks that its look-up found.
    pinned: Vec<u64>,
    /// True if some are loaded.
    can_load: bool,
}

/// A request that has been scheduled (`RequestTracker`).
#[derive(Debug, Clone, Copy, Default)]
struct Tracker {
    /// Tokens scheduled so far.
    tokens: u64,
    saved_tokens: u64,
    /// True once a later step has computed a single token of it.
    decodes: bool,
}

/// A request's part of a step that is decided.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    /// The request.
    pub request: u32,
    /// Its tokens that have KV before the step.
    pub before_tokens: u64,
    /// Its tokens in the step.
    pub tokens: u64,
    /// Its prompt and the answer's tokens that the scheduler has.
    pub known_tokens: u64,
    /// Tokens of its prompt.
    pub prompt_tokens: u64,
}

/// A request's pins, loads and saves in a decided step (`ReqMeta`).
#[derive(Debug, Clone)]
pub struct StepPart {
    /// The request.
    pub request: u32,
    /// Pins that it releases: before all saves if it loads, else before its own.
    pub pinned: Vec<u64>,
    /// True if it loads.
    pub can_load: bool,
    /// Chunks that it saves.
    pub saves: Range<u32>,
}

/// State of the connector.
#[derive(Debug, Default)]
pub struct LmcacheConnector {
    chunk_tokens: u64,
    /// Pinned chunks that waiting requests have found.
    found: BTreeMap<u32, Vec<u64>>,
    loads: BTreeMap<u32, Load>,
    trackers: BTreeMap<u32, Tracker>,
    /// Steps that are decided and not computed.
    steps: VecDeque<Vec<StepPart>>,
    /// Pins of requests that were aborted while they waited, with the time of their release.
    left: VecDeque<(u64, Vec<u64>)>,
    /// Copies of steps.
    copies: BTreeSet<MoveId>,
}

impl LmcacheConnector {
    /// A connector without requests.
    pub fn new(chunk_tokens: u64) -> Self {
        Self {
            chunk_tokens,
            ..Self::default()
        }
    }

    /// Tokens of the chunks that a request found when it was looked up; `None` if it has not been.
    pub fn found_tokens(&self, request: u32) -> Option<u64> {
        let found = self.found.get(&request)?;
        Some(found.len() as u64 * self.chunk_tokens)
    }

    /// Keeps the result of a look-up.
    pub fn looked_up(&mut self, request: u32, pinned: Vec<u64>) {
        self.found.insert(request, pinned);
    }

    /// Handles the admission of a request (`update_state_after_alloc`).
    pub fn admitted(&mut self, request: u32, can_load: bool) {
        let pinned = self.found.remove(&request).unwrap_or_default();
        self.loads.insert(request, Load { pinned, can_load });
    }

    /// Tokens of a request's chunks that its step loads, of which the connector has `known` tokens: of a request that
    /// was preempted no more than its prompt.
    pub fn loaded_tokens(&self, request: u32, known: u64) -> u64 {
        let found = self.found_tokens(request).unwrap_or(0);
        found.min(known / self.chunk_tokens * self.chunk_tokens)
    }

    /// Decides a step: new requests come first, then those that were preempted, then running ones
    /// (`build_connector_meta`).
    pub fn decided(&mut self, mut parts: Vec<Part>) {
        if parts.is_empty() {
            return;
        }
        parts.sort_by_key(|part| {
            let runs = !self.loads.contains_key(&part.request);
            (runs, !runs && self.trackers.contains_key(&part.request))
        });
        let step = parts.into_iter().filter_map(|part| self.part(part));
        let step = step.collect();
        self.steps.push_back(step);
    }

    fn part(&mut self, part: Part) -> Option<StepPart> {
        let load = self.loads.remove(&part.request);
        let tracker = self.tracker(part, load.as_ref());
        self.trackers.insert(part.request, tracker);
        self.saves(part.request, tracker, load)
    }

    /// The tracker with the tokens of a step (`from_new_request`, `update`). One that was preempted is new: model runner
    /// V2 sees no difference.
    fn tracker(&self, part: Part, load: Option<&Load>) -> Tracker {
        if let Some(load) = load {
            return Tracker {
                tokens: part.prompt_tokens.min(part.before_tokens + part.tokens),
                saved_tokens: load.pinned.len() as u64 * self.chunk_tokens,
                decodes: false,
            };
        }
        let before = self.trackers.get(&part.request).copied();
        let before = before.unwrap_or_default();
        let from = part.before_tokens.min(before.tokens);
        let new = part.tokens.min(part.known_tokens.saturating_sub(from));
        Tracker {
            tokens: before.tokens + new,
            decodes: before.decodes || new == 1,
            ..before
        }
    }

    /// The chunks that a step saves, and what it loads (`from_request_tracker`).
    fn saves(&mut self, request: u32, tracker: Tracker, load: Option<Load>) -> Option<StepPart> {
        let chunk = self.chunk_tokens;
        let saved = tracker.saved_tokens;
        let no_further = saved > 0 && tracker.tokens < (saved / chunk + 1) * chunk;
        let skips = no_further || tracker.decodes;
        if skips && load.is_none() {
            return None;
        }
        let load = load.unwrap_or_default();
        let mut saves = 0..0;
        if !skips {
            let end = tracker.tokens / chunk;
            saves = fit::<u32>((saved / chunk).min(end))..fit::<u32>(end);
            if let Some(tracker) = self.trackers.get_mut(&request) {
                tracker.saved_tokens = end * chunk;
            }
        }
        Some(StepPart {
            request,
            pinned: load.pinned,
            can_load: load.can_load,
            saves,
        })
    }

    /// The step that has been computed.
    pub fn computed(&mut self) -> Vec<StepPart> {
        self.steps.pop_front().unwrap_or_default()
    }

    /// Forgets a request that ends.
    pub fn ended(&mut self, request: u32, now_ns: u64) {
        self.trackers.remove(&request);
        if let Some(found) = self.found.remove(&request) {
            let until_ns = now_ns.saturating_add(PIN_TIMEOUT_NS);
            self.left.push_back((until_ns, found));
        }
    }

    /// Returns pins of aborted requests whose time is over.
    pub fn outdated_pins(&mut self, now_ns: u64) -> Vec<u64> {
        let mut pinned = Vec::new();
        while self.left.front().is_some_and(|left| left.0 <= now_ns) {
            pinned.extend(self.left.pop_front().into_iter().flat_map(|left| left.1));
        }
        pinned
    }

    /// Remembers copies of steps.
    pub fn sent(&mut self, copies: impl Iterator<Item = MoveId>) {
        self.copies.extend(copies);
    }

    /// Returns true if a copy that ends is one of a step.
    pub fn arrives(&mut self, copy: MoveId) -> bool {
        self.copies.remove(&copy)
    }

    /// Returns true if no step decided saves anything, and further steps of a request that decodes do not.
    pub fn is_quiet(&self, request: u32) -> bool {
        let decodes = self.trackers.get(&request).is_some_and(|t| t.decodes);
        decodes && self.steps.iter().all(Vec::is_empty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(before_tokens: u64, tokens: u64) -> Vec<Part> {
        vec![Part {
            request: 0,
            before_tokens,
            tokens,
            known_tokens: 100,
            prompt_tokens: 100,
        }]
    }

    #[test]
    fn whole_chunks_are_saved_until_a_later_step_computes_a_single_token() {
        let mut own = LmcacheConnector::new(16);
        own.looked_up(0, vec![7]);
        own.admitted(0, true);
        let mut saved = Vec::new();
        for (before, tokens) in [(16, 20), (36, 30), (66, 1), (67, 33)] {
            own.decided(part(before, tokens));
            saved.push(own.computed().pop().map(|part| (part.saves, part.pinned)));
        }
        let none = Some((1..2, vec![7]));
        assert_eq!(saved, [none, Some((2..4, vec![])), None, None]);
        assert!(own.is_quiet(0));
    }

    #[test]
    fn a_request_aborted_while_it_waits_leaves_its_pins_for_300_s() {
        let mut own = LmcacheConnector::new(16);
        own.looked_up(0, vec![7, 8]);
        own.ended(0, 5);
        assert!(own.outdated_pins(300_000_000_004).is_empty());
        assert_eq!(own.outdated_pins(300_000_000_005), [7, 8]);
    }
}
