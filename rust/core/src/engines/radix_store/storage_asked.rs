//! Prefetches from HiCache's storage as SGLang's own scheduler asks for them (`unified_radix_cache.py`,
//! `prefetch_from_storage` to `release_aborted_request`), and what it does once the threads are done.

use super::prefix::Prefix;
use super::storage_threads::{Ack, Asking, Finished, Missed, Ongoing, Prefetch};
use super::RadixStore;
use crate::convert::fit;
use crate::engines::radix_tree::host_tier::HostLock;
use crate::ids::BlockRange;

impl RadixStore {
    /// Returns true if the pages behind a prefix may be asked for.
    pub fn may_ask(&self, found: Prefix) -> bool {
        self.pool.tree.may_prefetch_behind(found.host_node)
    }

    /// Asks the storage for a request's pages from the end of a prefix up to `end`; up to `known_end` without a look-up,
    /// if an earlier one has found them.
    pub fn ask(
        &mut self,
        request: u32,
        found: Prefix,
        end: u32,
        known_end: Option<u32>,
        ns: u64,
    ) -> Asking {
        let page = self.page;
        let start = fit::<u32>((found.tokens + found.host_tokens) / page);
        let tree = &mut self.pool.tree;
        let Some(storage) = &mut self.storage else {
            return Asking::Nothing;
        };
        let config = storage.config;
        let Some(threads) = &mut storage.threads else {
            return Asking::Nothing;
        };
        let known_end = known_end.filter(|&known| start < known && known <= end);
        let end = known_end.unwrap_or(end);
        if threads.of(request).is_some() || end <= start || end - start < config.least_pages {
            return Asking::Nothing;
        }
        if storage.requested_pages * page >= config.share_tokens {
            return Asking::Limited;
        }
        storage.requested_pages += u64::from(end - start);
        let pages = tree.pages_of(found.host_node);
        let anchor = HostLock {
            node: found.host_node,
            pages,
        };
        tree.lock_host(anchor.node, anchor.pages);
        let prefetch = Prefetch {
            request,
            anchor,
            start,
            end,
            is_known: known_end.is_some(),
            hit: 0,
            reserved: None,
            done: 0,
            is_terminated: false,
        };
        threads.ask(prefetch, ns);
        Asking::Asked
    }

    /// Returns a request's prefetch, if it has not ended.
    pub fn ongoing(&self, request: u32) -> Option<Ongoing> {
        let p = self.storage.as_ref()?.threads.as_ref()?.of(request)?;
        Some(Ongoing {
            requested_tokens: u64::from(p.end - p.start) * self.page,
            hit_tokens: u64::from(p.hit) * self.page,
            is_read: p.reserved.is_some(),
            is_whole: p.reserved.is_some() && p.done >= p.hit,
        })
    }

    /// Counts what the threads have done.
    pub fn finished(&mut self) -> Finished {
        self.threads()
            .map_or(Finished::default(), |threads| Finished {
                hits: threads.done.hits.len(),
                acks: threads.done.acks.len(),
                saved: threads.done.saved.len(),
                released: threads.done.released,
            })
    }

    /// Returns true if the scheduler knows of all that the threads have done.
    pub fn knows_all(&mut self) -> bool {
        self.threads().is_none_or(|threads| threads.is_known())
    }

    /// Handles what was counted: reads what was found, inserts what has come, frees what is no longer needed. Returns
    /// the prefetches that brought nothing.
    pub fn handle(&mut self, finished: Finished, now_ns: u64) -> Vec<Missed> {
        let before = self.evictions();
        let hits = (0..finished.hits)
            .filter_map(|_| self.found(now_ns))
            .collect();
        for _ in 0..finished.acks {
            self.came();
        }
        let tree = &mut self.pool.tree;
        if let Some(threads) = self.storage.as_mut().and_then(|tier| tier.threads.as_mut()) {
            for kept in threads.done.saved.drain(..finished.saved) {
                tree.unlock_host(kept.node, kept.pages);
            }
            threads.done.released -= finished.released;
            tree.release_host(finished.released);
        }
        self.note_evicted(before, now_ns);
        hits
    }

