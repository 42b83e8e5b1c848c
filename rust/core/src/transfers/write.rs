//! When KV is copied one tier down (the policies of `cache/write/`).

/// The write policy of one edge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WritePolicy {
    /// At eviction, where there is no copy below.
    #[default]
    Back,
    /// As soon as it is there.
    Through,
    /// As soon as it is there, and the next step waits for it.
    ThroughSync,
    /// At the n-th use.
    Selective {
        /// How many requests have to have used a block.
        uses: u32,
    },
}

impl WritePolicy {
    /// The policy of that name, `None` for one that is not of the core.
    pub fn from_name(name: &str, uses: u32) -> Option<Self> {
        match name {
            "back" => Some(Self::Back),
            "through" => Some(Self::Through),
            "through-sync" => Some(Self::ThroughSync),
            "selective" => Some(Self::Selective { uses }),
            _ => None,
        }
    }

    /// Whether it copies what has just become ready above its edge.
    pub fn copies_at_once(self) -> bool {
        matches!(self, Self::Through | Self::ThroughSync)
    }
}
