//! Replay of requests, one after another, against LMCache's CPU tier and the disk tier below it (0.5.6).
//!
//! Follows `LocalCPUBackend`, `LocalDiskBackend` and the storage manager's order of calls: look up and touch, load
//! from disk, store. A chunk takes one unit of CPU memory; only whole chunks of prompts are stored.

use super::chunk_order::{ChunkOrder, ChunkPolicy};
use super::held_keys::HeldKeys;
use super::lmcache_tiers::{Tier, Tiers};
use super::requests::Requests;
use super::tier_chunks::TierBlocks;
use crate::causes::engine::{Lookup, MissCauses};
use crate::causes::eviction_log::EvictionLog;
use crate::convert::fit;

/// Results of a replay, in chunks.
#[derive(Debug, Default)]
pub struct LmcacheReplay {
    /// Hit tokens of each request.
    pub hits: Vec<i64>,
    /// Chunks that each request loaded from disk.
    pub from_disk: Vec<i64>,
    /// Chunks hit on the CPU.
    pub cpu_hits: u64,
    /// Chunks that got memory to be stored, including chunks that turned out to be present.
    pub stored: u64,
    /// Requests that could not store all their chunks.
    pub short_stores: u64,
    /// Chunks evicted from the CPU.
    pub cpu_evictions: u64,
    /// Chunks evicted from the disk.
    pub disk_evictions: u64,
    /// Keys on the CPU at the end, in order.
    pub cpu_keys: Vec<u64>,
    /// Keys on the disk at the end, in order.
    pub disk_keys: Vec<u64>,
    /// Misses by cause, if requested.
    pub causes: Option<MissCauses>,
}

/// Replays every request; `disk_chunks` 0 is no disk. The window is not used.
///
/// Chunks found on disk beyond the whole CPU memory are not loaded: the engine would wait for them forever.
pub fn replay(
    requests: &Requests<'_>,
    policy: ChunkPolicy,
    cpu_chunks: u64,
    disk_chunks: u64,
) -> LmcacheReplay {
    let orders = [policy; 2].map(ChunkOrder::new);
    let mut tiers = Tiers::new(
        orders,
        TierBlocks {
            cpu: cpu_chunks,
            disk: disk_chunks,
        },
    );
    let mut done = LmcacheReplay::default();
    let mut log = requests.log();
    let mut causes = requests.causes();
    for request in 0..requests.keys.requests() {
        let keys = requests.prompt_keys(request, 0);
        let whole = fit::<u32>(keys.len());
        let (on_cpu, found) = tiers.look_up(whole, |block| keys[block as usize]);
        tiers.hit(&keys[..found as usize], on_cpu as usize);
        let hits = fit::<usize>(u64::from(found).min(cpu_chunks));
        if let (Some(causes), Some(log)) = (&mut causes, &mut log) {
            log.now = request;
            let lookup = Lookup {
                limit: whole,
                ..requests.lookup(request, fit::<u32>(hits))
            };
            let [cpu, disk] = [&tiers.cpu.chunks, &tiers.disk.chunks];
            let key = |block: u32| keys[block as usize];
            let is_here = |block| cpu.contains(key(block)) || disk.contains(key(block));
            causes.count(lookup, log, Some(&is_here));
            causes.learn(request, whole);
        }
        let (pinned, loaded) = keys[..hits].split_at(on_cpu as usize);
        let (_, evicted) = tiers.load(loaded, pinned);
        note(&mut log, &evicted, &tiers.disk);
        let (stored, evicted) = tiers.take(keys.len() - hits, &HeldKeys::default());
        note(&mut log, &evicted, &tiers.disk);
        let new = &keys[hits..hits + stored];
        tiers.put(new);
        let (_, evicted) = tiers.store_on_disk(new);
        note(&mut log, &evicted, &tiers.cpu);
        done.stored += stored as u64;
        done.short_stores += u64::from(hits + stored < keys.len());
        done.cpu_hits += u64::from(on_cpu);
        done.from_disk.push(fit::<i64>(hits - on_cpu as usize));
        done.hits
            .push(fit::<i64>(hits) * i64::from(requests.block_size));
    }
    LmcacheReplay {
        cpu_evictions: tiers.cpu.evictions,
        disk_evictions: tiers.disk.evictions,
        cpu_keys: tiers.cpu.chunks.keys(),
        disk_keys: tiers.disk.chunks.keys(),
        causes,
        ..done
    }
}

/// Logs the keys that one tier evicted and the other does not have.
fn note(log: &mut Option<EvictionLog>, evicted: &[u64], other: &Tier) {
    if let Some(log) = log {
        let gone = evicted.iter().filter(|&&key| !other.chunks.contains(key));
        gone.for_each(|&key| log.evicted(key, 1));
    }
}
