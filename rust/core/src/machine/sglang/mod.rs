//! SGLang's own scheduler, step by step (0.5.23, `srt/managers/scheduler.py`, `schedule_policy.py`,
//! `schedule_batch.py`; one rank, no speculation, no LoRA).
//!
//! | file | contents |
//! |---|---|
//! | `settings` | settings of a scheduler |
//! | `sequence` | one request between its arrival and its last token |
//! | `policy` | order of the queue |
//! | `prefill` | a step of prompts: chunks, admissions, decodes mixed in |
//! | `copies` | copies between the GPU and HiCache's host, and what a step waits for |
//! | `storage` | prefetches from HiCache's storage |
//! | `priority` | running requests that leave for one of a better priority |
//! | `prefixes` | the tree, or none |
//! | `decode` | a step of decodes, and retraction |
//! | `new_token_ratio` | share of an answer that is reserved at an admission |
//! | `step` | the tokens and the requests of a step |
//! | `outputs` | the tokens that a step's end brings |
//! | `aborts` | requests that their clients abort |
//! | `boundary` | steps one after another, or decided in advance |
//! | `single_pass` | one pass from a given state, for comparison with SGLang's own classes |

mod aborts;
mod boundary;
mod copies;
mod decode;
mod new_token_ratio;
mod outputs;
mod policy;
mod prefill;
mod prefixes;
mod priority;
mod sequence;
mod settings;
mod single_pass;
mod step;
mod storage;

use super::by_slot::BySlot;
use super::schedule_log::ScheduleLog;
use super::Slot;
use crate::engines::radix_store::RadixStore;
use new_token_ratio::NewTokenRatio;
use sequence::Sequence;
use step::Step;
use storage::Prefetches;

pub use settings::{PriorityRules, ReleaseRules, SchedulePolicy, SglangConfig};
pub use single_pass::{BeforePass, Given, Pass};

/// A replica at work, and SGLang's tree.
type Desk<'a> = super::engine::Desk<'a, RadixStore>;

/// The requests of a launched step that computes prompts.
#[derive(Debug)]
struct Launched {
    members: Vec<Slot>,
    /// The request with a chunked prompt among them.
    chunked: Option<Slot>,
}

/// The decided steps.
#[derive(Debug, Default)]
struct Steps {
    /// Requests of the last step, if it computes prompts.
    launched: Option<Launched>,
    /// The step that is being computed.
    flight: Option<Step>,
    /// The step that follows it, decided already (overlap schedule).
    lookahead: Option<Step>,
}

/// SGLang's scheduler of one replica.
#[derive(Debug)]
pub struct SglangScheduler {
    config: SglangConfig,
    sequences: BySlot<Sequence>,
    /// Waiting requests, in the order in which they are considered.
    waiting: Vec<Slot>,
    /// Requests with a computed prompt, in the order in which they joined.
    running: Vec<Slot>,
    /// Finished requests that still count as running.
    lingering: u64,
    /// The prompt that is computed chunk by chunk.
    chunked: Option<Slot>,
    /// No request is admitted before a running request leaves (`batch_is_full`).
    is_full: bool,
    /// Requests with KV of their own.
    held: u64,
    /// Entries of requests in the queue so far.
    entries: u64,
    ratio: NewTokenRatio,
    /// Passes that may have touched the prefixes of waiting requests.
    refreshes: u64,
    steps: Steps,
    prefetches: Prefetches,
    boundary_ns: Option<u64>,
    /// Time until which the scheduler waits for copies to the host (`write_back`).
    blocked_ns: u64,
    /// True if clients have aborted requests with KV.
    aborts_pending: bool,
    /// The schedule, if it is logged.
    pub log: Option<ScheduleLog>,
}

impl SglangScheduler {
    /// A scheduler with no requests.
    pub fn new(config: SglangConfig) -> Self {
        Self {
            ratio: NewTokenRatio::new(config.schedule_conservativeness),
            config,
            sequences: BySlot::default(),
            waiting: Vec::new(),
            running: Vec::new(),
            lingering: 0,
            chunked: None,
            is_full: false,
            held: 0,
            entries: 0,
            refreshes: 0,
            steps: Steps::default(),
            prefetches: Prefetches::default(),
            boundary_ns: None,
            blocked_ns: 0,
            aborts_pending: false,
            log: None,
        }
    }
}
