//! W-TinyLFU: a small window, and a main cache that admits only blocks used more often.
//!
//! What it does: New blocks join a window of a hundredth of the capacity, by recency. The rest is an SLRU with a
//! fifth on probation. The window's oldest block is evicted, unless a count-min sketch has counted it more often
//! than the main cache's victim: then it replaces the victim. The counts are halved after uses of 32 times the main
//! capacity.
//!
//! Why: A block enters the main cache only at the cost of a block used less: popular prefixes survive scans.
//!
//! Example: Of 3 blocks, `a b c d e` evicts `c b`: c was used no more often than the victim; by the sketch's
//! estimate d was.
//!
//! Source: Einziger et al., TinyLFU, ACM TOS 2017.

use super::object::{MayGo, ObjectPolicy};
use super::segments::Segments;
use super::sketch::Sketch;
use super::{Bounds, NativePolicy};

/// The row of this policy.
pub const POLICY: NativePolicy = NativePolicy::queue("wtinylfu", |settings, bounds| {
    Box::new(WTinyLfu::new(bounds, settings.names.clone()))
});

/// Index of the window's queue, after the main cache's two segments.
const WINDOW: usize = 2;
/// Uses in the main cache, per block of its capacity, after which all counts are halved.
const USES_UNTIL_AGING: usize = 32;

/// The window has a hundredth of the capacity, at least one block (below 100 blocks libCacheSim has no window and
/// admits nothing). The rest is an SLRU of one fifth and four fifths, rounded down. Until the first eviction the window
/// takes every block. All as in libCacheSim 0.3.5.
pub struct WTinyLfu {
    main: Segments<3>,
    sketch: Sketch,
    main_capacity_blocks: usize,
    uses: usize,
    names: Vec<u64>,
}

impl WTinyLfu {
    /// A policy without resident blocks and counts.
    pub fn new(bounds: Bounds, names: Vec<u64>) -> Self {
        let window_blocks = (bounds.capacity / 100).max(1);
        let main_capacity_blocks = bounds.capacity - window_blocks;
        let segment_sizes = vec![main_capacity_blocks / 5, 4 * main_capacity_blocks / 5];
        Self {
            main: Segments::new(segment_sizes, bounds.universe),
            sketch: Sketch::new(main_capacity_blocks),
            main_capacity_blocks,
            uses: 0,
            names,
        }
    }

    /// The name of a block in the sketch: its own name, or its number counted from 1.
    fn name(&self, block: u32) -> u64 {
        let counted = u64::from(block) + 1;
        self.names.get(block as usize).copied().unwrap_or(counted)
    }

    fn count(&mut self, block: u32) {
        self.sketch.add(self.name(block));
    }

    fn admit_to_main(&mut self, block: u32) {
        self.main.queues.unlink(block);
        self.main.insert(block);
        self.count(block);
    }

    fn leave(&mut self, block: u32) -> Option<u32> {
        self.main.queues.unlink(block);
        Some(block)
    }
}

impl ObjectPolicy for WTinyLfu {
    fn contains(&self, block: u32) -> bool {
        self.main.contains(block)
    }

    fn on_hit(&mut self, block: u32) {
        if self.main.queues.queue_of(block) == Some(WINDOW) {
            self.main.queues.move_to(WINDOW, block);
            return;
        }
        self.main.on_hit(block);
        self.count(block);
        self.uses += 1;
        if self.uses >= USES_UNTIL_AGING * self.main_capacity_blocks {
            self.sketch.age();
            self.uses = 0;
        }
    }

    fn insert(&mut self, block: u32) {
        self.main.queues.push_front(WINDOW, block);
        self.count(block);
    }

    fn freed(&mut self, block: Option<u32>) {
        self.main.freed(block);
    }

    /// The window's oldest blocks move to the main cache while it has capacity. Then the oldest evictable
    /// block and the main cache's victim compete by their counts, and the loser is evicted.
    fn evict(&mut self, _incoming: u32, may_go: &MayGo) -> Option<u32> {
        while self.main.blocks() < self.main_capacity_blocks {
            let Some(oldest) = self.main.queues.back(WINDOW) else {
                break;
            };
            self.admit_to_main(oldest);
        }
        let newcomer = self.main.queues.last_free(WINDOW, may_go);
        match (newcomer, self.main.victim(may_go)) {
            (Some(newcomer), Some(victim)) => {
                let [comes, stays] = [newcomer, victim].map(|b| self.sketch.estimate(self.name(b)));
                if comes > stays {
                    self.leave(victim);
                    self.admit_to_main(newcomer);
                    return Some(victim);
                }
                self.count(newcomer);
                self.leave(newcomer)
            }
            (Some(only), None) => {
                self.count(only);
                self.leave(only)
            }
            (None, victim) => self.leave(victim?),
        }
    }

    fn abort(&mut self, may_go: &MayGo) -> Option<u32> {
        self.main.abort(may_go)
    }

    fn aborts(&self) -> bool {
        true
    }

    fn remove(&mut self, block: u32) {
        self.main.remove(block);
    }
}
