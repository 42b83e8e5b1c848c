//! The invariants of a store (design: I2, I3, I4, I7), recomputed from scratch.

use super::node::State;
use super::{Store, Times, GPU};
use crate::convert::fit;
use crate::ids::{NodeId, NONE, ROOT};
use crate::views::NO_ENTRY;

/// Returns a violation with this text if a condition is met.
macro_rules! violated {
    ($condition:expr, $($words:tt)*) => {
        if $condition {
            return Err(format!($($words)*));
        }
    };
}

/// The text of a broken invariant.
pub type Violation = String;

impl Store {
    /// Checks every invariant; the first violation is the error. Cost: linear in runs, leases and moves.
    pub fn check(&self) -> Result<(), Violation> {
        let live = self.live_nodes();
        self.check_occupancy(&live)?;
        self.check_holds(&live)?;
        self.check_backlogs(&live)?;
        self.check_index_entries()?;
        let gone = live.iter().filter(|&&id| self.is_gone(id)).count();
        violated!(
            gone != self.trie.gone,
            "I4: {gone} runs have no copy, counted {}",
            self.trie.gone
        );
        for &id in &live {
            self.check_node(id)?;
        }
        let leases = self.leases.iter().filter(|(_, lease)| lease.live);
        let held = leases.map(|(_, lease)| lease.prefix);
        let held: Vec<_> = held.filter(|&prefix| prefix != NO_ENTRY).collect();
        match self.shared.as_deref() {
            Some(shared) => shared.prefixes.check(&held, &held),
            None => Ok(()),
        }
    }

    pub(super) fn live_nodes(&self) -> Vec<NodeId> {
        let mut stack = vec![ROOT];
        let mut live = Vec::new();
        while let Some(id) = stack.pop() {
            for child in self.children_of(id) {
                live.push(child);
                stack.push(child);
            }
        }
        live
    }

    fn check_occupancy(&self, live: &[NodeId]) -> Result<(), Violation> {
        for (t, tier) in self.tiers.iter().enumerate() {
            let used = tier.free + tier.active + tier.cached + tier.in_flight;
            violated!(
                used != tier.capacity,
                "I2: tier {t} accounts for {used} of {} blocks",
                tier.capacity
            );
            let ready = |id: &&NodeId| self.copy(**id, t).state == State::Ready;
            let sum = |ids: &mut dyn Iterator<Item = &NodeId>| -> u64 {
                ids.map(|&id| u64::from(self.trie.nodes[id as usize].blocks()))
                    .sum()
            };
            let cached = sum(&mut live.iter().filter(ready));
            violated!(
                cached != tier.cached,
                "I2: tier {t} caches {cached} blocks, counted {}",
                tier.cached
            );
            let evictable: u64 = live
                .iter()
                .map(|&id| u64::from(self.copy(id, t).evictable))
                .sum();
            violated!(
                evictable != tier.evictable,
                "I2: tier {t} can evict {evictable} blocks, counted {}",
                tier.evictable
            );
        }
        self.check_reservations()?;
        self.check_in_flight()
    }

    /// Checks that tiers and moves count what leases reserve, wait for and load.
    fn check_reservations(&self) -> Result<(), Violation> {
        let leases = || self.leases.iter().map(|(_, lease)| lease);
        let moves = || self.moves.iter().map(|(_, mv)| mv);
        let active: u64 = leases()
            .filter(|l| l.live)
            .map(|l| l.reserved - l.pending)
            .sum();
        violated!(
            active != self.tiers[GPU].active,
            "I2: leases reserve {active} blocks, counted {}",
            self.tiers[GPU].active
        );
        let pending: u64 = leases().map(|l| l.pending).sum();
        let awaited: u64 = moves().flat_map(|m| &m.waiting).map(|w| w.blocks).sum();
        violated!(
            pending != awaited,
            "I2: {pending} gpu blocks pending, {awaited} awaited"
        );
        for (id, lease) in self.leases.iter() {
            let own = moves().filter(|m| m.lease == Some(id)).map(|m| m.blocks);
            let loading: u64 = own.sum();
            violated!(
                loading != lease.loading || loading.max(lease.pending) > lease.reserved,
                "I2: a lease loads {loading} blocks and waits for {}, counted {} of {}",
                lease.pending,
                lease.loading,
                lease.reserved
            );
        }
        Ok(())
    }

