//! The store against a naive model of single blocks: random walks of a machine's operations over three tiers,
//! with gaps in the lower ones. `KVSIM_EXAMPLES` walks (default 200), each of 80 operations.

use std::collections::BTreeMap;

use super::*;
use crate::ids::BlockRange;
use crate::store::LeaseBlocks;

/// Ids of the blocks of requests that share prefixes.
const ROWS: [&[u32]; 8] = [
    &[0, 1, 2, 3, 4, 5],
    &[0, 1, 2, 10, 11],
    &[0, 1, 12],
    &[20, 21, 22, 23, 24],
    &[20, 21, 30, 31, 32],
    &[40, 41],
    &[0, 1, 2, 3, 50],
    &[20, 21, 22, 60],
];
const GPU_BLOCKS: u64 = 8;

/// A block, named by the path of ids that ends with it.
type Path = Vec<u32>;

#[derive(Clone, Default)]
struct Block {
    on: [bool; 3],
    access: u64,
}

struct Open {
    lease: LeaseId,
    depth: usize,
    reserved: u64,
    admission: u64,
}

/// The expected contents, alongside the store.
struct Model {
    store: Store,
    blocks: BTreeMap<Path, Block>,
    open: BTreeMap<usize, Open>,
    clock: u64,
    random: u64,
    refusals: u64,
}

impl Model {
    fn new(seed: u64) -> Self {
        let tier = |capacity_blocks, write_back| TierConfig {
            capacity_blocks,
            write_back,
        };
        let tiers = [
            tier(Some(GPU_BLOCKS), true),
            tier(None, true),
            tier(None, false),
        ];
        Self {
            store: Store::new(BlockKeys::of_rows(1, &ROWS), &tiers),
            blocks: BTreeMap::new(),
            open: BTreeMap::new(),
            clock: 0,
            refusals: 0,
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
        }
    }

