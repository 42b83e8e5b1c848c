//! The trie: walking along a request's keys, splitting, linking and unlinking runs.

use std::iter::successors;

use super::node::{Copy, Node, Run, State};
use super::part::{add_part, Part};
use super::{Answer, Store, StoreError, GPU};
use crate::convert::fit;
use crate::ids::{BlockRange, MoveId, NodeId, NONE, NO_MOVE, ROOT};

impl Store {
    /// Returns the parts of a request's found leading blocks, at most `limit`, each on its fastest tier.
    /// Changes nothing.
    pub fn match_prefix(&self, request: u32, limit: u32) -> Vec<Part> {
        let mut parts: Vec<Part> = Vec::new();
        self.walk(request, limit, |run, start, end| {
            if let Some(tier) = run.fastest() {
                let blocks = BlockRange::new(start, end);
                add_part(&mut parts, Part::of(tier, run.copies[tier].by, blocks));
            }
        });
        parts
    }

    /// Returns how many leading blocks are found anywhere, and how many of them are ready on the GPU. Changes
    /// nothing.
    pub fn peek(&self, request: u32, limit: u32) -> (u32, u32) {
        let (mut found, mut ready) = (0, 0);
        self.walk(request, limit, |run, start, end| {
            if ready == start && run.copies[GPU].state == State::Ready {
                ready = end;
            }
            found = end;
        });
        (found, ready)
    }

    /// Returns the found leading blocks in runs: (past the last block, holders, access on the fastest tier). They end
    /// at a prefix that the size limit of shared prefixes has evicted.
    pub fn uses(&self, request: u32, limit: u32) -> Vec<(u32, u32, u64)> {
        let mut runs = Vec::new();
        let limit = match self.shared.as_deref() {
            Some(shared) => shared.prefixes.within_limit(&self.keys, request, limit),
            None => limit,
        };
        self.walk(request, limit, |run, _, end| {
            if let Some(tier) = run.fastest() {
                runs.push((end, run.node.pins, run.copies[tier].access));
            }
        });
        runs
    }