    /// Checks that the blocks in flight on a tier are those that moves write to it or free on it.
    fn check_in_flight(&self) -> Result<(), Violation> {
        let moves = || self.moves.iter().map(|(_, mv)| mv);
        let waits = || moves().flat_map(|m| &m.waiting);
        for (t, tier) in self.tiers.iter().enumerate() {
            let landing = moves()
                .filter(|m| m.to == t && m.lease.is_none())
                .map(|m| m.blocks);
            let leaving = waits().filter(|_| t == GPU).map(|w| w.blocks);
            let coming = tier.coming.iter();
            let coming = coming.filter(|pending| self.moves.get(pending.id).is_some());
            let leaving = leaving.chain(coming.map(|pending| pending.blocks));
            let in_flight: u64 = landing.chain(leaving).sum();
            violated!(
                in_flight != tier.in_flight,
                "I2: tier {t} has {in_flight} blocks in flight, counted {}",
                tier.in_flight
            );
        }
        Ok(())
    }

    fn check_holds(&self, live: &[NodeId]) -> Result<(), Violation> {
        let mut holds = vec![vec![0u32; self.tiers.len()]; self.trie.nodes.len()];
        let mut pins = vec![0u32; self.trie.nodes.len()]; // of backlogs alone
        let mut walk = |tier: usize, mut at: NodeId| {
            while at != ROOT && at != NONE {
                holds[at as usize][tier] += 1;
                at = self.trie.nodes[at as usize].parent;
            }
        };
        for (_, lease) in self.leases.iter().filter(|(_, lease)| lease.live) {
            walk(GPU, lease.tail);
        }
        for (_, hold) in self.holds.iter() {
            walk(hold.tier, hold.tail);
        }
        for (_, mv) in self.moves.iter() {
            for part in &mv.parts {
                walk(mv.to, part.tail);
            }
            for &tail in &mv.sources {
                walk(mv.from, tail);
            }
        }
        let backlogs = self.tiers.iter().flat_map(|tier| &tier.backlogs);
        for part in backlogs.flat_map(|backlog| &backlog.parts) {
            for run in self.path(part.tail, 0) {
                pins[run as usize] += 1;
            }
        }
        for &id in live {
            let node = &self.trie.nodes[id as usize];
            for (t, &expected) in holds[id as usize].iter().enumerate() {
                let counted = self.copy(id, t).holds;
                violated!(
                    counted != expected,
                    "I3: run {id} has {} holds on tier {t}, {expected} holders",
                    counted
                );
            }
            violated!(
                node.pins != pins[id as usize] + holds[id as usize].iter().sum::<u32>(),
                "I3: run {id} has {} pins",
                node.pins
            );
        }
        Ok(())
    }

    /// Checks that what waits for a tier is its backlogs, each block once.
    fn check_backlogs(&self, live: &[NodeId]) -> Result<(), Violation> {
        for (t, tier) in self.tiers.iter().enumerate() {
            let blocks = |&id: &NodeId| u64::from(self.trie.nodes[id as usize].blocks());
            let waits = |&&id: &&NodeId| self.copy(id, t).state == State::Waiting;
            let waiting: u64 = live.iter().filter(waits).map(blocks).sum();
            let mut listed = 0;
            for backlog in &tier.backlogs {
                let parts = backlog.parts.iter();
                let runs = parts.flat_map(|part| self.path(part.tail, part.start));
                let own = runs.filter(|&id| self.copy(id, t).by == backlog.id);
                listed += own
                    .filter(|id| waits(&id))
                    .map(|id| blocks(&id))
                    .sum::<u64>();
            }
            let counted: u64 = tier.backlogs.iter().map(|backlog| backlog.blocks).sum();
            violated!(
                waiting != counted || listed != counted,
                "I2: {counted} blocks wait for tier {t}, marked {waiting}, listed {listed}"
            );
        }
        Ok(())
    }

