//! Refusals of a store: the caller's mistakes, each found before anything is changed.

use std::fmt;

/// A call that a store refuses. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreError {
    /// A lease that was released, abandoned, or never issued by this store.
    NoSuchLease,
    /// A move that has finished, or was never issued by this store.
    NoSuchMove,
    /// A hold that was released, is of another tier, or was never issued by this store.
    NoSuchHold,
    /// A tier that the store does not have; it has this many.
    NoSuchTier(usize),
    /// A tier that the operation cannot use.
    WrongTier,
    /// A request beyond the trace, which has this many.
    NoSuchRequest(u32),
    /// A range without blocks.
    NoBlocks,
    /// Blocks that are not in the trie.
    NotFound,
    /// A block without a copy on the tier that it is read from or held on.
    NotOnTier,
    /// A block that has a copy on the tier already.
    OnTierAlready,
    /// Blocks past the blocks that the lease holds.
    NotHeld,
    /// More blocks than the lease has reserved and has capacity for.
    NotReserved,
    /// A second lease of a request, in a store that gives each request one.
    LeasedAlready,
    /// A page without tokens.
    EmptyPage,
    /// Lengths of another number of requests; the store has this many.
    Lengths(u32),
    /// A lease that has reserved blocks cannot be abandoned.
    Reserved,
    /// A lease whose blocks are still being loaded.
    Loading,
    /// A move that is no claim, or a claim in which blocks were placed.
    NoClaim,
    /// A claim in which no blocks were placed.
    Unplaced,
    /// Capacity that a write still occupies.
    NotFree,
    /// A first layer that would be ready after the last.
    LastLayerFirst,
    /// A number of blocks that differs from the claim's; this many were claimed.
    ClaimSize(u64),
    /// A scheduler that preempts without end: this many times since any request got a token.
    NoProgress(u64),
    /// A plug-in that raised, or returned no usable answer; the caller of the core keeps the exception.
    Plugin,
}

impl StoreError {
    /// The component that refuses: the store, or the scheduler that calls it.
    pub fn slot(&self) -> &'static str {
        match self {
            Self::NoProgress(_) => "replica.scheduler",
            Self::Plugin => "plug-in",
            _ => "store",
        }
    }

    /// The problem.
    pub fn what(&self) -> &'static str {
        match self {
            Self::NoSuchLease => "no such lease",
            Self::NoSuchMove => "no such move",
            Self::NoSuchHold => "no such hold",
            Self::NoSuchTier(_) => "no such tier",
            Self::WrongTier => "not on this tier",
            Self::NoSuchRequest(_) => "no such request",
            Self::NoBlocks => "no blocks",
            Self::NotFound => "blocks are not found",
            Self::NotOnTier => "a block is not on the tier",
            Self::OnTierAlready => "a block is on the tier already",
            Self::NotHeld => "more blocks than the lease holds",
            Self::NotReserved => "more blocks than are reserved and free",
            Self::LeasedAlready => "the request has a lease",
            Self::EmptyPage => "a page of no tokens",
            Self::Lengths(_) => "not the lengths of the requests",
            Self::Reserved => "blocks are reserved",
            Self::Loading => "blocks are still being loaded",
            Self::NoClaim => "no claimed capacity",
            Self::Unplaced => "no blocks were placed in the claim",
            Self::NotFree => "the capacity is not free yet",
            Self::LastLayerFirst => "ready before its first layer",
            Self::ClaimSize(_) => "not the size of the claim",
            Self::NoProgress(_) => "requests preempt each other without end, as vLLM's would",
            Self::Plugin => "a plug-in gave no usable answer",
        }
    }

    /// The expected call or value.
    pub fn expected(&self) -> String {
        let text = match self {
            Self::NoSuchLease => "one that is held",
            Self::NoSuchMove => "one that is in flight",
            Self::NoSuchHold => "one that is held on this tier",
            Self::NoSuchTier(tiers) => return format!("0 to {}", tiers - 1),
            Self::WrongTier => {
                "a tier below the gpu, with one below it where blocks are read from there"
            }
            Self::NoSuchRequest(requests) => {
                return format!("0 to {}", i64::from(*requests) - 1);
            }
            Self::NoBlocks => "a first block before the end",
            Self::NotFound => "a path of which every block is in the trie",
            Self::NotOnTier => "a copy of every block there",
            Self::OnTierAlready => "no copy of any block there",
            Self::NotHeld => "blocks of its path",
            Self::NotReserved => "a reservation first",
            Self::LeasedAlready => "one lease a request at a time",
            Self::EmptyPage => "1 token or more",
            Self::Lengths(requests) => {
                return format!(
                    "{requests} prompts and wholes, a prompt at most its whole, below 2^62 tokens"
                );
            }
            Self::Reserved => "a lease without a reservation; release it",
            Self::Loading => "its loads to have ended",
            Self::NoClaim => "a claim without blocks",
            Self::Unplaced => "placed blocks; release the claim",
            Self::NotFree => "the writes that it waits for to have ended",
            Self::LastLayerFirst => "a first layer no later than the whole",
            Self::ClaimSize(blocks) => return format!("{blocks} blocks"),
            Self::Plugin => "an answer within the contract of its kind",
            Self::NoProgress(preemptions) => {
                return format!(
                    "a token within {preemptions} preemptions: more blocks, \
                     arrivals or priorities that differ, or reserve_full_isl: true"
                );
            }
        };
        text.to_owned()
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
