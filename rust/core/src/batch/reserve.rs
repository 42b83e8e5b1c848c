//! Capacity for the next iteration: the blocks that decoding needs, reserved all or nothing.

use super::{Batch, Sequence};
use crate::store::contract::BatchStore;
use crate::store::{Answer, LeaseBlocks, LeaseId, Reservation};

/// Blocks that a sequence requests, and its position in the batch.
struct BlockNeed {
    order: u64,
    lease: LeaseId,
    blocks: u64,
}

impl Batch {
    /// Reserves the blocks that decoding sequences lack for the composed step, all or nothing.
    pub(super) fn reserve_blocks<S: BatchStore + ?Sized>(
        &mut self,
        store: &mut S,
        now_ns: u64,
    ) -> Answer<Reservation> {
        if self.config.reserve_by_step {
            return self.reserve_tokens(store, now_ns);
        }
        let block = self.config.block_size_tokens;
        let every = self.config.asks_every_step;
        let lacking = |s: &Sequence| s.lacking_blocks(block);
        let asks = |s: &Sequence| lacking(s) > 0 || (every && s.chunk > 0 && !s.prefilling());
        let next = self.steady.lacking();
        if next.is_empty() && !self.others.iter().any(asks) {
            return Ok(Reservation::Ready);
        }
        let wanted = in_batch_order(
            next.iter().map(|&(member, lease)| BlockNeed {
                order: member.order,
                lease,
                blocks: 1,
            }),
            self.others.iter().filter(|s| asks(s)).map(|s| BlockNeed {
                order: s.order,
                lease: s.lease,
                blocks: lacking(s),
            }),
        );
        let reservation = store.reserve(&wanted, now_ns)?;
        if reservation != Reservation::Refused {
            for (member, _) in next {
                self.steady.get_mut(member).0.blocks += 1;
            }
            for sequence in &mut self.others {
                sequence.blocks += lacking(sequence);
            }
        }
        Ok(reservation)
    }

    /// Reserves capacity for the tokens of the composed step, request by request. Less than the reserved tokens may
    /// have been computed, since drafts can be rejected.
    fn grow_each<S: BatchStore + ?Sized>(
        &mut self,
        store: &mut S,
        now_ns: u64,
    ) -> Answer<Reservation> {
        for s in self.others.iter_mut().filter(|s| s.chunk > 0) {
            let end = s.computed + s.chunk;
            if end > s.blocks {
                if !store.grow_to(s.lease, s.computed, end, now_ns)? {
                    return Ok(Reservation::Refused);
                }
                s.blocks = end;
            }
        }
        Ok(Reservation::Ready)
    }

    /// Reserves capacity for the tokens of the composed step, all or nothing, for stores that count capacity in
    /// tokens.
    fn reserve_tokens<S: BatchStore + ?Sized>(
        &mut self,
        store: &mut S,
        now_ns: u64,
    ) -> Answer<Reservation> {
        if self.config.speculation.is_some() {
            return self.grow_each(store, now_ns);
        }
        let lacking = |s: &Sequence| (s.computed + s.chunk).saturating_sub(s.blocks);
        let asks = self.others.iter().filter(|s| s.chunk > 0);
        let wanted: Vec<LeaseBlocks> = asks
            .map(|s| LeaseBlocks::new(s.lease, lacking(s)))
            .filter(|asked| asked.blocks > 0)
            .collect();
        if wanted.is_empty() {
            return Ok(Reservation::Ready);
        }
        let reservation = store.reserve(&wanted, now_ns)?;
        if reservation != Reservation::Refused {
            for sequence in self.others.iter_mut().filter(|s| s.chunk > 0) {
                sequence.blocks += lacking(sequence);
            }
        }
        Ok(reservation)
    }
}

/// Merges the needs of two groups, each in batch order, to the order of the whole batch.
fn in_batch_order(
    some: impl Iterator<Item = BlockNeed>,
    others: impl Iterator<Item = BlockNeed>,
) -> Vec<LeaseBlocks> {
    let mut wanted: Vec<BlockNeed> = some.chain(others).collect();
    wanted.sort_unstable_by_key(|need| need.order);
    let needs = wanted.into_iter();
    needs
        .map(|need| LeaseBlocks::new(need.lease, need.blocks))
        .collect()
}
