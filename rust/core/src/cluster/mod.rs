//! A cluster: the order of all machines' events, and what crosses between the machines.
//!
//! A replica sends messages to others; [`Cluster`] delivers them in the order of their time. What comes down to a
//! machine's memory goes on from the other one at once ([`neighbours`]), since both may share a channel.
//!
//! | file | contents |
//! |---|---|
//! | `event_loop` | all machines' events in one order |
//! | `event` | what happens between machines at a time of its own; which machine decodes a request |
//! | `task` | what a replica does on request of the cluster, and the messages that come of it |
//! | `from_outside` | what comes from outside: requests, prefetches, aborts |
//! | `ranks` | machines that step together |
//! | `intake` | requests on their way to the machines |
//! | `neighbours` | the other machines while one is at work |
//! | `handover` | what crosses between prefill and decode machines |
//! | `remote` | reads from other machines |
//! | `pool` | a shared pool, which all others write and read |
//! | `routing` | which machines a router finds equally good |

mod event;
mod event_loop;
mod from_outside;
pub mod handover;
pub mod intake;
pub mod neighbours;
pub mod pool;
mod ranks;
pub(crate) mod remote;
pub mod routing;
mod task;

pub use event::{Chosen, Computing, Question};
pub use event_loop::{Cluster, Machines};
pub use handover::{Departure, Incoming, IncomingId, Way};
pub use task::{Done, Key, Letter, Task};
