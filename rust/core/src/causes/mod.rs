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

/// Declares the causes, each with the name of its column.
macro_rules! causes {
    ($($(#[$about:meta])* $Cause:ident = $name:literal,)+) => {
        /// Cause of a missed prompt token; the discriminant is its column.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum MissCause {
            $($(#[$about])* $Cause,)+
        }

        impl MissCause {
            /// The names of the causes, in the order of the columns.
            pub const NAMES: &[&str] = &[$($name),+];
        }
    };
}

causes! {
    /// No prompt showed the block before; the prompt is new, or continues where another one ended.
    NeverSeen = "never_seen",
    /// No prompt showed the block before, and the prompt had diverged from earlier prompts.
    Diverged = "diverged",
    /// The block was cached and then evicted, or lies behind an evicted block.
    Evicted = "evicted",
    /// End of the prompt, which fills no block that may hit.
    Shorter = "shorter",
    /// Another request was still computing the block on this machine.
    NotReady = "not_ready",
    /// Only other machines have had the block.
    Elsewhere = "elsewhere",
    /// A prompt showed the block before, but the cache did not admit it or cannot reach it.
    NotAdmitted = "not_admitted",
    /// Other layer groups had the block, but a sliding window had moved past it and kept nothing there.
    WindowMovedOn = "window_moved_on",
    /// Other layer groups had the block, but no recurrent state was kept there.
    NoCheckpoint = "no_checkpoint",
    /// Earlier prompts share less than the whole block of the cache around it.
    PartialBlock = "partial_block",
    /// A lower tier or another machine had the block, and it was computed instead of loaded.
    NotLoaded = "not_loaded",
}

/// Missed tokens of one request, one column per cause.
pub type TokensByCause = [u64; MissCause::NAMES.len()];
