//! Replays of eviction policies: causes of each request's misses, from the known blocks of its prompt.

use super::prompt::PromptMisses;
use super::{MissCause, TokensByCause};

/// A finished replay, one entry per request (except `id_offsets` and `ids`).
#[derive(Debug, Clone, Copy)]
pub struct PolicyReplay<'a> {
    /// Request `r` has the ids `ids[id_offsets[r]..id_offsets[r + 1]]`.
    pub id_offsets: &'a [i64],
    /// Ids of all requests.
    pub ids: &'a [u32],
    /// Blocks per id.
    pub blocks_per_id: u32,
    /// Tokens per block.
    pub block_tokens: u32,
    /// Tokens of the prompt.
    pub input_tokens: &'a [i64],
    /// Leading blocks of the prompt that its ids name.
    pub blocks: &'a [u32],
    /// Leading blocks that may hit.
    pub limits: &'a [u32],
    /// Leading blocks, within `limits`, that an earlier prompt showed.
    pub known: &'a [u32],
    /// Leading blocks, within `known`, that the cache had admitted.
    pub admitted: &'a [i64],
    /// Leading blocks found.
    pub hits: &'a [u32],
}

/// Returns the missed tokens of each request by cause; a row sums to the prompt minus its hit.
///
/// The lengths of the arrays must agree; the binding checks them. Cost: O(ids), and one byte per distinct id.
pub fn miss_tokens(replay: &PolicyReplay<'_>) -> Vec<TokensByCause> {
    let per = replay.blocks_per_id;
    let distinct = replay.ids.iter().max().map_or(0, |&id| id as usize + 1);
    // True if an earlier request has continued from the id to another id.
    let mut continued = vec![false; distinct];
    let mut rows = Vec::with_capacity(replay.hits.len());
    for request in 0..replay.hits.len() {
        let ids = &replay.ids
            [replay.id_offsets[request] as usize..replay.id_offsets[request + 1] as usize];
        let input_tokens = replay.input_tokens[request].max(0) as u64;
        let tokens =
            |blocks: u32| (u64::from(blocks) * u64::from(replay.block_tokens)).min(input_tokens);
        let (limit, known) = (replay.limits[request], replay.known[request]);
        let admitted = replay.admitted[request].clamp(0, i64::from(known)) as u32;
        let mut misses = PromptMisses::after(tokens(replay.hits[request].min(limit)));
        misses.until(tokens(admitted), MissCause::Evicted);
        misses.until(tokens(known), MissCause::NotAdmitted);
        let new = misses.new_block(|| {
            let whole = known > 0 && known % per == 0;
            whole
                && ids
                    .get((known / per) as usize - 1)
                    .is_some_and(|&id| continued[id as usize])
        });
        misses.until(tokens(limit), new);
        rows.push(misses.end(input_tokens));
        let followed = replay.blocks[request].saturating_sub(1) / per;
        let followed = (followed as usize).min(ids.len().saturating_sub(1));
        ids[..followed]
            .iter()
            .for_each(|&id| continued[id as usize] = true);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_is_counted_front_to_back() {
        // Two blocks of 4 tokens per id: 0 1 is shown, then 0 2, then 0 1 3, whose last id is mostly cut off.
        let rows = miss_tokens(&PolicyReplay {
            id_offsets: &[0, 2, 4, 7],
            ids: &[0, 1, 0, 2, 0, 1, 3],
            blocks_per_id: 2,
            block_tokens: 4,
            input_tokens: &[17, 17, 25],
            blocks: &[4, 4, 6],
            limits: &[4, 4, 6],
            known: &[0, 2, 4],
            admitted: &[0, 2, 3],
            hits: &[0, 2, 1],
        });
        assert_eq!(rows[0], [16, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(rows[1], [0, 8, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(rows[2], [8, 0, 8, 1, 0, 0, 4, 0, 0, 0, 0]);
    }
}
