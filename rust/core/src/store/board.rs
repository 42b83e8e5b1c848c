//! The router's index of all machines: the number of requests of each, and the machines that may have a
//! prompt's blocks.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::PairHasher;
use crate::ids::BlockRange;
use crate::keys::BlockKeys;

/// Machines by prefix: the number of blocks that end with it, a power of two, and its key. Never iterated.
type Owners = HashMap<(u32, u64), Vec<u32>, BuildHasherDefault<PairHasher>>;

/// The index of prefixes over all machines: a decision over a thousand machines looks up only those that can
/// matter.
///
/// Machines enter the blocks of their runs that end 1, 2, 4, 8 … blocks of a prompt. A key may stand for
/// blocks behind several prefixes. An entry therefore means that a machine may have a prefix; a machine
/// without an entry does not have it.
#[derive(Debug)]
pub struct Board {
    requests: Vec<AtomicU64>,
    owners: Mutex<Owners>,
}

/// A machine's entry in the index.
#[derive(Clone, Debug)]
pub struct IndexEntry {
    board: Arc<Board>,
    machine: u32,
}

impl Board {
    /// Creates an index of `machines` machines, without entries.
    pub fn new(machines: usize) -> Arc<Self> {
        Arc::new(Self {
            requests: (0..machines).map(|_| AtomicU64::new(0)).collect(),
            owners: Mutex::default(),
        })
    }

    /// Returns the entry of a machine.
    pub fn index_entry(self: &Arc<Self>, machine: u32) -> IndexEntry {
        IndexEntry {
            board: self.clone(),
            machine,
        }
    }

    /// Returns the number of requests that a machine has reported.
    pub fn requests(&self, machine: usize) -> u64 {
        self.requests[machine].load(Ordering::Relaxed)
    }

    /// Returns the number of leading blocks of a request found on each machine, at most `limit`. A count may
    /// be too low where that saves a look-up, but never that of the longest match. Machines that are not
    /// candidates get 0.
    ///
    /// An idle machine's entries are current: it is looked up only where they leave the number open. Every
    /// busy candidate is looked up.
    pub fn found(
        &self,
        keys: &BlockKeys,
        request: u32,
        limit: u32,
        is_candidate: impl Fn(usize) -> bool,
        mut look: impl FnMut(usize) -> u32,
    ) -> Vec<u32> {
        let machines = self.requests.len();
        let (mut found, mut looked) = (vec![0; machines], vec![false; machines]);
        for machine in 0..machines {
            if is_candidate(machine) && self.requests(machine) > 0 {
                found[machine] = look(machine);
                looked[machine] = true;
            }
        }
        let Some(mut blocks) = limit.checked_ilog2().map(|power| 1 << power) else {
            return found;
        };
        let mut longest = 0;
        loop {
            let key = keys.key(request, blocks - 1);
            // A look-up lets the machine update its entries, so the owners are copied first.
            let owners = self.owners().get(&(blocks, key)).cloned();
            for machine in owners.unwrap_or_default() {
                let machine = machine as usize;
                if looked[machine] || !is_candidate(machine) {
                    continue;
                }
                // Nothing precedes the first block, and a machine with two or more blocks was looked up
                // before.
                found[machine] = if blocks == 1 { 1 } else { look(machine) };
                looked[machine] = true;
                longest = longest.max(found[machine]);
            }
            if longest >= blocks || blocks == 1 {
                return found;
            }
            blocks /= 2;
        }
    }

    fn owners(&self) -> MutexGuard<'_, Owners> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl IndexEntry {
    /// Reports the number of the machine's requests.
    pub fn has_requests(&self, requests: u64) {
        self.board.requests[self.machine as usize].store(requests, Ordering::Relaxed);
    }

