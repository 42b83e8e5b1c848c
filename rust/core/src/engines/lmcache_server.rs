//! Replay of requests in file order against LMCache's server (0.5.7, `v1/distributed`): its memory (L1), and a storage
//! (L2) below it.
//!
//! Nothing is evicted for a write: a call that does not fit in the free chunks writes nothing. What is written goes to
//! the storage too, until that is full. The engine above has no cache here.

use super::l1_order::L1Policy;
use super::requests::{Overlap, Requests};
use super::server_level::ServerLevel;
use crate::causes::engine::{Lookup, MissCauses};
use crate::convert::fit;

/// Chunks of the two levels.
#[derive(Debug, Clone, Copy)]
pub struct LevelChunks {
    /// Those of the memory.
    pub memory: usize,
    /// Those of the storage; 0: none.
    pub storage: usize,
}

/// Both levels, without time; a storage of 0 chunks is none.
#[derive(Debug)]
struct Server {
    l1: ServerLevel,
    l2: ServerLevel,
}

impl Server {
    fn new(policy: L1Policy, chunks: LevelChunks) -> Self {
        Self {
            l1: ServerLevel::new(policy, chunks.memory),
            l2: ServerLevel::new(policy, chunks.storage),
        }
    }

    /// Lets the loops wake up to a time. Returns the keys that each level dropped.
    fn run_until(&mut self, now_ns: u64) -> [Vec<u64>; 2] {
        [&mut self.l1, &mut self.l2].map(|level| {
            let passes = level.run_until(now_ns, |_| false).into_iter();
            passes.flat_map(|pass| pass.1).collect()
        })
    }

    fn has(&self, key: u64) -> bool {
        self.l1.order.contains(key) || self.l2.order.contains(key)
    }

    /// Returns the leading keys that are found, and how many of them the storage brings. These pass through the
    /// memory, if all of them fit, and leave it again.
    fn look_up(&mut self, keys: &[u64]) -> (usize, usize) {
        let first = |is_absent: &dyn Fn(u64) -> bool| {
            let at = keys.iter().position(|&key| is_absent(key));
            at.unwrap_or(keys.len())
        };
        let mut found = first(&|key| !self.has(key));
        let is_below = |key: &u64| !self.l1.order.contains(*key);
        let mut brought: Vec<u64> = keys[..found].iter().copied().filter(is_below).collect();
        if self.l1.spare() < brought.len() {
            found = first(&|key| !self.l1.order.contains(key));
            brought.clear();
        }
        self.l1.order.write(&brought);
        self.l2.order.touch(&brought);
        self.l1.order.touch(&keys[..found]);
        let forget = |&key: &u64| self.l1.order.forget(key);
        brought.iter().for_each(forget);
        (found, brought.len())
    }

    /// Writes the absent ones of the keys of one call. Returns their number, and true if they were written.
    fn store(&mut self, keys: &[u64]) -> (usize, bool) {
        let absent = keys.iter().copied();
        let absent: Vec<u64> = absent.filter(|&k| !self.l1.order.contains(k)).collect();
        let fits = self.l1.spare() >= absent.len();
        if fits {
            self.l1.order.write(&absent);
            self.l2.keep(&absent);
        }
        (absent.len(), fits)
    }

    /// Renews the present ones of a request's keys as it ends.
    fn end(&mut self, keys: &[u64]) {
        self.l1.order.touch(keys);
        self.l2.order.touch(keys);
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
    /// Chunks that the storage brought for each request.
    pub from_disk: Vec<i64>,
    /// Chunks that the loops dropped, of memory and of storage.
    pub evicted: (u64, u64),
    /// Keys in memory at the end, in the policy's order.
    pub keys: Vec<u64>,
    /// Keys in storage at the end, in the policy's order.
    pub disk_keys: Vec<u64>,
    /// Misses by cause, if requested.
    pub causes: Option<MissCauses>,
}

/// Replays every request at its time. A prompt is computed in steps of `step_tokens`, and the whole chunks of a step
/// are one call. A request renews its chunks again as it ends.
pub fn replay(
    requests: &Requests<'_>,
    times_ns: &[u64],
    policy: L1Policy,
    chunks: LevelChunks,
    step_tokens: u64,
) -> ServerReplay {
    let mut server = Server::new(policy, chunks);
    let mut done = ServerReplay::default();
    let mut log = requests.log();
    let mut causes = requests.causes();
    let mut overlap = Overlap::new(requests.window);
    for (request, &now_ns) in (0..requests.keys.requests()).zip(times_ns) {
        let [dropped, below] = server.run_until(now_ns);
        done.evicted.0 += dropped.len() as u64;
        done.evicted.1 += below.len() as u64;
        if let Some(ended) = overlap.before_start() {
            server.end(&requests.prompt_keys(ended, 0));
        }
        let keys = requests.prompt_keys(request, 0);
        let is_here: Vec<bool> = keys.iter().map(|&key| server.has(key)).collect();
        let (found, brought) = server.look_up(&keys);
        if let (Some(causes), Some(log)) = (&mut causes, &mut log) {
            let gone = dropped.iter().chain(&below);
            gone.filter(|&&key| !server.has(key))
                .for_each(|&key| log.evicted(key, 1));
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
            let (chunks, fits) = server.store(&keys[from..(end as usize).max(from)]);
            *(if fits {
                &mut done.stored
            } else {
                &mut done.lost
            }) += chunks as u64;
            from = from.max(end as usize);
        }
        if overlap.start(request).is_some() {
            server.end(&keys);
        }
        done.from_disk.push(fit::<i64>(brought));
        done.hits
            .push(fit::<i64>(found) * i64::from(requests.block_size));
    }
    while let Some(ended) = overlap.oldest() {
        server.end(&requests.prompt_keys(ended, 0));
    }
    ServerReplay {
        keys: server.l1.order.keys(),
        disk_keys: server.l2.order.keys(),
        causes,
        ..done
    }
}

#[cfg(test)]
mod tests {
    use super::super::server_level::SECOND_NS;
    use super::*;

