//! Runs that have lost their last copy go, and with them what hangs below: nothing could find it.

use super::node::State;
use super::Store;
use crate::ids::{NodeId, ROOT};

impl Store {
    /// Removes a run that has lost its last copy, and what hangs below it. What a reader or a write pins stays
    /// until it is let go ([`Store::sweep_orphans`]); until then nothing finds it.
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
            if self.nodes[node as usize].pins > 0 {
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

    /// After a hold has ended: discards what was left hanging below a run without copies.
    pub(super) fn sweep_orphans(&mut self, id: NodeId) {
        let mut highest = None;
        let mut at = if self.gone > 0 { id } else { ROOT };
        while at != ROOT {
            if self.is_gone(at) {
                highest = Some(at);
            }
            at = self.nodes[at as usize].parent;
        }
        if let Some(gone) = highest {
            self.discard_if_gone(gone);
        }
    }
}
