//! Orphans: runs without any copy are discarded with all runs below them, which no look-up could find.

use super::node::State;
use super::Store;
use crate::ids::{NodeId, ROOT};

impl Store {
    /// Removes a run that has lost its last copy, and all runs below it. A run pinned by a reader or a write
    /// stays until the pin is released ([`Store::sweep_orphans`]); no look-up finds it meanwhile.
    pub(super) fn discard_if_gone(&mut self, id: NodeId) {
        if !self.is_gone(id) {
            return;
        }
        let mut order = vec![id];
        let mut next = 0;
        while next < order.len() {
            order.extend(self.children_of(order[next]));
            next += 1;
        }
        for &node in order.iter().rev() {
            if self.trie.nodes[node as usize].pins > 0 {
                continue;
            }
            for tier in 0..self.tiers.len() {
                if self.copy(node, tier).state == State::Ready {
                    let blocks = self.vacate(node, tier);
                    self.tiers[tier].orphaned += blocks;
                }
            }
            self.unlink(node);
        }
    }

    /// Discards the runs left below a run without copies, after a hold on it was released.
    pub(super) fn sweep_orphans(&mut self, id: NodeId) {
        let mut highest = None;
        let mut at = if self.trie.gone > 0 { id } else { ROOT };
        while at != ROOT {
            if self.is_gone(at) {
                highest = Some(at);
            }
            at = self.trie.nodes[at as usize].parent;
        }
        if let Some(gone) = highest {
            self.discard_if_gone(gone);
        }
    }
}
