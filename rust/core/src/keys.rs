//! Block keys: names of a block's content and of everything before it, for every block of every request.
//!
//! An id of the trace covers `blocks_per_id` blocks (512-token ids hold thirty-two 16-token blocks), so finer
//! blocks are arithmetic and never materialized. A block past the prompt has the key that the session's next
//! turn has at its position, else a key of its own (semantics 1).

use std::fmt;

use crate::error::{Answer, StoreError};
use crate::ids::BlockRange;

/// No request: the end of a session, or no session.
pub const NO_REQUEST: u32 = u32::MAX;

const PRIVATE: u64 = 1 << 63;

/// The keys of all requests of a trace, shared by every machine.
///
/// ```
/// use kvsim_core::keys::{BlockKeys, NO_REQUEST};
///
/// // Two requests of two ids, each of two blocks; the first id is the same.
/// let (offsets, ids) = (vec![0, 2, 4], vec![0, 1, 0, 2]);
/// let keys = BlockKeys::new(offsets, ids, 2, vec![4, 3], vec![NO_REQUEST; 2]).unwrap();
/// assert_eq!(keys.common(0, 1, 0, 3), 2);
/// assert_eq!((keys.key(0, 1), keys.key(0, 2), keys.key(1, 2)), (1, 2, 4));
/// assert!(keys.key(1, 3) >= 1 << 63); // past its prompt: a key of its own
/// ```
#[derive(Clone, Debug, Default)]
pub struct BlockKeys {
    /// First request of the window; 0 for a trace that is read whole.
    first: u32,
    /// Requests before the window that are still named, in ascending order; they have the first rows of the
    /// columns.
    kept: Vec<u32>,
    id_offsets: Vec<u64>,
    ids: Vec<u32>,
    blocks_per_id: u32,
    /// Full blocks of a request that its ids cover: of its prompt, and of its answer if that is named too.
    full_blocks: Vec<u32>,
    /// The session's next turn.
    continuation: Vec<u32>,
}

/// Reasons why arrays cannot be keys.
#[derive(Debug, PartialEq, Eq)]
pub enum KeysError {
    /// Array lengths do not fit each other.
    Shape,
    /// Offsets that descend or end outside the ids.
    Offsets(usize),
    /// A request claims more full blocks than its ids cover.
    TooManyBlocks(usize),
    /// A continuation that is not a later request.
    Continuation(usize),
}

impl fmt::Display for KeysError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shape => write!(
                f,
                "an offset more than requests, a next turn each, 1 to 2^31 - 1 blocks an id"
            ),
            Self::Offsets(r) => write!(f, "offsets that rise within the ids, at request {r}"),
            Self::TooManyBlocks(r) => write!(f, "ids of every full block, of request {r}"),
            Self::Continuation(r) => write!(f, "a request as the next turn of request {r}"),
        }
    }
}

impl std::error::Error for KeysError {}

impl BlockKeys {
    /// Checks and keeps the arrays: request `r` has the ids `ids[id_offsets[r]..id_offsets[r + 1]]`.
    pub fn new(
        id_offsets: Vec<u64>,
        ids: Vec<u32>,
        blocks_per_id: u32,
        full_blocks: Vec<u32>,
        continuation: Vec<u32>,
    ) -> Result<Self, KeysError> {
        let n = full_blocks.len();
        if id_offsets.len() != n + 1
            || continuation.len() != n
            || !(1..1 << 31).contains(&blocks_per_id)
        {
            return Err(KeysError::Shape);
        }
        for r in 0..n {
            let (a, b) = (id_offsets[r], id_offsets[r + 1]);
            if a > b || b > ids.len() as u64 {
                return Err(KeysError::Offsets(r));
            }
            if u64::from(full_blocks[r]) > (b - a) * u64::from(blocks_per_id) {
                return Err(KeysError::TooManyBlocks(r));
            }
            if continuation[r] != NO_REQUEST && continuation[r] as usize >= n {
                return Err(KeysError::Continuation(r));
            }
        }
        Ok(Self {
            first: 0,
            kept: Vec::new(),
            id_offsets,
            ids,
            blocks_per_id,
            full_blocks,
            continuation,
        })
    }

    /// The keys after a window: of its requests, and of earlier requests, only `requests` are kept. Requests
    /// that do not exist are ignored. No continuation is kept.
    ///
    /// ```
    /// use kvsim_core::keys::{BlockKeys, NO_REQUEST};
    ///
    /// let keys = BlockKeys::new(vec![0, 1, 2], vec![7, 8], 1, vec![1, 1], vec![NO_REQUEST; 2]).unwrap();
    /// let mut next = keys.kept(vec![1]);
    /// assert_eq!((next.requests(), next.key(1, 0), next.kept_ids()), (2, 8, vec![8]));
    /// next.append(&[0, 1], &[9], &[1]).unwrap(); // the next window: request 2
    /// assert_eq!((next.requests(), next.key(1, 0), next.key(2, 0)), (3, 8, 9));
    /// assert!(next.known_request(0).is_err());
    /// ```
    #[must_use]
    pub fn kept(&self, mut requests: Vec<u32>) -> Self {
        requests.sort_unstable();
        requests.dedup();
        requests.retain(|&request| self.known_request(request).is_ok());
        let mut next = Self {
            first: self.requests(),
            id_offsets: vec![0],
            blocks_per_id: self.blocks_per_id,
            ..Self::default()
        };
        for &request in &requests {
            next.ids.extend_from_slice(self.id_slice(request));
            next.id_offsets.push(next.ids.len() as u64);
            next.full_blocks.push(self.full_blocks(request));
        }
        next.continuation = vec![NO_REQUEST; requests.len()];
        next.kept = requests;
        next
    }

