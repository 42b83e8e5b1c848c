//! The invariants of a block pool (design: I2, I3), recomputed from scratch.

use super::runs::ENDS;
use super::BlockPool;
use crate::store::Violation;

impl BlockPool {
    /// Checks all invariants; the first violation is the error. Cost: linear in blocks and holds.
    pub fn check(&self) -> Result<(), Violation> {
        let is_run = self.live();
        self.check_keys(&is_run)?;
        self.check_ref_counts(&is_run)?;
        self.check_queue(&is_run)?;
        self.check_prefixes()
    }

    /// Returns, for each entry of the list of runs, true if it is in use.
    fn live(&self) -> Vec<bool> {
        let mut is_run = vec![true; self.runs.list.len()];
        is_run[ENDS as usize] = false;
        for &run in &self.runs.spare {
            is_run[run as usize] = false;
        }
        is_run
    }

    /// Checks that each block with a key is found under it, and that the counts of keys and evictions balance.
    fn check_keys(&self, is_run: &[bool]) -> Result<(), Violation> {
        let (mut keyed, mut held, mut distinct) = (0, 0, 0);
        for (id, run) in (0u32..).zip(&self.runs.list) {
            if !is_run[id as usize] {
                continue;
            }
            if run.blocks == 0 || (run.blocks > 1 && self.runs.is_duplicated(id)) {
                return Err(format!("run {id} has {} blocks of one key", run.blocks));
            }
            for slot in run.slot..run.slot + run.blocks {
                let found = self.runs.index.find(self.runs.index.key(slot));
                if found.map(|(at, _)| at) != Some(slot) {
                    return Err(format!("a key of run {id} is not in the table"));
                }
                self.check_under_key(id, slot)?;
                distinct += u64::from(self.runs.index.first(slot) == id);
            }
            keyed += u64::from(run.blocks);
            held += u64::from(run.blocks) * u64::from(run.ref_count > 0);
        }
        if distinct != self.runs.index.keys() {
            return Err(format!(
                "the table counts {} keys, blocks have {distinct}",
                self.runs.index.keys()
            ));
        }
        if held != self.held_keyed {
            return Err(format!(
                "I3: {held} blocks with a key have a holder, counted {}",
                self.held_keyed
            ));
        }
        if self.counts.inserted != self.counts.evicted + keyed {
            return Err(format!(
                "I2: {} keys were given and {} evicted, {keyed} blocks have one",
                self.counts.inserted, self.counts.evicted
            ));
        }
        Ok(())
    }

    /// Checks that a run is listed under its slot, where duplicates have ascending numbers.
    fn check_under_key(&self, id: u32, slot: u32) -> Result<(), Violation> {
        let mut under = self.runs.index.first(slot);
        while under != id {
            let copy = self.runs.list.get(under as usize).map(|run| run.copy);
            let after = copy.and_then(|_| {
                let next = self.runs.list[under as usize].duplicate;
                self.runs
                    .list
                    .get(next as usize)
                    .map(|run| (next, run.copy))
            });
            match (copy, after) {
                (Some(copy), Some((next, later))) if copy < later => under = next,
                _ => return Err(format!("run {id} is not found under its key")),
            }
        }
        Ok(())
    }

    /// Checks that reference counts of runs match the requests' holds, and that block counts sum to the pool.
    fn check_ref_counts(&self, is_run: &[bool]) -> Result<(), Violation> {
        let mut ref_counts = vec![0u32; is_run.len()];
        let mut blank = u64::from(self.blank);
        for (request, held) in self.held.iter().enumerate() {
            let keyed: u32 = held.keyed_at.iter().map(|hold| hold.blocks).sum();
            if keyed != held.keyed || keyed > held.blocks {
                return Err(format!(
                    "I3: request {request} has keys for {keyed} blocks, counted {} of {}",
                    held.keyed, held.blocks
                ));
            }
            blank += u64::from(held.blocks - keyed);
            for hold in &held.keyed_at {
                let mut slot = hold.slot;
                while slot < hold.slot + hold.blocks {
                    let Some(run) = self.copy_at(slot, hold.copy) else {
                        return Err(format!(
                            "I3: request {request} holds a block without its key"
                        ));
                    };
                    let is_whole = self.runs.list[run as usize].slot == slot;
                    slot += self.runs.list[run as usize].blocks;
                    if !is_whole || slot > hold.slot + hold.blocks {
                        return Err(format!("I3: request {request} holds a part of run {run}"));
                    }
                    ref_counts[run as usize] += 1;
                }
            }
        }
        for (run, &found) in ref_counts.iter().enumerate() {
            let counted = self.runs.list[run].ref_count;
            if is_run[run] && counted != found {
                return Err(format!(
                    "I3: run {run} counts {counted} holders, requests hold it {found} times"
                ));
            }
        }
        let keyed = self.counts.inserted - self.counts.evicted;
        if blank + keyed != u64::from(self.capacity) {
            return Err(format!(
                "I2: {keyed} blocks have a key and {blank} none, the pool has {}",
                self.capacity
            ));
        }
        Ok(())
    }

    /// Returns the run of a slot's block with a given copy number, if any.
    fn copy_at(&self, slot: u32, copy: u32) -> Option<u32> {
        let mut id = self.runs.index.first(slot);
        loop {
            let run = self.runs.list.get(id as usize)?;
            if run.copy == copy {
                return Some(id);
            }
            id = run.duplicate;
        }
    }

