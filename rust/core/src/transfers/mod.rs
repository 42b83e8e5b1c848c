//! Transfers: a machine's store issues orders, the channels of its edges carry them, and arrivals make the
//! blocks ready.
//!
//! The rules are those of `spec/mover.py` and `spec/channels.py` in Python.
//!
//! | file | contents |
//! |---|---|
//! | `channel` | a FIFO link and the times of its jobs |
//! | `slowed` | a FIFO link whose rate falls at known times |
//! | `plugins` | the plug-ins for decisions, and their inputs |
//! | `lane` | the parallel channels of an edge, and the choice among them |
//! | `layered` | a link served layer by layer: fair, or loads first |
//! | `timeline` | the next event on all such links |
//! | `pages` | blocks of cache groups, layer by layer |
//! | `demand` | the rate demanded of a channel |
//! | `transfer` | one order in flight |
//! | `mover` | a machine's transfers, their watchers and arrivals |
//! | `hop` | transfers between machines that hand over |
//! | `peers` | the store, the time and the other machines, as a running machine sees them |
//! | `block_form` | narrower blocks below the GPU, and the time to encode and decode them |
//! | `projection` | the times of transfers that wait, if nothing else is queued |
//! | `prefetch_state` | prefetched blocks, and requests held back for them |
//! | `cross_machine` | waits for a transfer of another machine: reads from there, hand-overs over memory |
//! | `pool_writes` | writes into a shared pool |
//! | `sending` | orders on the path to a channel, fed hop by hop; transfers whose times were decided elsewhere |
//! | `storage_wait` | waits of requests for an engine's storage |
//! | `submitting` | `sending` over links served layer by layer |
//! | `copy_cost` | cost of copies for the steps |
//! | `completion` | actions after a move has finished, and moments without moves in flight |
//! | `write` | write policies: copies to the tier below |
//! | `hops` | split of a wait by hop |
#![cfg_attr(
    not(test),
    deny(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

mod block_form;
mod channel;
mod completion;
mod copy_cost;
mod cross_machine;
mod demand;
mod hop;
#[cfg(test)]
mod hop_tests;
mod hops;
mod lane;
mod layered;
#[cfg(test)]
mod layered_tests;
mod mover;
mod pages;
mod peers;
pub mod plugins;
mod pool_writes;
mod prefetch_state;
mod projection;
mod sending;
mod slowed;
mod storage_wait;
mod submitting;
mod timeline;
mod transfer;
mod write;

pub use block_form::BlockForm;
pub use channel::{Channel, ChannelConfig, Job, Transmission};
pub use copy_cost::{CopyCost, CopyRates};
pub use cross_machine::{Brought, Came, FarHop, FarTransfer, Lent, Source};
pub use demand::Demand;
pub use hop::{Computed, Feed, Hop};
pub use lane::Lane;
pub use layered::NOT_YET;
pub use mover::{Arrival, Edge, Mover, MoverConfig, SharedChannel};
pub use pages::LayerPages;
pub use prefetch_state::{HoldBack, PrefetchConfig, PrefetchState};
pub use projection::Projection;

pub use peers::{Now, Peers};
pub use slowed::Slowdown;
pub use timeline::{SharedTimeline, Timeline};
pub use transfer::{Transfer, TransferId, Watcher};
pub use write::WritePolicy;
