//! Blocks that each kind of group finds, drops and keeps (`single_type_kv_cache_manager.py`).

use std::ops::Range;

use super::{Group, Kind};

/// Returns the blocks behind a position that a window needs; one state for other kinds.
pub fn needed_blocks(group: &Group) -> u32 {
    match group.kind {
        Kind::Sliding(window) => group.blocks(window - 1),
        _ => 1,
    }
}

/// Returns the leading blocks that are no longer read once `computed` tokens are computed.
pub fn skipped_blocks(group: &Group, computed: u64) -> u32 {
    group.whole(match group.kind {
        Kind::Full => 0,
        Kind::Sliding(window) => (computed + 1).saturating_sub(window),
        Kind::Chunked(chunk) => computed / chunk * chunk,
        Kind::Linear => computed.saturating_sub(1),
    })
}

/// Returns the blocks that a whole sequence counts at its admission.
///
/// `in_flight`: most tokens that steps in flight compute; `longest`: tokens of the longest sequence.
pub fn admission_blocks(group: &Group, tokens: u64, in_flight: u64, longest: u64) -> u32 {
    let step = |reach: u64| group.blocks((reach + in_flight).min(longest));
    let needed = group.blocks(tokens);
    match group.kind {
        Kind::Sliding(window) => needed.min(step(window - 1) + 1),
        Kind::Chunked(chunk) => needed.min(step(chunk)),
        Kind::Full | Kind::Linear => needed,
    }
}

/// Call `keep` with the ranges of `blocks` that get a key; a block may be in several ranges. `boundaries` are
/// positions that a later request can continue from.
pub fn retained(
    group: &Group,
    blocks: Range<u32>,
    align: u64,
    interval: Option<u64>,
    boundaries: &[u64],
    mut keep: impl FnMut(Range<u32>),
) {
    let dense = interval.is_none() && group.kind == Kind::Linear;
    if dense || matches!(group.kind, Kind::Full | Kind::Chunked(_)) {
        return keep(blocks);
    }
    let need = needed_blocks(group);
    let segment = group.whole(interval.unwrap_or(align));
    if segment > 0 && need >= segment {
        return keep(blocks);
    }
    let mut tail = |end: u32| {
        let range = blocks.start.max(end.saturating_sub(need))..blocks.end.min(end);
        if !range.is_empty() {
            keep(range);
        }
    };
    if let Some(before) = blocks.start.checked_div(segment) {
        let mut end = (before + 1) * segment;
        while end.saturating_sub(need) < blocks.end {
            tail(end);
            end += segment;
        }
    }
    if interval.is_some() {
        for &boundary in boundaries {
            tail(group.whole(boundary / align * align));
        }
    }
}

/// Chunk of a request's tokens, before it is cut at a position where a state can be kept.
#[derive(Debug, Clone, Copy)]
pub struct Chunk {
    /// Tokens computed before the chunk.
    pub computed: u64,
    /// Tokens that the chunk may have, at most those that the request lacks.
    pub tokens: u64,
    /// Most tokens that any chunk may have.
    pub most_tokens: u64,
    /// Tokens to compute before the request decodes: the prompt, and tokens generated before a preemption.
    pub known: u64,
    /// Tokens of the prompt.
    pub prompt: u64,
    /// Tokens at which the request diverged from the prefix found, 0 if it did not.
    pub junction: u64,
}

/// Returns the end of a chunk: after its tokens, but a state must end where it can be kept
/// (`_mamba_block_aligned_split`). The end is `computed` if the tokens are too few for that.
pub fn chunk_end(groups: &[Group], chunk: Chunk) -> u64 {
    let Chunk {
        computed, known, ..
    } = chunk;
    let mut end = computed + chunk.tokens;
    let prefill_end = chunk.prompt.max(known - 1);
    let linear = groups.iter().find(|g| g.kind == Kind::Linear);
    let Some(linear) = linear.filter(|_| computed < prefill_end) else {
        return end;
    };
    let size = linear.block_size;
    let whole = end / size * size;
    if end < prefill_end && (whole > computed || size <= chunk.most_tokens) {
        end = whole;
    }
    let mut first = end;
    let mut stop = |at: u64| {
        if computed < at && at < end {
            first = first.min(at);
        }
    };
    stop(computed.next_multiple_of(size));
    stop((known - 1) / size * size);
    if computed < chunk.junction && chunk.junction < end {
        stop(computed + (chunk.junction - computed) / size * size);
    }
    first
}

/// The next number of computed tokens, at least `computed`, at which a decode changes a table: a block is taken
/// for the `lookahead`-th token from there on, a block leaves a window, or an aligned length is completed.
pub fn next_change(groups: &[Group], computed: u64, lookahead: u64, align: u64) -> u64 {
    let completes = (computed + 1).next_multiple_of(align) - 1;
    let changes = groups.iter().map(|group| {
        let size = group.block_size;
        let starts = (computed + lookahead - 1).next_multiple_of(size) + 1 - lookahead;
        match group.kind {
            Kind::Full => starts,
            // A block has left the window when computed + 1 - window is a multiple of the block.
            Kind::Sliding(window) => {
                let past = (computed + 1).saturating_sub(window).max(1);
                starts.min(past.next_multiple_of(size) + window - 1)
            }
            Kind::Chunked(chunk) => starts.min(computed.next_multiple_of(chunk)),
            Kind::Linear => starts.min((computed.max(1) - 1).next_multiple_of(size) + 1),
        }
    });
    changes.fold(completes, u64::min)
}
