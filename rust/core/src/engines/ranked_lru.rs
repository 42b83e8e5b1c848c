//! LRU of vLLM's CPU tier by rank (0.33.0, `kv_offload/cpu/policies/lru.py`): the keys of a request share one
//! rank, even if other requests end meanwhile.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::key_index::KeyMap;
use super::offload_tier::{Access, KeyUse, OffloadPolicy, UsedKeys};

/// A request's number in the order of first accesses, and the slot of a key in its prompt: later keys rank lower.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    request: u64,
    slot: Reverse<u32>,
}

impl Rank {
    /// Returns the rank of a key that is a request of its own.
    fn alone(request: u64) -> Self {
        Self {
            request,
            slot: Reverse(0),
        }
    }
}

/// Mark of a key that no request has used yet.
const UNUSED: Rank = Rank {
    request: 0,
    slot: Reverse(u32::MAX),
};

/// Keys with ranks, the lowest evicted first.
///
/// A request takes a rank at its first access. Its keys get this rank if theirs is lower. At the request's end each
/// key gets a rank of its own.
#[derive(Debug, Default)]
pub struct RankedLru {
    ranks: KeyMap<u64, Rank>,
    order: BTreeSet<(Rank, u64)>,
    of_request: KeyMap<u64, u64>,
    last: u64,
    /// Keys that were inserted since the last eviction and all had their first use, and the number that had not.
    inserted: Vec<u64>,
    unused: usize,
}

impl RankedLru {
    fn next_rank(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Gives a key that is there a rank.
    fn give(&mut self, key: u64, rank: Rank) {
        match self.ranks.insert(key, rank) {
            Some(UNUSED) => {
                self.unused -= 1;
                if self.unused == 0 {
                    self.inserted.clear();
                }
            }
            Some(before) => drop(self.order.remove(&(before, key))),
            None => (),
        }
        self.order.insert((rank, key));
    }

    /// Ranks keys that no request has used yet below all others.
    fn rank_unused(&mut self) {
        for key in std::mem::take(&mut self.inserted) {
            if self.ranks.get(&key) == Some(&UNUSED) {
                self.give(key, Rank::alone(0));
            }
        }
    }
}

impl OffloadPolicy for RankedLru {
    fn resident(&self) -> usize {
        self.ranks.len()
    }

    fn contains(&self, key: u64) -> bool {
        self.ranks.contains_key(&key)
    }

    fn keys(&self) -> Box<dyn Iterator<Item = u64> + '_> {
        let unused = |key: &u64| self.ranks.get(key) == Some(&UNUSED);
        let inserted = self.inserted.iter().copied().filter(unused);
        Box::new(inserted.chain(self.order.iter().map(|&(_, key)| key)))
    }

    fn offer(&mut self, _: &[u64]) {}

    fn learns_offers(&self) -> bool {
        false
    }

    fn evict(&mut self, blocks: usize, is_kept: &dyn Fn(u64) -> bool) -> Option<Vec<u64>> {
        self.rank_unused();
        let may_go = self.order.iter().filter(|&&(_, key)| !is_kept(key));
        let victims: Vec<(Rank, u64)> = may_go.take(blocks).copied().collect();
        if victims.len() < blocks {
            return None;
        }
        for victim in &victims {
            self.order.remove(victim);
            self.ranks.remove(&victim.1);
        }
        Some(victims.into_iter().map(|(_, key)| key).collect())
    }

    /// Inserts a key below all others; it gets a rank once a request has used it.
    fn insert(&mut self, key: u64) {
        if self.ranks.insert(key, UNUSED).is_none() {
            self.inserted.push(key);
            self.unused += 1;
        }
    }

    fn access_by(&mut self, request: u32, used: &UsedKeys) {
        if used.is_empty() {
            return;
        }
        let rank = match self.of_request.get(&u64::from(request)) {
            Some(&rank) => rank,
            None => {
                let rank = self.next_rank();
                self.of_request.insert(u64::from(request), rank);
                rank
            }
        };
        for (slot, KeyUse { key, .. }) in used.iter() {
            let rank = Rank {
                request: rank,
                slot: Reverse(slot),
            };
            if self.ranks.get(&key).is_some_and(|&held| held < rank) {
                self.give(key, rank);
            }
        }
    }

    fn finish(&mut self, key: u64, _: Access) {
        if self.contains(key) {
            let rank = self.next_rank();
            self.give(key, Rank::alone(rank));
        }
    }

    fn ended(&mut self, request: u32) {
        self.of_request.remove(&u64::from(request));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: fn(u64) -> bool = |_| false;

    /// Keys 1, 2, 3, each used by a request of its own, in this order.
    fn three() -> RankedLru {
        let mut policy = RankedLru::default();
        for (request, key) in (0..).zip(1..=3) {
            policy.insert(key);
            policy.access_by(
                request,
                &UsedKeys::from([(0, KeyUse::new(key, Access::Stored))]),
            );
        }
        policy
    }

    #[test]
    fn a_store_that_is_refused_forgets_no_rank() {
        let mut policy = three();
        assert_eq!(policy.evict(2, &|key| key != 1), None);
        assert_eq!(policy.keys().collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(policy.evict(1, &NOTHING), Some(vec![1]));
        assert_eq!(policy.evict(1, &|key| key == 2), Some(vec![3]));
    }

    #[test]
    fn an_earlier_request_takes_no_rank_back() {
        let mut policy = three();
        policy.access_by(0, &UsedKeys::from([(0, KeyUse::new(3, Access::Reused))]));
        assert_eq!(policy.evict(3, &NOTHING), Some(vec![1, 2, 3]));
    }

    #[test]
    fn a_key_that_left_is_given_no_rank() {
        let mut policy = three();
        policy.evict(1, &NOTHING);
        policy.access_by(2, &UsedKeys::from([(1, KeyUse::new(1, Access::Reused))]));
        policy.finish(1, Access::Reused);
        assert_eq!(policy.keys().collect::<Vec<_>>(), [2, 3]);
    }
}
