//! Offers of the prompt blocks that steps have computed: under vLLM's rules each state alone, then the blocks of the
//! other groups together.

use std::collections::BTreeSet;
use std::ops::Range;

use super::presence::key_of;
use super::to_offer::{GroupSlot, Held, ToOffer};
use super::{GroupTier, GroupWrites, Site};
use crate::engines::groups::manager::GroupManager;
use crate::engines::groups::pool::{Given, NULL};
use crate::engines::groups::Kind;
use crate::engines::used_tier::SlotKey;
use crate::store::{NO_MOVE, STAGING};

impl GroupTier {
    /// Offers the blocks of a prompt that became complete since the last offer, and those of a refused offer;
    /// `computed` tokens are computed.
    pub fn offer(&mut self, site: Site<'_>, request: u32, computed: u64) {
        let Some(ToOffer {
            mut starts,
            refused,
            begun,
        }) = self.to_offer[request as usize].take()
        else {
            return;
        };
        let Site {
            manager,
            records,
            now_ns,
        } = site;
        let per = self.chunks.blocks;
        let align = manager.align() * u64::from(per);
        let prompt = self.prompt_tokens[request as usize];
        let (whole, so_far) = (prompt / align * align, computed.min(prompt));
        let computed = so_far / align * align;
        let is_engine = self.writes == GroupWrites::Engine;
        let mut together = refused;
        if !is_engine {
            for held in &mut together {
                held.block = manager.block_at(request, held.slot.group, held.slot.block);
            }
            together.retain(|held| held.block != NULL);
        }
        let (mut evicted, mut now_begun) = (0, Vec::new());
        for (number, start) in starts.iter_mut().enumerate() {
            let group = &manager.groups()[number];
            let end = group.whole(computed).max(*start);
            let blocks = *start..end;
            *start = end;
            if is_engine && group.kind == Kind::Linear {
                // A state that is refused is not offered again.
                for one in states(manager, request, number, blocks, per) {
                    evicted += self.give(manager, request, &[one]).unwrap_or(0);
                }
            } else {
                let block = |at| match manager.block_at(request, number, at) {
                    NULL => {
                        let slot = GroupSlot::new(number, at);
                        let had = begun.iter().find(|held| held.slot == slot);
                        had.map_or(NULL, |held| held.block)
                    }
                    block => block,
                };
                let of = Table {
                    manager,
                    request,
                    number,
                    block: &block,
                };
                of.chunks(blocks, per, &mut together);
                now_begun.extend(of.blocks(end..group.whole(so_far)));
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
        }
        if together.is_empty() && now_begun.is_empty() {
            self.watched.remove(&request);
        } else {
            self.watched.insert(request);
        }
        self.to_offer[request as usize] = match stored.is_some() && computed == whole {
            true => None,
            false => Some(ToOffer {
                starts,
                refused: together,
                begun: now_begun,
            }),
        };
    }

    /// Removes blocks that were allocated again from what is still to be offered, and the chunks that need them.
    pub(super) fn reallocated(&mut self, given: &[Given]) {
        for &request in &self.watched {
            if let Some(to_offer) = &mut self.to_offer[request as usize] {
                let per = self.chunks.blocks;
                let chunk = |held: &Held| (held.slot.group, held.slot.block / per);
                let is_taken = |held: &Held| given.iter().any(|taken| taken.block == held.block);
                let refused = &mut to_offer.refused;
                let lost = refused
                    .iter()
                    .filter(|held| held.is_needed && is_taken(held));
                let lost: BTreeSet<(usize, u32)> = lost.map(chunk).collect();
                refused.retain(|held| !is_taken(held) && !lost.contains(&chunk(held)));
                to_offer.begun.retain(|held| !is_taken(held));
            }
        }
    }

    /// Offers blocks and copies those that are new in the tier. Returns the number of evictions, `None` if refused.
    pub(super) fn give(
        &mut self,
        manager: &GroupManager,
        request: u32,
        blocks: &[Held],
    ) -> Option<u64> {
        let mut chunks: Vec<GroupSlot> = blocks
            .iter()
            .map(|held| self.chunk_end(held.slot))
            .collect();
        chunks.dedup();
        let key = |&slot: &GroupSlot| self.chunk_key(manager, request, slot);
        let slotted = chunks.iter().map(|slot| SlotKey {
            slot: self.slot(manager, *slot),
            key: key(slot),
        });
        let slotted: Vec<SlotKey> = slotted.collect();
        let is_ready = |chunk| self.copies.written_by(chunk) == NO_MOVE;
        let stored = self.tier.offer(request, &slotted, &is_ready)?;
        self.chunks.forget(&stored.evicted, |_| false);
        let new = chunks.into_iter().zip(stored.is_new);
        let new: BTreeSet<GroupSlot> = new
            .filter(|&(_, is_new)| is_new)
            .map(|(chunk, _)| chunk)
            .collect();
        let sent = blocks
            .iter()
            .filter(|held| new.contains(&self.chunk_end(held.slot)));
        let sent: Vec<Held> = sent.copied().collect();
        if !sent.is_empty() {
            for &chunk in &new {
                self.note_blocks(manager, request, chunk);
            }
            let slots: Vec<GroupSlot> = sent.iter().map(|held| held.slot).collect();
            let keys = self.keys_at(manager, request, &slots);
            let id = self.send(keys, sent.iter().map(|held| held.block).collect());
            self.note_counts(id, manager.groups().len(), &slots);
        }
        Some(stored.evicted.len() as u64 * u64::from(self.chunks.blocks))
    }

    /// Remembers the keys of a chunk's blocks, of which the last one is given.
    fn note_blocks(&mut self, manager: &GroupManager, request: u32, slot: GroupSlot) {
        let GroupSlot { group, block: last } = slot;
        let blocks = last + 1 - self.chunks.blocks..=last;
        let key = |block| key_of(manager, group, request, block);
        let chunk = key(last);
        self.chunks
            .has_blocks(chunk, || blocks.clone().map(key).collect());
    }
}

/// Blocks of a request in a group by position, `NULL` for those that are not there.
#[derive(Clone, Copy)]
pub(super) struct Table<'a> {
    pub manager: &'a GroupManager,
    pub request: u32,
    pub number: usize,
    pub block: &'a dyn Fn(u32) -> u32,
}