    /// Returns a random number below `n`, which must be above 0.
    fn draw(&mut self, n: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 33) as usize % n
    }

    /// Returns all of `n`, or a random part.
    fn part(&mut self, n: usize) -> usize {
        if self.draw(3) > 0 {
            return n;
        }
        self.draw(n + 1)
    }

    fn has(&self, path: &[u32], tier: usize) -> bool {
        self.blocks.get(path).is_some_and(|b| b.on[tier])
    }

    /// Returns the number of leading blocks of a request that some tier has, and that the GPU has.
    fn found(&self, request: usize) -> (usize, usize) {
        let row = ROWS[request];
        let leading = |has: &dyn Fn(&[u32]) -> bool| {
            let missing = (1..=row.len()).find(|&n| !has(&row[..n]));
            missing.map_or(row.len(), |n| n - 1)
        };
        let anywhere = leading(&|path| self.blocks.contains_key(path));
        (anywhere, leading(&|path| self.has(path, GPU)))
    }

    fn is_held(&self, path: &[u32]) -> bool {
        let mut open = self.open.iter();
        open.any(|(&r, o)| path.len() <= o.depth && ROWS[r].starts_with(path))
    }

    fn children(&self, path: &[u32]) -> impl Iterator<Item = &Block> {
        let (path, below) = (path.to_vec(), self.blocks.iter());
        below
            .filter(move |(p, _)| p.len() == path.len() + 1 && p.starts_with(&path))
            .map(|(_, block)| block)
    }

    fn free(&self) -> u64 {
        let cached = self.blocks.values().filter(|b| b.on[GPU]).count() as u64;
        GPU_BLOCKS - cached - self.open.values().map(|o| o.reserved).sum::<u64>()
    }

    /// Frees blocks on the GPU: the least recent first, leaves first, the deepest first; all victims are on
    /// the CPU then. Returns false, nothing changed, if too many blocks are held.
    fn evict(&mut self, blocks: u64) -> bool {
        let gpu = self.blocks.iter().filter(|(_, b)| b.on[GPU]);
        let unheld = gpu.filter(|(path, _)| !self.is_held(path)).count() as u64;
        let shortfall = blocks.saturating_sub(self.free());
        if shortfall > unheld {
            return false;
        }
        for _ in 0..shortfall {
            let leaf = |path: &[u32]| !self.children(path).any(|b| b.on[GPU]);
            let gpu = self.blocks.iter().filter(|(_, b)| b.on[GPU]);
            let may_go = gpu.filter(|(path, _)| !self.is_held(path) && leaf(path));
            let first = may_go.min_by_key(|(path, b)| (b.access, u32::MAX - path.len() as u32));
            let path = first.expect("as many as are unheld").0.clone();
            let block = self.blocks.get_mut(&path).unwrap();
            (block.on[GPU], block.on[CPU]) = (false, true);
        }
        true
    }

    fn admit(&mut self, request: usize) {
        let family = ROWS[request][0];
        if self.open.keys().any(|&r| ROWS[r][0] == family) {
            return;
        }
        let depth = self.found(request).1;
        let lease = self.store.acquire(request as u32, depth as u32).unwrap();
        self.clock += 1;
        let (admission, reserved) = (self.clock, 0);
        let open = Open {
            lease,
            depth,
            reserved,
            admission,
        };
        self.open.insert(request, open);
        let blocks = self.part(ROWS[request].len() - depth) as u64;
        let reservation = self
            .store
            .reserve(&[LeaseBlocks::new(lease, blocks)], self.clock)
            .unwrap();
        if self.evict(blocks) {
            assert_ne!(reservation, Reservation::Refused);
            self.open.get_mut(&request).unwrap().reserved = blocks;
        } else {
            assert_eq!(reservation, Reservation::Refused);
            self.store.abandon(lease).unwrap();
            self.open.remove(&request);
            self.refusals += 1;
        }
        finish_all(&mut self.store);
    }

    fn commit(&mut self, request: usize) {
        let Some(open) = self.open.get(&request) else {
            return;
        };
        let (depth, reserved) = (open.depth, open.reserved);
        let blocks = self.part(reserved as usize);
        let open = self.open.get_mut(&request).unwrap();
        open.depth += blocks;
        open.reserved -= blocks as u64;
        let (to, now) = (open.depth as u32, Times::at(self.clock));
        self.store.commit(open.lease, to, now).unwrap();
        for n in depth + 1..=depth + blocks {
            let block = self.blocks.entry(ROWS[request][..n].to_vec()).or_default();
            (block.on[GPU], block.access) = (true, open.admission);
        }
    }

    fn release(&mut self, request: usize) {
        if let Some(open) = self.open.remove(&request) {
            self.clock += 1;
            self.store.release(open.lease, self.clock).unwrap();
            for n in 1..=open.depth {
                let block = self.blocks.get_mut(&ROWS[request][..n]);
                block.expect("held until now").access = self.clock;
            }
        }
    }

    /// Writes a part of a lease's blocks to the CPU, and sometimes on to the disk.
    fn write_through(&mut self, request: usize) {
        let Some(open) = self.open.get(&request) else {
            return;
        };
        let (lease, depth) = (open.lease, open.depth);
        if depth == 0 {
            return;
        }
        let start = self.draw(depth);
        let end = start + 1 + self.draw(depth - start);
        let onwards = self.draw(2) == 0;
        let (from, to) = (start as u32, end as u32);
        let sent = self.store.write_through(lease, from, to, self.clock);
        let sent = sent.unwrap();
        let paths = (start + 1..=end).map(|n| ROWS[request][..n].to_vec());
        let missing: Vec<Path> = paths.filter(|p| !self.has(p, CPU)).collect();
        assert_eq!(sent.is_some(), !missing.is_empty());
        if let (Some(sent), true) = (sent, onwards) {
            self.store.write_on(sent, self.clock).unwrap();
        }
        for path in missing {
            let block = self.blocks.get_mut(&path).unwrap();
            block.on[CPU] = true;
            block.on[DISK] |= onwards;
        }
        finish_all(&mut self.store);
    }

    /// Drops lower copies in the middle of a path.
    fn drop_copy(&mut self, request: usize) {
        let found = self.found(request).0;
        if found == 0 {
            return;
        }
        let (start, tier) = (self.draw(found), 1 + self.draw(2));
        let end = start + 1 + self.draw(found - start);
        let (from, to) = (start as u32, end as u32);
        let dropped = self.store.drop_copy(request as u32, from, to, tier);
        dropped.unwrap();
        for n in start + 1..=end {
            let block = self.blocks.get_mut(&ROWS[request][..n]).unwrap();
            block.on[tier] &= block.on.iter().filter(|&&on| on).count() == 1;
        }
    }

    /// Marks blocks absent from a tier, last first, as far as they are unheld.
    fn remove(&mut self, request: usize) {
        let found = self.found(request).0;
        if found == 0 {
            return;
        }
        let (start, tier) = (self.draw(found), self.draw(3));
        let end = start + 1 + self.draw(found - start);
        let mut after = self.blocks.clone();
        let mut removed = 0;
        for n in (start + 1..=end).rev() {
            let path = &ROWS[request][..n];
            let followed = |p: &Path| p.len() == n + 1 && p.starts_with(path);
            let below: Vec<&Block> = after
                .iter()
                .filter(|b| followed(b.0))
                .map(|b| b.1)
                .collect();
            let held = tier == GPU && self.is_held(path);
            if !after[path].on[tier] || held || below.iter().any(|b| b.on[tier]) {
                break;
            }
            let last = after[path].on.iter().filter(|&&on| on).count() == 1;
            if last && !below.is_empty() {
                return; // later blocks would be discarded too, which other tests cover
            }
            removed += 1;
            after.get_mut(path).unwrap().on[tier] = false;
            if last {
                after.remove(path);
            }
        }
        let (from, to) = (start as u32, end as u32);
        let answer = self
            .store
            .remove(request as u32, BlockRange::new(from, to), tier);
        assert_eq!(answer, Ok(removed));
        self.blocks = after;
    }

    /// Returns true if a lower tier has a block but not the block before it.
    fn has_a_gap(&self) -> bool {
        let mut each = self.blocks.iter().filter(|(path, _)| path.len() > 1);
        each.any(|(path, b)| {
            let before = &path[..path.len() - 1];
            (b.on[CPU] && !self.has(before, CPU)) || (b.on[DISK] && !self.has(before, DISK))
        })
    }

    fn step(&mut self) {
        let request = self.draw(ROWS.len());
        match self.draw(12) {
            0..=3 => self.admit(request),
            4..=6 => self.commit(request),
            7 | 8 => self.release(request),
            9 => self.write_through(request),
            10 => self.drop_copy(request),
            _ => self.remove(request),
        }
    }

    fn agrees(&self) {
        self.store.check().unwrap();
        let (gpu, active) = (self.store.tier(GPU), self.open.values().map(|o| o.reserved));
        assert_eq!((gpu.free, gpu.active), (self.free(), active.sum()));
        for (request, row) in ROWS.iter().enumerate() {
            let (anywhere, ready) = self.found(request);
            let peeked = self.store.peek(request as u32, 9);
            assert_eq!(peeked, (anywhere as u32, ready as u32), "request {request}");
            let mut first = 0;
            for (end, copies) in self.store.copies(request as u32, anywhere as u32) {
                for n in first + 1..=(end as usize).min(anywhere) {
                    let on = [GPU, CPU, DISK].map(|t| copies[t] != NO_COPY);
                    assert_eq!(
                        on,
                        self.blocks[&row[..n]].on,
                        "request {request}, block {n}"
                    );
                }
                first = end as usize;
            }
            assert!(first >= anywhere);
        }
    }
}

#[test]
fn whatever_is_done_the_store_is_the_naive_model() {
    let walks = std::env::var("KVSIM_EXAMPLES").map_or(200, |n| n.parse().expect("a number"));
    let (mut refused, mut evicted, mut gaps) = (0, 0, 0);
    for seed in 1..=walks {
        let mut model = Model::new(seed);
        for step in 0..80 {
            let walked = std::panic::AssertUnwindSafe(|| {
                model.step();
                model.agrees();
            });
            if let Err(found) = std::panic::catch_unwind(walked) {
                eprintln!("walk {seed}, step {step}");
                std::panic::resume_unwind(found);
            }
            gaps += u64::from(model.has_a_gap());
        }
        evicted += u64::from(model.store.tier(GPU).evictions > 0);
        refused += u64::from(model.refusals > 0);
    }
    let hard = [refused, evicted, gaps];
    assert!(hard.iter().all(|&n| n > walks / 20), "{hard:?}: too seldom");
}