    fn check_node(&self, id: NodeId) -> Result<(), Violation> {
        let node = &self.trie.nodes[id as usize];
        violated!(node.start >= node.end, "run {id} is empty");
        let parent = &self.trie.nodes[node.parent as usize];
        violated!(
            parent.end != node.start && node.parent != ROOT
                || node.parent == ROOT && node.start != 0,
            "run {id} does not follow its parent"
        );
        violated!(
            self.trie
                .children
                .get(&(node.parent, self.keys.key(node.owner, node.start)))
                != Some(&id),
            "run {id} is not found by its key"
        );
        violated!(
            self.is_gone(id) && node.pins == 0,
            "I4: run {id} has no copy and no holder"
        );
        violated!(
            node.parent != ROOT
                && self.copy(id, GPU).state != State::Absent
                && self.copy(node.parent, GPU).state == State::Absent,
            "I4: run {id} is on the gpu, its parent is not"
        );
        for (t, copy) in self.copies_of(id).iter().enumerate() {
            self.check_times(id, t)?;
            let in_flight = matches!(copy.state, State::InFlight | State::Waiting);
            violated!(
                in_flight && self.moves.get(copy.by).is_none_or(|m| m.to != t),
                "I7: run {id} is in flight to tier {t} without a move"
            );
            let resident = |&child: &NodeId| self.copy(child, t).state.is_resident();
            let children = fit::<u32>(self.children_of(id).filter(resident).count());
            violated!(
                children != copy.children,
                "run {id} counts {} children on tier {t}, has {children}",
                copy.children
            );
            let bound = t + 1 == self.tiers.len() && node.pins > 0 && self.only_on(id, t);
            let idle = copy.state == State::Ready && copy.holds == 0 && !bound;
            let (access, end) = copy.listed;
            let slot = (access, u32::MAX - end, id);
            let listed = end > 0 && self.tiers[t].candidates.contains(&slot);
            let right = !listed || copy.listed == (copy.access, node.end);
            violated!(
                !right || listed != (idle && children == 0),
                "I3: run {id} is wrongly listed for eviction on tier {t}"
            );
        }
        Ok(())
    }

    /// I7: nothing is ready before its time, and a first layer no later than the whole.
    fn check_times(&self, id: NodeId, tier: usize) -> Result<(), Violation> {
        let (node, copy) = (&self.trie.nodes[id as usize], self.copy(id, tier));
        let time_spans = &self.time_spans_of(id)[tier];
        let ends: Vec<u32> = time_spans.iter().map(|s| s.end).collect();
        let inside = |end: &u32| node.start < *end && *end < node.end;
        violated!(
            !ends.iter().all(inside) || !ends.windows(2).all(|pair| pair[0] < pair[1]),
            "run {id} has stretches that end at {ends:?}"
        );
        let times = match copy.state {
            State::Absent => return Ok(()),
            State::InFlight | State::Waiting => vec![self.moves[copy.by].times],
            State::Ready => {
                let time_spans = time_spans.iter().map(|s| s.times);
                time_spans.chain([copy.times]).collect()
            }
        };
        let ready = copy.state == State::Ready;
        for time in times {
            let wrong = if ready {
                time.ready_ns > self.clock.now_ns
            } else {
                time != Times::UNKNOWN && time.ready_ns < self.clock.now_ns
            };
            violated!(
                wrong || time.first_layer_ns > time.ready_ns,
                "I7: run {id} on tier {tier} is {:?} with {time:?} at {}",
                copy.state,
                self.clock.now_ns
            );
        }
        violated!(
            copy.access > self.clock.access,
            "run {id} on tier {tier} is used in the future"
        );
        Ok(())
    }
}
