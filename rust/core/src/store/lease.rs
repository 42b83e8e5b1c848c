//! A lease: the GPU blocks of one admitted request, from admission to finish or preemption.

use super::node::State;
use super::orders::Release;
use super::ready::Times;
use super::shared_prefixes::limited;
use super::{Answer, Store, StoreError, Touch, GPU};
use crate::ids::{LeaseId, NodeId, NONE, ROOT};
use crate::views::{EntryId, NO_ENTRY};

/// A held path, and private blocks reserved for blocks to compute or load.
#[derive(Clone, Debug, Default)]
pub struct Lease {
    /// The request that holds the lease.
    pub request: u32,
    /// Last held run of the request's path.
    pub(super) tail: NodeId,
    /// Blocks held through the trie.
    pub depth: u32,
    /// Private blocks: reserved, not shared.
    pub reserved: u64,
    /// Reserved blocks that are not free yet.
    pub pending: u64,
    /// Reserved blocks that a move is loading.
    pub(super) loading: u64,
    /// Access counter at the admission: the recency of committed blocks until the release.
    pub(super) access: u64,
    /// True once the admission is final and counted ([`Store::admitted`]).
    pub(super) admitted: bool,
    pub(super) live: bool,
    /// Leading blocks that were found rather than computed.
    pub(super) found: u32,
    /// The longest prefix that it holds, if shared prefixes have a size limit.
    pub(super) prefix: EntryId,
}

/// Provenance of computed blocks: the request, its admission, and the ready times.
#[derive(Clone, Copy)]
struct Computed {
    request: u32,
    access: u64,
    ready: Times,
}

impl Store {
    /// Holds the first `depth` blocks of a request's path, all of which must have a GPU copy.
    pub fn acquire(&mut self, request: u32, depth: u32) -> Answer<LeaseId> {
        let tail = self.node_at(request, depth)?;
        self.on_tier(tail, GPU)?;
        self.hold(GPU, tail);
        self.count_use(tail, 1);
        let prefix = match limited(&mut self.shared) {
            Some(prefixes) => prefixes.hold_longest(&self.keys, request, depth),
            None => NO_ENTRY,
        };
        let lease = Lease {
            access: self.next_access(),
            prefix,
            request,
            tail,
            depth,
            live: true,
            found: depth,
            ..Lease::default()
        };
        Ok(self.leases.insert(lease))
    }

    /// Returns a lease; a released lease is refused.
    pub fn lease(&self, id: LeaseId) -> Answer<&Lease> {
        let lease = self.leases.get(id).filter(|lease| lease.live);
        lease.ok_or(StoreError::NoSuchLease)
    }

    /// Turns the lease's computed blocks up to `to` into cached, shareable ones (active → cached).
    ///
    /// If another request already has the block on the GPU, the lease's block is freed and the other one is
    /// held instead. Nothing happens if the lease holds `to` blocks already. `ready`: when they had been
    /// computed.
    pub fn commit(&mut self, id: LeaseId, to: u32, ready: Times) -> Answer<()> {
        let Lease {
            request,
            mut tail,
            mut depth,
            access,
            reserved,
            pending,
            loading,
            ..
        } = *self.lease(id)?;
        if u64::from(to.saturating_sub(depth)) > reserved - pending.max(loading) {
            return Err(StoreError::NotReserved);
        }
        if ready.first_layer_ns > ready.ready_ns {
            return Err(StoreError::LastLayerFirst);
        }
        self.clock.now_ns = self.clock.now_ns.max(ready.ready_ns);
        let by = Computed {
            request,
            access,
            ready,
        };
        while depth < to {
            let taken = match self
                .trie
                .children
                .get(&(tail, self.keys.key(request, depth)))
                .copied()
            {
                Some(child) => {
                    tail = self.commit_into(child, by, depth, to);
                    self.trie.nodes[tail as usize].blocks()
                }
                None => {
                    tail = self.commit_new(tail, by, depth, to);
                    to - depth
                }
            };
            depth += taken;
            self.leases[id].reserved -= u64::from(taken);
        }
        let lease = &mut self.leases[id];
        (lease.tail, lease.depth) = (tail, depth);
        if let Some(prefixes) = limited(&mut self.shared) {
            let (prefix, _) = prefixes.enter(&self.keys, request, lease.prefix, depth);
            lease.prefix = prefix;
        }
        Ok(())
    }