    pub(super) fn walk(&self, request: u32, limit: u32, mut visit: impl FnMut(Run<'_>, u32, u32)) {
        if self.known_request(request).is_err() {
            return; // it has no blocks
        }
        self.descend(request, limit, |run, start, end| {
            // a run without a copy is kept only for a reader's pin below it
            let is_found = run.fastest().is_some();
            if is_found {
                visit(run, start, end);
            }
            is_found
        });
    }

    /// Visits the runs of a request's first `limit` blocks, with copies or without, until `passes` returns
    /// false. Each run comes with its first block and one past its last block that is the request's.
    pub(super) fn descend(
        &self,
        request: u32,
        limit: u32,
        mut passes: impl FnMut(Run<'_>, u32, u32) -> bool,
    ) {
        let (mut at, mut block) = (ROOT, 0);
        while block < limit {
            let Some(&child) = self.trie.children.get(&(at, self.keys.key(request, block))) else {
                return;
            };
            let Node { owner, end, .. } = self.trie.nodes[child as usize];
            let same = self.keys.common(owner, request, block, end.min(limit));
            if !passes(self.run(child), block, block + same) || block + same < end {
                return;
            }
            (at, block) = (child, end);
        }
    }

    /// Returns the node whose last block is block `depth − 1` of the request's path, splitting its run if
    /// needed. `NotFound` if the path is not in the trie that far.
    pub(super) fn node_at(&mut self, request: u32, depth: u32) -> Answer<NodeId> {
        self.known_request(request)?;
        let (mut at, mut block) = (ROOT, 0);
        while block < depth {
            let key = self.keys.key(request, block);
            let child = *self
                .trie
                .children
                .get(&(at, key))
                .ok_or(StoreError::NotFound)?;
            let Node { owner, end, .. } = self.trie.nodes[child as usize];
            let to = end.min(depth);
            if self.keys.common(owner, request, block, to) < to - block {
                return Err(StoreError::NotFound);
            }
            at = if end > depth {
                self.split(child, depth)
            } else {
                child
            };
            block = to;
        }
        Ok(at)
    }

    /// Returns the last run of blocks of a request's path, after splitting runs at both ends.
    pub(super) fn part(&mut self, request: u32, blocks: BlockRange) -> Answer<NodeId> {
        let BlockRange { start, end } = blocks;
        if start >= end {
            return Err(StoreError::NoBlocks);
        }
        let tail = self.node_at(request, end)?;
        if start > 0 {
            self.node_at(request, start)?;
        }
        Ok(tail)
    }

    /// Returns the runs of a path part, from its last run up to the run that starts at block `start`.
    pub(super) fn path(&self, tail: NodeId, start: u32) -> impl Iterator<Item = NodeId> + '_ {
        let within = move |run: NodeId| {
            (run != ROOT && self.trie.nodes[run as usize].start >= start).then_some(run)
        };
        successors(within(tail), move |&run| {
            within(self.trie.nodes[run as usize].parent)
        })
    }

    /// Returns the runs that follow a run.
    pub(super) fn children_of(&self, id: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        let some = |child: NodeId| (child != NONE).then_some(child);
        let first = some(self.trie.nodes[id as usize].first_child);
        successors(first, move |&child| {
            some(self.trie.nodes[child as usize].next)
        })
    }

    /// Returns the runs of a path part in a vector, for callers that change the trie meanwhile.
    pub(super) fn runs_from(&self, tail: NodeId, start: u32) -> Vec<NodeId> {
        self.path(tail, start).collect()
    }

    /// Calls `act` on each run of a path part, deepest first; `act` must not change the path above.
    pub(super) fn each_run(
        &mut self,
        tail: NodeId,
        start: u32,
        mut act: impl FnMut(&mut Self, NodeId),
    ) {
        let mut next = self.path(tail, start).next();
        while let Some(run) = next {
            act(self, run);
            next = self
                .path(self.trie.nodes[run as usize].parent, start)
                .next();
        }
    }

    /// Refuses a run without a copy on a tier; the root needs none.
    pub(super) fn on_tier(&self, run: NodeId, tier: usize) -> Answer<()> {
        if run == ROOT || self.copy(run, tier).state != State::Absent {
            return Ok(());
        }
        Err(StoreError::NotOnTier)
    }

    /// Cuts a run before block `at`; returns the new upper part. The lower part keeps its id.
    pub(super) fn split(&mut self, id: NodeId, at: u32) -> NodeId {
        let lower = &self.trie.nodes[id as usize];
        debug_assert!(lower.start < at && at < lower.end);
        let (parent, owner) = (lower.parent, lower.owner);
        let first_key = self.keys.key(owner, lower.start);
        let upper = Node {
            end: at,
            first_child: id,
            ..*lower
        };
        let (previous, next) = (upper.previous, upper.next);
        self.trie.gone += usize::from(self.is_gone(id));
        let upper_id = self.push_node(upper);
        for tier in 0..self.tiers.len() {
            let copy = *self.copy(id, tier);
            *self.copy_mut(upper_id, tier) = Copy {
                children: u32::from(copy.state.is_resident()),
                evictable: 0,
                listed: (0, 0),
                ..copy
            };
            let (after, times) = self.cut_time_spans(id, tier, at);
            let before = std::mem::replace(self.time_spans_mut(id, tier), after);
            *self.time_spans_mut(upper_id, tier) = before;
            self.copy_mut(upper_id, tier).times = times;
        }
        self.stands_between(parent, upper_id, previous, next);
        self.trie.children.insert((parent, first_key), upper_id);
        let lower = &mut self.trie.nodes[id as usize];
        lower.start = at;
        lower.parent = upper_id;
        (lower.next, lower.previous) = (NONE, NONE);
        self.trie
            .children
            .insert((upper_id, self.keys.key(owner, at)), id);
        self.refresh(id);
        self.refresh(upper_id);
        upper_id
    }

    /// Inserts a run between two siblings below `parent`.
    pub(super) fn stands_between(
        &mut self,
        parent: NodeId,
        id: NodeId,
        previous: NodeId,
        next: NodeId,
    ) {
        if previous == NONE {
            self.trie.nodes[parent as usize].first_child = id;
        } else {
            self.trie.nodes[previous as usize].next = id;
        }
        if next != NONE {
            self.trie.nodes[next as usize].previous = id;
        }
        let node = &mut self.trie.nodes[id as usize];
        (node.parent, node.previous, node.next) = (parent, previous, next);
    }

    /// Adds a run below `parent`.
    pub(super) fn link(&mut self, parent: NodeId, owner: u32, start: u32, end: u32) -> NodeId {
        let id = self.push_node(Node::new(parent, owner, start, end));
        self.trie.gone += 1; // until it has a copy
        let next = self.trie.nodes[parent as usize].first_child;
        self.stands_between(parent, id, NONE, next);
        self.trie
            .children
            .insert((parent, self.keys.key(owner, start)), id);
        self.number_block(id);
        id
    }

    /// Adds blocks below `parent` in one run, or block by block if runs are single blocks; returns the last
    /// run.
    pub(super) fn link_path(&mut self, parent: NodeId, owner: u32, start: u32, end: u32) -> NodeId {
        if !self.single_blocks() {
            return self.link(parent, owner, start, end);
        }
        (start..end).fold(parent, |above, block| {
            self.link(above, owner, block, block + 1)
        })
    }

    /// Removes a run without children and copies from the trie.
    pub(super) fn unlink(&mut self, id: NodeId) {
        let node = &self.trie.nodes[id as usize];
        debug_assert!(node.first_child == NONE && node.pins == 0 && self.is_gone(id));
        let (parent, previous, next) = (node.parent, node.previous, node.next);
        self.trie
            .children
            .remove(&(parent, self.keys.key(node.owner, node.start)));
        if previous == NONE {
            self.trie.nodes[parent as usize].first_child = next;
        } else {
            self.trie.nodes[previous as usize].next = next;
        }
        if next != NONE {
            self.trie.nodes[next as usize].previous = previous;
        }
        self.free(id);
        self.trie.gone -= 1;
    }

    /// Frees a record's slot. An empty run marks a free slot.
    pub(super) fn free(&mut self, id: NodeId) {
        let node = &mut self.trie.nodes[id as usize];
        (node.start, node.end) = (0, 0);
        self.trie.free_nodes.push(id);
    }

    fn push_node(&mut self, node: Node) -> NodeId {
        if let Some(id) = self.trie.free_nodes.pop() {
            self.trie.nodes[id as usize] = node;
            self.copies_mut(id).fill(Copy::default());
            return id;
        }
        self.trie.nodes.push(node);
        let copies = self.trie.nodes.len() * self.tiers.len();
        self.trie.copies.resize(copies, Copy::default());
        self.trie.time_spans.resize(copies, Vec::new());
        fit::<NodeId>(self.trie.nodes.len() - 1)
    }

    /// Sets the state of a run's copy on a tier; the caller accounts for its blocks.
    pub(super) fn set_state(&mut self, id: NodeId, tier: usize, state: State, by: MoveId) {
        let was_found = self.run(id).fastest().is_some();
        let copy = self.copy_mut(id, tier);
        let before = std::mem::replace(&mut copy.state, state);
        copy.by = by;
        let Node { start, end, .. } = self.trie.nodes[id as usize];
        let blocks = BlockRange::new(start, end);
        if (before == State::Ready) != (state == State::Ready) {
            self.log_change(id, tier, state == State::Ready, blocks);
        }
        let parent = self.trie.nodes[id as usize].parent;
        if before.is_resident() != state.is_resident() {
            let children = &mut self.copy_mut(parent, tier).children;
            let by = if state.is_resident() { 1 } else { -1 };
            *children = children.wrapping_add_signed(by);
            self.refresh_on(parent, tier);
        }
        if (before == State::Absent) != (state == State::Absent) {
            if state == State::Absent {
                *self.time_spans_mut(id, tier) = Vec::new();
                self.left(id, tier);
                self.trie.gone += usize::from(self.is_gone(id));
            } else if self.only_on(id, tier) {
                self.trie.gone -= 1;
            }
        }
        let is_found = self.run(id).fastest().is_some();
        if is_found != was_found {
            self.notify(id, blocks, is_found);
        }
        self.refresh_on(id, tier);
        self.refresh_last(id, tier);
        if state != State::InFlight {
            self.loosen(id);
        }
    }

    /// Removes the ready copy of a run from a tier and frees its blocks. Returns their number.
    pub(super) fn vacate(&mut self, id: NodeId, tier: usize) -> u64 {
        let blocks = u64::from(self.trie.nodes[id as usize].blocks());
        self.set_state(id, tier, State::Absent, NO_MOVE);
        self.tiers[tier].cached -= blocks;
        self.tiers[tier].free += blocks;
        blocks
    }

    /// Logs, if logging is on, that blocks of a run arrived on a tier, first to last, or left it, last to
    /// first.
    pub(super) fn log_change(&mut self, id: NodeId, tier: usize, stored: bool, blocks: BlockRange) {
        if !self.records.logs_changes() {
            return;
        }
        let BlockRange { start, end } = blocks;
        let owner = self.trie.nodes[id as usize].owner;
        for at in start..end {
            let block = if stored { at } else { start + end - 1 - at };
            let key = self.keys.key(owner, block);
            self.records.changed(tier, stored, key);
        }
    }
}
