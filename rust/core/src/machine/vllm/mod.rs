//! vLLM's own scheduler, step by step (0.33.0, `vllm/v1/core/sched/scheduler.py` and `async_scheduler.py`; no
//! speculation, chunked prefill on).
//!
//! | file | contents |
//! |---|---|
//! | `settings` | settings of a scheduler |
//! | `sequence` | one request between its arrival and its last token |
//! | `waiting` | waiting requests: in order of arrival, or by priority |
//! | `running` | the running requests' share of a step, and preemption |
//! | `blocks` | the pool that it allocates from: of one cache group, or of several |
//! | `admission` | admission of waiting requests |
//! | `remote` | requests that wait for KV from elsewhere, and the copies of steps |
//! | `handover` | prompts that another machine decodes, or has computed |
//! | `tiered` | the pool above an engine's tiers |
//! | `step` | the tokens and the requests of a step |
//! | `outputs` | the tokens that a step's end brings |
//! | `aborts` | requests that their clients abort |
//! | `boundary` | steps one after another, or decided in advance |
//! | `cadence` | steps without prompts between steps that compute some |
//! | `limits` | requests that are turned away |
//! | `pace` | launch and computation of a step decided in advance, and the output of the step before it |
//! | `pipeline` | as many steps in flight as there are pipeline stages |
//! | `step_run` | steps in which every running request decodes one token |

mod aborts;
mod admission;
mod blocks;
mod boundary;
mod cadence;
mod handover;
mod limits;
mod outputs;
mod pace;
mod pipeline;
mod remote;
mod running;
mod sequence;
mod settings;
mod step;
mod step_run;
mod tiered;
mod waiting;

use std::marker::PhantomData;

use super::by_slot::BySlot;
use super::schedule_log::ScheduleLog;
use super::Slot;
pub use blocks::Blocks;
use cadence::Cadence;
use pipeline::Pipeline;
use remote::Remote;
use sequence::Sequence;
use step::Step;
use step_run::StepRun;
use waiting::Waiting;

pub use settings::{PipelineConfig, StageSteps, VllmConfig, VllmLimits};

/// Preemptions of the most urgent requests, and steps of copies alone while requests wait, without a token in between
/// after which no more tokens are expected.
///
/// By priority, requests of one priority and arrival take each other's blocks in turn, in vLLM too, and restart each
/// time. A single most urgent request is not preempted.
const MOST_FRUITLESS: u64 = 10_000;

/// The decided steps.
#[derive(Debug, Default)]
struct Steps {
    /// The step that is being computed.
    flight: Option<Step>,
    /// The step that follows it, decided already (asynchronous scheduling).
    lookahead: Option<Step>,
    /// Steps in flight through several pipeline stages; `flight` and `lookahead` are none then.
    pipeline: Option<Pipeline>,
    /// True if the host is launching the step in flight, before which the GPU was idle; it then decides the next
    /// step.
    launching: bool,
    /// Set while steps continue without a decision.
    step_run: Option<StepRun>,
    /// Number of decisions so far, those that found nothing to compute included.
    decided: u64,
}

/// vLLM's scheduler of one replica.
#[derive(Debug)]
pub struct VllmScheduler<B: Blocks> {
    config: VllmConfig,
    sequences: BySlot<Sequence>,
    waiting: Waiting,
    /// Running requests, in order of admission.
    running: Vec<Slot>,
    steps: Steps,
    cadence: Cadence,
    remote: Remote,
    /// True if the last schedule tried to admit the first request of the queue, and was refused.
    refused: bool,
    boundary_ns: Option<u64>,
    /// Preemptions of the most urgent requests, and steps of copies alone, since a request last got a token.
    fruitless: u64,
    /// Running requests that their clients have aborted since the last boundary.
    aborted: Vec<Slot>,
    /// The schedule, if it is logged.
    pub log: Option<ScheduleLog>,
    /// The type of pool.
    blocks: PhantomData<B>,
}

impl<B: Blocks> VllmScheduler<B> {
    /// A scheduler with no requests.
    pub fn new(config: VllmConfig) -> Self {
        Self {
            waiting: Waiting::new(config.by_priority),
            remote: Remote::new(config.by_priority),
            steps: Steps {
                pipeline: (config.pipeline.stages > 1).then(|| Pipeline::new(config.pipeline)),
                ..Steps::default()
            },
            cadence: Cadence::new(config.limits.prefill_schedule_interval),
            config,
            sequences: BySlot::default(),
            running: Vec::new(),
            refused: false,
            boundary_ns: None,
            fruitless: 0,
            aborted: Vec::new(),
            log: None,
            blocks: PhantomData,
        }
    }
}
