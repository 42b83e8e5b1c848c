//! Reads from other machines: the choice of the machine with the longest continuation, and the transfer of its KV
//! (the rules of `spec/remote.py`). Reads are always copies, to the staging tier of this machine. The source is
//! pinned until it has been read.

use super::messages::PartOn;
use super::remote_run::RemoteRun;
use super::staging::{is_staged, stage_up};
use super::{Now, Replica};
use crate::ids::BlockRange;
use crate::store::{Answer, MoveId, Part, Store, STAGING};
use crate::tiers::Route;
use crate::transfers::{Brought, Came, Lent, Source};

impl Replica {
    /// The longest run from the first of these blocks on that one other machine has below its GPU, if this machine reads
    /// others. Ties: the earlier estimated arrival, then the lower machine number.
    pub(super) fn longest_elsewhere(
        &self,
        now: &mut Now<'_>,
        request: u32,
        blocks: BlockRange,
    ) -> Answer<Option<RemoteRun>> {
        let reads = self
            .config
            .movement
            .reads
            .filter(|_| blocks.start < blocks.end);
        let (Some(peers), Some(reads)) = (now.peers.as_deref_mut(), reads) else {
            return Ok(None);
        };
        let mut longest: Vec<RemoteRun> = Vec::new();
        let others = 0..peers.machines();
        for owner in others.filter(|&owner| owner != self.machine() && reads.reads(owner)) {
            peers.look(owner, &mut |_, theirs| {
                let parts = theirs.match_below(request, blocks.start, blocks.end);
                let run = RemoteRun { owner, parts };
                let reach = longest.first().map_or(0, RemoteRun::end);
                if run.end() > reach {
                    longest.clear();
                }
                if run.end() > 0 && run.end() >= reach {
                    longest.push(run);
                }
            });
        }
        if longest.len() < 2 {
            return Ok(longest.pop());
        }
        let mut best: Option<(u64, RemoteRun)> = None;
        for run in longest {
            let estimate_ns = self.read_estimate_ns(now, &run)?;
            if best
                .as_ref()
                .is_none_or(|(least_ns, _)| estimate_ns < *least_ns)
            {
                best = Some((estimate_ns, run));
            }
        }
        Ok(best.map(|(_, run)| run))
    }

    /// Estimated time until a run has been received, by the channels' queues now.
    fn read_estimate_ns(&self, now: &mut Now<'_>, run: &RemoteRun) -> Answer<u64> {
        let Some(peers) = now.peers.as_deref_mut() else {
            return Ok(0);
        };
        let wire = peers.wire(run.owner, self.machine())?;
        let first = run.parts.first().map_or(0, |part| part.start);
        let mover = &self.mover;
        let read = Route::new(self.config.remote(), STAGING);
        let blocks = u64::from(run.end() - first);
        let mut total_ns = mover.estimate_ns(&wire, read, blocks, now.ns);
        peers.look(run.owner, &mut |theirs, _| {
            for level in STAGING + 1..theirs.tiers() {
                let below = run.parts.iter().filter(|part| part.tier >= level);
                let below: u64 = below.map(|part| u64::from(part.end - part.start)).sum();
                if below > 0 {
                    let channel = theirs.edge(level).up.assigned();
                    let up = Route::up_from(level);
                    total_ns = total_ns.max(mover.estimate_ns(channel, up, below, now.ns));
                }
            }
        });
        Ok(total_ns)
    }

    /// Reads one part of a run of another machine, by its tier there. Returns the move that receives it here, or
    /// `None` if that is refused.
    pub(super) fn fetch_from(
        &mut self,
        now: &mut Now<'_>,
        request: u32,
        PartOn { owner, part }: PartOn,
    ) -> Answer<Option<MoveId>> {
        let Some(staged) = self.config.movement.reads.map(|reads| reads.staged) else {
            return Ok(None);
        };
        if let Some(peers) = now.peers.as_deref_mut().filter(|_| staged) {
            let mut is_there = false;
            peers.look(owner, &mut |_, theirs| {
                is_there = theirs.match_below(request, part.start, part.end) == [part];
            });
            if !is_there {
                return Ok(None); // staging an earlier part has evicted this one there
            }
        }
        let Some(here) = now.store.tiered() else {
            return Ok(None);
        };
        let Some(landed) = here.receive(request, part.blocks(), now.ns)? else {
            return Ok(None);
        };
        let source = match now.peers.as_deref_mut() {
            Some(peers) => peers.lend(owner, request, part, staged, now.ns)?,
            None => None,
        };
        if let Some(source) = source {
            self.mover.reads(landed, source);
        }
        Ok(Some(landed))
    }

    // -- requests of other machines to this one

    /// Lends a part to another machine: it is pinned until it has been read. `staged`: it is first copied up to the
    /// tier that the network reads, if that tier has free blocks.
    pub(super) fn lend(
        &mut self,
        store: &mut Store,
        request: u32,
        part: Part,
        staged: bool,
        now_ns: u64,
    ) -> Answer<Source> {
        self.catch_up(&mut Now::alone(store, now_ns), now_ns)?;
        let (mut tier, mut by) = (part.tier, part.by);
        if staged && tier > STAGING {
            let copies = stage_up(store, request, &part, now_ns)?;
            self.issue(&mut Now::alone(store, now_ns), None)?;
            if let Some(copy) = copies.last().filter(|_| is_staged(&copies)) {
                (tier, by) = (STAGING, copy.id);
            }
        }
        let lent = store.lend(request, part.end, tier)?;
        self.was_read(store, request, part.blocks())?;
        Ok(Source {
            owner: self.machine(),
            tier,
            lent,
            by,
        })
    }

    /// Moves lent blocks to the tier that the network reads.
    pub(super) fn bring(&mut self, now: &mut Now<'_>, lent: &Lent) -> Answer<Brought> {
        let brought = self.mover.bring(now, lent)?;
        self.log_transfers();
        Ok(brought)
    }

    /// Handles an arrival on another machine that one of this machine's transfers waits for.
    pub(super) fn came_elsewhere(&mut self, now: &mut Now<'_>, came: &Came) -> Answer<()> {
        self.catch_up(now, now.ns)?;
        self.mover.came(now, came)?;
        self.log_transfers();
        Ok(())
    }

    /// Unpins lent blocks after they have been read.
    pub(super) fn lent_is_read(
        &mut self,
        store: &mut Store,
        lent: MoveId,
        now_ns: u64,
    ) -> Answer<()> {
        self.catch_up(&mut Now::alone(store, now_ns), now_ns)?;
        store.finish_move(lent)?;
        self.resume(&mut Now::alone(store, now_ns), now_ns)
    }
}
