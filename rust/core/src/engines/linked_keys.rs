//! Queue of keys, least recent first, that moves or removes any key in constant time.

use super::key_slots::KeySlots;
use super::links::{Links, ENDS};

/// Keys in order, each with a number.
#[derive(Debug, Default)]
pub struct LinkedKeys {
    at: KeySlots,
    links: Links<u64>,
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
        let node = self.at.get(key).unwrap_or_else(|| {
            let node = self.links.add(key);
            self.at.insert(key, node);
            node
        });
        self.links.move_before(node, ENDS);
    }

    /// Removes a key. Returns false if it was not queued.
    pub fn remove(&mut self, key: u64) -> bool {
        let node = self.at.remove(key);
        node.inspect(|&node| self.links.remove(node)).is_some()
    }

    /// Removes and returns the first key.
    pub fn pop(&mut self) -> Option<u64> {
        let first = self.iter().next()?;
        self.remove(first);
        Some(first)
    }

    /// Returns the keys in order.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.links.iter().map(|node| self.links.value(node))
    }

    /// Returns the keys, the last first.
    pub fn iter_back(&self) -> impl Iterator<Item = u64> + '_ {
        self.links.iter_back().map(|node| self.links.value(node))
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
