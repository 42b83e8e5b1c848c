//! Longest prefix that every group can continue from.

use std::ops::Range;

use crate::convert::fit;

use super::pool::{Pool, NULL};
use super::rules::{needed_blocks, skipped_blocks};
use super::{Group, Kind};

/// Result of a look-up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Found {
    /// Tokens of the prompt that need not be computed.
    pub tokens: u64,
    /// Tokens beyond the hit up to which some group could have continued; 0 if none.
    pub junction: u64,
}

/// Returns the groups of one kind and one block size together, since they are looked up together.
pub fn kinds(groups: &[Group]) -> Vec<Vec<usize>> {
    let mut kinds: Vec<Vec<usize>> = Vec::new();
    for (number, group) in groups.iter().enumerate() {
        let same = |of: &&mut Vec<usize>| {
            let first = &groups[of[0]];
            first.kind == group.kind && first.block_size == group.block_size
        };
        match kinds.iter_mut().find(same) {
            Some(of) => of.push(number),
            None => kinds.push(vec![number]),
        }
    }
    // Full attention first: its hit bounds the others.
    kinds.sort_by_key(|of| groups[of[0]].kind != Kind::Full);
    kinds
}

/// Presence of a prompt's blocks, by group.
pub trait Presence {
    /// Returns the number of blocks from `block` on that a group has, at most `limit`. The result may be
    /// too small, but is 0 only if the first block is missing.
    fn run(&self, group: usize, block: u32, limit: u32) -> u32;

    /// Returns 0 if a group has a block, else the number of blocks up to it known to be missing (at least 1).
    fn missing(&self, group: usize, block: u32) -> u32;
}

/// Presence of a request's prompt in a pool.
pub struct InPool<'a> {
    /// Pool with the keys.
    pub pool: &'a Pool,
    /// Groups of the pool.
    pub groups: &'a [Group],
    /// Request of the prompt.
    pub request: u32,
}

impl Presence for InPool<'_> {
    fn run(&self, group: usize, block: u32, limit: u32) -> u32 {
        let (key, run) = self.groups[group].run(self.request, block);
        let present = self.pool.present_run(group, key, run.min(limit));
        fit::<u32>(present.count())
    }

    fn missing(&self, group: usize, block: u32) -> u32 {
        let of = &self.groups[group];
        let (found, before) = self.pool.find(group, of.key(self.request, block));
        if found != NULL {
            return 0;
        }
        // Units before it in its id, as far as they have that id: the next turn may use other ids for an answer.
        let unit = (block + 1) * of.units - 1;
        let alike = of.keys.named_alike_before(self.request, unit);
        1 + before.min(alike) / of.units
    }
}

/// Look-up of one request's prompt in all groups.
pub struct Lookup<'a, P> {
    /// Groups and their kinds.
    pub groups: &'a [Group],
    /// Result of `kinds` for the groups.
    pub kinds: &'a [Vec<usize>],
    /// Alignment: every hit is a multiple of it.
    pub align: u64,
    /// Presence of the blocks.
    pub has: P,
}

