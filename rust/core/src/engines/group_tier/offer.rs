//! Offers of the prompt blocks that steps have computed: under vLLM's rules each state alone, then the blocks of the
//! other groups together.

use std::ops::Range;

use super::presence::key_of;
use super::{GroupSlot, GroupTier, GroupWrites, Site};
use crate::engines::groups::manager::GroupManager;
use crate::engines::groups::pool::{Given, NULL};
use crate::engines::groups::Kind;
use crate::store::STAGING;

/// A block of the pool with its position in a prompt.
type Held = (GroupSlot, u32);

/// Prompt blocks of a running request that are still to be offered.
#[derive(Debug, Clone)]
pub(super) struct ToOffer {
    /// For each group, the first block that was not offered yet.
    starts: Vec<u32>,
    /// Blocks of a refused offer. Under vLLM's rules a block that has left a window stays among them until it is
    /// allocated again.
    refused: Vec<Held>,
}

impl From<Vec<u32>> for ToOffer {
    /// All blocks of each group from a first one on.
    fn from(starts: Vec<u32>) -> Self {
        Self {
            starts,
            refused: Vec::new(),
        }
    }
}

impl GroupTier {
    /// Offers the blocks of a prompt that became complete since the last offer, and those of a refused offer;
    /// `computed` tokens are computed.
    pub fn offer(&mut self, site: Site<'_>, request: u32, computed: u64) {
        let Some(ToOffer {
            mut starts,
            refused,
        }) = self.to_offer[request as usize].take()
        else {
            return;
        };
        let Site {
            manager,
            records,
            now_ns,
        } = site;
        let align = manager.align();
        let whole = self.prompt_tokens[request as usize] / align * align;
        let computed = computed.min(whole);
        let is_engine = self.writes == GroupWrites::Engine;
        let mut together = refused;
        if !is_engine {
            for ((group, at), block) in &mut together {
                *block = manager.block_at(request, *group, *at);
            }
            together.retain(|&(_, block)| block != NULL);
        }
        let mut evicted = 0;
        for (number, start) in starts.iter_mut().enumerate() {
            let group = &manager.groups()[number];
            let end = group.whole(computed).max(*start);
            let blocks = held(manager, request, number, *start..end);
            *start = end;
            if is_engine && group.kind == Kind::Linear {
                // A state that is refused is not offered again.
                for one in blocks {
                    evicted += self.give(manager, request, &[one]).unwrap_or(0);
                }
            } else {
                together.extend(blocks);
            }
        }
        together.sort_unstable();
        let stored = match together.is_empty() {
            true => Some(0),
            false => self.give(manager, request, &together),
        };
        evicted += stored.unwrap_or(0);
        records.evicted_from(STAGING, evicted, now_ns);
        if stored.is_some() {
            together.clear();
            self.refused.remove(&request);
        } else {
            self.refused.insert(request);
        }
        self.to_offer[request as usize] = match stored.is_some() && computed == whole {
            true => None,
            false => Some(ToOffer {
                starts,
                refused: together,
            }),
        };
    }

    /// Removes blocks that were allocated again from refused offers.
    pub(super) fn reallocated(&mut self, given: &[Given]) {
        for &request in &self.refused {
            if let Some(to_offer) = &mut self.to_offer[request as usize] {
                let is_taken = |block| given.iter().any(|&(taken, _)| taken == block);
                to_offer.refused.retain(|&(_, block)| !is_taken(block));
            }
        }
    }

    /// Offers blocks and copies those that are new in the tier. Returns the number of evictions, `None` if refused.
    fn give(&mut self, manager: &GroupManager, request: u32, blocks: &[Held]) -> Option<u64> {
        let key = |&((group, block), _): &Held| key_of(manager, group, request, block);
        let slotted = blocks
            .iter()
            .map(|held| (self.slot(manager, held.0), key(held)));
        let slotted: Vec<(u32, u64)> = slotted.collect();
        let stored = self.tier.offer(request, &slotted)?;
        let sent = blocks
            .iter()
            .zip(&stored.is_new)
            .filter(|(_, &is_new)| is_new);
        let sent: Vec<Held> = sent.map(|(&held, _)| held).collect();
        if !sent.is_empty() {
            let slots: Vec<GroupSlot> = sent.iter().map(|held| held.0).collect();
            let keys = sent.iter().map(key).collect();
            let id = self.send(keys, sent.iter().map(|held| held.1).collect());
            self.note_counts(id, manager.groups().len(), &slots);
        }
        Some(stored.evicted)
    }
}

/// Returns the blocks of a range of a group's positions that are kept and that the request holds.
fn held(manager: &GroupManager, request: u32, number: usize, of: Range<u32>) -> Vec<Held> {
    let kept = manager.kept_blocks(request, number, of).into_iter();
    let blocks = kept.map(|at| ((number, at), manager.block_at(request, number, at)));
    blocks.filter(|held| held.1 != NULL).collect()
}
