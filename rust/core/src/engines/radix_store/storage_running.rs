//! HiCache's threads at work: batches of pages are written to the storage and read from it, each over its channel.

use super::storage_threads::{Ack, Batch, Queued, Reading, Thread, ThreadOrder, Threads};
use super::storage_tier::{StorageTier, Transfer, BATCH_PAGES, DISK};
use super::RadixStore;
use crate::convert::fit;
use crate::ids::BlockRange;
use crate::store::{Order, STAGING};

impl StorageTier {
    fn order(&mut self, from: usize, to: usize, pages: usize) -> Order {
        Order {
            id: self.moves.insert(Transfer::OfThread),
            from,
            to,
            blocks: pages as u64,
            after: Vec::new(),
        }
    }
}

impl RadixStore {
    /// Lets the storage's work be done by the engine's threads, as its own scheduler does.
    pub fn use_threads(&mut self) {
        if let Some(storage) = self.storage.as_mut().filter(|tier| tier.threads.is_none()) {
            storage.threads = Some(Threads::default());
            self.pool.tree.keep_written();
        }
    }

    pub(super) fn threads(&mut self) -> Option<&mut Threads> {
        self.storage.as_mut()?.threads.as_mut()
    }

    /// Queues the next node that is on the host, or all of them, for the storage.
    pub fn save_written(&mut self, most: usize, ns: u64) {
        if let Some(threads) = self.threads() {
            let most = most.min(threads.written.len());
            let next = threads.written.drain(..most);
            threads
                .to_write
                .extend(next.map(|item| Queued { ns, item }));
        }
    }

    /// Lets the threads work up to a time, or until one has a batch to send; [`RadixStore::batch_sent`] must follow.
    pub fn run_threads(&mut self, until_ns: u64) -> Option<ThreadOrder> {
        while let Some((start_ns, thread)) = self.threads()?.next() {
            if start_ns > until_ns {
                break;
            }
            let order = match thread {
                Thread::Writer => self.write_on(start_ns),
                Thread::Asker => self.answer(),
                Thread::Reader => self.read_batch(start_ns),
            };
            if let Some(order) = order {
                return Some(ThreadOrder { order, start_ns });
            }
        }
        None
    }

    /// Records the end of a batch that was sent.
    pub fn batch_sent(&mut self, sent: &ThreadOrder, end_ns: u64) {
        if let Some(threads) = self.threads() {
            let until_ns = match (
                sent.order.to == DISK,
                &mut threads.writing,
                &mut threads.reading,
            ) {
                (true, Some(batch), _) => &mut batch.until_ns,
                (false, _, Some(batch)) => &mut batch.until_ns,
                _ => return,
            };
            *until_ns = end_ns;
        }
    }

    /// Ends a batch that has been written, and begins the next one.
    fn write_on(&mut self, ns: u64) -> Option<Order> {
        let storage = self.storage.as_mut()?;
        let threads = storage.threads.as_mut()?;
        let (backup, at) = match threads.writing.take() {
            None => (threads.to_write.pop_front()?.item, 0),
            Some(Batch {
                of, before, pages, ..
            }) => {
                let written = &of.keys[before as usize..(before + pages) as usize];
                let write = |&key: &u64| storage.pages.write(key).len() as u64;
                let gone = written.iter().map(write).sum();
                self.records.evicted_from(DISK, gone, ns);
                (of, before + pages)
            }
        };
        let left = &backup.keys[at as usize..];
        let batch = &left[..left.len().min(BATCH_PAGES as usize)];
        if batch.is_empty() {
            threads.done.saved.push_back(backup.kept);
            threads.free_ns[0] = ns;
            return None;
        }
        let is_new = |key: &&u64| !storage.pages.contains(**key);
        let (pages, new) = (batch.len(), batch.iter().filter(is_new).count());
        threads.writing = Some(Batch {
            of: backup,
            before: at,
            pages: fit::<u32>(pages),
            until_ns: ns,
        });
        (new > 0).then(|| storage.order(STAGING, DISK, new))
    }

    /// Asks the storage how many pages of the next prefetch it has.
    fn answer(&mut self) -> Option<Order> {
        let storage = self.storage.as_mut()?;
        let threads = storage.threads.as_mut()?;
        let id = threads.to_ask.pop_front()?.item;
        if let Some(p) = threads.prefetches.get_mut(&id) {
            let asked = BlockRange::new(p.start, p.end);
            p.hit = match (p.is_terminated, p.is_known) {
                (true, _) => 0,
                (false, true) => asked.len(),
                _ => self
                    .pool
                    .tree
                    .count_stored_from(&storage.pages, p.request, asked),
            };
        }
        threads.done.hits.push_back(id);
        None
    }

    /// Ends a batch that has been read, and begins the next one.
    fn read_batch(&mut self, ns: u64) -> Option<Order> {
        let storage = self.storage.as_mut()?;
        let threads = storage.threads.as_mut()?;
        let (mut of, mut at) = match threads.reading.take() {
            None => {
                let id = threads.to_read.pop_front()?.item;
                let (there, completed, is_whole) = (0, 0, true);
                (
                    Reading {
                        id,
                        there,
                        completed,
                        is_whole,
                    },
                    0,
                )
            }
            Some(Batch {
                mut of,
                before,
                pages,
                ..
            }) => {
                of.completed += of.there;
                of.is_whole &= of.there == pages;
                threads.done.acks.push_back(Ack {
                    id: of.id,
                    completed: Some(of.completed),
                });
                (of, before + pages)
            }
        };
        let p = threads.prefetches[&of.id];
        of.is_whole &= !p.is_terminated;
        if !of.is_whole {
            // the thread reports every batch that it leaves out
            at = p.hit;
        }
        let pages = BATCH_PAGES.min(p.hit - at);
        if pages == 0 {
            threads.done.acks.push_back(Ack {
                id: of.id,
                completed: None,
            });
            threads.free_ns[1] = ns;
            return None;
        }
        let batch = BlockRange::new(p.start + at, p.start + at + pages);
        of.there = self
            .pool
            .tree
            .count_stored_from(&storage.pages, p.request, batch);
        for page in batch.start..batch.start + of.there {
            storage
                .pages
                .read(self.pool.tree.keys().key(p.request, page));
        }
        threads.reading = Some(Batch {
            of,
            before: at,
            pages,
            until_ns: ns,
        });
        (of.there > 0).then(|| storage.order(STAGING + 1, STAGING, of.there as usize))
    }
}
