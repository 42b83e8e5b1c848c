//! Admission with loads: what lies on lower tiers is planned, protected, and loaded part by part (the rules of
//! `serving/admission.py` and `cache/loader.py`).

use super::fetch::Plan;
use super::loading::Admission;
use super::{Place, Replica};
use crate::store::{Answer, HoldId, LeaseId, MoveId, Part, Room, Store, GPU, NO_MOVE};

/// The tier from which KV is loaded to the GPU.
const STAGING: usize = 1;

impl Replica {
    /// Reserves room for a request of which `found` leading blocks are in the cache, and loads what is not ready;
    /// `None`, without a trace, when room is refused.
    pub(super) fn acquire_with_loads(
        &mut self,
        store: &mut Store,
        place: Place,
        found: u32,
        now_ns: u64,
    ) -> Answer<Option<(LeaseId, Admission)>> {
        let s = &self.requests[place as usize];
        let (request, tokens) = (s.arrival.request, s.prefill_target_tokens());
        let total_blocks = tokens.div_ceil(self.config.block_size_tokens);
        let mut parts = store.match_prefix(request, found);
        let ready = match parts.first() {
            Some(first) if first.tier == GPU && first.by == NO_MOVE => first.end,
            _ => 0,
        };
        let depth = self.planned_depth(&parts, ready, tokens, now_ns);
        parts.retain(|part| part.start < depth);
        for part in &mut parts {
            part.end = part.end.min(depth);
        }
        let mut held: Vec<(usize, HoldId)> = Vec::new();
        for part in parts.iter().filter(|part| part.tier > GPU) {
            held.push((part.tier, store.protect(request, part.end, part.tier)?));
        }
        // Blocks that someone else is loading have their room already.
        let joined = parts.iter().filter(|p| p.tier == GPU && p.by != NO_MOVE);
        let joined: u64 = joined.map(|part| u64::from(part.end - part.start)).sum();
        let lease = store.acquire(request, ready)?;
        let lacking = total_blocks - u64::from(ready) - joined;
        let room = match store.reserve(&[(lease, lacking)], now_ns)? {
            Room::Refused => {
                store.abandon(lease)?;
                release_all(store, held)?;
                return Ok(None);
            }
            Room::Ready => Vec::new(),
            Room::Pending(moves) => moves,
        };
        let mut admission = Admission {
            reused_blocks: ready,
            total_blocks,
            room,
            ..Admission::default()
        };
        admission.from_blocks[GPU] = u64::from(ready);
        for part in parts.iter().filter(|part| part.end > ready) {
            let of = (request, lease);
            let Some(load) = self.load_part(store, of, part, &admission.room, now_ns)? else {
                break; // there is no room to stage it
            };
            admission.loads.push(load);
            admission.from_blocks[part.tier] += u64::from(part.end - part.start);
            admission.reused_blocks = part.end;
        }
        release_all(store, held)?;
        Ok(Some((lease, admission)))
    }

    /// How many leading blocks the fetch policy reuses.
    fn planned_depth(&self, parts: &[Part], ready: u32, tokens: u64, now_ns: u64) -> u32 {
        let Some(mover) = self.mover.as_deref() else {
            return ready;
        };
        let plan = Plan {
            parts,
            ready,
            tokens,
            block_size_tokens: self.config.block_size_tokens,
            now_ns,
            mover,
            table: self.batch.table(),
            budget_tokens: self.batch.budget_tokens(),
        };
        self.config.fetch.reuse(&plan)
    }

    /// Joins or loads one part for a request's lease: (move to the GPU, tier it comes from). `None` when there is
    /// no room to stage it.
    fn load_part(
        &mut self,
        store: &mut Store,
        (request, lease): (u32, LeaseId),
        part: &Part,
        room: &[MoveId],
        now_ns: u64,
    ) -> Answer<Option<(MoveId, usize)>> {
        let Some(mover) = self.mover.as_deref_mut() else {
            return Ok(None);
        };
        let blocks = (part.start, part.end);
        if part.tier == GPU {
            store.join(lease, part.end)?;
            let by = mover.under_way(part.by);
            let source = by.map_or(STAGING, |by| mover.transfer(by).from);
            return Ok(Some((part.by, source)));
        }
        let mut after = room.to_vec();
        let (mut level, mut by) = (part.tier, part.by);
        while level > STAGING {
            let ready = (by != NO_MOVE).then_some(by);
            let copy = store.stage(request, blocks, level - 1, ready, now_ns)?;
            let Some(copy) = copy else { return Ok(None) };
            mover.drop_when_done(copy, request, blocks, (level - 1, level));
            (level, by) = (level - 1, copy);
        }
        if by != NO_MOVE {
            after.push(by);
        }
        let load = store.load(lease, part.end, &after)?;
        mover.drop_when_done(load, request, blocks, (GPU, STAGING));
        Ok(Some((load, part.tier)))
    }
}

fn release_all(store: &mut Store, held: Vec<(usize, HoldId)>) -> Answer<()> {
    for (tier, hold) in held {
        store.unprotect(tier, hold)?;
    }
    Ok(())
}
