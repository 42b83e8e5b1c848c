//! vLLM's own scheduler, step by step (0.33.0, `vllm/v1/core/sched/scheduler.py` and `async_scheduler.py`; no
//! speculation, no connector, chunked prefill on).
//!
//! | file | what lives there |
//! |---|---|
//! | `settings` | what a scheduler is told once |
//! | `sequence` | one request between its arrival and its last token |
//! | `waiting` | who waits: in order of arrival, or by priority |
//! | `running` | the running requests' share of a step, and preemption |
//! | `blocks` | the pool that it gives out: of one cache group, or of several |
//! | `admission` | who is admitted behind them |
//! | `step` | what a step computes, and for whom |
//! | `outputs` | the tokens that a step's end brings |
//! | `pending_aborts` | requests that their clients give up |
//! | `boundary` | steps one after another, or one decided ahead |
//! | `pace` | when a step decided ahead is launched and computed, and the tokens before it are seen |
//! | `pipeline` | as many steps in flight as there are pipeline stages |
//! | `step_run` | steps in which every running request decodes one token |

mod aborts;
mod admission;
mod blocks;
mod boundary;
mod outputs;
mod pace;
mod pipeline;
mod running;
mod sequence;
mod settings;
mod step;
mod step_run;
mod waiting;

use std::marker::PhantomData;

use super::by_slot::BySlot;
use super::schedule_log::ScheduleLog;
use super::Slot;
pub use blocks::Blocks;
use pipeline::Pipeline;
use sequence::Sequence;
use step::Step;
use step_run::StepRun;
use waiting::Waiting;

pub use settings::VllmConfig;

/// So often the most urgent requests are preempted without a token between, and no token is to come.
///
/// By priority, requests of one priority and arrival take each other's blocks in turn, in vLLM too, and start anew each time.
/// Who is the most urgent alone is not preempted.
const MOST_FRUITLESS: u64 = 10_000;

/// vLLM's scheduler of one replica.
#[derive(Debug)]
pub struct VllmScheduler<B: Blocks> {
    config: VllmConfig,
    sequences: BySlot<Sequence>,
    waiting: Waiting,
    /// In order of admission.
    running: Vec<Slot>,
    /// The step that is being computed.
    flight: Option<Step>,
    /// The step that follows it, decided already (asynchronous scheduling).
    lookahead: Option<Step>,
    /// Steps in flight through several pipeline stages; `flight` and `lookahead` are none then.
    pipeline: Option<Pipeline>,
    /// The host launches the step in flight, before which the GPU was idle, and then decides on the next.
    launching: bool,
    /// Set while steps go on without a decision.
    step_run: Option<StepRun>,
    /// The last schedule asked for the first of the queue, and was refused.
    refused: bool,
    boundary_ns: Option<u64>,
    /// Preemptions of the most urgent since a request last got a token.
    fruitless: u64,
    /// Whether clients of running requests have given them up.
    someone_left: bool,
    /// The schedule, where it is written down.
    pub log: Option<ScheduleLog>,
    /// Whose blocks it gives out.
    blocks: PhantomData<B>,
}

impl<B: Blocks> VllmScheduler<B> {
    /// A scheduler with nothing to do.
    pub fn new(config: VllmConfig) -> Self {
        Self {
            waiting: Waiting::new(config.by_priority),
            pipeline: (config.stages > 1).then(|| Pipeline::new(config.stages)),
            config,
            sequences: BySlot::default(),
            running: Vec::new(),
            flight: None,
            lookahead: None,
            launching: false,
            step_run: None,
            refused: false,
            boundary_ns: None,
            fruitless: 0,
            someone_left: false,
            log: None,
            blocks: PhantomData,
        }
    }
}
