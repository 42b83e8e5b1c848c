//! Decisions of one machine that a plug-in takes: a trait for each kind, and its arguments.
//!
//! A plug-in is called in place of the rule of a built-in policy, and its error ends the run at once.

use std::fmt::Debug;

use super::fetch::FetchPlan;
use super::Request;
use crate::store::Answer;

/// A waiting request, as a queue order sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Its number in the trace.
    pub request: u32,
    /// Time of its arrival.
    pub arrival_ns: u64,
    /// Its turn in its session.
    pub turn: i64,
    /// Tokens to compute or reuse.
    pub tokens: u64,
    /// Number of these tokens that are cached on this machine.
    pub cached_tokens: u64,
    /// Number of times that a later request was admitted before it.
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
            passed: request.scheduling.passed,
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
    /// True if it belongs to a session.
    pub in_session: bool,
    /// Tokens of its prompt.
    pub prompt_tokens: u64,
    /// Tokens of its answer.
    pub output_tokens: u64,
    /// Prompt tokens that were reused.
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
    /// Returns the number of leading blocks of a finished request that the cache keeps.
    fn kept_blocks(&mut self, finished: &Finished) -> Answer<u32>;
}

/// The fetch policy of a plug-in.
pub trait FetchPlugin: Debug + Send + Sync {
    /// Returns the number of leading blocks of a found run to reuse, at least those that are ready.
    fn reuse(&mut self, plan: FetchPlan) -> Answer<u32>;
}

/// Occasion on which a prefetch policy is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occasion {
    /// A request has arrived and waits.
    Queued,
    /// The next turn of a session is due after a while.
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

/// A request whose blocks could be prefetched now, as a prefetch policy sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Occasion of the call.
    pub occasion: Occasion,
    /// Its number in the trace.
    pub request: u32,
    /// Tokens of its prompt.
    pub prompt_tokens: u64,
    /// Leading blocks that may hit.
    pub blocks: u32,
    /// Current time.
    pub now_ns: u64,
}

/// The prefetch policy of a plug-in.
pub trait PrefetchPlugin: Debug + Send + Sync {
    /// Returns the number of leading blocks to prefetch, 0 for none.
    fn blocks(&mut self, candidate: &Candidate) -> Answer<u32>;
}

/// Number of events between two checks for the end of the run.
const EVENTS_A_LOOK: u32 = 1024;

/// Ends a long run from outside.
pub trait Interrupt: Debug + Send + Sync {
    /// Returns an error if the run must end.
    fn check(&self) -> Answer<()>;
}

/// The plug-ins of one machine that its scheduler calls.
#[derive(Debug, Default)]
pub struct Plugins {
    /// The order of its queue.
    pub queue: Option<Box<dyn QueuePlugin>>,
    /// Its admission policy for finished requests.
    pub admission: Option<Box<dyn AdmissionPlugin>>,
    /// Its fetch policy: loading or recomputing.
    pub fetch: Option<Box<dyn FetchPlugin>>,
    /// Its prefetch policy.
    pub prefetch: Option<Box<dyn PrefetchPlugin>>,
    /// Check that may end a run of many events, and the number of events since the last check.
    pub interrupt: Option<Box<dyn Interrupt>>,
    events: u32,
}

impl Plugins {
    /// Counts an event; returns an error if the run must end.
    pub(super) fn event_passed(&mut self) -> Answer<()> {
        self.events = self.events.wrapping_add(1);
        match &self.interrupt {
            Some(interrupt) if self.events % EVENTS_A_LOOK == 0 => interrupt.check(),
            _ => Ok(()),
        }
    }
}
