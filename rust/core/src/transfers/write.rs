//! Write policies: the events at which KV is copied one tier down (the rules of `spec/movement_policies.py`).

use super::plugins::WritePlugin;
use crate::ids::BlockRange;
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

/// The write policies of a machine's edges, by the edge's upper tier.
#[derive(Debug, Default)]
pub struct Writes {
    pub(super) policies: Vec<WritePolicy>,
    /// Plug-ins that decide under [`WritePolicy::Plugin`].
    pub plugins: Vec<Option<Box<dyn WritePlugin>>>,
}

impl Writes {
    /// Creates the policies of edges without plug-ins.
    pub(super) fn new(policies: Vec<WritePolicy>) -> Self {
        let plugins = Vec::new();
        Self { policies, plugins }
    }

    /// Returns the write policy of the GPU's edge.
    pub fn gpu_policy(&self) -> WritePolicy {
        self.policies.first().copied().unwrap_or_default()
    }

    /// Copies down a lease's blocks that were computed and are shared. Returns the move that the next step
    /// waits for, if any.
    pub(super) fn write_committed(
        &mut self,
        tree: &mut Store,
        lease: LeaseId,
        blocks: BlockRange,
        now_ns: u64,
    ) -> Answer<Option<MoveId>> {
        let sent = match self.plugins.get_mut(GPU) {
            Some(Some(plugin)) => plugin.committed(tree, lease, blocks, now_ns)?,
            _ => tree.write_through(lease, blocks.start, blocks.end, now_ns)?,
        };
        Ok(sent.filter(|_| self.gpu_policy().delays_step()))
    }

    /// Copies down blocks that an admitted request has used often enough, by each edge's policy.
    pub fn write_used(&mut self, tree: &mut Store, lease: LeaseId, now_ns: u64) -> Answer<()> {
        for (upper, policy) in self.policies.iter().enumerate() {
            match policy {
                &WritePolicy::Selective { uses } => {
                    tree.write_selected(lease, upper, uses, now_ns)?;
                }
                WritePolicy::Plugin { .. } => {
                    if let Some(Some(plugin)) = self.plugins.get_mut(upper) {
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
        id: MoveId,
        tier: usize,
        now_ns: u64,
    ) -> Answer<()> {
        match self.policies.get(tier) {
            Some(WritePolicy::Through | WritePolicy::ThroughSync) => {
                tree.write_on(id, now_ns)?;
            }
            Some(WritePolicy::Plugin { .. }) => {
                if let Some(Some(plugin)) = self.plugins.get_mut(tier) {
                    plugin.arrived(tree, id, now_ns)?;
                }
            }
            Some(WritePolicy::Back | WritePolicy::Selective { .. }) | None => {}
        }
        Ok(())
    }
}