impl<P: Presence> Lookup<'_, P> {
    /// Returns the joint hit of at most `limit` tokens: each kind accepts or shortens the candidate, until all
    /// agree.
    pub fn find(&self, limit: u64) -> Found {
        let first_is_full = self.groups[self.kinds[0][0]].kind == Kind::Full;
        let one_pass = first_is_full && self.kinds.len() <= 2;
        let mut full_hits: Vec<Option<u64>> = vec![None; self.kinds.len()];
        let (mut hit, mut longest) = (limit, 0);
        loop {
            let mut candidate = hit;
            for (kind, known) in self.kinds.iter().zip(&mut full_hits) {
                if let Some(found) = *known {
                    candidate = candidate.min(found);
                    continue;
                }
                candidate = self.of_kind(kind, candidate);
                longest = longest.max(candidate);
                if self.groups[kind[0]].kind == Kind::Full {
                    *known = Some(candidate);
                }
            }
            let agreed = candidate == hit;
            hit = candidate;
            if agreed || one_pass || hit == 0 {
                break;
            }
        }
        Found {
            tokens: hit,
            junction: if longest > hit { longest } else { 0 },
        }
    }

    /// Returns, for each group, its hit without the other groups, of at most `limit` tokens.
    pub fn alone(&self, limit: u64) -> Vec<u64> {
        let mut hits = vec![0; self.groups.len()];
        for kind in self.kinds {
            let hit = self.of_kind(kind, limit);
            for &number in kind {
                hits[number] = hit;
            }
        }
        hits
    }

    /// Returns the longest hit of one kind, of at most `limit` tokens.
    fn of_kind(&self, kind: &[usize], limit: u64) -> u64 {
        let group = &self.groups[kind[0]];
        let most = group.whole(limit);
        match group.kind {
            Kind::Full => self.aligned(group, self.prefix_run(kind, 0..most)),
            Kind::Chunked(_) => {
                let start = skipped_blocks(group, limit);
                self.aligned(group, self.prefix_run(kind, start..most.max(start)))
            }
            Kind::Sliding(_) | Kind::Linear => self.last_run(kind, most),
        }
    }

    fn aligned(&self, group: &Group, blocks: u32) -> u64 {
        u64::from(blocks) * group.block_size / self.align * self.align
    }

    /// Returns the end of the run of blocks that all groups have.
    fn prefix_run(&self, kind: &[usize], blocks: Range<u32>) -> u32 {
        let mut at = blocks.start;
        while at < blocks.end {
            let most = blocks.end - at;
            let runs = kind.iter().map(|&number| self.has.run(number, at, most));
            match runs.min().unwrap_or(0) {
                0 => break,
                run => at += run,
            }
        }
        at
    }

    /// Returns the rightmost aligned end of enough consecutive blocks, or of a run from the first block on.
    fn last_run(&self, kind: &[usize], most: u32) -> u64 {
        let group = &self.groups[kind[0]];
        let need = needed_blocks(group);
        let (mut run, mut position) = (0, most);
        while position > 0 {
            let missing = self.missing(kind, position - 1);
            if missing > 0 {
                run = 0;
                position -= missing.min(position);
                continue;
            }
            if run > 0 || u64::from(position) * group.block_size % self.align == 0 {
                run += 1;
                if run >= need {
                    return u64::from(position - 1 + run) * group.block_size;
                }
            }
            position -= 1;
        }
        if group.kind == Kind::Linear {
            return 0;
        }
        u64::from(run) * group.block_size
    }

    /// Returns 0 if all groups have a block, else the number of blocks up to it that some group lacks (at least
    /// 1).
    fn missing(&self, kind: &[usize], block: u32) -> u32 {
        let missing = kind.iter().map(|&number| self.has.missing(number, block));
        missing.max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::keys::{BlockKeys, NO_REQUEST};

    /// Ids of four blocks. The prompt of request 0 ends in the first block of id 1. The next turn, request 1,
    /// names the same position by id 2, as it does the answer behind it.
    #[test]
    fn an_answer_that_the_next_turn_names_otherwise_hides_no_block_before_it() {
        let following = vec![1, NO_REQUEST];
        let keys = BlockKeys::new(
            vec![0, 2, 5],
            vec![0, 1, 0, 2, 3],
            4,
            vec![5, 12],
            following,
        );
        let keys = Arc::new(keys.unwrap());
        let groups = [Group {
            kind: Kind::Sliding(8),
            block_size: 16,
            keys: keys.clone(),
            units: 1,
        }];
        let mut pool = Pool::new(&groups, 4);
        let mut block = NULL;
        pool.take(1, |taken| block = taken);
        pool.give_keys(0, keys.key(0, 4), 1, |_| block);
        let of = |request| InPool {
            pool: &pool,
            groups: &groups,
            request,
        };
        assert_eq!(of(0).missing(0, 4), 0);
        assert_eq!(of(0).missing(0, 5), 1, "the answer alone");
        assert_eq!(of(1).missing(0, 5), 2, "no block has the next turn's id");
        let lookup = Lookup {
            groups: &groups,
            kinds: &kinds(&groups),
            align: 16,
            has: of(0),
        };
        assert_eq!(lookup.find(96).tokens, 80);
    }
}
