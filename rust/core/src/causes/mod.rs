//! Why prompt tokens were missed: every missed token under one cause.
//!
//! [`MissCause`] is the native half of the one list of causes; `python/kvcache_sim/replay/miss_causes.py` has
//! their definitions. A new cause is a row there, a variant here, and the rule in the file that can tell it:
//!
//! - [`prompt`]        one prompt told front to back, so that its causes sum to its misses
//! - [`eviction_log`]  whose demand evicted each block last
//! - [`engine`]        replays of real engines' caches, look-up by look-up
//! - [`known_misses`]  replays of eviction policies: which known blocks were missed, and who evicted them
//! - [`policy`]        replays of eviction policies, from their hits and their known misses
//! - [`timed`]         timed runs, from their table of requests; `history` is what those have shown so far

pub mod engine;
pub mod eviction_log;
mod history;
pub mod known_misses;
pub mod policy;
pub mod prompt;
pub mod timed;

/// Why a prompt token was missed; the discriminant is its column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissCause {
    /// No prompt showed the block before; the prompt is new, or goes on where one ended.
    NeverSeen,
    /// No prompt showed the block before, and the prompt had left others that went on differently.
    Diverged,
    /// It was in the cache and was evicted, or lies behind a block that was.
    Evicted,
    /// The end of the prompt, which fills no block that may hit.
    Shorter,
    /// Another request was still computing it on this machine.
    NotReady,
    /// Only other machines have had it.
    Elsewhere,
    /// A prompt showed it before, but the cache did not take it or keeps it out of reach.
    NotAdmitted,
    /// Other groups of layers had it, and of a window that had moved on nothing was kept there.
    WindowMovedOn,
    /// Other groups of layers had it, and no state was kept there.
    NoCheckpoint,
}

impl MissCause {
    /// Every cause, in the order of the columns.
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

    /// The name of its column.
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

/// The missed tokens of one request, a column a cause.
pub type TokensByCause = [u64; MissCause::ALL.len()];
