//! LRU of vLLM's CPU tier by rank (0.33.0, `kv_offload/cpu/policies/lru.py`): the keys of a request share one
//! rank, even if other requests end meanwhile.

use std::cmp::Reverse;

use super::key_index::KeyMap;
use super::key_slots::KeySlots;
use super::links::{Links, ENDS};
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
        let slot = Reverse(0);
        Self { request, slot }
    }
}

impl Default for Rank {
    /// The mark of a key that no request has used yet.
    fn default() -> Self {
        let slot = Reverse(u32::MAX);
        Self { request: 0, slot }
    }
}

/// A key, or the marker below the keys of a running request.
#[derive(Debug, Default, Clone, Copy)]
struct Ranked {
    rank: Rank,
    key: Option<u64>,
}

/// Keys with ranks, the lowest evicted first.
///
/// A request takes a rank at its first access. Its keys get this rank if theirs is lower. At the request's end each
/// key gets a rank of its own.
#[derive(Debug, Default)]
pub struct RankedLru {
    at: KeySlots,
    /// By rank; keys that no request has used are outside the order.
    order: Links<Ranked>,
    /// Markers of the running requests.
    of_request: KeyMap<u32, u32>,
    last: u64,
    /// Keys that were inserted since the last eviction and all had their first use, and the number that had not.
    inserted: Vec<u64>,
    unused: usize,
}

impl RankedLru {
    fn next_rank(&mut self) -> Rank {
        self.last += 1;
        Rank::alone(self.last)
    }

    /// Gives a key a rank, and moves it before the next higher one.
    fn give(&mut self, node: u32, rank: Rank, next: u32) {
        let before = self.order.value(node);
        if before.rank == Rank::default() {
            self.unused -= 1;
            if self.unused == 0 {
                self.inserted.clear();
            }
        }
        self.order.set(node, Ranked { rank, ..before });
        self.order.move_before(node, next);
    }

    /// Returns those of the inserted keys that no request has used.
    fn unused(&self) -> impl Iterator<Item = u64> + '_ {
        let is_unused = |node| self.order.value(node).rank == Rank::default();
        let keys = self.inserted.iter().copied();
        keys.filter(move |&key| self.at.get(key).is_some_and(is_unused))
    }

    /// Ranks keys that no request has used yet below all others, in order of the keys.
    fn rank_unused(&mut self) {
        let mut unused: Vec<u64> = self.unused().collect();
        unused.sort_unstable();
        let (lowest, mut next) = (Rank::alone(0), self.order.next(ENDS));
        for key in unused {
            let Some(node) = self.at.get(key) else {
                continue;
            };
            let own = Some(key);
            let is_lower = |at: Ranked| at.rank == lowest && at.key < own;
            while next != ENDS && is_lower(self.order.value(next)) {
                next = self.order.next(next);
            }
            self.give(node, lowest, next);
        }
        self.inserted.clear();
    }

    /// Returns the marker of a request, above all others at its first access.
    fn marker_of(&mut self, request: u32) -> u32 {
        if let Some(&marker) = self.of_request.get(&request) {
            return marker;
        }
        let (rank, key) = (self.next_rank(), None);
        let marker = self.order.add(Ranked { rank, key });
        self.order.move_before(marker, ENDS);
        self.of_request.insert(request, marker);
        marker
    }
}

impl OffloadPolicy for RankedLru {
    fn resident(&self) -> usize {
        self.at.len()
    }

    fn contains(&self, key: u64) -> bool {
        self.at.get(key).is_some()
    }

    fn keys(&self) -> Box<dyn Iterator<Item = u64> + '_> {
        let ranked = self.order.iter();
        let ranked = ranked.filter_map(|node| self.order.value(node).key);
        Box::new(self.unused().chain(ranked))
    }

    fn offer(&mut self, _: &[u64]) {}

    fn learns_offers(&self) -> bool {
        false
    }

    fn evict(&mut self, blocks: usize, is_kept: &dyn Fn(u64) -> bool) -> Option<Vec<u64>> {
        self.rank_unused();
        let ranked = self.order.iter();
        let may_go = ranked.filter_map(|node| self.order.value(node).key);
        let may_go = may_go.filter(|&key| !is_kept(key));
        let victims: Vec<u64> = may_go.take(blocks).collect();
        if victims.len() < blocks {
            return None;
        }
        for &victim in &victims {
            if let Some(node) = self.at.remove(victim) {
                self.order.remove(node);
            }
        }
        Some(victims)
    }

    /// Inserts a key below all others; it gets a rank once a request has used it.
    fn insert(&mut self, key: u64) {
        if !self.contains(key) {
            let (rank, own) = (Rank::default(), Some(key));
            self.at
                .insert(key, self.order.add(Ranked { rank, key: own }));
            self.inserted.push(key);
            self.unused += 1;
        }
    }

    /// Moves the keys from the last slot up, so that one walk over the request's keys is enough.
    fn access_by(&mut self, request: u32, used: &UsedKeys) {
        if used.is_empty() {
            return;
        }
        let marker = self.marker_of(request);
        let request = self.order.value(marker).rank.request;
        let mut next = self.order.next(marker);
        for (slot, KeyUse { key, .. }) in used.iter().rev() {
            let slot = Reverse(slot);
            let rank = Rank { request, slot };
            let Some(node) = self.at.get(key) else {
                continue;
            };
            if self.order.value(node).rank < rank {
                while next != ENDS && self.order.value(next).rank < rank {
                    next = self.order.next(next);
                }
                self.give(node, rank, next);
            }
        }
    }

    fn finish(&mut self, key: u64, _: Access) {
        if let Some(node) = self.at.get(key) {
            let rank = self.next_rank();
            self.give(node, rank, ENDS);
        }
    }

    fn ended(&mut self, request: u32) {
        if let Some(marker) = self.of_request.remove(&request) {
            self.order.remove(marker);
        }
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

    #[test]
    fn a_key_that_no_request_used_goes_first() {
        let mut policy = three();
        policy.insert(9);
        assert_eq!(policy.evict(2, &NOTHING), Some(vec![9, 1]));
    }

    #[test]
    fn keys_that_no_request_has_used_leave_first_in_their_order() {
        let mut policy = three();
        [7, 9].iter().for_each(|&key| policy.insert(key));
        assert_eq!(policy.evict(1, &NOTHING), Some(vec![7]));
        [8, 10].iter().for_each(|&key| policy.insert(key));
        assert_eq!(policy.evict(4, &NOTHING), Some(vec![8, 9, 10, 1]));
    }
}