impl<'a> Table<'a> {
    /// Returns the blocks of a range of positions that are there.
    fn blocks(self, of: Range<u32>) -> impl Iterator<Item = Held> + use<'a> {
        let blocks = of.map(move |at| Held {
            slot: GroupSlot::new(self.number, at),
            block: (self.block)(at),
            is_needed: false,
        });
        blocks.filter(|held| held.block != NULL)
    }

    /// Adds the blocks of chunks of `per` blocks, of which any block is kept. A chunk without its last block, or without
    /// a block that is kept, is not offered.
    pub(super) fn chunks(self, of: Range<u32>, per: u32, offered: &mut Vec<Held>) {
        let align = self.manager.align() * u64::from(per);
        let kept = self
            .manager
            .kept_blocks(self.request, self.number, of, align);
        for kept in kept.chunk_by(|a, b| a / per == b / per) {
            let start = kept[0] / per * per;
            let needs = |at: u32| at + 1 == start + per || kept.binary_search(&at).is_ok();
            let needed = (start..start + per).filter(|&at| needs(at)).count();
            let before = offered.len();
            offered.extend(self.blocks(start..start + per).map(|held| Held {
                is_needed: needs(held.slot.block),
                ..held
            }));
            let there = offered[before..].iter().filter(|held| held.is_needed);
            if there.count() < needed {
                offered.truncate(before);
            }
        }
    }
}

/// Returns the states of a range of positions that are kept at the ends of chunks of `per` blocks.
fn states(
    manager: &GroupManager,
    request: u32,
    number: usize,
    of: Range<u32>,
    per: u32,
) -> Vec<Held> {
    let kept = manager
        .kept_blocks(request, number, of, manager.align())
        .into_iter();
    let states = kept.filter(|at| (at + 1) % per == 0).map(|at| Held {
        slot: GroupSlot::new(number, at),
        block: manager.block_at(request, number, at),
        is_needed: true,
    });
    states.filter(|held| held.block != NULL).collect()
}
