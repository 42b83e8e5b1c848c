//! Offers of the prompt blocks that steps have computed, group by group.

use super::presence::key_of;
use super::{GroupTier, Site};
use crate::engines::groups::pool::NULL;
use crate::engines::used_tier::GroupSlot;
use crate::store::STAGING;

impl GroupTier {
    /// Offers the blocks of a prompt that became complete since the last offer; `computed` tokens are computed.
    pub fn offer(&mut self, site: Site<'_>, request: u32, computed: u64) {
        let Some(offered) = self.offered[request as usize].clone() else {
            return;
        };
        let manager = site.manager;
        let align = manager.align();
        let whole = self.prompt_tokens[request as usize] / align * align;
        let computed = computed.min(whole);
        let groups = manager.groups().iter();
        let ends: Vec<u32> = groups.map(|group| group.whole(computed)).collect();
        let (mut blocks, mut keys): (Vec<u32>, Vec<(GroupSlot, u64)>) = (Vec::new(), Vec::new());
        for (number, (&start, &end)) in offered.iter().zip(&ends).enumerate() {
            for at in manager.kept_blocks(request, number, start..end) {
                let block = manager.block_at(request, number, at);
                if block != NULL {
                    blocks.push(block);
                    keys.push(((number, at), key_of(manager, number, request, at)));
                }
            }
        }
        if !keys.is_empty() {
            let Some(stored) = self.tier.offer(request, &keys) else {
                return; // No capacity: the blocks are offered again after the next step.
            };
            site.records
                .evicted_from(STAGING, stored.evicted, site.now_ns);
            let all = blocks.into_iter().zip(keys).zip(stored.is_new);
            let sent: Vec<(u32, (GroupSlot, u64))> = all
                .filter(|&(_, is_new)| is_new)
                .map(|(each, _)| each)
                .collect();
            if !sent.is_empty() {
                let slots: Vec<GroupSlot> = sent.iter().map(|&(_, (slot, _))| slot).collect();
                let keys = sent.iter().map(|&(_, (_, key))| key).collect();
                let id = self.send(keys, sent.iter().map(|&(block, _)| block).collect());
                self.note_counts(id, ends.len(), &slots);
            }
        }
        let further = offered.iter().zip(&ends);
        let further = further.map(|(&before, &end)| before.max(end)).collect();
        self.offered[request as usize] = Some(further).filter(|_| computed < whole);
    }
}
