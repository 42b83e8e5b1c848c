//! SGLang's own scheduler, step by step (0.5.23, `srt/managers/scheduler.py`, `schedule_policy.py`,
//! `schedule_batch.py`; one rank, no speculation, no LoRA, no priorities).
//!
//! | file | what lives there |
//! |---|---|
//! | `settings` | what a scheduler is told once |
//! | `sequence` | one request between its arrival and its last token |
//! | `policy` | who of the queue is looked at first |
//! | `prefill` | a step of prompts: chunks, admissions, decodes mixed in |
//! | `decode` | a step of decodes, and retraction |
//! | `new_token_ratio` | how much of an answer is reserved at an admission |
//! | `step` | what a step computes, and for whom |
//! | `outputs` | the tokens that a step's end brings |
//! | `pending_aborts` | requests that their clients give up |
//! | `boundary` | steps one after another, or one decided ahead |
//! | `single_pass` | one pass from a given state, for comparison with SGLang's own classes |

mod aborts;
mod boundary;
mod decode;
mod new_token_ratio;
mod outputs;
mod policy;
mod prefill;
mod sequence;
mod settings;
mod single_pass;
mod step;

use super::by_slot::BySlot;
use super::schedule_log::ScheduleLog;
use super::Slot;
use crate::engines::radix_store::RadixStore;
use new_token_ratio::NewTokenRatio;
use sequence::Sequence;
use step::Step;

pub use settings::{SchedulePolicy, SglangConfig};
pub use single_pass::{BeforePass, Given, Pass};

/// A replica at work, and SGLang's tree.
type Desk<'a> = super::engine::Desk<'a, RadixStore>;

/// SGLang's scheduler of one replica.
#[derive(Debug)]
pub struct SglangScheduler {
    config: SglangConfig,
    sequences: BySlot<Sequence>,
    /// In the order in which they are looked at.
    waiting: Vec<Slot>,
    /// Whose prompts are computed, in the order in which they joined.
    running: Vec<Slot>,
    /// The prompt that is computed chunk by chunk.
    chunked: Option<Slot>,
    /// The last step's requests, where it computes prompts, and whose prompt goes on.
    launched: Option<(Vec<Slot>, Option<Slot>)>,
    /// Nobody is admitted before a running request leaves (`batch_is_full`).
    is_full: bool,
    /// Requests with KV of their own.
    held: u64,
    ratio: NewTokenRatio,
    /// Passes that might have touched what the queue would find.
    refreshes: u64,
    /// The step that is being computed.
    flight: Option<Step>,
    /// The step that follows it, decided already (overlap schedule).
    lookahead: Option<Step>,
    boundary_ns: Option<u64>,
    /// Whether clients of requests with KV have given them up.
    someone_left: bool,
    /// The schedule, where it is written down.
    pub log: Option<ScheduleLog>,
}

impl SglangScheduler {
    /// A scheduler with nothing to do.
    pub fn new(config: SglangConfig) -> Self {
        Self {
            ratio: NewTokenRatio::new(config.schedule_conservativeness),
            config,
            sequences: BySlot::default(),
            waiting: Vec::new(),
            running: Vec::new(),
            chunked: None,
            launched: None,
            is_full: false,
            held: 0,
            refreshes: 0,
            flight: None,
            lookahead: None,
            boundary_ns: None,
            someone_left: false,
            log: None,
        }
    }
}