    /// Distinct ids, in ascending order.
    pub fn kept_ids(&self) -> Vec<u32> {
        let mut ids = self.ids.clone();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// Appends requests; checked as `new` checks them.
    pub fn append(
        &mut self,
        id_offsets: &[u64],
        ids: &[u32],
        full_blocks: &[u32],
    ) -> Result<(), KeysError> {
        let added = full_blocks.len();
        let checked = Self::new(
            id_offsets.to_vec(),
            ids.to_vec(),
            self.blocks_per_id,
            full_blocks.to_vec(),
            vec![NO_REQUEST; added],
        )?;
        if self.requests().checked_add(added as u32).is_none() {
            return Err(KeysError::Shape);
        }
        let before = self.ids.len() as u64;
        self.ids.extend(checked.ids);
        let offsets = checked.id_offsets.iter().skip(1);
        self.id_offsets
            .extend(offsets.map(|offset| offset + before));
        self.full_blocks.extend(checked.full_blocks);
        self.continuation.extend(checked.continuation);
        Ok(())
    }

    /// Number of requests, including requests that are no longer named.
    pub fn requests(&self) -> u32 {
        self.first + (self.full_blocks.len() - self.kept.len()) as u32
    }

    /// Refuses a request beyond the trace, and a request that is no longer named.
    pub fn known_request(&self, request: u32) -> Answer<()> {
        let named = request >= self.first || self.kept.binary_search(&request).is_ok();
        if named && request < self.requests() {
            return Ok(());
        }
        Err(StoreError::NoSuchRequest(self.requests()))
    }

    /// Row of a request in the columns.
    fn slot(&self, request: u32) -> usize {
        if request >= self.first {
            return (request - self.first) as usize + self.kept.len();
        }
        let slot = self.kept.binary_search(&request);
        slot.expect("whoever names a request keeps it")
    }

    /// Full blocks of a request that its ids name.
    pub fn full_blocks(&self, request: u32) -> u32 {
        self.full_blocks[self.slot(request)]
    }

    /// True if a later request, the session's next turn, may name blocks past a request's prompt.
    pub fn continues(&self, request: u32) -> bool {
        self.continuation[self.slot(request)] != NO_REQUEST
    }

    /// The request whose ids name block `block` of `request`, and the block up to which they do.
    fn source(&self, request: u32, block: u32) -> (u32, u32) {
        let slot = self.slot(request);
        let own = self.full_blocks[slot];
        if block < own {
            return (request, own);
        }
        let next = self.continuation[slot];
        if next != NO_REQUEST && block < self.full_blocks(next) {
            return (next, self.full_blocks(next));
        }
        (NO_REQUEST, u32::MAX)
    }

    /// The key of one block; private blocks have bit 63 set.
    #[inline]
    pub fn key(&self, request: u32, block: u32) -> u64 {
        let (source, _) = self.source(request, block);
        if source == NO_REQUEST {
            return PRIVATE | (u64::from(request) << 32) | u64::from(block);
        }
        let id = self.ids
            [self.id_offsets[self.slot(source)] as usize + (block / self.blocks_per_id) as usize];
        u64::from(id) * u64::from(self.blocks_per_id) + u64::from(block % self.blocks_per_id)
    }

    /// True if two requests' prompts have the same block at this position.
    pub fn have_same_block(&self, a: u32, b: u32, block: u32) -> bool {
        let is_named = |request| block < self.full_blocks(request);
        is_named(a) && is_named(b) && self.key(a, block) == self.key(b, block)
    }

    /// Passes the keys of blocks of a request to `notify`, last to first.
    pub fn each_back(&self, request: u32, blocks: BlockRange, mut notify: impl FnMut(u64)) {
        let (slot, from, mut end) = (self.slot(request), blocks.start, blocks.end);
        while end > from {
            let (source, _) = self.source(request, end - 1);
            if source == NO_REQUEST {
                end -= 1;
                notify(PRIVATE | (u64::from(request) << 32) | u64::from(end));
                continue;
            }
            let own = self.full_blocks[slot];
            let first = from.max(if source == request { 0 } else { own });
            let ids = self.id_slice(source);
            while end > first {
                let id = (end - 1) / self.blocks_per_id;
                let least = id * self.blocks_per_id;
                let key = u64::from(ids[id as usize]) * u64::from(self.blocks_per_id);
                for block in (least.max(first)..end).rev() {
                    notify(key + u64::from(block - least));
                }
                end = least.max(first);
            }
        }
    }

    /// The key of one block, and the number of blocks from it on whose keys count up by one.
    pub fn run(&self, request: u32, block: u32) -> (u64, u32) {
        let (source, end) = self.source(request, block);
        let mut run = end - block;
        if source != NO_REQUEST {
            run = run.min(self.blocks_per_id - block % self.blocks_per_id);
        }
        (self.key(request, block), run)
    }

    /// Number of blocks directly before a block that the same request's ids name.
    pub fn named_alike_before(&self, request: u32, block: u32) -> u32 {
        let own = self.full_blocks(request);
        if block < own {
            return block;
        }
        block - own
    }

    /// Blocks that an id covers.
    pub fn blocks_per_id(&self) -> u32 {
        self.blocks_per_id
    }

    /// One more than the largest id.
    pub fn distinct_ids(&self) -> u32 {
        self.ids.iter().max().map_or(0, |id| id + 1)
    }

    /// Number of blocks from `from` on, up to `to`, with the same keys in two requests.
    pub fn common(&self, a: u32, b: u32, from: u32, to: u32) -> u32 {
        if a == b {
            return to - from;
        }
        let mut block = from;
        while block < to {
            let ((sa, ea), (sb, eb)) = (self.source(a, block), self.source(b, block));
            if sa == NO_REQUEST || sb == NO_REQUEST {
                break;
            }
            let end = ea.min(eb).min(to);
            if sa != sb {
                let (first, last) = (block / self.blocks_per_id, (end - 1) / self.blocks_per_id);
                let xs = &self.id_slice(sa)[first as usize..=last as usize];
                let ys = &self.id_slice(sb)[first as usize..=last as usize];
                if let Some(i) = xs.iter().zip(ys).position(|(x, y)| x != y) {
                    return block.max((first + i as u32) * self.blocks_per_id) - from;
                }
            }
            block = end;
        }
        block - from
    }

    fn id_slice(&self, request: u32) -> &[u32] {
        let slot = self.slot(request);
        &self.ids[self.id_offsets[slot] as usize..self.id_offsets[slot + 1] as usize]
    }
}

#[cfg(test)]
impl BlockKeys {
    /// Keys of requests with the ids of each row, whose blocks are all full; no request has a next turn.
    pub(crate) fn of_rows<R: AsRef<[u32]>>(blocks_per_id: u32, rows: &[R]) -> std::sync::Arc<Self> {
        let mut keys = Self {
            id_offsets: vec![0],
            blocks_per_id,
            ..Self::default()
        };
        for ids in rows.iter().map(AsRef::as_ref) {
            let offsets = [0, ids.len() as u64];
            let full = [blocks_per_id * ids.len() as u32];
            keys.append(&offsets, ids, &full).unwrap();
        }
        keys.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_turns() -> BlockKeys {
        // turn 0: ids 0 1 (2 blocks each, 3 full); turn 1: ids 0 1 2, its block 3..5 names turn 0's answer
        BlockKeys::new(
            vec![0, 2, 5],
            vec![0, 1, 0, 1, 2],
            2,
            vec![3, 6],
            vec![1, NO_REQUEST],
        )
        .unwrap()
    }

    #[test]
    fn answers_take_the_keys_of_the_next_turn() {
        let keys = two_turns();
        assert_eq!(
            (0..6).map(|k| keys.key(0, k)).collect::<Vec<_>>(),
            [0, 1, 2, 3, 4, 5]
        );
        assert_eq!(keys.key(0, 6), PRIVATE | 6);
        for (from, to) in [(0, 8), (1, 7), (3, 4), (2, 6), (4, 4), (6, 7)] {
            let mut reported = Vec::new();
            keys.each_back(0, BlockRange::new(from, to), |key| reported.push(key));
            let one_by_one: Vec<u64> = (from..to).rev().map(|k| keys.key(0, k)).collect();
            assert_eq!(reported, one_by_one);
        }
        assert_eq!([1, 2, 3, 5].map(|k| keys.run(0, k).1), [1, 1, 1, 1]);
        assert_eq!(keys.run(0, 6), (PRIVATE | 6, u32::MAX - 6));
        assert_eq!((keys.distinct_ids(), keys.blocks_per_id()), (3, 2));
        assert_eq!(keys.common(0, 1, 0, 8), 6);
    }

    #[test]
    fn common_stops_inside_an_id_only_at_the_asked_end() {
        let keys = BlockKeys::of_rows(4, &[[7, 8], [7, 9]]);
        assert_eq!(keys.common(0, 1, 0, 8), 4);
        assert_eq!(keys.common(0, 1, 2, 3), 1);
        assert_eq!(keys.common(0, 1, 5, 8), 0);
    }

    #[test]
    fn shapes_are_checked() {
        let bad = BlockKeys::new(vec![0, 1], vec![0], 1, vec![2], vec![NO_REQUEST]);
        assert_eq!(bad.unwrap_err(), KeysError::TooManyBlocks(0));
    }
}
