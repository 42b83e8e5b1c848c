//! What a router looks up of all machines in one place: who is idle, and who has a prompt's blocks.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::PairHasher;
use crate::keys::BlockKeys;

/// Machines that have a block: by how many blocks end with it, a power of two, and its key. Never iterated.
type Owners = HashMap<(u32, u64), Vec<u32>, BuildHasherDefault<PairHasher>>;

/// One row a machine, side by side: a decision over a thousand machines touches only those that can matter.
///
/// Machines enter the blocks of their runs that end 1, 2, 4, 8 … blocks of a prompt. A key may stand for blocks
/// behind several prefixes, so an entry says who may have a prefix; who has no entry does not have it.
#[derive(Debug)]
pub struct Board {
    requests: Vec<AtomicU64>,
    owners: Mutex<Owners>,
}

/// A machine's place on a board.
#[derive(Clone, Debug)]
pub struct IndexEntry {
    board: Arc<Board>,
    machine: u32,
}

impl Board {
    /// A board of so many machines, with nothing entered.
    pub fn new(machines: usize) -> Arc<Self> {
        Arc::new(Self {
            requests: (0..machines).map(|_| AtomicU64::new(0)).collect(),
            owners: Mutex::default(),
        })
    }

    /// The place of a machine.
    pub fn index_entry(self: &Arc<Self>, machine: u32) -> IndexEntry {
        IndexEntry {
            board: self.clone(),
            machine,
        }
    }

    /// Requests that a machine has, as it has entered them.
    pub fn requests(&self, machine: usize) -> u64 {
        self.requests[machine].load(Ordering::Relaxed)
    }

    /// By machine the leading blocks of a request, at most `limit`, that are found there; too few, but never
    /// those of the longest, where that spares a look. Of others than candidates none.
    ///
    /// A machine without requests is as it has entered itself and is looked at only where its entries leave the
    /// number open; every other one is.
    pub fn found(
        &self,
        keys: &BlockKeys,
        (request, limit): (u32, u32),
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
            // Looking at a machine lets it enter what has changed there.
            let owners = self.owners().get(&(blocks, key)).cloned();
            for machine in owners.unwrap_or_default() {
                let machine = machine as usize;
                if looked[machine] || !is_candidate(machine) {
                    continue;
                }
                // Nothing precedes the first block, and who has two or more has been looked at.
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
    /// Enters how many requests the machine has.
    pub fn has_requests(&self, requests: u64) {
        self.board.requests[self.machine as usize].store(requests, Ordering::Relaxed);
    }

    /// Enters that the machine has what may be a request's first blocks, so many that end with this key, or has
    /// it no more.
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

    /// All that the machine has entered, sorted. Cost: the whole board.
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

/// The numbers of leading blocks that end within the blocks `[start, end)` and are looked up: powers of two.
pub fn marks((start, end): (u32, u32)) -> impl Iterator<Item = u32> {
    let first = start
        .checked_add(1)
        .and_then(u32::checked_next_power_of_two);
    std::iter::successors(first, |mark| mark.checked_mul(2)).take_while(move |&mark| mark <= end)
}

#[cfg(test)]
mod tests {
    use super::{marks, Board};
    use crate::keys::{BlockKeys, NO_REQUEST};

    #[test]
    fn marks_are_powers_of_two_within_the_blocks() {
        assert_eq!(marks((0, 9)).collect::<Vec<_>>(), [1, 2, 4, 8]);
        assert_eq!(marks((4, 8)).collect::<Vec<_>>(), [8]);
        assert_eq!(marks((2, 3)).count(), 0);
        assert_eq!(marks((1 << 31, u32::MAX)).count(), 0);
    }

    /// Machines with random prefixes of random prompts, some busy: the longest are found, with few looks.
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
        let offsets = vec![0, 16, 32, 48, 64];
        let keys = BlockKeys::new(offsets, ids, 1, vec![16; 4], vec![NO_REQUEST; 4]).unwrap();
        let mut looks = 0;
        for _ in 0..300 {
            let board = Board::new(9);
            let mut has = Vec::new();
            for machine in 0..9 {
                let (request, blocks) = (random(4) as u32, random(17) as u32);
                let index_entry = board.index_entry(machine);
                index_entry.has_requests(u64::from(random(4) == 0));
                for mark in marks((0, blocks)) {
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
                (asked, limit),
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
