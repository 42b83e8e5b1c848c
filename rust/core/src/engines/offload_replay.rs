//! Replay of requests, one after another, against vLLM's CPU offloading tier (0.33.0, `vllm/v1/kv_offload`), without a GPU
//! pool.
//!
//! A request loads the leading keys that are present and then stores all its full prompt blocks. Present blocks
//! stay; the others are stored all or none, depending on capacity.

use super::offload_tier::{ArcSizes, OffloadTier};
use super::requests::Requests;
use crate::causes::engine::MissCauses;
use crate::convert::fit;

/// Results of a replay, in blocks (vLLM's chunks).
#[derive(Debug, Default)]
pub struct OffloadReplay {
    /// Hit tokens of each request.
    pub hits: Vec<i64>,
    /// Blocks stored.
    pub stored: u64,
    /// Blocks evicted.
    pub evicted: u64,
    /// Stores refused for lack of capacity.
    pub refused: u64,
    /// ARC's lists at the end.
    pub arc: Option<ArcSizes>,
    /// Misses by cause, if requested.
    pub causes: Option<MissCauses>,
}

/// Replays every request against a tier; the window is not used.
pub fn replay(requests: &Requests<'_>, tier: &mut OffloadTier) -> OffloadReplay {
    let mut causes = requests.causes();
    let mut log = requests.log();
    let mut result = OffloadReplay::default();
    for request in 0..requests.keys.requests() {
        let all = requests.prompt_keys(request, 0);
        let limit = requests.limit(request);
        let leading = all[..limit as usize].iter();
        let found = fit::<u32>(
            leading
                .take_while(|&&key| tier.policy.contains(key))
                .count(),
        );
        result
            .hits
            .push(i64::from(found) * i64::from(requests.block_size));
        if let (Some(causes), Some(log)) = (&mut causes, &mut log) {
            log.now = request;
            let is_there = |block| tier.policy.contains(all[block as usize]);
            causes.count(requests.lookup(request, found), log, Some(&is_there));
            causes.learn(request, fit::<u32>(all.len()));
        }
        let offered = tier.offer(all, &|_| false);
        result.stored += offered.stored;
        result.refused += u64::from(offered.is_refused);
        result.evicted += offered.evicted.len() as u64;
        if let Some(log) = &mut log {
            offered.evicted.iter().for_each(|&key| log.evicted(key, 1));
        }
        tier.finish(&offered.accesses);
    }
    result.arc = tier.policy.arc_sizes();
    result.causes = causes;
    result
}