    /// Checks that the queue has every run without a holder once, linked both ways, and that its blocks are
    /// counted.
    fn check_queue(&self, is_run: &[bool]) -> Result<(), Violation> {
        let mut waits: Vec<bool> = is_run.to_vec();
        for (waits, run) in waits.iter_mut().zip(&self.runs.list) {
            *waits &= run.ref_count == 0;
        }
        let (mut before, mut blocks) = (ENDS, self.blank);
        loop {
            let id = self.runs.list[before as usize].next;
            let run = self.runs.list.get(id as usize);
            if run.map(|run| run.previous) != Some(before) {
                return Err(format!("I2: run {id} of the free queue is wrongly linked"));
            }
            if id == ENDS {
                break;
            }
            if !std::mem::replace(&mut waits[id as usize], false) {
                return Err(format!(
                    "I2: run {id} is in the free queue twice or has a holder"
                ));
            }
            blocks += self.runs.list[id as usize].blocks;
            before = id;
        }
        if let Some(run) = waits.iter().position(|&waits| waits) {
            return Err(format!("I2: run {run} is not in the free queue"));
        }
        if blocks != self.free {
            return Err(format!(
                "I2: {blocks} blocks have no holder, counted {} free",
                self.free
            ));
        }
        Ok(())
    }

    /// Checks that the leading blocks of a request that went through `cache` have its keys.
    fn check_prefixes(&self) -> Result<(), Violation> {
        for (request, held) in (0u32..).zip(&self.held) {
            let slots = held.keyed_at.iter().flat_map(|h| h.slot..h.slot + h.blocks);
            for (at, slot) in (0..).zip(slots) {
                if self.runs.index.key(slot) != self.keys.key(request, at) {
                    return Err(format!(
                        "block {at} of request {request} does not have its key"
                    ));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::BlockPool;
    use crate::keys::BlockKeys;

    /// Two requests with ids of two blocks each that share the first id, the second request still running. The
    /// last key of the first request has two blocks.
    fn pool() -> BlockPool {
        let keys = BlockKeys::of_rows(2, &[[0, 1], [0, 2], [0, 1]]);
        let mut pool = BlockPool::new(keys, 9);
        assert!(pool.allocate(0, 0, 4));
        pool.cache(0, 4);
        pool.release(0);
        let hits = pool.peek(1, 4);
        assert!(pool.allocate(1, hits, 4));
        pool.cache(1, 3);
        assert!(pool.allocate(2, 3, 4));
        pool.cache(2, 4);
        pool
    }

    fn said(corrupt: impl FnOnce(&mut BlockPool)) -> String {
        let mut pool = pool();
        assert_eq!(pool.check(), Ok(()));
        corrupt(&mut pool);
        pool.check().unwrap_err()
    }

    /// Returns the run of a request's first block, or of its last block with a key.
    fn first(pool: &BlockPool, request: usize) -> usize {
        let hold = pool.held[request].keyed_at[0];
        pool.runs.at(hold.slot, hold.copy) as usize
    }

    fn last(pool: &BlockPool, request: usize) -> usize {
        let hold = pool.held[request].keyed_at.last().unwrap();
        pool.runs.at(hold.slot + hold.blocks - 1, hold.copy) as usize
    }

    #[test]
    fn a_wrong_count_of_holders() {
        let add = |pool: &mut BlockPool, by: i32| {
            let run = first(pool, 1);
            let ref_counts = pool.runs.list[run].ref_count;
            pool.runs.list[run].ref_count = ref_counts.wrapping_add_signed(by);
        };
        assert!(said(|p| add(p, 1)).contains("counts 3 holders"));
        assert!(said(|p| add(p, -1)).contains("counts 1 holders"));
        assert!(said(|p| p.held[1].keyed_at.truncate(1)).starts_with("I3: request 1 has keys"));
        assert!(said(|p| p.held[1].blocks += 1).contains("the pool has 9"));
        assert!(said(|p| p.held[1].keyed_at[0].copy += 1).contains("without its key"));
    }

    #[test]
    fn a_part_of_a_run() {
        let part = |pool: &mut BlockPool| {
            pool.held[1].keyed_at[0].blocks -= 1;
            pool.held[1].keyed -= 1;
        };
        assert!(said(part).contains("holds a part of run"));
    }

    #[test]
    fn a_wrong_free_queue() {
        assert!(said(|p| p.free -= 1).starts_with("I2"));
        assert!(said(|p| p.blank += 1).starts_with("I2"));
        let without_its_first = |pool: &mut BlockPool| {
            let first = pool.runs.list[0].next as usize;
            pool.runs.list[0].next = pool.runs.list[first].next;
        };
        assert!(said(without_its_first).starts_with("I2"));
        assert!(said(|p| p.runs.list[0].previous = 0).starts_with("I2"));
    }

    #[test]
    fn a_wrong_key_table() {
        let slot = |p: &BlockPool| p.runs.list[first(p, 1)].slot;
        assert!(said(|p| p.runs.index.clear(slot(p))).contains("of one key"));
        assert!(said(|p| p.runs.index.replace(slot(p) + 1, 0)).contains("not found under its key"));
        assert!(said(|p| p.held_keyed += 1).starts_with("I3"));
        assert!(said(|p| p.counts.evicted += 1).starts_with("I2"));
        let numbered = |pool: &mut BlockPool| {
            let run = last(pool, 2);
            assert_eq!(pool.runs.list[run].copy, 1);
            pool.runs.list[run].copy = 0;
        };
        assert!(said(numbered).contains("not found under its key"));
        let swapped = |pool: &mut BlockPool| pool.held[1].keyed_at.swap(0, 1);
        assert!(said(swapped).contains("does not have its key"));
    }
}
