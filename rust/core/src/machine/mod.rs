//! One engine instance: queue, admission, step boundaries, milestones, rows.
//!
//! The rules are those of `spec/` in Python, which runs one iteration at a time; here one call does all of an event's
//! work, and that of others that come before anyone else acts.
//!
//! | file | what lives there |
//! |---|---|
//! | `replica` | arrivals, and what happens at a step boundary |
//! | `transfers` | what arrives between boundaries, and what is sent |
//! | `scheduler` | who is in the next step: preemption, loaded requests, then the queue |
//! | `next_step` | a composed step until it starts |
//! | `admission` | the prefix that is reused, and room for the rest |
//! | `groups` | the same from a pool of several cache groups |
//! | `loads` | what of the prefix comes from lower tiers |
//! | `fetch` | how much of it is loaded and how much recomputed |
//! | `loading` | a request that waits for its room and its KV |
//! | `shared_prefixes` | how much of a found run may be reused |
//! | `queue` | who waits, who is next, and whether that one was refused |
//! | `plugins` | decisions that a plug-in takes, and what it sees |
//! | `duplicates` | requests that wait for a block that another one computes |
//! | `pending_aborts` | requests that their clients give up |
//! | `milestones` | what the moments of a request change |
//! | `request` | one request while it is served |
//! | `running_set` | who runs, and when the step ends |
//! | `offers` | what steps have computed is offered to an engine's own tier |
//! | `outcome` | what a look-up is called |
//! | `read_buffers` | how far loads may run ahead of the step that computes on them |
//! | `storage_prefetch` | what an engine's storage brings up, and who is held back |
//! | `prefetch` | what comes up before it is asked for |
//! | `handover` | prompts computed on one machine, answers decoded on another: both sides |
//! | `remote` | reads from other machines: both sides |
//! | `pool` | a shared pool, which all others write and read |
//! | `neighbours` | the other machines while one is at work |
//! | `messages` | what a machine is asked to do and what it sends to others, as plain data |
//! | `perform` | what it does on request |
//! | `rank` | a replica as one of the data-parallel ranks of an engine |
//! | `prefill_load` | open requests and queued tokens, which routers compare |
//! | `reports` | what a machine reports until it is taken |
//! | `rows` | rows of requests and events as they leave |
//! | `operations` | manual cache operations |
//! | `outputs` | tokens and closed requests with their times, for live runs |
//! | `settings` | what a replica is told once |
//! | `engine` | the trait of engines' own schedulers |
//! | `engine_notes` | what a replica notes of a request for any of them |
//! | `by_slot` | what they know of each request |
//! | `vllm` | vLLM's scheduler |
//! | `sglang` | SGLang's scheduler |
//! | `schedule_log` | the schedule of an engine's own scheduler, written down |

mod aborts;
mod admission;
mod by_slot;
mod duplicates;
pub mod engine;
mod engine_notes;
pub mod fetch;
mod groups;
pub mod handover;
mod loading;
mod loads;
pub mod messages;
mod milestones;
pub mod neighbours;
mod next_step;
mod offers;
mod operations;
pub mod outcome;
mod outputs;
mod perform;
pub mod plugins;
pub mod pool;
pub mod prefetch;
#[cfg(test)]
mod prefetch_tests;
mod prefill_load;
pub mod queue;
mod rank;
mod read_buffers;
mod remote;
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
mod storage_prefetch;
#[cfg(test)]
mod tests;
mod transfers;
pub mod vllm;

pub use crate::transfers::Now;
pub use outputs::{Output, OutputLog};
pub use prefill_load::PrefillLoad;
pub use replica::{Phase, Replica};
pub use reports::Reports;
pub use request::{Arrival, Request, MOST_TIERS};
pub use settings::{AsyncScheduling, ReadsConfig, ReplicaConfig};

/// A request while it is served: its place in the replica.
pub type Slot = u32;
