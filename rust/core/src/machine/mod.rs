//! One engine instance: queue, admission, step boundaries, milestones, rows.
//!
//! The rules are those of `spec/` in Python, which runs one iteration at a time. Here one call does all the work of
//! an event, and of later events that come before any other event of the simulation.
//!
//! | file | contents |
//! |---|---|
//! | `replica` | arrivals, and the work at a step boundary |
//! | `transfers` | sends and arrivals between boundaries |
//! | `scheduler` | selection of the next step's requests: preemption, loaded requests, then the queue |
//! | `composed_step` | what a composed step waits for |
//! | `next_step` | a composed step until it starts |
//! | `admitted` | admitted requests before their first step: blocks and moves |
//! | `admission` | prefix match, and blocks for the rest |
//! | `groups` | admission to a pool of several cache groups |
//! | `loads` | admission with blocks of lower tiers |
//! | `fetch` | division of a found run into a loaded and a recomputed part |
//! | `loading` | a request that waits for its blocks and its KV |
//! | `shared_prefixes` | the part of a found run that may be reused |
//! | `queue` | waiting requests, their order, and refusals |
//! | `plugins` | decisions that a plug-in takes, and its arguments |
//! | `duplicates` | requests that wait for a block that another request computes |
//! | `pending_aborts` | aborted requests that have not left |
//! | `aborts` | requests that their clients abort |
//! | `milestones` | effects of the milestones of a request |
//! | `request` | one request while it is served |
//! | `running_set` | running requests, and the end of their step |
//! | `offers` | offers of computed blocks to an engine's own tier |
//! | `outcome` | names of look-up results |
//! | `read_buffers` | bound on loading before the step that uses the KV |
//! | `prefetch_policy` | the occasion for prefetching |
//! | `storage_prefetch` | prefetch from an engine's storage, and the requests held back for it |
//! | `prefetch` | prefetch of blocks before they are requested |
//! | `handover` | prompts computed on one machine, answers decoded on another: both sides |
//! | `remote_run` | blocks on another machine that continue a run |
//! | `remote` | reads from other machines: both sides |
//! | `pool_counts` | counts of a shared pool |
//! | `pool` | a shared pool, which all other machines write and read |
//! | `staging` | copies up to the tier that is loaded from |
//! | `neighbours` | access to the other machines while one machine is at work |
//! | `messages` | tasks of a machine and its messages to others, as plain data |
//! | `perform` | execution of tasks |
//! | `rank` | a replica as one of the data-parallel ranks of an engine |
//! | `prefill_load` | open requests and queued tokens, which routers compare |
//! | `reports` | reports of a machine until they are taken |
//! | `publish_load` | publication of an engine's load |
//! | `load_report` | the load that an engine reports to routers |
//! | `rows` | rows of requests and events as they leave |
//! | `operations` | manual cache operations |
//! | `output_log` | the log of tokens and closed requests |
//! | `outputs` | tokens and closed requests with their times, for live runs |
//! | `settings` | settings of a replica |
//! | `engine` | the trait of engines' own schedulers |
//! | `engine_notes` | records of a replica about their requests |
//! | `by_slot` | their sequences by slot |
//! | `vllm` | vLLM's scheduler |
//! | `sglang` | SGLang's scheduler |
//! | `schedule_log` | log of the schedule of an engine's own scheduler |
#![cfg_attr(
    not(test),
    deny(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

mod aborts;
mod admission;
mod admitted;
mod by_slot;
mod composed_step;
mod duplicates;
pub mod engine;
mod engine_notes;
pub mod fetch;
mod groups;
pub mod handover;
mod load_report;
mod loading;
mod loads;
pub mod messages;
mod milestones;
pub mod neighbours;
mod next_step;
mod offers;
mod operations;
pub mod outcome;
mod output_log;
mod outputs;
mod pending_aborts;
mod perform;
pub mod plugins;
pub mod pool;
mod pool_counts;
mod prefetch;
pub mod prefetch_policy;
mod prefill_load;
mod publish_load;
pub mod queue;
mod rank;
mod read_buffers;
mod remote;
mod remote_run;
mod replica;
mod reports;
mod request;
pub mod rows;
mod running_set;
pub mod schedule_log;
mod scheduler;
mod settings;
pub mod sglang;
mod shared_prefixes;
mod staging;
mod storage_prefetch;
#[cfg(test)]
mod tests;
mod transfers;
pub mod vllm;

pub use crate::transfers::Now;
pub use load_report::LoadReport;
pub use output_log::{Output, OutputLog};
pub use prefill_load::PrefillLoad;
pub use remote_run::RemoteRun;
pub use replica::{Phase, Replica};
pub use reports::Reports;
pub use request::{Arrival, Request, MOST_TIERS};
pub use settings::{
    AsyncScheduling, ClientTimes, MovementConfig, ReadsConfig, ReplicaConfig, ReuseConfig,
    SchedulingConfig, SessionLimits,
};

/// Slot of a request in the replica while it is served.
pub type Slot = u32;
