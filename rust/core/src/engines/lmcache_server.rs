//! Replay of requests in file order against the L1 of LMCache's server (0.5.7, `v1/distributed`).
//!
//! Nothing is evicted for a write: a call that does not fit in the free chunks writes nothing. A loop wakes at whole
//! seconds and, at 80 % or more, drops a fifth of the chunks. The engine above has no cache here.

use super::l1_order::{L1Order, L1Policy};
use super::requests::{Overlap, Requests};
use crate::causes::engine::{Lookup, MissCauses};
use crate::convert::{fit, whole};

const SECOND_NS: u64 = 1_000_000_000;
/// `--eviction-trigger-watermark`.
const WATERMARK: f64 = 0.8;
/// `--eviction-ratio`.
const RATIO: f64 = 0.2;

/// Chunks in memory, and the next second at which the loop wakes.
#[derive(Debug)]
pub struct ServerL1 {
    pub(super) order: L1Order,
    pub(super) capacity: usize,
    next_ns: u64,
}

impl ServerL1 {
    /// An empty memory of `capacity` chunks, whose loop starts at 0.
    pub fn new(policy: L1Policy, capacity: usize) -> Self {
        Self {
            order: L1Order::new(policy),
            capacity,
            next_ns: SECOND_NS,
        }
    }

    /// Lets the loop wake at every whole second up to a time. Returns the keys that each pass dropped, with its time.
    pub fn run_until(
        &mut self,
        now_ns: u64,
        is_locked: impl Fn(u64) -> bool,
    ) -> Vec<(u64, Vec<u64>)> {
        let mut passes = Vec::new();
        while self.next_ns <= now_ns {
            let tracked = self.order.len();
            let mut dropped = Vec::new();
            if tracked as f64 / self.capacity as f64 >= WATERMARK {
                let count = fit::<usize>(whole(tracked as f64 * RATIO)).max(1);
                dropped = self.order.evict(count, &is_locked);
            }
            if dropped.is_empty() {
                // nothing is written or unlocked before `now_ns`, so no later second drops more
                self.next_ns += (now_ns - self.next_ns) / SECOND_NS * SECOND_NS;
            } else {
                passes.push((self.next_ns, dropped));
            }
            self.next_ns = self.next_ns.saturating_add(SECOND_NS);
        }
        passes
    }

    /// Returns the leading keys that are present, and renews them.
    pub fn look_up(&mut self, keys: &[u64]) -> usize {
        let missing = keys.iter().position(|&key| !self.order.contains(key));
        let found = missing.unwrap_or(keys.len());
        self.order.touch(&keys[..found]);
        found
    }

    /// Writes the absent ones of the keys of one call. Returns their number, and true if they were written.
    pub fn store(&mut self, keys: &[u64]) -> (usize, bool) {
        let absent = keys.iter().copied().filter(|&k| !self.order.contains(k));
        let absent: Vec<u64> = absent.collect();
        let fits = self.order.len() + absent.len() <= self.capacity;
        if fits {
            self.order.write(&absent);
        }
        (absent.len(), fits)
    }

    /// Renews the present ones of a request's keys as it ends.
    pub fn end(&mut self, keys: &[u64]) {
        self.order.touch(keys);
    }
}

/// Results of a replay, in chunks.
#[derive(Debug, Default)]
pub struct ServerReplay {
    /// Hit tokens of each request.
    pub hits: Vec<i64>,
    /// Chunks written.
    pub stored: u64,
    /// Chunks of calls that did not fit.
    pub lost: u64,
    /// Chunks that the loop dropped.
    pub evicted: u64,
    /// Keys at the end, in the policy's order.
    pub keys: Vec<u64>,
    /// Misses by cause, if requested.
    pub causes: Option<MissCauses>,
}

