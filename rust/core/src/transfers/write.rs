//! Write policies: the events at which KV is copied one tier down (the rules of `spec/movement_policies.py`).

use super::mover::Mover;
use crate::store::{Answer, LeaseId, MoveId, Store, GPU};

/// The write policy of one edge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WritePolicy {
    /// At eviction, if there is no copy below.
    #[default]
    Back,
    /// As soon as it is ready above.
    Through,
    /// As soon as it is ready above, and the next step waits for the copy.
    ThroughSync,
    /// At the n-th use.
    Selective {
        /// Number of requests that must have used a block.
        uses: u32,
    },
    /// By a plug-in.
    Plugin {
        /// True if it is called when blocks were computed and shared.
        at_commit: bool,
        /// True if the next step waits for the copies issued then.
        delays_step: bool,
    },
}

impl WritePolicy {
    /// Returns the policy of a name; `None` for a policy outside the core.
    pub fn from_name(name: &str, uses: u32) -> Option<Self> {
        match name {
            "back" => Some(Self::Back),
            "through" => Some(Self::Through),
            "through-sync" => Some(Self::ThroughSync),
            "selective" => Some(Self::Selective { uses }),
            _ => None,
        }
    }

    /// Returns true if it acts on blocks that have just been computed above its edge.
    pub fn is_at_commit(self) -> bool {
        matches!(
            self,
            Self::Through
                | Self::ThroughSync
                | Self::Plugin {
                    at_commit: true,
                    ..
                }
        )
    }

    /// Returns true if the next step waits for the copies issued then.
    fn delays_step(self) -> bool {
        matches!(
            self,
            Self::ThroughSync
                | Self::Plugin {
                    delays_step: true,
                    ..
                }
        )
    }
}

impl Mover {
    /// Returns the write policy of the GPU's edge.
    pub fn gpu_policy(&self) -> WritePolicy {
        let policy = self.config.writes.first();
        policy.copied().unwrap_or_default()
    }

    /// Copies down a lease's blocks that were computed and are shared; the next step may wait for them.
    pub fn write_committed(
        &mut self,
        tree: &mut Store,
        lease: LeaseId,
        (start, end): (u32, u32),
        now_ns: u64,
    ) -> Answer<()> {
        let sent = match self.writers.get_mut(GPU) {
            Some(Some(plugin)) => plugin.committed(tree, lease, (start, end), now_ns)?,
            _ => tree.write_through(lease, start, end, now_ns)?,
        };
        if let (true, Some(id)) = (self.gpu_policy().delays_step(), sent) {
            self.delays_step(id);
        }
        Ok(())
    }

    /// Copies down blocks that an admitted request has used often enough, by each edge's policy.
    pub fn write_used(&mut self, tree: &mut Store, lease: LeaseId, now_ns: u64) -> Answer<()> {
        for (upper, policy) in self.config.writes.iter().enumerate() {
            match policy {
                &WritePolicy::Selective { uses } => {
                    tree.write_selected(lease, upper, uses, now_ns)?;
                }
                WritePolicy::Plugin { .. } => {
                    if let Some(Some(plugin)) = self.writers.get_mut(upper) {
                        plugin.used(tree, lease, now_ns)?;
                    }
                }
                WritePolicy::Back | WritePolicy::Through | WritePolicy::ThroughSync => {}
            }
        }
        Ok(())
    }

    /// Copies on the blocks that a move is about to make ready on a lower tier, by the policy of the edge
    /// below.
    pub(super) fn write_arrived(
        &mut self,
        tree: &mut Store,
        (id, tier): (MoveId, usize),
        now_ns: u64,
    ) -> Answer<()> {
        match self.config.writes.get(tier) {
            Some(WritePolicy::Through | WritePolicy::ThroughSync) => {
                tree.write_on(id, now_ns)?;
            }
            Some(WritePolicy::Plugin { .. }) => {
                if let Some(Some(plugin)) = self.writers.get_mut(tier) {
                    plugin.arrived(tree, id, now_ns)?;
                }
            }
            Some(WritePolicy::Back | WritePolicy::Selective { .. }) | None => {}
        }
        Ok(())
    }
}
