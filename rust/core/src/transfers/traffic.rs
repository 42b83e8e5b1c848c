//! Traffic of a machine's transfers: bytes by tier and by edge, and each transmission for the log.

use super::job::Transmission;
use crate::store::MoveId;
use crate::tiers::Route;

/// Bytes that transfers have read from a tier, and written to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierBytes {
    /// Bytes read.
    pub read: u64,
    /// Bytes written.
    pub written: u64,
}

/// Bytes that an edge has carried in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EdgeBytes {
    /// The two tiers.
    pub route: Route,
    /// The bytes.
    pub bytes: u64,
}

/// A transmission as it was queued, for `--record all`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentRecord {
    /// The store's move.
    pub id: MoveId,
    pub route: Route,
    pub blocks: u64,
    pub sent: Transmission,
}

/// The bytes that a machine's transfers have carried.
#[derive(Clone, Debug, Default)]
pub struct Traffic {
    /// Bytes by tier.
    pub tiers: Vec<TierBytes>,
    /// Bytes by edge that carried any.
    pub edges: Vec<EdgeBytes>,
    /// Transmissions since the log was last emptied, if they are recorded.
    pub(crate) log: Option<Vec<SentRecord>>,
}

impl Traffic {
    /// Creates empty counts of this number of tiers.
    pub(super) fn new(tiers: usize) -> Self {
        Self {
            tiers: vec![TierBytes::default(); tiers],
            ..Self::default()
        }
    }

    /// Counts bytes along a route, and those that they read from its first tier, if that is one of the
    /// machine's.
    pub(super) fn carry(&mut self, route: Route, size_bytes: u64) {
        match self.edges.iter_mut().find(|edge| edge.route == route) {
            Some(edge) => edge.bytes += size_bytes,
            None => self.edges.push(EdgeBytes {
                route,
                bytes: size_bytes,
            }),
        }
        if let Some(tier) = self.tiers.get_mut(route.from) {
            tier.read += size_bytes;
        }
    }
}
