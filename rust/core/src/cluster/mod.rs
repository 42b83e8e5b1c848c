//! A cluster: the order of all machines' events, and the messages between machines.
//!
//! A machine sends messages to others ([`crate::machine::messages`]); [`Cluster`] delivers them in the order of their
//! time. A copy that reaches a machine's memory is forwarded to the other machine at once
//! ([`crate::machine::neighbours`]), since both may share a channel.
//!
//! | file | contents |
//! |---|---|
//! | `event_loop` | all machines' events in one order |
//! | `handover` | effects of the messages of prefill and decode machines |
//! | `messages` | events between machines; the request to choose a decode machine |
//! | `external` | events from outside: requests, prefetches, aborts |
//! | `rank_groups` | the engines whose machines step together, and the time that they share |
//! | `ranks` | steps of data-parallel groups |
//! | `intake` | requests that have not arrived yet, in order of arrival |
//! | `routing` | the machines that a router finds equally good |
#![cfg_attr(
    not(test),
    deny(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

mod event_loop;
mod external;
mod handover;
pub mod intake;
mod messages;
mod rank_groups;
mod ranks;
pub mod routing;

pub use crate::machine::messages::Question;
pub use event_loop::{Cluster, Machines};
pub use messages::Chosen;
pub use rank_groups::SharedTime;
