//! Transfers: a machine's store issues orders, the channels of its edges carry them, and arrivals make the
//! blocks ready.
//!
//! The rules are those of `spec/mover.py` and `spec/channels.py` in Python.
//!
//! | file | contents |
//! |---|---|
//! | `handles` | jobs of a channel and transfers of any machine, by number |
//! | `job` | a job, the settings that give its time on a channel, and its times |
//! | `demand` | the rate demanded of a channel |
//! | `slowed` | a rate that falls at known times |
//! | `timeline` | the next event on all channels served layer by layer |
//! | `layer_service` | the jobs of such a channel: fair, or loads first |
//! | `channel` | a FIFO link and the times of its jobs |
//! | `layered` | a channel served layer by layer |
//! | `plugins` | the plug-ins for decisions, and their inputs |
//! | `lane` | the parallel channels of an edge, and the choice among them |
//! | `block_form` | narrower blocks below the GPU, and the time to encode and decode them |
//! | `pages` | blocks of cache groups, layer by layer |
//! | `feed` | progress of data that come from elsewhere |
//! | `remote_read` | a read from another machine, and the messages between the two |
//! | `hop` | a hop of a hand-over |
//! | `transfer` | one order in flight |
//! | `arrivals` | the arrivals of transfers, in one order |
//! | `traffic` | bytes carried by tier and by edge |
//! | `copy_cost` | cost of copies for the steps |
//! | `prefetch_state`, `storage_wait` | prefetched blocks, and requests held back for them |
//! | `write` | write policies: copies to the tier below |
//! | `completion` | actions after a move has finished, and moments without moves in flight |
//! | `mover` | a machine's transfers, their channels and watchers |
//! | `peers` | the store, the time and the other machines, as a running machine sees them |
//! | `sending` | orders on the path to a channel, fed hop by hop; transfers whose times were decided elsewhere |
//! | `submitting` | `sending` over links served layer by layer |
//! | `sending_hops` | transfers between machines that hand over |
//! | `cross_machine` | waits for a transfer of another machine: reads from there, hand-overs over memory |
//! | `pool_writes` | writes into a shared pool |
//! | `arriving` | arrivals: dependents are fed, the store is notified |
//! | `hops` | split of a wait by hop |
//! | `projection` | the times of transfers that wait, if nothing else is queued |
//!
//! A file imports those above it.
#![cfg_attr(
    not(test),
    deny(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

mod arrivals;
mod arriving;
mod block_form;
mod channel;
mod completion;
mod copy_cost;
mod cross_machine;
mod demand;
mod feed;
mod handles;
mod hop;
#[cfg(test)]
mod hop_tests;
mod hops;
mod job;
mod lane;
mod layer_service;
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
mod remote_read;
mod sending;
mod sending_hops;
mod slowed;
mod storage_wait;
mod submitting;
mod timeline;
mod traffic;
mod transfer;
mod write;

pub use arrivals::{Arrival, Arrivals};
pub use block_form::BlockForm;
pub use channel::{Channel, SharedChannel};
pub use completion::TierCopy;
pub use copy_cost::{CopyCost, CopyRates};
pub use demand::Demand;
pub use feed::{Computed, Feed};
pub use handles::{FarTransfer, LayersCame, TransferId};
pub use hop::Hop;
pub use job::{ChannelConfig, Job, Transmission, NOT_YET};
pub use lane::Lane;
pub use mover::{Edge, Mover, MoverConfig};
pub use pages::LayerPages;
pub use peers::{Now, Peers};
pub use prefetch_state::{PrefetchConfig, PrefetchState};
pub use projection::Projection;
pub use remote_read::{Brought, Came, FarHop, Lent, Source};
pub use slowed::Slowdown;
pub use storage_wait::{HoldBack, StorageWaits, WaitNow};
pub use timeline::{SharedTimeline, Timeline};
pub use traffic::{EdgeBytes, TierBytes, Traffic};
pub use transfer::{Transfer, Watcher};
pub use write::{WritePolicy, Writes};
