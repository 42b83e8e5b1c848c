//! Decisions of one machine that a plug-in takes: a trait for each kind, and what the plug-in sees.
//!
//! A plug-in is called where the rule of a built-in policy would decide, and its error ends the run at once.

use std::fmt::Debug;

use super::fetch::FetchPlan;
use super::Request;
use crate::store::Answer;

/// A waiting request, as a queue order sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Its number in the trace.
    pub request: u32,
    /// When it came.
    pub arrival_ns: u64,
    /// Its turn in its session.
    pub turn: i64,
    /// Tokens to compute or reuse.
    pub tokens: u64,
    /// Of these, the tokens that are cached on this machine.
    pub cached_tokens: u64,
    /// How often a later request was admitted before it.
    pub passed: u32,
    /// The trace's priority.
    pub priority: i64,
}

impl Waiting {
    pub(super) fn of(request: &Request, cached_tokens: u64) -> Self {
        Self {
            request: request.arrival.request,
            arrival_ns: request.arrival_ns,
            turn: request.arrival.turn,
            tokens: request.prefill_target_tokens(),
            cached_tokens,
            passed: request.passed,
            priority: request.arrival.priority,
        }
    }
}

/// A finished request whose blocks are released, as an admission policy sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Its number in the trace.
    pub request: u32,
    /// Its turn in its session.
    pub turn: i64,
    /// Whether it is of a session.
    pub in_session: bool,
    /// Tokens of its prompt.
    pub prompt_tokens: u64,
    /// Tokens of its answer.
    pub output_tokens: u64,
    /// Of its prompt, the tokens that were reused.
    pub cached_tokens: u64,
    /// Tokens of a block.
    pub block_size_tokens: u64,
    /// Whole blocks that it holds, generated ones included.
    pub blocks: u32,
}

/// The order of admission of a plug-in.
pub trait QueuePlugin: Debug + Send + Sync {
    /// Returns the index of the request to admit first; `waiting` is in order of arrival and never empty.
    fn first(&mut self, waiting: &[Waiting]) -> Answer<usize>;
}

/// The admission policy of a plug-in.
pub trait AdmissionPlugin: Debug + Send + Sync {
    /// Returns how many leading blocks of a finished request the cache keeps.
    fn kept_blocks(&mut self, finished: &Finished) -> Answer<u32>;
}

/// The fetch policy of a plug-in.
pub trait FetchPlugin: Debug + Send + Sync {
    /// Returns how many leading blocks of a found run to reuse, those that are ready at least.
    fn reuse(&mut self, plan: FetchPlan) -> Answer<u32>;
}

/// When a prefetch policy is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occasion {
    /// A request has come and waits.
    Queued,
    /// The next turn of a session is a while away.
    Session,
}

impl Occasion {
    /// Its name in scenarios.
    pub fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Session => "session",
        }
    }
}

/// A request whose blocks could be brought up now, as a prefetch policy sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Why the policy is called.
    pub occasion: Occasion,
    /// Its number in the trace.
    pub request: u32,
    /// Tokens of its prompt.
    pub prompt_tokens: u64,
    /// Leading blocks that may hit.
    pub blocks: u32,
    /// Now.
    pub now_ns: u64,
}

/// The prefetch policy of a plug-in.
pub trait PrefetchPlugin: Debug + Send + Sync {
    /// Returns how many of the leading blocks to bring up, 0 for none.
    fn blocks(&mut self, candidate: &Candidate) -> Answer<u32>;
}

/// So many events pass between two looks at whether the run is to end.
const EVENTS_A_LOOK: u32 = 1024;

/// Ends a long run from outside.
pub trait Interrupt: Debug + Send + Sync {
    /// Returns an error where the run is to end.
    fn check(&self) -> Answer<()>;
}

/// The plug-ins of one machine that its scheduler calls.
#[derive(Debug, Default)]
pub struct Plugins {
    /// The order of its queue.
    pub queue: Option<Box<dyn QueuePlugin>>,
    /// What it keeps of finished requests.
    pub admission: Option<Box<dyn AdmissionPlugin>>,
    /// How much it loads and how much it computes again.
    pub fetch: Option<Box<dyn FetchPlugin>>,
    /// What it brings up ahead of its request.
    pub prefetch: Option<Box<dyn PrefetchPlugin>>,
    /// What may end a run of many events, and how many have passed.
    pub interrupt: Option<Box<dyn Interrupt>>,
    events: u32,
}

impl Plugins {
    /// Counts an event; returns an error where the run is to end.
    pub(super) fn event_passed(&mut self) -> Answer<()> {
        self.events = self.events.wrapping_add(1);
        match &self.interrupt {
            Some(interrupt) if self.events % EVENTS_A_LOOK == 0 => interrupt.check(),
            _ => Ok(()),
        }
    }
}
