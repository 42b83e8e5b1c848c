//! Refusals of a store: the caller's mistakes, each found before anything is changed.

use std::fmt;

/// Declares the refusals: the name and its number, if any; the problem; and the expected call or value.
macro_rules! refusals {
    ($(
        $(#[$about:meta])*
        $Name:ident $(($number:ident: $Number:ty))?: $what:literal, $expected:literal $(, $value:expr)?;
    )+) => {
        /// A call that a store refuses. Nothing was changed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum StoreError {
            $($(#[$about])* $Name $(($Number))?,)+
        }

        impl StoreError {
            /// The problem.
            pub fn what(&self) -> &'static str {
                match self {
                    $(Self::$Name { .. } => $what,)+
                }
            }

            /// The expected call or value.
            pub fn expected(&self) -> String {
                match self {
                    $(Self::$Name $(($number))? => format!($expected $(, $value)?),)+
                }
            }
        }
    };
}

refusals! {
    /// A lease that was released, abandoned, or never issued by this store.
    NoSuchLease: "no such lease", "one that is held";
    /// A move that has finished, or was never issued by this store.
    NoSuchMove: "no such move", "one that is in flight";
    /// A hold that was released, is of another tier, or was never issued by this store.
    NoSuchHold: "no such hold", "one that is held on this tier";
    /// A tier that the store does not have; it has this many.
    NoSuchTier(tiers: usize): "no such tier", "0 to {}", tiers - 1;
    /// A tier that the operation cannot use.
    WrongTier: "not on this tier",
        "a tier below the gpu, with one below it where blocks are read from there";
    /// A request beyond the trace, which has this many.
    NoSuchRequest(requests: u32): "no such request", "0 to {}", i64::from(*requests) - 1;
    /// A range without blocks.
    NoBlocks: "no blocks", "a first block before the end";
    /// Blocks that are not in the trie.
    NotFound: "blocks are not found", "a path of which every block is in the trie";
    /// A block without a copy on the tier that it is read from or held on.
    NotOnTier: "a block is not on the tier", "a copy of every block there";
    /// A block that has a copy on the tier already.
    OnTierAlready: "a block is on the tier already", "no copy of any block there";
    /// Blocks past the blocks that the lease holds.
    NotHeld: "more blocks than the lease holds", "blocks of its path";
    /// More blocks than the lease has reserved and has capacity for.
    NotReserved: "more blocks than are reserved and free", "a reservation first";
    /// A second lease of a request, in a store that gives each request one.
    LeasedAlready: "the request has a lease", "one lease a request at a time";
    /// A page without tokens.
    EmptyPage: "a page of no tokens", "1 token or more";
    /// Lengths of another number of requests; the store has this many.
    Lengths(requests: u32): "not the lengths of the requests",
        "{requests} prompts and wholes, a prompt at most its whole, below 2^62 tokens";
    /// A lease that has reserved blocks cannot be abandoned.
    Reserved: "blocks are reserved", "a lease without a reservation; release it";
    /// A lease whose blocks are still being loaded.
    Loading: "blocks are still being loaded", "its loads to have ended";
    /// A move that is no claim, or a claim in which blocks were placed.
    NoClaim: "no claimed capacity", "a claim without blocks";
    /// A claim in which no blocks were placed.
    Unplaced: "no blocks were placed in the claim", "placed blocks; release the claim";
    /// Capacity that a write still occupies.
    NotFree: "the capacity is not free yet", "the writes that it waits for to have ended";
    /// A first layer that would be ready after the last.
    LastLayerFirst: "ready before its first layer", "a first layer no later than the whole";
    /// A number of blocks that differs from the claim's; this many were claimed.
    ClaimSize(blocks: u64): "not the size of the claim", "{blocks} blocks";
    /// A scheduler that preempts without end: this many times since any request got a token.
    NoProgress(preemptions: u64): "requests preempt each other without end, as vLLM's would",
        "a token within {preemptions} preemptions: more blocks, arrivals or priorities that differ, \
         or reserve_full_isl: true";
    /// A scheduler whose steps only copy, this many times since any request got a token, while requests wait.
    NoToken(steps: u64): "requests wait without end while blocks are copied, as vLLM's would",
        "a token within {steps} steps that copy: more blocks on cpu or gpu, or lazy_offload: false";
    /// A step that lacks tokens of KV, although as many may be evicted: what lies below them on the host is needed.
    OutOfMemory(tokens: u64): "out of memory, as SGLang would be: what is being saved to its storage stays on the host",
        "{tokens} free tokens: more blocks on cpu or gpu, or write.policy through";
    /// A plug-in that raised, or returned no usable answer; the caller of the core keeps the exception.
    Plugin: "a plug-in gave no usable answer", "an answer within the contract of its kind";
}

impl StoreError {
    /// The component that refuses: the store, or the scheduler that calls it.
    pub fn slot(&self) -> &'static str {
        match self {
            Self::NoProgress(_) | Self::NoToken(_) | Self::OutOfMemory(_) => "replica.scheduler",
            Self::Plugin => "plug-in",
            _ => "store",
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; expected {}", self.what(), self.expected())
    }
}

impl std::error::Error for StoreError {}

/// The answer of a store to a call that may be refused.
pub type Answer<T> = Result<T, StoreError>;
