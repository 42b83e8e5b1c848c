//! Queue of keys, least recent first, that moves or removes any key in constant time.

use super::key_slots::KeySlots;
use crate::convert::fit;
use crate::ids::NONE;

/// Sentinel node at both ends of the queue.
const ENDS: u32 = 0;

#[derive(Debug, Clone, Copy)]
struct Link {
    key: u64,
    previous: u32,
    next: u32,
}

/// Keys in order, each with a number.
#[derive(Debug)]
pub struct LinkedKeys {
    at: KeySlots,
    links: Vec<Link>,
    spare: Vec<u32>,
}

impl Default for LinkedKeys {
    /// An empty queue.
    fn default() -> Self {
        let ends = Link {
            key: 0,
            previous: ENDS,
            next: ENDS,
        };
        Self {
            at: KeySlots::default(),
            links: vec![ends],
            spare: Vec::new(),
        }
    }
}

impl LinkedKeys {
    /// Returns the number of queued keys.
    pub fn len(&self) -> usize {
        self.at.len()
    }

    /// Returns true if a key is queued.
    pub fn contains(&self, key: u64) -> bool {
        self.at.get(key).is_some()
    }

    /// Moves or append a key to the end.
    pub fn push(&mut self, key: u64) {
        let node = match self.at.get(key) {
            Some(node) => {
                self.unlink(node);
                node
            }
            None => self.add(key),
        };
        let last = self.links[ENDS as usize].previous;
        self.links[node as usize] = Link {
            key,
            previous: last,
            next: ENDS,
        };
        self.links[last as usize].next = node;
        self.links[ENDS as usize].previous = node;
    }

    fn add(&mut self, key: u64) -> u32 {
        let node = self.spare.pop().unwrap_or_else(|| {
            self.links.push(Link {
                key,
                previous: NONE,
                next: NONE,
            });
            fit::<u32>(self.links.len() - 1)
        });
        self.at.insert(key, node);
        node
    }

    fn unlink(&mut self, node: u32) {
        let Link { previous, next, .. } = self.links[node as usize];
        self.links[previous as usize].next = next;
        self.links[next as usize].previous = previous;
    }

    /// Removes a key. Returns false if it was not queued.
    pub fn remove(&mut self, key: u64) -> bool {
        let Some(node) = self.at.remove(key) else {
            return false;
        };
        self.unlink(node);
        self.spare.push(node);
        true
    }

    /// Removes and returns the first key.
    pub fn pop(&mut self) -> Option<u64> {
        let first = self.iter().next()?;
        self.remove(first);
        Some(first)
    }

    /// Returns the keys in order.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.walk(|link| link.next)
    }

    /// Returns the keys, the last first.
    pub fn iter_back(&self) -> impl Iterator<Item = u64> + '_ {
        self.walk(|link| link.previous)
    }

    fn walk(&self, step: fn(&Link) -> u32) -> impl Iterator<Item = u64> + '_ {
        let first = step(&self.links[ENDS as usize]);
        let after = move |&node: &u32| Some(step(&self.links[node as usize]));
        std::iter::successors(Some(first), after)
            .take_while(|&node| node != ENDS)
            .fuse()
            .map(|node| self.links[node as usize].key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pushed_key_moves_to_the_end() {
        let mut queue = LinkedKeys::default();
        [1, 2, 3, 1].iter().for_each(|&key| queue.push(key));
        assert_eq!(queue.iter().collect::<Vec<_>>(), [2, 3, 1]);
        let mut keys = queue.iter();
        assert_eq!((keys.by_ref().count(), keys.next()), (3, None));
        drop(keys);
        assert!(queue.remove(3) && !queue.remove(3));
        assert_eq!(
            (queue.pop(), queue.len(), queue.contains(1)),
            (Some(2), 1, true)
        );
    }
}
