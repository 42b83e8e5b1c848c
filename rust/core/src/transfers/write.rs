//! When KV is copied one tier down (the rules of `spec/movement_policies.py`).

use super::mover::Mover;
use crate::store::{Answer, LeaseId, MoveId, Store, GPU};

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
    /// What a plug-in says.
    Plugin {
        /// Whether it is called when blocks were computed and shared.
        at_commit: bool,
        /// Whether the next step waits for what it then sent.
        delays_step: bool,
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

    /// Whether it acts on what has just been computed above its edge.
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

    /// Whether the next step waits for what is then copied.
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
    /// The write policy of the GPU's edge.
    pub fn gpu_policy(&self) -> WritePolicy {
        let policy = self.config.writes.first();
        policy.copied().unwrap_or_default()
    }

    /// Copies down blocks of a lease that were computed and are shared now; the next step may wait for them.
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

    /// Copies down what a request that was admitted has used often enough, where an edge's policy says so.
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

    /// Copies on what a move is about to make ready on a lower tier, where the policy of the edge below says so.
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
