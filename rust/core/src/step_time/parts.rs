//! The parts of a step-time table: bases, coefficients, bounds, residuals, launch times, pipeline stages.

use crate::convert::fit;
use crate::residual_grid::ResidualGrid;

/// Base of a step, by its tokens.
#[derive(Clone, Debug, Default)]
pub struct StepBases {
    /// Base of a step with a prefill chunk.
    pub chunk_ns: Vec<u64>,
    /// Base if a chunk has a past, which another kernel reads; empty: `chunk_ns` applies.
    pub past_chunk_ns: Vec<u64>,
    /// Base of a decode step, by its sequences; negative if `sequence_fs`, fitted to mixed steps, is too
    /// large for it.
    pub decode_ns: Vec<i64>,
}

/// Coefficients of a step's terms.
#[derive(Clone, Copy, Debug, Default)]
pub struct StepCoefficients {
    /// Per pair of query and key tokens of the chunks, halved.
    pub pair_half_fs: u64,
    /// For decode sequences in a step with a chunk, whatever their number: a separate kernel per layer.
    pub alongside_fs: u64,
    /// Per KV token of a decode step.
    pub kv_decode_fs: u64,
    /// Per KV token of the decode sequences in a step with a prefill chunk.
    pub kv_mixed_fs: u64,
    /// Per decode sequence.
    pub sequence_fs: u64,
    /// Per token of a chunk's past.
    pub past_fs: u64,
    /// Per token by which a sequence of a decode step is shorter than the longest.
    pub spread_decode_fs: u64,
    /// Per token by which a sequence of a step with a prefill chunk is shorter than the longest.
    pub spread_mixed_fs: u64,
    /// Per token of the longest sequence of a step with a prefill chunk, read by one core: a lower bound of attention.
    pub scan_fs: u64,
    /// Per token of the chunks for each decode sequence in the step: idle tiles of the kernel's grid.
    pub idle_fs: u64,
}

/// Least counts of tokens.
#[derive(Clone, Copy, Debug, Default)]
pub struct LeastTokens {
    /// Of a decode sequence's KV.
    pub kv_tokens: u64,
    /// Of a chunk against its past.
    pub query_tokens: u64,
}

/// Decode sequences whose KV the attention kernel does not split.
#[derive(Clone, Copy, Debug, Default)]
pub struct UnsplitKv {
    /// Least number of decode sequences whose KV is no longer split; 0: it always is.
    pub sequences: u64,
    /// Per token of the longest of that many sequences, which one block reads.
    pub fs: u64,
    /// Part of that time in which the others run, per token of their mean.
    pub hidden_fs: u64,
}

/// Residuals of measured steps, in ns.
#[derive(Clone, Debug, Default)]
pub struct StepResiduals {
    /// Of a decode step, by its sequences and their mean KV.
    pub kv: ResidualGrid,
    /// Of decode sequences in a step with a chunk.
    pub mixed: ResidualGrid,
    /// Of a chunk with a past, by its tokens and the past's.
    pub past: ResidualGrid,
}

/// The host's time to launch a step; a step takes at least its launch.
#[derive(Clone, Copy, Debug, Default)]
pub struct LaunchTimes {
    /// Launch without a CUDA graph, kernel by kernel.
    pub eager_ns: u64,
    /// Most tokens of a step that a graph captures.
    pub captured_tokens: u64,
    /// Launch of a step with a chunk that graphs capture in pieces.
    pub pieces_ns: u64,
    /// Launch of a decode step that one graph captures.
    pub graph_ns: u64,
    /// Launch time per decode sequence.
    pub sequence_ns: u64,
    /// Time from the launch's end to the step's end on a GPU that waited for the launch: the kernels launched
    /// last.
    pub tail_ns: u64,
    /// The part of the tail per decode sequence.
    pub tail_sequence_ns: u64,
}

/// The parts of a step on pipeline stages; empty: equal ones, with no time between two stages.
#[derive(Clone, Debug, Default)]
pub struct StageTimes {
    /// Layers of each stage.
    pub layers: Vec<u64>,
    /// Time of the head, which the last stage has, by the tokens of a step; beyond the last entry, as the last.
    pub head_ns: Vec<u64>,
    /// Time from one stage to the next, by the tokens of a step; beyond the last entry, as the last.
    pub hop_ns: Vec<u64>,
}

impl StageTimes {
    /// Ends of the shares of `stages` stages in a step that alone takes `step_ns` on one GPU after another.
    ///
    /// Shares follow the layers, the remainder goes to later stages, and the last one also has the head.
    pub fn share_ends_ns(&self, stages: usize, tokens: u64, step_ns: u64) -> Vec<u64> {
        let head_ns = at_tokens(&self.head_ns, tokens).min(step_ns);
        let body_ns = u128::from(step_ns - head_ns);
        let each = vec![1; stages];
        let layers = if self.layers.len() == stages {
            &self.layers
        } else {
            &each
        };
        let all: u128 = layers.iter().copied().map(u128::from).sum();
        let mut before: u128 = 0;
        let mut ends: Vec<u64> = layers
            .iter()
            .map(|&own| {
                before += u128::from(own);
                fit(body_ns * before / all)
            })
            .collect();
        if let Some(last) = ends.last_mut() {
            *last = step_ns;
        }
        ends
    }

    /// Time between two stages of a step of `tokens` tokens.
    pub fn hop_of(&self, tokens: u64) -> u64 {
        at_tokens(&self.hop_ns, tokens)
    }
}

fn at_tokens(times_ns: &[u64], tokens: u64) -> u64 {
    let at = times_ns.get(tokens as usize).or(times_ns.last());
    at.copied().unwrap_or(0)
}
