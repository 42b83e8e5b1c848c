//! A few doubly linked queues of blocks in one arena, with a mark on every block.

use super::object::{MayGo, ObjectPolicy};

/// No node.
const NONE: u32 = u32::MAX;
/// No node of a queue may go.
const END: u32 = NONE - 1;

#[derive(Debug, Clone, Copy)]
struct Node {
    block: u32,
    /// Towards the front; the next free node while the node is free.
    front_neighbor: u32,
    behind: u32,
    queue: u8,
    mark: u8,
}

/// `N` queues; a block is in at most one of them. 4 bytes per block of the universe, which grows with the
/// highest number queued; 16 bytes per queued block.
#[derive(Debug)]
pub struct Queues<const N: usize> {
    nodes: Vec<Node>,
    free: u32,
    node_of: Vec<u32>,
    front: [u32; N],
    back: [u32; N],
    len: [usize; N],
    /// The node before which no block of a queue may go, from the last search; `NONE`: unknown.
    searched: [u32; N],
}

impl<const N: usize> Queues<N> {
    /// Empty queues.
    pub fn new(universe: usize) -> Self {
        Self {
            nodes: Vec::new(),
            free: NONE,
            node_of: vec![NONE; universe],
            front: [NONE; N],
            back: [NONE; N],
            len: [0; N],
            searched: [NONE; N],
        }
    }

    /// Return the queue that contains a block.
    #[inline]
    pub fn queue_of(&self, block: u32) -> Option<usize> {
        match self.node_of.get(block as usize) {
            None | Some(&NONE) => None,
            Some(&node) => Some(usize::from(self.nodes[node as usize].queue)),
        }
    }

    /// Blocks in a queue.
    pub fn len(&self, queue: usize) -> usize {
        self.len[queue]
    }

    /// Return the mark of a queued block, which is 0 when the block is pushed.
    #[inline]
    pub fn mark(&mut self, block: u32) -> &mut u8 {
        &mut self.nodes[self.node_of[block as usize] as usize].mark
    }

    /// Return the mark of a queued block.
    pub fn mark_of(&self, block: u32) -> u8 {
        self.nodes[self.node_of[block as usize] as usize].mark
    }

    /// Put a block that is in no queue at the front of a queue.
    pub fn push_front(&mut self, queue: usize, block: u32) {
        let fresh = Node {
            block,
            front_neighbor: NONE,
            behind: NONE,
            queue: queue as u8,
            mark: 0,
        };
        let node = match self.free {
            NONE => {
                self.nodes.push(fresh);
                (self.nodes.len() - 1) as u32
            }
            node => {
                self.free = self.nodes[node as usize].front_neighbor;
                self.nodes[node as usize] = fresh;
                node
            }
        };
        if self.node_of.len() <= block as usize {
            self.node_of.resize(block as usize + 1, NONE);
        }
        self.node_of[block as usize] = node;
        self.attach(queue, node);
    }

    /// Make a node without neighbors the front of a queue.
    fn attach(&mut self, queue: usize, node: u32) {
        let behind = std::mem::replace(&mut self.front[queue], node);
        match behind {
            NONE => self.back[queue] = node,
            front => self.nodes[front as usize].front_neighbor = node,
        }
        let own = &mut self.nodes[node as usize];
        (own.front_neighbor, own.behind, own.queue) = (NONE, behind, queue as u8);
        if self.searched[queue] == END {
            self.searched[queue] = node;
        }
        self.len[queue] += 1;
    }

    /// Take a node from between its neighbors; its links stay.
    fn detach(&mut self, node: u32) {
        let Node {
            front_neighbor,
            behind,
            queue,
            ..
        } = self.nodes[node as usize];
        let queue = usize::from(queue);
        match front_neighbor {
            NONE => self.front[queue] = behind,
            a => self.nodes[a as usize].behind = behind,
        }
        match behind {
            NONE => self.back[queue] = front_neighbor,
            b => self.nodes[b as usize].front_neighbor = front_neighbor,
        }
        self.len[queue] -= 1;
        if self.searched[queue] == node {
            self.searched[queue] = front_neighbor.min(END);
        }
    }

    /// Move a queued block to the front of a queue; its mark is 0 again.
    pub fn move_to(&mut self, queue: usize, block: u32) {
        let node = self.node_of[block as usize];
        self.detach(node);
        self.nodes[node as usize].mark = 0;
        self.attach(queue, node);
    }

    /// Move the block at the back of a queue to the front, with a mark.
    pub fn turn(&mut self, queue: usize, mark: u8) {
        let node = self.back[queue];
        if node != NONE {
            self.detach(node);
            self.nodes[node as usize].mark = mark;
            self.attach(queue, node);
        }
    }

    /// Return the block at the back of a queue, and its mark.
    pub fn last(&self, queue: usize) -> Option<(u32, u8)> {
        let node = self.nodes.get(self.back[queue] as usize)?;
        Some((node.block, node.mark))
    }

    /// Remove and return the last evictable block of a queue.
    pub fn take_last_that(&mut self, queue: usize, may_go: &MayGo) -> Option<u32> {
        let block = self.last_free(queue, may_go)?;
        self.unlink(block);
        Some(block)
    }

