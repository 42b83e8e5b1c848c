//! The load that an engine reports to routers.

/// The load that an engine has published, and the queue that its last schedule left.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoadReport {
    /// Requests that the last schedule left waiting, with those whose KV has not arrived.
    pub waiting: u64,
    /// Requests in the batch.
    pub running: u64,
    /// Blocks of the GPU that are neither free nor kept for reuse alone.
    pub used_blocks: u64,
    /// Waiting requests after the schedule whose step has not ended.
    pub(super) left: u64,
    /// Steps so far that only decoded.
    pub(super) decode_steps: u64,
}