    /// Adds or removes the entry that the machine may have a request's first `blocks` blocks, the last of
    /// them with this key.
    pub fn has_prefix(&self, blocks: u32, key: u64, has: bool) {
        let mut owners = self.board.owners();
        if has {
            let machines = owners.entry((blocks, key)).or_default();
            machines.push(self.machine);
        } else if let Some(machines) = owners.get_mut(&(blocks, key)) {
            if let Some(slot) = machines.iter().position(|&other| other == self.machine) {
                machines.swap_remove(slot);
            }
            if machines.is_empty() {
                owners.remove(&(blocks, key));
            }
        }
    }

    /// Returns all entries of the machine, sorted. Cost: a walk over the whole index.
    pub fn entries(&self) -> Vec<(u32, u64)> {
        let owners = self.board.owners();
        let mut entries = Vec::new();
        for (&entry, machines) in owners.iter() {
            let times = machines.iter().filter(|&&other| other == self.machine);
            entries.extend(times.map(|_| entry));
        }
        entries.sort_unstable();
        entries
    }
}

/// The prefix lengths, powers of two, that end within blocks and are looked up.
pub fn marks(blocks: BlockRange) -> impl Iterator<Item = u32> {
    let first = blocks
        .start
        .checked_add(1)
        .and_then(u32::checked_next_power_of_two);
    std::iter::successors(first, |mark| mark.checked_mul(2))
        .take_while(move |&mark| mark <= blocks.end)
}

#[cfg(test)]
mod tests {
    use super::{marks, Board};
    use crate::ids::BlockRange;
    use crate::keys::BlockKeys;

    #[test]
    fn marks_are_powers_of_two_within_the_blocks() {
        assert_eq!(
            marks(BlockRange::new(0, 9)).collect::<Vec<_>>(),
            [1, 2, 4, 8]
        );
        assert_eq!(marks(BlockRange::new(4, 8)).collect::<Vec<_>>(), [8]);
        assert_eq!(marks(BlockRange::new(2, 3)).count(), 0);
        assert_eq!(marks(BlockRange::new(1 << 31, u32::MAX)).count(), 0);
    }

    /// Random prefixes of random prompts on machines of which some are busy: the longest are found with few
    /// look-ups.
    #[test]
    fn the_longest_are_found() {
        let mut state = 7_u64;
        let mut random = move |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % below
        };
        let ids: Vec<u32> = (0..64)
            .map(|id| if id % 16 < 3 { id % 16 } else { id })
            .collect();
        let rows: Vec<&[u32]> = ids.chunks(16).collect();
        let keys = BlockKeys::of_rows(1, &rows);
        let mut looks = 0;
        for _ in 0..300 {
            let board = Board::new(9);
            let mut has = Vec::new();
            for machine in 0..9 {
                let (request, blocks) = (random(4) as u32, random(17) as u32);
                let index_entry = board.index_entry(machine);
                index_entry.has_requests(u64::from(random(4) == 0));
                for mark in marks(BlockRange::new(0, blocks)) {
                    index_entry.has_prefix(mark, keys.key(request, mark - 1), true);
                }
                has.push((request, blocks));
            }
            let (asked, limit) = (random(4) as u32, random(17) as u32);
            let truth = |machine: usize| {
                let (request, blocks) = has[machine];
                keys.common(request, asked, 0, blocks.min(limit))
            };
            let candidates: Vec<bool> = (0..9).map(|_| random(3) > 0).collect();
            let found = board.found(
                &keys,
                asked,
                limit,
                |m| candidates[m],
                |machine| {
                    assert!(candidates[machine]);
                    looks += 1;
                    truth(machine)
                },
            );
            let longest = (0..9)
                .filter(|&m| candidates[m])
                .map(truth)
                .max()
                .unwrap_or(0);
            for machine in 0..9 {
                let known = if candidates[machine] {
                    truth(machine)
                } else {
                    0
                };
                assert!(found[machine] == known || found[machine] < known && known < longest);
            }
        }
        assert!(looks < 300 * 4, "{looks} looks");
    }
}
