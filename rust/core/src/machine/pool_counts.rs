//! Counts of a shared pool.

/// Counts of blocks written to and read from a pool so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolCounts {
    /// Blocks that machines wrote to the pool, including blocks in transit.
    pub put_blocks: u64,
    /// Blocks that machines read from the pool.
    pub read_blocks: u64,
    /// Blocks refused for lack of capacity.
    pub refused_blocks: u64,
}
