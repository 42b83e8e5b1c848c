//! A few doubly linked queues of blocks, with a mark on every block.

use super::object::{MayGo, ObjectPolicy};

/// No block.
const NONE: u32 = u32::MAX;
/// No block of a queue may go.
const END: u32 = NONE - 1;
/// The queue of a block that is in none.
const OUT: u8 = u8::MAX;

#[derive(Debug, Clone, Copy)]
struct Neighbors {
    /// Towards the front.
    front: u32,
    behind: u32,
}

#[derive(Debug, Clone, Copy)]
struct Tag {
    queue: u8,
    mark: u8,
}

/// Neighbors in a queue, from the back to the front.
#[derive(Clone, Copy)]
struct Chain {
    back: u32,
    front: u32,
    len: usize,
}

impl Chain {
    fn of(block: u32) -> Self {
        Self {
            back: block,
            front: block,
            len: 1,
        }
    }
}

/// `N` queues; a block is in at most one of them. 10 bytes per block of the universe, which grows with the highest
/// number queued: blocks that were new together stay together in memory, wherever they are queued.
#[derive(Debug)]
pub struct Queues<const N: usize> {
    links: Vec<Neighbors>,
    tags: Vec<Tag>,
    front: [u32; N],
    back: [u32; N],
    len: [usize; N],
    /// The block before which no block of a queue may go, from the last search; `NONE`: unknown.
    searched: [u32; N],
}

const UNLINKED: Neighbors = Neighbors {
    front: NONE,
    behind: NONE,
};
const UNQUEUED: Tag = Tag {
    queue: OUT,
    mark: 0,
};

impl<const N: usize> Queues<N> {
    /// Empty queues.
    pub fn new(universe: usize) -> Self {
        Self {
            links: vec![UNLINKED; universe],
            tags: vec![UNQUEUED; universe],
            front: [NONE; N],
            back: [NONE; N],
            len: [0; N],
            searched: [NONE; N],
        }
    }

    /// Return the queue that contains a block.
    #[inline]
    pub fn queue_of(&self, block: u32) -> Option<usize> {
        let queue = self.tags.get(block as usize)?.queue;
        (queue != OUT).then_some(usize::from(queue))
    }

    /// Blocks in a queue.
    pub fn len(&self, queue: usize) -> usize {
        self.len[queue]
    }

    /// Return the mark of a queued block, which is 0 when the block is pushed.
    #[inline]
    pub fn mark(&mut self, block: u32) -> &mut u8 {
        &mut self.tags[block as usize].mark
    }

    /// Return the mark of a queued block.
    pub fn mark_of(&self, block: u32) -> u8 {
        self.tags[block as usize].mark
    }

    /// Put a block that is in no queue at the front of a queue.
    pub fn push_front(&mut self, queue: usize, block: u32) {
        if self.tags.len() <= block as usize {
            self.links.resize(block as usize + 1, UNLINKED);
            self.tags.resize(block as usize + 1, UNQUEUED);
        }
        self.tags[block as usize] = Tag {
            queue: queue as u8,
            mark: 0,
        };
        self.attach(queue, Chain::of(block));
    }

    /// Make a chain of blocks of a queue, which has no neighbors, its front.
    fn attach(&mut self, queue: usize, chain: Chain) {
        let behind = std::mem::replace(&mut self.front[queue], chain.front);
        match behind {
            NONE => self.back[queue] = chain.back,
            front => self.links[front as usize].front = chain.back,
        }
        self.links[chain.front as usize].front = NONE;
        self.links[chain.back as usize].behind = behind;
        if self.searched[queue] == END {
            self.searched[queue] = chain.back;
        }
        self.len[queue] += chain.len;
    }

    /// Take a chain of blocks from between its neighbors; its outer links stay. `holds_searched`: the block before which
    /// no block may go is one of them.
    fn detach(&mut self, queue: usize, chain: Chain, holds_searched: bool) {
        let front_neighbor = self.links[chain.front as usize].front;
        let behind = self.links[chain.back as usize].behind;
        match front_neighbor {
            NONE => self.front[queue] = behind,
            a => self.links[a as usize].behind = behind,
        }
        match behind {
            NONE => self.back[queue] = front_neighbor,
            b => self.links[b as usize].front = front_neighbor,
        }
        self.len[queue] -= chain.len;
        if holds_searched {
            self.searched[queue] = front_neighbor.min(END);
        }
    }

    /// Move a queued block to the front of a queue; its mark is 0 again.
    pub fn move_to(&mut self, queue: usize, block: u32) {
        self.move_all_to(queue, &[block]);
    }

