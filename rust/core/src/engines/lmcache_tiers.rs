//! LMCache's CPU tier and the disk tier below it (0.5.6, `v1/storage_backend`): look-ups, stores and evictions.
//!
//! A chunk takes one unit of CPU memory. A caller that takes units for chunks puts the chunks there next.

use super::chunk_order::ChunkOrder;
use super::held_keys::HeldKeys;
use super::tier_chunks::TierBlocks;

/// Chunks of one tier, those in use by copies, and the number of evictions.
#[derive(Debug)]
pub(super) struct Tier {
    pub chunks: ChunkOrder,
    pub capacity: u64,
    pub in_use: HeldKeys,
    pub evictions: u64,
}

impl Tier {
    fn new(chunks: ChunkOrder, capacity: u64) -> Self {
        Self {
            chunks,
            capacity,
            in_use: HeldKeys::default(),
            evictions: 0,
        }
    }

    /// Removes the next chunk that is not in use and that `is_kept` does not protect.
    fn evict(&mut self, is_kept: impl Fn(u64) -> bool) -> Option<u64> {
        let in_use = &self.in_use;
        let victim = self
            .chunks
            .evict(|key| in_use.contains(key) || is_kept(key));
        self.evictions += u64::from(victim.is_some());
        victim
    }
}

/// Both tiers; a disk with 0 chunks is no disk.
#[derive(Debug)]
pub(super) struct Tiers {
    pub cpu: Tier,
    pub disk: Tier,
}

impl Tiers {
    /// Empty tiers with the given capacities in chunks.
    pub fn new([cpu, disk]: [ChunkOrder; 2], capacity_chunks: TierBlocks) -> Self {
        Self {
            cpu: Tier::new(cpu, capacity_chunks.cpu),
            disk: Tier::new(disk, capacity_chunks.disk),
        }
    }

    /// Returns a prompt's leading chunks on the CPU, at most `whole`, and the leading chunks in either tier,
    /// CPU first.
    pub fn look_up(&self, whole: u32, key: impl Fn(u32) -> u64) -> (u32, u32) {
        let missing = |tier: &Tier, block: u32| !tier.chunks.contains(key(block));
        let on_cpu = (0..whole).find(|&block| missing(&self.cpu, block));
        let on_cpu = on_cpu.unwrap_or(whole);
        let found = (on_cpu..whole).find(|&block| missing(&self.disk, block));
        (on_cpu, found.unwrap_or(whole))
    }

    /// Counts the hits of a look-up, the last chunk of each tier first.
    pub fn hit(&mut self, found: &[u64], on_cpu: usize) {
        let (on_cpu, on_disk) = found.split_at(on_cpu);
        on_cpu
            .iter()
            .rev()
            .for_each(|&key| self.cpu.chunks.hit(key));
        on_disk
            .iter()
            .rev()
            .for_each(|&key| self.disk.chunks.hit(key));
    }

    /// Takes units of CPU memory, evicting unpinned chunks as needed. Returns the units taken and the evicted
    /// keys.
    pub fn take(&mut self, units: usize, pinned: &HeldKeys) -> (usize, Vec<u64>) {
        let mut evicted = Vec::new();
        for taken in 0..units {
            if self.cpu.chunks.len() + taken as u64 == self.cpu.capacity {
                match self.cpu.evict(|key| pinned.contains(key)) {
                    Some(victim) => evicted.push(victim),
                    None => return (taken, evicted),
                }
            }
        }
        (units, evicted)
    }

    /// Puts chunks that have units on the CPU. Returns the new ones.
    pub fn put(&mut self, keys: &[u64]) -> Vec<u64> {
        let chunks = &mut self.cpu.chunks;
        let new = keys.iter().copied().filter(|&key| !chunks.contains(key));
        let new: Vec<u64> = new.collect();
        new.iter().for_each(|&key| chunks.put(key));
        new
    }

    /// Copies chunks from disk to the CPU; chunks before them are pinned. Returns the new and the evicted
    /// chunks.
    pub fn load(&mut self, keys: &[u64], pinned: &[u64]) -> (Vec<u64>, Vec<u64>) {
        let mut kept = HeldKeys::default();
        kept.hold(pinned);
        let (taken, evicted) = self.take(keys.len(), &kept);
        debug_assert_eq!(taken, keys.len(), "what was found fits");
        keys.iter().for_each(|&key| self.disk.chunks.hit(key));
        (self.put(keys), evicted)
    }

    /// Stores chunks on disk too. Returns the new and the evicted chunks.
    pub fn store_on_disk(&mut self, keys: &[u64]) -> (Vec<u64>, Vec<u64>) {
        let (mut new, mut evicted) = (Vec::new(), Vec::new());
        let disk = &mut self.disk;
        if disk.capacity == 0 {
            return (new, evicted);
        }
        for &key in keys {
            if disk.chunks.contains(key) {
                disk.chunks.hit(key);
                continue;
            }
            if disk.chunks.len() == disk.capacity {
                match disk.evict(|_| false) {
                    Some(victim) => evicted.push(victim),
                    None => continue,
                }
            }
            disk.chunks.put(key);
            new.push(key);
        }
        (new, evicted)
    }
}

#[cfg(test)]
mod tests {
    use super::super::chunk_order::ChunkPolicy;
    use super::*;

    #[test]
    fn a_look_up_renews_all_it_finds_last_to_first_and_a_load_spares_its_own_prompt() {
        let orders = [ChunkPolicy::Lru; 2].map(ChunkOrder::new);
        let mut tiers = Tiers::new(orders, TierBlocks { cpu: 2, disk: 4 });
        assert_eq!(tiers.put(&[7, 8]), [7, 8]);
        assert_eq!(tiers.store_on_disk(&[0, 1, 2, 3]).0, [0, 1, 2, 3]);
        tiers.hit(&[7, 8, 0, 1, 2, 3], 2);
        assert_eq!(tiers.cpu.chunks.keys(), [8, 7]);
        assert_eq!(tiers.disk.chunks.keys(), [3, 2, 1, 0]);
        // The first chunks alone fit: they are renewed once more, in their order.
        assert_eq!(tiers.load(&[0], &[8]), (vec![0], vec![7]));
        assert_eq!(tiers.load(&[1], &[]), (vec![1], vec![8]));
        assert_eq!(tiers.disk.chunks.keys(), [3, 2, 0, 1]);
        // What is stored again is renewed, and the disk's oldest goes for the new.
        assert_eq!(tiers.store_on_disk(&[3, 9]), (vec![9], vec![2]));
    }
}
