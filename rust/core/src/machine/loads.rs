//! Admission with loads: blocks on lower tiers are planned, protected, and loaded part by part (the rules of
//! `spec/admission.py` and `spec/mover.py`).

use super::admitted::{Admission, HeldPart, PartLoad, Rest};
use super::fetch::{FetchPlan, FetchPolicy, PlanFacts};
use super::messages::{PartOn, RequestLease};
use super::remote_run::RemoteRun;
use super::staging::{is_staged, stage_up, StagedCopy};
use super::{Now, Replica, Slot};
use crate::convert::fit;
use crate::store::contract::{BlockStore, LoadingStore};
use crate::store::{Answer, LeaseId, MoveId, Part, GPU, NO_MOVE, STAGING};
use crate::transfers::TierCopy;

/// A found run: parts of this machine, then parts of another one.
struct FoundParts<'a> {
    parts: &'a [Part],
    /// Number of the parts of this machine.
    here: usize,
    away: Option<&'a RemoteRun>,
}

impl Replica {
    /// Reserves blocks for a request and loads the part of its prefix that is not ready. The first `found` blocks are
    /// in the cache, and further ones may be on another machine. Returns `None`, and changes nothing, if blocks are
    /// refused.
    pub(super) fn acquire_with_loads(
        &mut self,
        now: &mut Now<'_>,
        slot: Slot,
        found: u32,
        away: Option<RemoteRun>,
    ) -> Answer<Option<(LeaseId, Admission)>> {
        let s = &self.requests[slot];
        let (request, tokens) = (s.arrival.request, s.prefill_target_tokens());
        let total_blocks = tokens.div_ceil(self.config.block_size_tokens);
        let mut parts = if found > 0 {
            loading(now.store).match_prefix(request, found)
        } else {
            Vec::new()
        };
        let here = parts.len();
        let (away, remote) = (away.as_ref(), self.config.remote());
        let far = away.iter().flat_map(|run| &run.parts);
        parts.extend(far.map(|part| Part {
            tier: remote,
            ..*part
        }));
        let ready = match parts.first() {
            Some(first) if first.tier == GPU && first.by == NO_MOVE => first.end,
            _ => 0,
        };
        let depth = self.planned_depth(now, &parts, away, ready, tokens)?;
        parts.retain(|part| part.start < depth);
        for part in &mut parts {
            part.end = part.end.min(depth);
        }
        let mut held: Vec<HeldPart> = Vec::new();
        for part in parts.iter().take(here).filter(|part| part.end > ready) {
            let hold = loading(now.store).protect(request, part.end, part.tier)?;
            held.push(HeldPart {
                end: part.end,
                tier: part.tier,
                hold,
            });
        }
        // Blocks that another request is loading are reserved already, as are those computed behind them.
        let joined = parts.iter().filter(|p| p.tier == GPU && p.end > ready);
        let joined: u64 = joined.map(|part| u64::from(part.end - part.start)).sum();
        let lacking = total_blocks - u64::from(ready) - joined;
        let Some((lease, freeing_moves)) = now.reserve_lease(request, ready, lacking)? else {
            release_all(loading(now.store), held)?;
            return Ok(None);
        };
        let mut admission = Admission::of(ready, total_blocks, freeing_moves);
        let of = RequestLease { request, lease };
        let parts = FoundParts {
            parts: &parts,
            here,
            away,
        };
        self.load_parts(now, of, &parts, &mut admission)?;
        // what is not waited for must not keep space from what is
        let end = admission.rest.as_ref().map_or(0, |rest| rest.end);
        let (held, over) = held
            .into_iter()
            .partition(|part: &HeldPart| part.end <= end);
        release_all(loading(now.store), over)?;
        if let Some(rest) = &mut admission.rest {
            rest.held = held;
        }
        self.load_rest(now, request, &mut admission)?;
        Ok(Some((lease, admission)))
    }