    /// Move queued blocks to the front of a queue as `move_to`, the last one first: those that stand in this order
    /// move together.
    pub fn move_all_to(&mut self, queue: usize, mut blocks: &[u32]) {
        while let Some((&back, before)) = blocks.split_last() {
            let from = usize::from(self.tags[back as usize].queue);
            let (searched, mut holds_searched) = (self.searched[from], false);
            let (mut front, mut len) = (back, 1);
            blocks = before;
            loop {
                holds_searched |= front == searched;
                let own = &mut self.tags[front as usize];
                if from != queue || own.mark != 0 {
                    (own.queue, own.mark) = (queue as u8, 0);
                }
                let next = self.links[front as usize].front;
                match blocks.split_last() {
                    Some((&block, before)) if next == block => blocks = before,
                    _ => break,
                }
                (front, len) = (next, len + 1);
            }
            let chain = Chain { back, front, len };
            self.detach(from, chain, holds_searched);
            self.attach(queue, chain);
        }
    }

    /// Move at most so many blocks at the back of a queue to the front, one after another, each with the mark that
    /// `turned` gives for it and its mark; up to the first for which it gives none. Returns how many moved.
    pub fn turn(
        &mut self,
        queue: usize,
        most: usize,
        turned: impl Fn(u32, u8) -> Option<u8>,
    ) -> usize {
        let (back, searched) = (self.back[queue], self.searched[queue]);
        let (mut block, mut holds_searched) = (back, false);
        let mut chain = Chain::of(back);
        chain.len = 0;
        while chain.len < most && block != NONE {
            let own = &mut self.tags[block as usize].mark;
            let Some(mark) = turned(block, *own) else {
                break;
            };
            *own = mark;
            holds_searched |= block == searched;
            chain.len += 1;
            (chain.front, block) = (block, self.links[block as usize].front);
        }
        if block == NONE {
            self.searched[queue] = NONE; // a whole queue stands as it stood
        } else if chain.len > 0 {
            self.detach(queue, chain, holds_searched);
            self.attach(queue, chain);
        }
        chain.len
    }

    /// Turn a queue at most so many times around, up to a block for which `turned` gives no mark; remove and return it.
    pub fn take_unturned(
        &mut self,
        queue: usize,
        rounds: u8,
        turned: impl Fn(u32, u8) -> Option<u8>,
    ) -> Option<u32> {
        let stops = |_: &u8| self.turn(queue, self.len[queue], &turned) < self.len[queue];
        (0..rounds).find(stops)?;
        self.drop_last(queue)
    }

    /// Return the block at the back of a queue, and its mark.
    pub fn last(&self, queue: usize) -> Option<(u32, u8)> {
        let block = self.back(queue)?;
        Some((block, self.mark_of(block)))
    }

    /// Remove and return the last evictable block of a queue.
    pub fn take_last_that(&mut self, queue: usize, may_go: &MayGo) -> Option<u32> {
        let block = self.last_free(queue, may_go)?;
        self.unlink(block);
        Some(block)
    }

    /// Remove a queued block from its queue.
    pub fn unlink(&mut self, block: u32) {
        let queue = std::mem::replace(&mut self.tags[block as usize], UNQUEUED).queue;
        let queue = usize::from(queue);
        self.detach(queue, Chain::of(block), block == self.searched[queue]);
    }

    /// Remove the block at the back of a queue, and return it.
    pub fn drop_last(&mut self, queue: usize) -> Option<u32> {
        let block = self.back(queue)?;
        self.unlink(block);
        Some(block)
    }

    /// Return the block at the back of a queue.
    pub fn back(&self, queue: usize) -> Option<u32> {
        some(self.back[queue])
    }

    /// Return the neighbor of a queued block towards the front.
    pub fn front_neighbor(&self, block: u32) -> Option<u32> {
        some(self.links[block as usize].front)
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
        let mut block = match self.searched[queue] {
            NONE => self.back[queue],
            END => NONE,
            block => block,
        };
        while block != NONE && !may_go(block) {
            block = self.links[block as usize].front;
        }
        self.searched[queue] = block.min(END);
        some(block)
    }

    /// Take note that a block, or any block, may have become evictable.
    pub fn freed(&mut self, block: Option<u32>) {
        let Some(block) = block else {
            self.searched = [NONE; N];
            return;
        };
        if let Some(queue) = self.queue_of(block) {
            if self.searched[queue] != block {
                self.searched[queue] = NONE;
            }
        }
    }
}

fn some(block: u32) -> Option<u32> {
    (block != NONE).then_some(block)
}

/// The rule of a policy whose blocks, and ghosts (names of evicted blocks), are in `N` queues.
pub trait QueueRule<const N: usize>: Send + Sync {
    /// Return true if the blocks of a queue are resident; other queues have ghosts.
    fn is_resident(_queue: usize) -> bool {
        true
    }

    /// Record a use of a resident block.
    fn on_hit(&mut self, queues: &mut Queues<N>, block: u32);

    /// Record a use of each of these resident blocks, the last one first.
    fn on_hits(&mut self, queues: &mut Queues<N>, blocks: &[u32]) {
        let blocks = blocks.iter().rev();
        blocks.for_each(|&block| self.on_hit(queues, block));
    }

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

    fn on_hits(&mut self, blocks: &[u32]) {
        self.rule.on_hits(&mut self.queues, blocks);
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