/// Replays every request at its time. A prompt is computed in steps of `step_tokens`, and the whole chunks of a step
/// are one call. A request renews its chunks again as it ends.
pub fn replay(
    requests: &Requests<'_>,
    times_ns: &[u64],
    policy: L1Policy,
    capacity_chunks: usize,
    step_tokens: u64,
) -> ServerReplay {
    let mut l1 = ServerL1::new(policy, capacity_chunks);
    let mut done = ServerReplay::default();
    let mut log = requests.log();
    let mut causes = requests.causes();
    let mut overlap = Overlap::new(requests.window);
    for (request, &now_ns) in (0..requests.keys.requests()).zip(times_ns) {
        let passes = l1.run_until(now_ns, |_| false);
        let dropped: Vec<u64> = passes.into_iter().flat_map(|pass| pass.1).collect();
        done.evicted += dropped.len() as u64;
        if let Some(ended) = overlap.before_start() {
            l1.end(&requests.prompt_keys(ended, 0));
        }
        let keys = requests.prompt_keys(request, 0);
        let is_here: Vec<bool> = keys.iter().map(|&key| l1.order.contains(key)).collect();
        let found = l1.look_up(&keys);
        if let (Some(causes), Some(log)) = (&mut causes, &mut log) {
            dropped.iter().for_each(|&key| log.evicted(key, 1));
            log.now = request;
            let limit = fit::<u32>(keys.len());
            let lookup = Lookup {
                limit,
                ..requests.lookup(request, fit::<u32>(found))
            };
            let is_here = |block: u32| is_here[block as usize];
            causes.count(lookup, log, Some(&is_here));
            causes.learn(request, limit);
        }
        let mut from = found;
        for end in requests.step_ends(request, fit::<u32>(found), step_tokens) {
            let (chunks, fits) = l1.store(&keys[from..(end as usize).max(from)]);
            *(if fits {
                &mut done.stored
            } else {
                &mut done.lost
            }) += chunks as u64;
            from = from.max(end as usize);
        }
        if overlap.start(request).is_some() {
            l1.end(&keys);
        }
        done.hits
            .push(fit::<i64>(found) * i64::from(requests.block_size));
    }
    while let Some(ended) = overlap.oldest() {
        l1.end(&requests.prompt_keys(ended, 0));
    }
    ServerReplay {
        keys: l1.order.keys(),
        causes,
        ..done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 100 chunks; 79 are left alone, of 25 more 21 fit, the loop leaves 80, then 64, then all.
    #[test]
    fn the_loop_drops_a_fifth_from_eighty_percent_on() {
        for policy in [L1Policy::Lru, L1Policy::Arc] {
            let mut l1 = ServerL1::new(policy, 100);
            assert_eq!(l1.store(&(0..79).collect::<Vec<_>>()), (79, true));
            let run_until = |l1: &mut ServerL1, now_ns| {
                let passes = l1.run_until(now_ns, |_| false).into_iter();
                passes.flat_map(|pass| pass.1).collect::<Vec<_>>()
            };
            assert_eq!(run_until(&mut l1, SECOND_NS), []);
            let fit = (79..104).filter(|&key| l1.store(&[key]).1).count();
            assert_eq!((fit, l1.order.len()), (21, 100));
            assert_eq!(run_until(&mut l1, 2 * SECOND_NS - 1), []);
            let first = run_until(&mut l1, 2 * SECOND_NS);
            // of one call the last chunk goes first
            assert_eq!(first, (59..79).rev().collect::<Vec<_>>());
            assert_eq!(run_until(&mut l1, 3 * SECOND_NS).len(), 16);
            assert_eq!(
                (run_until(&mut l1, 90 * SECOND_NS), l1.order.len()),
                (vec![], 64)
            );
        }
    }

    #[test]
    fn locked_chunks_count_and_stay() {
        for policy in [L1Policy::Lru, L1Policy::Arc] {
            let mut l1 = ServerL1::new(policy, 10);
            l1.store(&(0..10).collect::<Vec<_>>());
            l1.look_up(&[0]);
            let passes = l1.run_until(SECOND_NS, |key| key > 7);
            assert_eq!(passes, [(SECOND_NS, vec![7, 6])]);
            let passes = l1.run_until(3 * SECOND_NS, |key| key > 0);
            assert_eq!(passes, [(2 * SECOND_NS, vec![0])]);
            assert_eq!(l1.run_until(9 * SECOND_NS, |_| true), []);
        }
    }

    #[test]
    fn a_call_that_does_not_fit_writes_nothing() {
        let mut l1 = ServerL1::new(L1Policy::Lru, 4);
        assert_eq!(l1.store(&[1, 2, 3]), (3, true));
        assert_eq!(l1.store(&[4, 5]), (2, false));
        // what is there already needs no memory
        assert_eq!(l1.store(&[2, 5]), (1, true));
        assert_eq!(l1.order.keys(), [3, 2, 1, 5]);
    }
}