    /// Loads the parts of a run that are not ready, in order.
    /// If there are no free blocks to stage a part, the rest of the run on this machine waits for them; else, and for
    /// parts of another machine, the run ends there.
    fn load_parts(
        &mut self,
        now: &mut Now<'_>,
        of: RequestLease,
        found: &FoundParts<'_>,
        admission: &mut Admission,
    ) -> Answer<()> {
        let FoundParts { parts, here, away } = *found;
        let ready = admission.reused_blocks;
        for (n, part) in parts
            .iter()
            .enumerate()
            .filter(|(_, part)| part.end > ready)
        {
            let source = away.filter(|_| n >= here);
            let load = if let Some(run) = source {
                let tier = run.parts[n - here].tier;
                let there = PartOn {
                    owner: run.owner,
                    part: Part { tier, ..*part },
                };
                self.load_from(now, of, there, &admission.freeing_moves)?
            } else {
                self.load_part(now, of, part, &admission.freeing_moves)?
            };
            let Some(load) = load else {
                let buffers = self.mover.config().read_buffer_layers;
                let tree = now
                    .store
                    .tiered()
                    .filter(|_| source.is_none() && buffers.is_none());
                if tree.is_some_and(|tree| tree.loads_wait()) {
                    self.rest_waits(of.lease, &parts[n..here.min(parts.len())], admission);
                }
                break;
            };
            admission.loads.push(load);
            let blocks = u64::from(part.end - part.start);
            admission.from_blocks[part.tier] += blocks;
            let pool = self.config.movement.reads.and_then(|reads| reads.pool);
            if source.is_some_and(|run| Some(run.owner) == pool) {
                admission.pool_blocks += blocks;
            }
            admission.reused_blocks = part.end;
        }
        Ok(())
    }

    /// The run found on this machine, for a prompt of `tokens` of which `ready` blocks are on the GPU.
    fn plan(&self, parts: Vec<Part>, ready: u32, tokens: u64, now_ns: u64) -> FetchPlan {
        let config = self.mover.config();
        let facts = PlanFacts {
            remote: self.config.remote(),
            ready,
            tokens,
            block_size_tokens: self.config.block_size_tokens,
            now_ns,
            budget_tokens: self.batch.budget_tokens(),
            block_bytes: config.block_bytes,
            layers: config.layers,
            layer_pipelining: config.layer_pipelining,
        };
        FetchPlan {
            facts,
            parts,
            away: Vec::new(),
            wire: None,
            edges: self.mover.edges().to_vec(),
            forms: config.forms.clone(),
            table: self.batch.table().clone(),
        }
    }

    /// Estimated time to load and compute a prompt of `tokens` here: its uncached tokens, and the blocks that the fetch
    /// policy reuses (all under a plug-in, which is not called), over the channels and their queues. `parts`: the
    /// blocks found here, of which `ready` are on the GPU.
    pub fn prefill_time_ns(&self, parts: Vec<Part>, ready: u32, tokens: u64, now_ns: u64) -> u64 {
        let plan = self.plan(parts, ready, tokens, now_ns);
        plan.done_ns(self.config.movement.fetch.reuse(&plan).max(ready))
    }

    /// Leaves parts of this machine for when there is space to load them, fast to slow.
    fn rest_waits(&self, lease: LeaseId, parts: &[Part], admission: &mut Admission) {
        let mut slowest = GPU;
        for part in parts
            .iter()
            .take_while(|part| part.tier >= std::mem::replace(&mut slowest, part.tier))
        {
            admission.from_blocks[part.tier] += u64::from(part.end - part.start);
            admission.reused_blocks = part.end;
        }
        admission.rest = Some(Rest {
            lease,
            end: admission.reused_blocks,
            held: Vec::new(),
        });
    }

    /// Loads more of the blocks that wait for space: from the front, as many as the tiers above can store now.
    ///
    /// No two requests wait for each other. A request waits only for tiers faster than the one that it reads next,
    /// and holds blocks only on that tier and slower ones. So none of them holds what the one that reads the fastest
    /// tier waits for; all else there ends by itself.
    pub(super) fn load_rest(
        &mut self,
        now: &mut Now<'_>,
        request: u32,
        admission: &mut Admission,
    ) -> Answer<()> {
        let Some(rest) = admission.rest.take() else {
            return Ok(());
        };
        let freeing = admission.freeing_moves.iter().copied();
        let freeing: Vec<MoveId> = freeing
            .filter(|&id| now.store.tiered().is_some_and(|tree| tree.is_moving(id)))
            .collect();
        let mut start = now.store.depth(rest.lease)?;
        for found in loading(now.store).match_prefix(request, rest.end) {
            let mut part = found;
            part.start = part.start.max(start);
            for level in STAGING..part.tier {
                let space = now.store.occupancy(level)?;
                let end = u64::from(part.start) + space.free + space.cached;
                part.end = fit::<u32>(u64::from(part.end).min(end));
            }
            if part.start >= part.end {
                if found.end <= start {
                    continue;
                }
                break;
            }
            let load = self.load_part(
                now,
                RequestLease {
                    request,
                    lease: rest.lease,
                },
                &part,
                &freeing,
            )?;
            let Some(load) = load else { break };
            admission.loads.push(load);
            start = part.end;
            if part.end < found.end {
                break;
            }
        }
        let (held, over) = rest
            .held
            .into_iter()
            .partition(|part: &HeldPart| start < part.end);
        if start < rest.end {
            admission.rest = Some(Rest { held, ..rest });
        }
        release_all(loading(now.store), over)
    }

