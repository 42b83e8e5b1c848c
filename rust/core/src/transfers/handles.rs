//! Handles: jobs of a channel and transfers of any machine, by number.

/// A job's index among those of its channel.
pub type JobId = u32;

/// A transfer's index among those of its machine.
pub type TransferId = u32;

/// A transfer of any machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FarTransfer {
    /// The machine.
    pub machine: u32,
    /// Its index there.
    pub id: TransferId,
}

/// Layers of a transfer that have arrived, for the notification of its machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayersCame {
    /// The transfer.
    pub of: FarTransfer,
    /// Number of its layers that have arrived.
    pub layers: u64,
}

/// A local dependent of a transfer that stands for a transfer on another machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Relay {
    pub target: FarTransfer,
    /// The transfer that the target waits for.
    pub before: TransferId,
    /// True if the target sends on the blocks of `before`.
    pub follows: bool,
}
