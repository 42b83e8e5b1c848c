//! Replay of requests in file order through the manager, times ignored: prompts in chunks, answers token by token.

use super::lost::{Junction, Losses};
use super::manager::GroupManager;
use super::rules::{chunk_end, next_change, Chunk};
use super::{Group, Limits};
use crate::convert::fit;
use crate::engines::block_pool::PoolCounts;
use crate::engines::requests::{Overlap, REJECTED};

/// The requests of a replay, one entry each.
#[derive(Debug, Clone, Copy)]
pub struct GroupRequests<'a> {
    /// Tokens of the prompt, at least 1.
    pub input_tokens: &'a [u64],
    /// Tokens filled at the end, at least those of the prompt.
    pub total_tokens: &'a [u64],
    /// Number of requests that overlap; 0: each ends before the next starts.
    pub window: u32,
    /// True if each group's own hits are counted too.
    pub alone: bool,
}

/// Results of a replay.
#[derive(Debug)]
pub struct GroupReplay {
    /// Hit tokens of each request, or `REJECTED`.
    pub hits: Vec<i64>,
    /// Running requests ended early to free blocks.
    pub forced_frees: u64,
    /// Requests of which some group had found more.
    pub junctions: u64,
    /// Those at which a group had kept nothing, in order of the requests.
    pub unkept: Vec<Junction>,
    /// For each group, tokens that another group had and it could not continue from: the blocks it needs were
    /// not kept, or were evicted.
    pub lost_tokens: Vec<(u64, u64)>,
    /// For each group, tokens that it alone could have continued from, of the requests that were not rejected.
    pub alone_tokens: Vec<u64>,
    /// Chunks in which prompts were computed.
    pub chunks: u64,
    /// Most blocks held after a request's last token.
    pub peak_used_blocks: u32,
    /// The pool's own counts.
    pub counts: PoolCounts,
    /// Group and key of each block in the free queue at the end.
    pub free_queue: Vec<Option<(u8, u64)>>,
    /// Bytes of the manager at the end.
    pub heap_bytes: usize,
}

/// Replays every request through a pool of `capacity_blocks` blocks; `align` is a multiple of every group's
/// block.
pub fn replay(
    requests: GroupRequests<'_>,
    groups: Vec<Group>,
    align: u64,
    limits: Limits,
    capacity_blocks: u32,
) -> GroupReplay {
    let mut running = Running {
        losses: Losses::new(groups.len()),
        alone_tokens: vec![0; groups.len()],
        reports_alone: requests.alone,
        manager: GroupManager::new(groups, align, limits, capacity_blocks),
        overlap: Overlap::new(requests.window),
        forced_frees: 0,
        unkept: Vec::new(),
        chunks: 0,
    };
    let mut peak_used_blocks = 0;
    let mut hits = Vec::with_capacity(requests.input_tokens.len());
    for (request, (&prompt, &total)) in
        (0..).zip(requests.input_tokens.iter().zip(requests.total_tokens))
    {
        if let Some(oldest) = running.overlap.before_start() {
            running.manager.release(oldest);
        }
        let hit = running.run(request, prompt, total);
        hits.push(hit.map_or(REJECTED, |tokens| fit::<i64>(tokens)));
        if hit.is_none() {
            running.manager.release(request);
            continue;
        }
        peak_used_blocks =
            peak_used_blocks.max(capacity_blocks - running.manager.pool.free_blocks());
        if let Some(ended) = running.overlap.start(request) {
            running.manager.release(ended);
        }
    }
    while let Some(oldest) = running.overlap.oldest() {
        running.manager.release(oldest);
    }
    GroupReplay {
        hits,
        forced_frees: running.forced_frees,
        junctions: running.losses.junctions,
        unkept: running.unkept,
        lost_tokens: running.losses.tokens,
        alone_tokens: running.alone_tokens,
        chunks: running.chunks,
        peak_used_blocks,
        counts: running.manager.pool.counts(),
        free_queue: running.manager.pool.free_queue().collect(),
        heap_bytes: running.manager.heap_bytes(),
    }
}

/// Manager and the running requests.
struct Running {
    manager: GroupManager,
    overlap: Overlap,
    forced_frees: u64,
    losses: Losses,
    unkept: Vec<Junction>,
    alone_tokens: Vec<u64>,
    reports_alone: bool,
    chunks: u64,
}

impl Running {
    /// Computes a request to its end. Returns its hit, or None if it does not fit.
    fn run(&mut self, request: u32, prompt: u64, total: u64) -> Option<u64> {
        let found = self.manager.look_up(request, prompt - 1);
        let unkept = self.losses.count(&self.manager, request, found);
        self.unkept.extend(unkept);
        let alone = match self.reports_alone {
            true => self.manager.alone(request, prompt - 1),
            false => Vec::new(),
        };
        let step = self.manager.limits().max_num_batched_tokens;
        let mut at = found.tokens;
        while at < prompt {
            let chunk = Chunk {
                computed: at,
                tokens: step.min(prompt - at),
                most_tokens: step,
                known: prompt,
                prompt,
                junction: found.junction,
            };
            let end = chunk_end(self.manager.groups(), chunk);
            self.evict_and_retry(|manager| {
                if at == found.tokens {
                    manager.admit(request, prompt, found, end)
                } else {
                    manager.extend(request, end)
                }
            })?;
            self.manager.compute(request, end);
            self.chunks += 1;
            at = end;
        }
        while at < total {
            self.evict_and_retry(|manager| manager.extend(request, at + 1))?;
            self.manager.compute(request, at + 1);
            at = next_change(self.manager.groups(), at + 1, 1, self.manager.align());
            // No event happens in between, so the tokens are computed at once.
            self.manager.compute(request, at.min(total));
        }
        for (sum, tokens) in self.alone_tokens.iter_mut().zip(alone) {
            *sum += tokens;
        }
        Some(found.tokens)
    }

    /// Retry until `attempt` succeeds or no request runs, ending the oldest running request after each failure.
    fn evict_and_retry(&mut self, attempt: impl Fn(&mut GroupManager) -> bool) -> Option<()> {
        while !attempt(&mut self.manager) {
            self.manager.release(self.overlap.oldest()?);
            self.forced_frees += 1;
        }
        Some(())
    }
}
