//! A request's way through one replica: queue, admission, step boundaries, milestones, rows.
//!
//! The rules are those of `serving/replica/` in Python, which is their reference and runs one iteration at a
//! time; here one call does all of an event's work. A replica serves from the GPU of its machine alone.
//!
//! | file | what lives there |
//! |---|---|
//! | `replica` | arrivals, and what happens at a step boundary |
//! | `scheduler` | who is in the next step: preemption, then the queue |
//! | `admission` | the prefix that is reused, and room for the rest |
//! | `queue` | who waits, and who is next |
//! | `milestones` | what the moments of a request change |
//! | `request` | one request while it is served |
//! | `sessions` | what the finished turns of sessions left |
//! | `outcome` | what a look-up is called |
//! | `rows` | rows of requests and events as they leave |
//! | `settings` | what a replica is told once |
//! | `store` | what all this asks of the blocks of a machine |

mod admission;
mod milestones;
pub mod outcome;
pub mod queue;
mod replica;
mod request;
pub mod rows;
mod scheduler;
pub mod sessions;
mod settings;
mod store;
#[cfg(test)]
mod tests;

pub use replica::Replica;
pub use request::{Arrival, Request};
pub use settings::{AsyncScheduling, ReplicaConfig};
pub use store::ServingStore;

/// A request while it is served: its place in the replica.
pub type Place = u32;
