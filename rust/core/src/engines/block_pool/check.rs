//! The invariants of a block pool (design: I2, I3), recomputed from scratch.

use super::{BlockPool, ENDS, NONE};
use crate::store::Violation;

impl BlockPool {
    /// Checks everything; the first violation is the error. Cost: linear in blocks and what requests hold.
    pub fn check(&self) -> Result<(), Violation> {
        self.check_holders()?;
        self.check_queue()?;
        self.check_keys()?;
        self.check_prefixes()
    }

    /// Blocks have as many holders as requests hold them.
    fn check_holders(&self) -> Result<(), Violation> {
        let mut holders = vec![0u32; self.holders.len()];
        for &block in self.held.iter().flatten() {
            match holders.get_mut(block as usize) {
                Some(count) if block as usize != ENDS => *count += 1,
                _ => return Err(format!("I3: a request holds block {block}, which is none")),
            }
        }
        for (block, (&counted, &found)) in self.holders.iter().zip(&holders).enumerate() {
            if counted != found {
                return Err(format!(
                    "I3: block {block} counts {counted} holders, requests hold it {found} times"
                ));
            }
        }
        Ok(())
    }

    /// The free queue has every block without a holder once, linked both ways.
    fn check_queue(&self) -> Result<(), Violation> {
        let idle = self.holders.iter().skip(1).filter(|&&h| h == 0).count();
        if idle as u64 != u64::from(self.free) {
            return Err(format!(
                "I2: {idle} blocks have no holder, counted {} free",
                self.free
            ));
        }
        let mut queued = vec![false; self.next.len()];
        let (mut before, mut length) = (ENDS, 0);
        loop {
            let block = self.next[before] as usize;
            if self.previous.get(block) != Some(&(before as u32)) {
                return Err(format!(
                    "I2: block {block} of the free queue is wrongly linked"
                ));
            }
            if block == ENDS {
                break;
            }
            if self.holders[block] > 0 || std::mem::replace(&mut queued[block], true) {
                return Err(format!(
                    "I2: block {block} is in the free queue twice or has a holder"
                ));
            }
            (before, length) = (block, length + 1);
        }
        if length != idle {
            return Err(format!("I2: the free queue has {length} of {idle} blocks"));
        }
        Ok(())
    }

    /// Each block with a key is found under it, and the counts of keys and evictions balance.
    fn check_keys(&self) -> Result<(), Violation> {
        let (mut keyed, mut held, mut distinct) = (0, 0, 0);
        for (block, &slot) in self.slot.iter().enumerate() {
            if slot == NONE {
                if self.duplicate[block] != NONE {
                    return Err(format!("block {block} has no key, but a duplicate"));
                }
                continue;
            }
            let found = self.index.find(self.index.key(slot));
            if found.map(|(at, _)| at) != Some(slot) {
                return Err(format!("the key of block {block} is not in the table"));
            }
            let mut under = self.index.first(slot);
            distinct += u64::from(under == block as u32);
            let mut steps = 0;
            while under != block as u32 {
                if under == NONE || steps > self.slot.len() {
                    return Err(format!("block {block} is not found under its key"));
                }
                under = self.duplicate[under as usize];
                steps += 1;
            }
            keyed += 1;
            held += u64::from(self.holders[block] > 0);
        }
        if distinct != self.index.keys() {
            return Err(format!(
                "the table counts {} keys, blocks have {distinct}",
                self.index.keys()
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

    /// The leading blocks of a request that were offered its keys have these.
    fn check_prefixes(&self) -> Result<(), Violation> {
        for (request, (held, &cached)) in (0u32..).zip(self.held.iter().zip(&self.cached)) {
            if cached as usize > held.len() {
                return Err(format!(
                    "I3: request {request} has keys for {cached} blocks, holds {}",
                    held.len()
                ));
            }
            for (at, &block) in (0..cached).zip(held) {
                let slot = self.slot[block as usize];
                if slot == NONE || self.index.key(slot) != self.keys.key(request, at) {
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
    use std::sync::Arc;

    use super::super::BlockPool;
    use crate::keys::{BlockKeys, NO_REQUEST};

    /// Two requests that share two of four blocks, the second still running.
    fn pool() -> BlockPool {
        let ids = vec![0, 1, 2, 3, 0, 1, 4, 5];
        let keys = BlockKeys::new(vec![0, 4, 8], ids, 1, vec![4, 4], vec![NO_REQUEST; 2]).unwrap();
        let mut pool = BlockPool::new(Arc::new(keys), 8);
        assert!(pool.allocate(0, 0, 4));
        pool.cache(0, 4);
        pool.release(0);
        let hits = pool.peek(1, 4);
        assert!(pool.allocate(1, hits, 4));
        pool.cache(1, 3);
        pool
    }

    fn said(corrupt: impl FnOnce(&mut BlockPool)) -> String {
        let mut pool = pool();
        assert_eq!(pool.check(), Ok(()));
        corrupt(&mut pool);
        pool.check().unwrap_err()
    }

    #[test]
    fn a_wrong_count_of_holders() {
        assert!(said(|p| p.holders[1] += 1).starts_with("I3: block 1 counts 2"));
        assert!(said(|p| p.holders[1] -= 1).starts_with("I3: block 1 counts 0"));
        assert!(said(|p| p.held[1].truncate(3)).starts_with("I3"));
    }

    #[test]
    fn a_wrong_free_queue() {
        assert!(said(|p| p.free -= 1).starts_with("I2"));
        let first = |p: &BlockPool| p.next[0] as usize;
        assert!(said(|p| p.next[0] = p.next[first(p)]).starts_with("I2"));
        assert!(said(|p| p.previous[0] = 0).starts_with("I2"));
    }

    #[test]
    fn a_wrong_key_table() {
        let slot = |p: &BlockPool| p.slot[1];
        assert!(said(|p| p.index.clear(slot(p))).contains("table"));
        assert!(said(|p| p.index.replace(slot(p), 2)).contains("not found under its key"));
        assert!(said(|p| p.held_keyed += 1).starts_with("I3"));
        assert!(said(|p| p.counts.evicted += 1).starts_with("I2"));
        assert!(said(|p| p.cached[1] = 4).contains("does not have its key"));
    }
}
