//! The occasion for prefetching the blocks of a request.

/// Occasion for prefetching the blocks of a request; all blocks that may hit are then prefetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefetchPolicy {
    /// On arrival of the request, while it waits.
    Queued,
    /// A while before the next turn of a session; the driver of the replica sets the time.
    Session,
    /// Decision of a plug-in, on arrival of the request or only before a session's next turn.
    Plugin {
        /// True if the plug-in is called on arrival of a request.
        queued: bool,
    },
}

impl PrefetchPolicy {
    /// The policy of that name, `None` for a policy that is not in the core. `queued`: true if a plug-in is called on
    /// arrival of a request.
    pub fn from_name(name: &str, queued: bool) -> Option<Self> {
        match name {
            "queued" => Some(Self::Queued),
            "session" => Some(Self::Session),
            "plug-in" => Some(Self::Plugin { queued }),
            _ => None,
        }
    }

    /// True if blocks are prefetched while their request waits.
    pub fn is_queued(self) -> bool {
        matches!(self, Self::Queued | Self::Plugin { queued: true })
    }
}
