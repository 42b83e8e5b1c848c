//! Transfers: what a machine's store decides, put on the channels of its edges, and made true when it arrives.
//!
//! The rules are those of `spec/mover.py` and `spec/channels.py` in Python.
//!
//! | file | what lives there |
//! |---|---|
//! | `channel` | a FIFO link and the times of what it carries |
//! | `slowed` | a FIFO link whose rate falls for some times |
//! | `plugins` | decisions that a plug-in takes, and what it sees |
//! | `lane` | the channels side by side that carry an edge, and the choice among them |
//! | `layered` | a link served layer by layer: fair, or loads first |
//! | `timeline` | what happens next on all such links |
//! | `pages` | what blocks of cache groups are, layer by layer |
//! | `demand` | the rate that a channel was asked for |
//! | `transfer` | one order on its way |
//! | `mover` | a machine's transfers: who asks about them, what has arrived |
//! | `hop` | what crosses between machines that hand over |
//! | `peers` | what a machine has at hand while it is at work, the other machines with it |
//! | `prefetch_state` | what comes up ahead of its request |
//! | `cross_machine` | what waits for a transfer of another machine: reads from there, hand-overs over memory |
//! | `puts` | what is put into a shared pool |
//! | `sending` | orders on their way to a channel, fed hop by hop; transfers whose times were decided elsewhere |
//! | `storage_wait` | how long a request waits for an engine's storage |
//! | `submitting` | the same over links served layer by layer |
//! | `copy_cost` | what copies cost the steps |
//! | `on_complete` | what is done once a move has ended, and moments at which none is under way |
//! | `write` | what is copied down when something becomes ready |
//! | `hops` | which hop a wait was for |

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
mod sending;
mod slowed;
mod storage_wait;
mod submitting;
mod timeline;
mod transfer;
mod write;

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

pub use peers::{Now, Peers};
pub use slowed::Slowdown;
pub use timeline::{SharedTimeline, Timeline};
pub use transfer::{Transfer, TransferId, Watcher};
pub use write::WritePolicy;