    /// Reserves host pages for the next prefetch that the storage has answered, and has it read.
    fn found(&mut self, now_ns: u64) -> Option<Missed> {
        let (tree, storage) = (&mut self.pool.tree, self.storage.as_mut()?);
        let least = storage.config.least_pages;
        let threads = storage.threads.as_mut()?;
        let id = threads.done.hits.pop_front()?;
        let p = threads.prefetches.get_mut(&id)?;
        let (request, hit) = (p.request, p.hit);
        if threads.ongoing.get(&request) != Some(&id) {
            threads.prefetches.remove(&id);
            return None;
        }
        let pages = tree.take_host(hit, least);
        if pages > 0 {
            (p.hit, p.reserved) = (pages, Some(pages));
            threads.read(id, now_ns);
            return None;
        }
        let known_end = (hit >= least).then_some(p.start + hit);
        self.end_prefetch(request, 0);
        self.threads()?.prefetches.remove(&id);
        Some(Missed { request, known_end })
    }

    /// Handles the next report of the thread that reads.
    fn came(&mut self) -> Option<()> {
        let threads = self.threads()?;
        let Ack { id, completed } = threads.done.acks.pop_front()?;
        let p = threads.prefetches.get_mut(&id)?;
        let (request, is_current) = (p.request, threads.ongoing.get(&p.request) == Some(&id));
        match completed {
            Some(pages) if is_current => p.done = pages,
            Some(_) => {}
            None => {
                if is_current {
                    self.use_prefetched(request);
                }
                let threads = self.threads()?;
                let p = threads.prefetches.remove(&id)?;
                threads.done.released += p.hit - p.done;
            }
        }
        Some(())
    }

    /// Stops the reading of a request's prefetch before its next batch.
    pub fn terminate(&mut self, request: u32) {
        if let Some(threads) = self.threads() {
            let id = threads.ongoing.get(&request).copied();
            if let Some(p) = id.and_then(|id| threads.prefetches.get_mut(&id)) {
                p.is_terminated = true;
            }
        }
    }

    /// Ends a request's prefetch, and inserts the pages that have come into the tree.
    pub fn use_prefetched(&mut self, request: u32) {
        let Some(p) = self.end_prefetch(request, 0) else {
            return;
        };
        let pages = BlockRange::new(p.start, p.start + p.done);
        let spare = self.pool.tree.insert_host(request, pages, p.anchor.node);
        if let Some(storage) = &mut self.storage {
            storage.prefetched_pages += u64::from(p.done - spare);
        }
    }

    /// Ends the prefetch of a request without use; what has come is freed at a later pass.
    pub fn drop_prefetch(&mut self, request: u32) {
        let done = self.threads().and_then(|threads| threads.of(request));
        let done = done.filter(|p| p.reserved.is_some()).map_or(0, |p| p.done);
        self.end_prefetch(request, done);
    }

    /// Ends a request's prefetch for its scheduler, and unlocks its anchor; a thread may still work on it. Of the pages
    /// that have come `released` are freed at a later pass, the others belong to the tree.
    fn end_prefetch(&mut self, request: u32, released: u32) -> Option<Prefetch> {
        let storage = self.storage.as_mut()?;
        let threads = storage.threads.as_mut()?;
        let id = threads.ongoing.remove(&request)?;
        let p = threads.prefetches.get_mut(&id)?;
        p.reserved = p.reserved.map(|reserved| reserved - p.done);
        threads.done.released += released;
        storage.requested_pages -= u64::from(p.end - p.start);
        self.pool.tree.unlock_host(p.anchor.node, p.anchor.pages);
        Some(*p)
    }
}
