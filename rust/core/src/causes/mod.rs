//! Causes of missed prompt tokens: every missed token is counted under one cause.
//!
//! [`MissCause`] is the native half of the one list of causes; `python/kvcache_sim/replay/miss_causes.py` has
//! their definitions. A new cause is a row there, a variant here, and a rule in the file that can detect it:
//!
//! - [`prompt`]        one prompt, front to back, so that its causes sum to its misses
//! - [`eviction_log`]  the request whose demand evicted each block last
//! - [`engine`]        replays of real engines' caches, look-up by look-up
//! - [`known_misses`]  replays of eviction policies: known blocks that were missed, and the requests that evicted them
//! - [`policy`]        replays of eviction policies, from their hits and their known misses
//! - [`timed`]         timed runs, from their table of requests; `history` is what the requests have shown so far

pub mod engine;
pub mod eviction_log;
mod history;
pub mod known_misses;
pub mod policy;
pub mod prompt;
pub mod timed;

/// Cause of a missed prompt token; the discriminant is its column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissCause {
    /// No prompt showed the block before; the prompt is new, or continues where another one ended.
    NeverSeen,
    /// No prompt showed the block before, and the prompt had diverged from earlier prompts.
    Diverged,
    /// The block was cached and then evicted, or lies behind an evicted block.
    Evicted,
    /// End of the prompt, which fills no block that may hit.
    Shorter,
    /// Another request was still computing the block on this machine.
    NotReady,
    /// Only other machines have had the block.
    Elsewhere,
    /// A prompt showed the block before, but the cache did not admit it or cannot reach it.
    NotAdmitted,
    /// Other layer groups had the block, but a sliding window had moved past it and kept nothing there.
    WindowMovedOn,
    /// Other layer groups had the block, but no recurrent state was kept there.
    NoCheckpoint,
}

impl MissCause {
    /// All causes, in the order of the columns.
    pub const ALL: [Self; 9] = [
        Self::NeverSeen,
        Self::Diverged,
        Self::Evicted,
        Self::Shorter,
        Self::NotReady,
        Self::Elsewhere,
        Self::NotAdmitted,
        Self::WindowMovedOn,
        Self::NoCheckpoint,
    ];

    /// Returns the name of the cause's column.
    ///
    /// ```
    /// use kvsim_core::causes::MissCause;
    /// assert_eq!(MissCause::NotReady.name(), "not_ready");
    /// ```
    pub fn name(self) -> &'static str {
        match self {
            Self::NeverSeen => "never_seen",
            Self::Diverged => "diverged",
            Self::Evicted => "evicted",
            Self::Shorter => "shorter",
            Self::NotReady => "not_ready",
            Self::Elsewhere => "elsewhere",
            Self::NotAdmitted => "not_admitted",
            Self::WindowMovedOn => "window_moved_on",
            Self::NoCheckpoint => "no_checkpoint",
        }
    }
}

/// Missed tokens of one request, one column per cause.
pub type TokensByCause = [u64; MissCause::ALL.len()];
