//! Writes of machines into a shared pool: a put is a read by the pool (the rules of `spec/remote.py`).

use super::channel::SharedChannel;
use super::feed::Feed;
use super::handles::TransferId;
use super::mover::Mover;
use super::peers::Now;
use super::remote_read::{Read, Source};
use crate::ids::BlockRange;
use crate::store::{Answer, Store, GPU, NO_MOVE, STAGING};
use crate::tiers::Route;

impl Mover {
    /// Returns the prefixes (request, end block) that a transfer has written down from the GPU and that the
    /// pool takes; none without a pool.
    pub(super) fn paths_written(&self, store: &Store, id: TransferId) -> Answer<Vec<(u32, u32)>> {
        let transfer = self.transfer(id);
        if self.config.pool.is_none() || transfer.from != GPU {
            return Ok(Vec::new());
        }
        store.moved_paths(transfer.id)
    }

    /// Puts the first `end` blocks of a request into the pool, as far as they are missing there and ready
    /// here.
    pub(super) fn put(&mut self, now: &mut Now<'_>, request: u32, end: u32) -> Answer<()> {
        let (Some(pool), Some(peers)) = (self.config.pool, now.peers.as_deref_mut()) else {
            return Ok(());
        };
        let mut start = 0;
        peers.look(pool, &mut |_, theirs| start = theirs.peek(request, end).0);
        let Some(tree) = now.store.tiered() else {
            return Ok(());
        };
        let mut reached = start;
        for part in tree.match_below(request, start, end) {
            if part.tier != STAGING || part.by != NO_MOVE || part.start != reached {
                break;
            }
            reached = part.end;
        }
        let blocks = BlockRange::new(start, reached);
        if blocks.is_empty() || !reserve_in_pool(now, pool, request, blocks)? {
            return Ok(());
        }
        let Some(tree) = now.store.tiered() else {
            return Ok(());
        };
        let lent = tree.lend(request, reached, STAGING)?;
        self.traffic.tiers[STAGING].read += u64::from(blocks.len()) * self.config.block_bytes;
        let source = Source {
            owner: self.config.machine,
            tier: STAGING,
            lent,
            by: NO_MOVE,
        };
        let Some(peers) = now.peers.as_deref_mut() else {
            return Ok(());
        };
        let wire = peers.wire(self.config.machine, pool)?;
        peers.take_in(pool, source, &wire, now.ns)
    }

    /// Sends the blocks reserved here, ready on another machine, as soon as their target blocks are free.
    pub(crate) fn take_in(
        &mut self,
        store: &mut Store,
        source: Source,
        wire: &SharedChannel,
        now_ns: u64,
    ) -> Answer<()> {
        for order in store.take_orders() {
            let route = Route::new(self.config.remote, order.to);
            let id = self.begin(order.id, route, order.blocks);
            self.transfers[id].read = Some(Read::over(wire.clone(), source, Feed::AtHand));
            self.in_flight.insert(order.id, id);
            for before in self.all_in_flight(&order.after) {
                self.wait_for(id, before);
            }
            self.launch(&mut Now::alone(store, now_ns), id)?;
        }
        Ok(())
    }
}

/// Reserves blocks of a pool for blocks of a request; false if there are too few.
fn reserve_in_pool(now: &mut Now<'_>, pool: u32, request: u32, blocks: BlockRange) -> Answer<bool> {
    match now.peers.as_deref_mut() {
        Some(peers) => peers.reserve_in_pool(pool, request, blocks, now.ns),
        None => Ok(false),
    }
}