    /// Commits the matching part of an existing run; returns that part.
    fn commit_into(&mut self, child: NodeId, by: Computed, depth: u32, to: u32) -> NodeId {
        let node = &self.trie.nodes[child as usize];
        let same = self
            .keys
            .common(node.owner, by.request, depth, node.end.min(to));
        let run = if depth + same < node.end {
            self.split(child, depth + same)
        } else {
            child
        };
        let blocks = u64::from(same);
        self.hold_one(run, by.access); // before it is ready: it must not be evicted
        self.tiers[GPU].active -= blocks;
        if self.copy(run, GPU).state == State::Absent {
            self.tiers[GPU].cached += blocks;
            self.copy_mut(run, GPU).access = by.access;
            self.ready_at(run, GPU, by.ready);
        } else {
            self.tiers[GPU].free += blocks;
            self.merged_blocks += blocks;
        }
        run
    }

    /// Adds blocks that no other request has: to the lease's own last run if that stays uniform, else as a
    /// new run.
    fn commit_new(&mut self, tail: NodeId, by: Computed, depth: u32, to: u32) -> NodeId {
        let blocks = u64::from(to - depth);
        self.tiers[GPU].active -= blocks;
        self.tiers[GPU].cached += blocks;
        if self.single_blocks() {
            return (depth..to).fold(tail, |above, block| {
                self.add_run(above, by, block, block + 1)
            });
        }
        let (own, gpu) = (&self.trie.nodes[tail as usize], self.copy(tail, GPU));
        if tail != ROOT
            && own.owner == by.request
            && own.pins == 1
            && own.uses == 1
            && gpu.holds == 1
            && gpu.access == by.access
            && gpu.state == State::Ready
            && self.only_on(tail, GPU)
            && own.first_child == NONE
        {
            self.grow(tail, to, by.ready);
            self.refresh(tail);
            return tail;
        }
        self.add_run(tail, by, depth, to)
    }

    fn add_run(&mut self, above: NodeId, by: Computed, start: u32, end: u32) -> NodeId {
        let run = self.link(above, by.request, start, end);
        self.copy_mut(run, GPU).access = by.access;
        self.hold_one(run, by.access);
        self.ready_at(run, GPU, by.ready);
        run
    }

    /// Extends the hold of the lease admitted at `access` by one run; the runs before it are held already.
    pub(super) fn hold_one(&mut self, run: NodeId, access: u64) {
        self.used(run, access);
        self.copy_mut(run, GPU).holds += 1;
        self.trie.nodes[run as usize].pins += 1;
        self.trie.nodes[run as usize].uses += 1;
        self.refresh(run);
    }

    /// Ends a lease: private blocks become free. The path is released deepest first and, if a release touches
    /// ([`Touch`]), made recent on every tier.
    pub fn release(&mut self, id: LeaseId, now_ns: u64) -> Answer<()> {
        if self.lease(id)?.loading > 0 {
            return Err(StoreError::Loading);
        }
        self.notify_time(now_ns);
        let Lease {
            request,
            found,
            prefix,
            tail,
            reserved,
            pending,
            ..
        } = self.leases[id];
        let all = self.keys.full_blocks(request);
        let release = Release {
            found_blocks: found,
            computed_blocks: all.saturating_sub(found),
        };
        self.next_access();
        if let Some(prefixes) = limited(&mut self.shared) {
            prefixes.end_use(prefix);
        }
        self.each_run(tail, 0, |store, run| {
            store.copy_mut(run, GPU).holds -= 1;
            store.trie.nodes[run as usize].pins -= 1;
            if store.rules.touch == Touch::Release {
                store.renew(run);
            }
            store.released(run, release);
            store.refresh(run);
        });
        self.join_path(tail);
        let now_free = reserved - pending;
        self.tiers[GPU].active -= now_free;
        self.tiers[GPU].free += now_free;
        if pending == 0 {
            self.leases.remove(id);
            return Ok(());
        }
        let lease = &mut self.leases[id];
        (lease.live, lease.reserved) = (false, pending);
        Ok(())
    }

    fn count_use(&mut self, tail: NodeId, times: i32) {
        self.each_run(tail, 0, |store, run| {
            let uses = &mut store.trie.nodes[run as usize].uses;
            *uses = uses.wrapping_add_signed(times);
        });
    }

    /// Reverts an admission completely, recency included. The lease must have no reserved blocks.
    pub fn abandon(&mut self, id: LeaseId) -> Answer<()> {
        let Lease {
            tail,
            reserved,
            prefix,
            ..
        } = *self.lease(id)?;
        if reserved > 0 {
            return Err(StoreError::Reserved);
        }
        if let Some(prefixes) = limited(&mut self.shared) {
            prefixes.end_hold(prefix);
        }
        self.unhold(GPU, tail);
        self.count_use(tail, -1);
        self.leases.remove(id);
        Ok(())
    }
}
