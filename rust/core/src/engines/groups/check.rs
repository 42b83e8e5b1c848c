//! The invariants of the pool and the tables (design: I2, I3, I4), recomputed from scratch.

use super::manager::GroupManager;
use super::pool::{Pool, NULL};
use super::rules::skipped_blocks;
use crate::ids::NONE;
use crate::store::Violation;

impl GroupManager {
    /// Checks everything; the first violation is the error. Cost: linear in blocks and tables.
    pub fn check(&self) -> Result<(), Violation> {
        let mut holders = vec![0u32; self.pool.nodes.len()];
        for held in &self.held {
            for &block in held.tables.iter().flat_map(|table| &table.blocks) {
                if block != NULL {
                    holders[block as usize] += 1;
                }
            }
        }
        let counted = self.pool.nodes.iter().map(|node| node.holders).zip(holders);
        if let Some((block, (counted, found))) = counted.enumerate().find(|(_, (a, b))| a != b) {
            return Err(format!(
                "I3: block {block} counts {counted} holders, requests hold it {found} times"
            ));
        }
        self.pool.check_queue()?;
        self.pool.check_keys()?;
        self.check_tables()
    }

    /// What a running request still reads of its prefix is there (I4 for every kind of group).
    fn check_tables(&self) -> Result<(), Violation> {
        for (request, held) in self.held.iter().enumerate() {
            for (number, (group, table)) in self.groups.iter().zip(&held.tables).enumerate() {
                let computed = self.computed(request as u32);
                let (first, end) = (skipped_blocks(group, computed), group.blocks(computed));
                let gone = (first.max(table.start)..end).find(|&k| table.block(k) == NULL);
                if table.start > first || gone.is_some() {
                    return Err(format!(
                        "I4: group {number} of request {request} lacks blocks that {computed} tokens need"
                    ));
                }
            }
        }
        Ok(())
    }
}

impl Pool {
    /// The free queue has every block without a holder once, linked both ways.
    fn check_queue(&self) -> Result<(), Violation> {
        let idle = self
            .nodes
            .iter()
            .skip(1)
            .filter(|node| node.holders == 0)
            .count();
        let (mut before, mut length) = (NULL, 0);
        loop {
            let block = self.nodes[before as usize].next;
            if self.nodes[block as usize].previous != before {
                return Err(format!(
                    "I2: block {block} of the free queue is wrongly linked"
                ));
            }
            if block == NULL {
                break;
            }
            (before, length) = (block, length + 1);
            if self.nodes[block as usize].holders > 0 || length > idle {
                return Err(format!(
                    "I2: block {block} is in the free queue twice or has a holder"
                ));
            }
        }
        if length != idle || length != self.free as usize {
            return Err(format!(
                "I2: {idle} blocks have no holder, {length} are queued, {} counted",
                self.free
            ));
        }
        Ok(())
    }

    /// Every block with a key is found under it, and the counts agree.
    fn check_keys(&self) -> Result<(), Violation> {
        let (mut keyed, mut held) = (0u64, 0u64);
        for block in 1..self.nodes.len() {
            let slot = self.nodes[block].slot;
            if slot == NONE {
                continue;
            }
            keyed += 1;
            held += u64::from(self.nodes[block].holders > 0);
            let mut at = self.indexes[usize::from(self.group[block])].first(slot);
            while at != block as u32 {
                if at == NONE {
                    return Err(format!("block {block} is not found under its key"));
                }
                at = self.duplicate[at as usize];
            }
        }
        if held != self.held_keyed || keyed != self.counts.inserted - self.counts.evicted {
            return Err(format!(
                "I2: {keyed} blocks have a key and {held} of them a holder, counted {} and {}",
                self.counts.inserted - self.counts.evicted,
                self.held_keyed
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::engines::groups::rules::{chunk_end, Chunk};
    use crate::engines::groups::{Group, Kind, Limits, Reuse};
    use crate::keys::{BlockKeys, NO_REQUEST};

    /// Requests of up to 12 ids of 4 tokens; the first ids are those of one of three documents.
    fn keys() -> (Arc<BlockKeys>, Vec<u64>) {
        let (mut offsets, mut ids, mut full, mut prompts) = (vec![0], vec![], vec![], vec![]);
        let mut fresh = 100;
        for request in 0..40u32 {
            let (length, shared) = (1 + request * 7 % 12, request * 5 % 9);
            for k in 0..length {
                fresh += 1;
                ids.push(if k < shared {
                    request % 3 * 20 + k
                } else {
                    fresh
                });
            }
            offsets.push(ids.len() as u64);
            full.push(4 * length);
            prompts.push(u64::from(4 * length));
        }
        let continuation = vec![NO_REQUEST; full.len()];
        let keys = BlockKeys::new(offsets, ids, 4, full, continuation).unwrap();
        (Arc::new(keys), prompts)
    }

    /// What a hit's window or state needs is resident, and the pool adds up, after every step of every request.
    #[test]
    fn the_invariants_hold_after_every_step() {
        let (keys, prompts) = keys();
        let group = |kind, units: u32| Group {
            kind,
            block_size: u64::from(units),
            keys: keys.clone(),
            units,
        };
        let models = [
            vec![group(Kind::Full, 4), group(Kind::Sliding(7), 2)],
            vec![
                group(Kind::Linear, 4),
                group(Kind::Full, 4),
                group(Kind::Linear, 4),
            ],
            vec![
                group(Kind::Sliding(9), 4),
                group(Kind::Chunked(8), 4),
                group(Kind::Full, 4),
            ],
        ];
        let rules = [Reuse::Engine, Reuse::Tree];
        let cases = models.iter().zip([Some(0), None, Some(8)]);
        for ((groups, interval), reuse) in cases.flat_map(|case| rules.map(|reuse| (case, reuse))) {
            let limits = Limits {
                max_num_batched_tokens: 8,
                retention_interval: interval,
                max_model_len: 1000,
                reuse,
            };
            let mut manager = GroupManager::new(groups.clone(), 4, limits, 60);
            let mut hits = 0;
            for (request, &prompt) in (0..).zip(&prompts) {
                if request >= 2 {
                    manager.release(request - 2);
                }
                let found = manager.look_up(request, prompt - 1);
                hits += found.tokens;
                let mut at = found.tokens;
                while at < prompt + 5 {
                    let chunk = Chunk {
                        computed: at,
                        tokens: 8.min(prompt.saturating_sub(at)),
                        most_tokens: 8,
                        known: prompt,
                        prompt,
                        junction: found.junction,
                    };
                    let end = match at < prompt {
                        true => chunk_end(manager.groups(), chunk),
                        false => at + 1,
                    };
                    let fits = match at == found.tokens {
                        true => manager.admit(request, prompt, found, end),
                        false => manager.extend(request, end),
                    };
                    assert!(fits);
                    manager.compute(request, end);
                    manager.check().unwrap();
                    at = end;
                }
            }
            assert!(hits > 0);
        }
    }
}