    /// Number of leading blocks that the fetch policy reuses; `away`: the run on another machine.
    fn planned_depth(
        &mut self,
        now: &mut Now<'_>,
        parts: &[Part],
        away: Option<&RemoteRun>,
        ready: u32,
        tokens: u64,
    ) -> Answer<u32> {
        let (number, policy) = (self.machine(), self.config.movement.fetch);
        let estimates = matches!(
            policy,
            FetchPolicy::Cheaper | FetchPolicy::Split | FetchPolicy::Plugin
        );
        let wire = match (away.filter(|_| estimates), now.peers.as_deref_mut()) {
            (Some(run), Some(peers)) => Some(peers.wire(run.owner, number)?),
            _ => None,
        };
        let away = away.iter().flat_map(|run| {
            let tiers = run.parts.iter().map(|part| part.tier);
            tiers.map(|tier| (run.owner, tier))
        });
        let away = away.collect();
        let plan = FetchPlan {
            away,
            wire,
            ..self.plan(parts.to_vec(), ready, tokens, now.ns)
        };
        match &mut self.plugins.fetch {
            Some(plugin) => plugin.reuse(plan),
            None => Ok(policy.reuse(&plan)),
        }
    }

    /// Joins or loads one part for a request's lease; returns its move to the GPU. Returns `None`
    /// if there are no free blocks to stage it.
    pub(super) fn load_part(
        &mut self,
        now: &mut Now<'_>,
        of: RequestLease,
        part: &Part,
        freeing_moves: &[MoveId],
    ) -> Answer<Option<PartLoad>> {
        let RequestLease { request, lease } = of;
        let mover = &mut self.mover;
        let copy_on = |tier| TierCopy {
            request,
            blocks: part.blocks(),
            tier,
        };
        if part.tier == GPU {
            loading(now.store).join(lease, part.end)?;
            let by = mover.in_flight(part.by);
            let source = by.map_or(STAGING, |by| mover.transfer(by).from);
            return Ok(Some(PartLoad {
                id: part.by,
                source,
            }));
        }
        let mut after = freeing_moves.to_vec();
        let mut by = part.by;
        // an engine's own tiers stage what is loaded
        if let (true, Some(tree)) = (part.tier > STAGING, now.store.tiered()) {
            let copies = stage_up(tree, request, part, now.ns)?;
            for &StagedCopy { from, id } in &copies {
                mover.drop_on_complete(id, copy_on(from));
                by = id;
            }
            if !is_staged(&copies) {
                return Ok(None);
            }
        }
        if by != NO_MOVE {
            after.push(by);
        }
        let load = loading(now.store).load(lease, part.end, &after)?;
        mover.drop_on_complete(load, copy_on(STAGING));
        Ok(Some(PartLoad {
            id: load,
            source: part.tier,
        }))
    }

    /// Reads one part from another machine, and loads it from the tier that received it, as [`Replica::load_part`].
    fn load_from(
        &mut self,
        now: &mut Now<'_>,
        of: RequestLease,
        there: PartOn,
        freeing_moves: &[MoveId],
    ) -> Answer<Option<PartLoad>> {
        let part = there.part;
        let landed = self.fetch_from(now, of.request, there)?;
        let Some(landed) = landed else {
            return Ok(None);
        };
        let after = [freeing_moves, &[landed]].concat();
        let load = loading(now.store).load(of.lease, part.end, &after)?;
        let copy = TierCopy {
            request: of.request,
            blocks: part.blocks(),
            tier: STAGING,
        };
        self.mover.drop_on_complete(load, copy);
        Ok(Some(PartLoad {
            id: load,
            source: self.config.remote(),
        }))
    }
}

/// The store of a request with loads.
fn loading(store: &mut dyn BlockStore) -> &mut dyn LoadingStore {
    store
        .loading()
        .expect("all blocks of a single tier are ready")
}

fn release_all(store: &mut dyn LoadingStore, held: Vec<HeldPart>) -> Answer<()> {
    for HeldPart { tier, hold, .. } in held {
        store.unprotect(tier, hold)?;
    }
    Ok(())
}
