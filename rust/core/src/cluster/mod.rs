//! A cluster: the order of all machines' events, and what crosses between the machines.
//!
//! A machine sends messages to others ([`crate::machine::messages`]); [`Cluster`] delivers them in the order of their
//! time. What comes down to a machine's memory goes on from the other one at once
//! ([`crate::machine::neighbours`]), since both may share a channel.
//!
//! | file | contents |
//! |---|---|
//! | `event_loop` | all machines' events in one order |
//! | `handover` | what the messages of prefill and decode machines lead to |
//! | `messages` | events between machines; the question which machine decodes a request |
//! | `external` | what comes from outside: requests, prefetches, aborts |
//! | `ranks` | machines that step together |
//! | `intake` | requests on their way to the machines |
//! | `routing` | which machines a router finds equally good |

mod event_loop;
mod external;
mod handover;
pub mod intake;
mod messages;
mod ranks;
pub mod routing;

pub use crate::machine::messages::Question;
pub use event_loop::{Cluster, Machines};
pub use messages::Chosen;
