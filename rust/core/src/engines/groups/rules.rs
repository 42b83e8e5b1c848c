//! What each kind of group finds, drops and keeps (`single_type_kv_cache_manager.py`).

use std::ops::Range;

use super::{Group, Kind, Limits};

/// Blocks behind a position that a window needs; one state for the others.
pub fn needed_blocks(group: &Group) -> u32 {
    match group.kind {
        Kind::Sliding(window) => group.blocks(window - 1),
        _ => 1,
    }
}

/// Leading blocks that nobody reads any more once so many tokens are computed.
pub fn skipped_blocks(group: &Group, computed: u64) -> u32 {
    group.whole(match group.kind {
        Kind::Full => 0,
        Kind::Sliding(window) => (computed + 1).saturating_sub(window),
        Kind::Chunked(chunk) => computed / chunk * chunk,
        Kind::Linear => computed.saturating_sub(1),
    })
}

/// Blocks that a whole sequence is counted with when it asks to be admitted.
pub fn admission_blocks(group: &Group, tokens: u64, limits: &Limits) -> u32 {
    let step = |reach: u64| {
        group.blocks((reach + limits.max_num_batched_tokens).min(limits.max_model_len))
    };
    let needed = group.blocks(tokens);
    match group.kind {
        Kind::Sliding(window) => needed.min(step(window - 1) + 1),
        Kind::Chunked(chunk) => needed.min(step(chunk)),
        Kind::Full | Kind::Linear => needed,
    }
}

/// Calls `keep` with the ranges of blocks, of those from `blocks.start` up to `blocks.end`, that get a key; a
/// block may be in several. `boundaries` are positions that a later request can go on from.
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

/// Where the next chunk of a prompt ends: after a step's tokens, but a state must end where it can be kept.
pub fn chunk_end(groups: &[Group], computed: u64, prompt: u64, step: u64, junction: u64) -> u64 {
    chunk_end_within(groups, computed, prompt, (step, step), junction)
}

/// As `chunk_end`, where others may have taken of the step: its tokens that are left, and all of them. Not
/// beyond `computed` where too few are left for a state to end where it can be kept.
pub fn chunk_end_within(
    groups: &[Group],
    computed: u64,
    prompt: u64,
    (left, step): (u64, u64),
    junction: u64,
) -> u64 {
    let mut end = prompt.min(computed + left);
    let Some(linear) = groups.iter().find(|g| g.kind == Kind::Linear) else {
        return end;
    };
    let size = linear.block_size;
    let whole = end / size * size;
    if end < prompt && (whole > computed || size <= step) {
        end = whole;
    }
    let mut first = end;
    let mut stop = |at: u64| {
        if computed < at && at < end {
            first = first.min(at);
        }
    };
    stop(computed.next_multiple_of(size));
    stop((prompt - 1) / size * size);
    if computed < junction && junction < end {
        stop(computed + (junction - computed) / size * size);
    }
    first
}

/// The next number of computed tokens, at least `computed`, at which decoding one more token changes a table:
/// a block is taken, one leaves a window, or an aligned length is completed.
pub fn next_change(groups: &[Group], computed: u64, align: u64) -> u64 {
    let completes = (computed + 1).next_multiple_of(align) - 1;
    let changes = groups.iter().map(|group| {
        let size = group.block_size;
        let starts = computed.next_multiple_of(size);
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
