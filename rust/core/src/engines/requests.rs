//! Input of every replay: requests in file order, and the window in which they overlap.

use std::collections::VecDeque;
use std::sync::Arc;

use super::below::Prompt;
use crate::causes::engine::{Lookup, MissCauses};
use crate::causes::eviction_log::EvictionLog;
use crate::convert::fit;
use crate::keys::BlockKeys;

/// Hit of a rejected request.
pub const REJECTED: i64 = -1;

/// Requests of a replay, one entry each, cut into blocks of `block_size` tokens.
#[derive(Debug, Clone, Copy)]
pub struct Requests<'a> {
    /// Keys of the requests' blocks.
    pub keys: &'a Arc<BlockKeys>,
    /// Tokens of the prompt, at least 1.
    pub input_tokens: &'a [u64],
    /// Tokens filled at the end, at least those of the prompt.
    pub total_tokens: &'a [u64],
    /// Tokens per block.
    pub block_size: u32,
    /// Number of requests that overlap; 0: each ends before the next starts.
    pub window: u32,
    /// True if misses are counted by cause.
    pub explain: bool,
}

impl Requests<'_> {
    /// Returns the leading blocks of a request that may hit: the last token is always computed.
    pub fn limit(&self, request: u32) -> u32 {
        fit::<u32>((self.input_tokens[request as usize] - 1) / u64::from(self.block_size))
    }

    /// Returns a request's prompt, for tiers that store chunks of so many blocks.
    pub fn prompt(&self, request: u32, chunk_blocks: u32) -> Prompt<'_> {
        let tokens = self.input_tokens[request as usize];
        Prompt {
            request,
            whole_blocks: fit::<u32>(tokens / u64::from(self.block_size)),
            chunk_blocks,
            keys: self.keys,
        }
    }

    /// Returns the keys of a prompt's full blocks, from a given block on.
    #[inline]
    pub fn prompt_keys(&self, request: u32, from: u32) -> Vec<u64> {
        let tokens = self.input_tokens[request as usize];
        let full = fit::<u32>(tokens / u64::from(self.block_size));
        let key = |block| self.keys.key(request, block);
        (from..full).map(key).collect()
    }

    /// Returns the prompt's full blocks that are computed at the end of each step of at most `step_tokens` tokens, after
    /// `cached_blocks` blocks.
    pub fn step_ends(
        &self,
        request: u32,
        cached_blocks: u32,
        step_tokens: u64,
    ) -> impl Iterator<Item = u32> {
        let size = u64::from(self.block_size);
        let prompt = self.input_tokens[request as usize];
        let cached = (u64::from(cached_blocks) * size).min(prompt - 1);
        let steps = (prompt - cached).div_ceil(step_tokens);
        (1..=steps).map(move |k| fit::<u32>((cached + k * step_tokens).min(prompt) / size))
    }

    /// Returns the look-up of a request that found `hits` leading blocks.
    pub fn lookup(&self, request: u32, hits: u32) -> Lookup {
        Lookup {
            request,
            input_tokens: self.input_tokens[request as usize],
            hits,
            limit: self.limit(request),
        }
    }

    /// Returns counters of misses, if requested.
    pub fn causes(&self) -> Option<MissCauses> {
        self.explain
            .then(|| MissCauses::new(self.keys.clone(), self.block_size))
    }

    /// Returns a log of evictions, if misses are counted by cause.
    pub fn log(&self) -> Option<EvictionLog> {
        self.explain.then(|| EvictionLog::new(self.keys))
    }
}

/// Running requests, the oldest first.
#[derive(Debug)]
pub struct Overlap {
    window: u32,
    running: VecDeque<u32>,
}

impl Overlap {
    /// An empty window.
    pub fn new(window: u32) -> Self {
        Self {
            window,
            running: VecDeque::new(),
        }
    }

    /// Returns the request that must end before another starts: the oldest, if the window is full.
    pub fn before_start(&mut self) -> Option<u32> {
        let full = self.window > 0 && fit::<u32>(self.running.len()) == self.window;
        if full {
            self.oldest()
        } else {
            None
        }
    }

    /// Starts a request. Returns it at once if requests do not overlap, since it then ends at once.
    pub fn start(&mut self, request: u32) -> Option<u32> {
        self.running.push_back(request);
        if self.window == 0 {
            self.oldest()
        } else {
            None
        }
    }

    /// Removes and returns the oldest running request.
    pub fn oldest(&mut self) -> Option<u32> {
        self.running.pop_front()
    }
}