    /// 100 chunks; 79 are left alone, of 25 more 21 fit, the loop leaves 80, then 64, then all.
    #[test]
    fn the_loop_drops_a_fifth_from_eighty_percent_on() {
        for policy in [L1Policy::Lru, L1Policy::Arc] {
            let mut server = Server::new(
                policy,
                LevelChunks {
                    memory: 100,
                    storage: 0,
                },
            );
            assert_eq!(server.store(&(0..79).collect::<Vec<_>>()), (79, true));
            assert_eq!(server.run_until(SECOND_NS)[0], []);
            let fit = (79..104).filter(|&key| server.store(&[key]).1).count();
            assert_eq!((fit, server.l1.order.len()), (21, 100));
            assert_eq!(server.run_until(2 * SECOND_NS - 1)[0], []);
            let [first, _] = server.run_until(2 * SECOND_NS);
            // of one call the last chunk goes first
            assert_eq!(first, (59..79).rev().collect::<Vec<_>>());
            assert_eq!(server.run_until(3 * SECOND_NS)[0].len(), 16);
            assert_eq!(server.run_until(90 * SECOND_NS)[0], []);
            assert_eq!(server.l1.order.len(), 64);
        }
    }

    #[test]
    fn locked_chunks_count_and_stay() {
        for policy in [L1Policy::Lru, L1Policy::Arc] {
            let mut l1 = ServerLevel::new(policy, 10);
            l1.order.write(&(0..10).collect::<Vec<_>>());
            l1.order.touch(&[0]);
            let passes = l1.run_until(SECOND_NS, |key| key > 7);
            assert_eq!(passes, [(SECOND_NS, vec![7, 6])]);
            let passes = l1.run_until(3 * SECOND_NS, |key| key > 0);
            assert_eq!(passes, [(2 * SECOND_NS, vec![0])]);
            assert_eq!(l1.run_until(9 * SECOND_NS, |_| true), []);
        }
    }

    #[test]
    fn a_call_that_does_not_fit_writes_nothing() {
        let mut server = Server::new(
            L1Policy::Lru,
            LevelChunks {
                memory: 4,
                storage: 0,
            },
        );
        assert_eq!(server.store(&[1, 2, 3]), (3, true));
        assert_eq!(server.store(&[4, 5]), (2, false));
        // what is there already needs no memory
        assert_eq!(server.store(&[2, 5]), (1, true));
        assert_eq!(server.l1.order.keys(), [3, 2, 1, 5]);
    }

    #[test]
    fn storage_brings_all_that_lead_or_none() {
        let mut server = Server::new(
            L1Policy::Lru,
            LevelChunks {
                memory: 5,
                storage: 9,
            },
        );
        server.store(&[1, 2, 3, 4]);
        server.run_until(SECOND_NS);
        assert_eq!(server.l1.order.keys(), [3, 2, 1]);
        assert_eq!(server.look_up(&[1, 2, 3, 4, 5]), (4, 1));
        assert_eq!(server.l1.order.keys(), [3, 2, 1]);
        server.store(&[6, 7]);
        assert_eq!(server.look_up(&[1, 2, 3, 4]), (3, 0));
        assert_eq!(server.l2.order.keys(), [3, 2, 1, 4, 7, 6]);
    }
}
