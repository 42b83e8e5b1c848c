//! The pages of a storage below the host, by recency.

use crate::engines::linked_keys::LinkedKeys;

/// Keys of pages, least recent first.
#[derive(Debug)]
pub struct Storage {
    pages: LinkedKeys,
    /// Capacity in pages; None: unbounded.
    capacity_pages: Option<u64>,
    /// Least number of pages that a prefetch brings to the host (SGLang's `prefetch_threshold`).
    pub(super) least_pages: u32,
    moved: StorageMoves,
}

/// Contents of the storage, and counts of writes and evictions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StorageMoves {
    /// Pages in the storage.
    pub pages: u64,
    /// Pages written that were absent.
    pub written_pages: u64,
    /// Pages evicted.
    pub evicted_pages: u64,
}

impl Storage {
    /// An empty storage.
    pub fn new(capacity_pages: Option<u64>, least_pages: u32) -> Self {
        Self {
            pages: LinkedKeys::default(),
            capacity_pages,
            least_pages,
            moved: StorageMoves::default(),
        }
    }

    /// Stores a page as the most recent one. Without capacity for it, SGLang's file backend removes the least
    /// recent pages until nine tenths are used. Returns the removed pages.
    pub fn write(&mut self, key: u64) -> Vec<u64> {
        let mut gone = Vec::new();
        if !self.pages.contains(key) {
            self.moved.written_pages += 1;
            if let Some(capacity) = self.capacity_pages {
                let is_full = self.pages.len() as u64 >= capacity;
                while is_full && 10 * (self.pages.len() as u64 + 1) > 9 * capacity {
                    let Some(oldest) = self.pages.pop() else {
                        break;
                    };
                    gone.push(oldest);
                }
            }
            self.moved.evicted_pages += gone.len() as u64;
        }
        self.pages.push(key);
        gone
    }

    /// Returns true if a page is present; its recency does not change.
    pub fn contains(&self, key: u64) -> bool {
        self.pages.contains(key)
    }

    /// Makes a present page the most recent.
    pub fn read(&mut self, key: u64) {
        self.pages.push(key);
    }

    /// Returns the pages, least recent first.
    #[cfg(test)]
    pub fn recency(&self) -> Vec<u64> {
        self.pages.iter().collect()
    }

    /// Returns the contents and the counts.
    pub fn moves(&self) -> StorageMoves {
        StorageMoves {
            pages: self.pages.len() as u64,
            ..self.moved
        }
    }
}
