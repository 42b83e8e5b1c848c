//! One engine instance: queue, admission, step boundaries, milestones, rows.
//!
//! The rules are those of `serving/replica/` in Python, which is their reference and runs one iteration at a
//! time; here one call does all of an event's work, and that of others that come before anyone else acts.
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
//! | `queue` | who waits, and who is next |
//! | `duplicates` | requests that wait for a block that another one computes |
//! | `given_up` | requests that their clients give up |
//! | `milestones` | what the moments of a request change |
//! | `request` | one request while it is served |
//! | `sessions` | what the finished turns of sessions left |
//! | `offers` | what steps have computed is offered to an engine's own tier |
//! | `outcome` | what a look-up is called |
//! | `read_buffers` | how far loads may run ahead of the step that computes on them |
//! | `prefetch` | what comes up before it is asked for |
//! | `rows` | rows of requests and events as they leave |
//! | `settings` | what a replica is told once |
//! | `engine` | the trait of engines' own schedulers |
//! | `engine_notes` | what a replica notes of a request for any of them |
//! | `by_place` | what they know of each request |
//! | `vllm` | vLLM's scheduler |
//! | `sglang` | SGLang's scheduler |
//! | `schedule_log` | the schedule of an engine's own scheduler, written down |
//! | `store` | what all this asks of the blocks of a machine |

mod admission;
mod by_place;
mod duplicates;
pub mod engine;
mod engine_notes;
pub mod fetch;
mod given_up;
mod groups;
mod loading;
mod loads;
mod milestones;
mod next_step;
mod offers;
pub mod outcome;
pub mod prefetch;
#[cfg(test)]
mod prefetch_tests;
pub mod queue;
mod read_buffers;
mod replica;
mod request;
pub mod rows;
pub mod schedule_log;
mod scheduler;
pub mod sessions;
mod settings;
pub mod sglang;
mod store;
#[cfg(test)]
pub(crate) mod tests;
mod transfers;
pub mod vllm;

pub use replica::{Phase, Replica};
pub use request::{Arrival, Request, MOST_TIERS};
pub use settings::{AsyncScheduling, ReadsConfig, ReplicaConfig};
pub use store::ServingStore;

/// A request while it is served: its place in the replica.
pub type Place = u32;