    /// Remove a queued block from its queue.
    pub fn unlink(&mut self, block: u32) {
        let node = std::mem::replace(&mut self.node_of[block as usize], NONE);
        self.detach(node);
        self.nodes[node as usize].front_neighbor = self.free;
        self.free = node;
    }

    /// Remove the block at the back of a queue.
    pub fn drop_last(&mut self, queue: usize) {
        if let Some(block) = self.back(queue) {
            self.unlink(block);
        }
    }

    /// Return the block at the back of a queue.
    pub fn back(&self, queue: usize) -> Option<u32> {
        self.block(self.back[queue])
    }

    /// Return the neighbor of a queued block towards the front.
    pub fn front_neighbor(&self, block: u32) -> Option<u32> {
        self.block(self.nodes[self.node_of[block as usize] as usize].front_neighbor)
    }

    /// Return the block nearest to the back of a queue for which the test holds.
    pub fn last_that(&self, queue: usize, test: impl Fn(u32) -> bool) -> Option<u32> {
        let mut at = self.back(queue);
        while let Some(block) = at {
            if test(block) {
                return at;
            }
            at = self.front_neighbor(block);
        }
        None
    }

    /// Return the last evictable block of a queue, as `last_that`; those found not to be so are not asked again until
    /// `freed` says so.
    pub fn last_free(&mut self, queue: usize, may_go: &MayGo) -> Option<u32> {
        let mut node = match self.searched[queue] {
            NONE => self.back[queue],
            END => NONE,
            node => node,
        };
        while node != NONE && !may_go(self.nodes[node as usize].block) {
            node = self.nodes[node as usize].front_neighbor;
        }
        self.searched[queue] = node.min(END);
        self.block(node)
    }

    /// Take note that a block, or any block, may have become evictable.
    pub fn freed(&mut self, block: Option<u32>) {
        let Some(block) = block else {
            self.searched = [NONE; N];
            return;
        };
        if let Some(queue) = self.queue_of(block) {
            if self.searched[queue] != self.node_of[block as usize] {
                self.searched[queue] = NONE;
            }
        }
    }

    fn block(&self, node: u32) -> Option<u32> {
        (node != NONE).then(|| self.nodes[node as usize].block)
    }
}

/// The rule of a policy whose blocks, and ghosts (names of evicted blocks), are in `N` queues.
pub trait QueueRule<const N: usize>: Send + Sync {
    /// Return true if the blocks of a queue are resident; other queues have ghosts.
    fn is_resident(_queue: usize) -> bool {
        true
    }

    /// Record a use of a resident block.
    fn on_hit(&mut self, queues: &mut Queues<N>, block: u32);

    /// Record a miss before capacity is freed for the block.
    fn on_miss(&mut self, _queues: &mut Queues<N>, _block: u32) {}

    /// Queue a block that is not resident.
    fn insert(&mut self, queues: &mut Queues<N>, block: u32) {
        queues.push_front(0, block);
    }

    /// Remove one block for which `may_go` holds from its queue and return it.
    fn evict(&mut self, queues: &mut Queues<N>, may_go: &MayGo) -> Option<u32>;

    /// Remove a resident block that left for another reason.
    fn remove(&mut self, queues: &mut Queues<N>, block: u32) {
        queues.unlink(block);
    }
}

/// A rule with its queues, as a policy on single blocks.
#[derive(Debug)]
pub struct QueuePolicy<R, const N: usize> {
    rule: R,
    queues: Queues<N>,
}

impl<R: QueueRule<N>, const N: usize> QueuePolicy<R, N> {
    /// A policy without resident blocks and ghosts.
    pub fn new(rule: R, universe: usize) -> Self {
        Self {
            rule,
            queues: Queues::new(universe),
        }
    }
}

impl<R: QueueRule<N>, const N: usize> ObjectPolicy for QueuePolicy<R, N> {
    fn contains(&self, block: u32) -> bool {
        self.queues.queue_of(block).is_some_and(R::is_resident)
    }

    fn on_hit(&mut self, block: u32) {
        self.rule.on_hit(&mut self.queues, block);
    }

    fn on_miss(&mut self, block: u32) {
        self.rule.on_miss(&mut self.queues, block);
    }

    fn insert(&mut self, block: u32) {
        self.rule.insert(&mut self.queues, block);
    }

    fn freed(&mut self, block: Option<u32>) {
        self.queues.freed(block);
    }

    fn evict(&mut self, _incoming: u32, may_go: &MayGo) -> Option<u32> {
        self.rule.evict(&mut self.queues, may_go)
    }

    fn remove(&mut self, block: u32) {
        if self.contains(block) {
            self.rule.remove(&mut self.queues, block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_moves_between_queues_and_loses_its_mark() {
        let mut queues = Queues::<2>::new(0);
        queues.push_front(0, 7);
        queues.push_front(0, 3);
        *queues.mark(7) = 1;
        assert_eq!(
            (queues.back(0), queues.front_neighbor(7)),
            (Some(7), Some(3))
        );
        queues.unlink(7);
        queues.push_front(1, 7);
        assert_eq!((queues.len(0), queues.len(1)), (1, 1));
        assert_eq!((queues.queue_of(7), *queues.mark(7)), (Some(1), 0));
        assert_eq!(queues.queue_of(99), None);
    }
}
