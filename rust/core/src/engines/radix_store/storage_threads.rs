//! HiCache's threads between host and storage (SGLang 0.5.23, `cache_controller.py`): one writes, one queries the
//! storage's keys, one reads. Each takes its orders one by one, in batches of pages; the scheduler collects the results.
//!
//! A batch's pages are in the storage when it has been written, and are those of its beginning when it is read.

use std::collections::{BTreeMap, VecDeque};

use crate::engines::radix_tree::host_tier::HostLock;
use crate::store::Order;

/// A prefetch that a request has asked for: pages `[start, end)` behind its anchor.
#[derive(Debug, Clone, Copy)]
pub(super) struct Prefetch {
    pub request: u32,
    pub anchor: HostLock,
    pub start: u32,
    pub end: u32,
    /// True if an earlier look-up has found all of it: the storage is not asked again.
    pub is_known: bool,
    /// Pages that the storage has, and then those that the host has capacity for.
    pub hit: u32,
    /// Pages of the host that are reserved for it, once it is read.
    pub reserved: Option<u32>,
    /// Pages that have come, as far as the scheduler knows.
    pub done: u32,
    pub is_terminated: bool,
}

/// An item of a queue, and the time at which it was put there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Queued<T> {
    pub ns: u64,
    pub item: T,
}

/// A node that is written to the storage.
#[derive(Debug)]
pub(super) struct Backup {
    pub keys: Vec<u64>,
    pub kept: HostLock,
}

/// A batch that is being written or read; its transfer has been sent once its end is known.
#[derive(Debug)]
pub(super) struct Batch<T> {
    pub of: T,
    /// Pages before it, and in it.
    pub before: u32,
    pub pages: u32,
    pub until_ns: u64,
}

/// Progress of the prefetch that is being read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reading {
    pub id: u64,
    /// Pages of the batch that the storage has.
    pub there: u32,
    pub completed: u32,
    pub is_whole: bool,
}

/// Progress of a prefetch as its thread reports it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ack {
    pub id: u64,
    /// Pages that have come; `None`: no more will.
    pub completed: Option<u32>,
}

/// Results of the threads that the scheduler does not know yet.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub hits: VecDeque<u64>,
    pub acks: VecDeque<Ack>,
    pub saved: VecDeque<HostLock>,
    /// Pages of the host that prefetches have not used.
    pub released: u32,
}

/// One thread of the three.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Thread {
    Writer,
    Asker,
    Reader,
}

/// The threads with their queues.
#[derive(Debug, Default)]
pub(super) struct Threads {
    pub prefetches: BTreeMap<u64, Prefetch>,
    asked: u64,
    /// The prefetch of each request that the scheduler has not ended.
    pub ongoing: BTreeMap<u32, u64>,
    pub done: Done,
    /// Nodes on the host that are to be written once the scheduler says so.
    pub written: VecDeque<Backup>,
    pub to_write: VecDeque<Queued<Backup>>,
    pub writing: Option<Batch<Backup>>,
    pub to_ask: VecDeque<Queued<u64>>,
    pub to_read: VecDeque<Queued<u64>>,
    pub reading: Option<Batch<Reading>>,
    /// Time from which the writer, and the reader, is free.
    pub free_ns: [u64; 2],
}

impl Threads {
    /// Returns a request's prefetch, until the scheduler ends it.
    pub fn of(&self, request: u32) -> Option<Prefetch> {
        let id = self.ongoing.get(&request)?;
        self.prefetches.get(id).copied()
    }

    /// Asks the storage for pages.
    pub fn ask(&mut self, prefetch: Prefetch, ns: u64) {
        self.asked += 1;
        let item = self.asked;
        self.ongoing.insert(prefetch.request, item);
        self.prefetches.insert(item, prefetch);
        self.to_ask.push_back(Queued { ns, item });
    }

    pub fn read(&mut self, item: u64, ns: u64) {
        self.to_read.push_back(Queued { ns, item });
    }

    /// Records a node that is on the host, and stays there until the storage has it.
    pub fn wrote(&mut self, keys: Vec<u64>, kept: HostLock) {
        self.written.push_back(Backup { keys, kept });
    }

    /// Returns the thread that continues first, and its time; of several at one time the one that is declared first.
    pub fn next(&self) -> Option<(u64, Thread)> {
        let free = self.free_ns;
        let first = |queue: Option<u64>, free_ns: u64| queue.map(|ns| ns.max(free_ns));
        let writer = match &self.writing {
            Some(batch) => Some(batch.until_ns),
            None => first(self.to_write.front().map(|queued| queued.ns), free[0]),
        };
        let reader = match &self.reading {
            Some(batch) => Some(batch.until_ns),
            None => first(self.to_read.front().map(|queued| queued.ns), free[1]),
        };
        let asker = self.to_ask.front().map(|queued| queued.ns);
        let all = [
            writer.map(|ns| (ns, Thread::Writer)),
            asker.map(|ns| (ns, Thread::Asker)),
            reader.map(|ns| (ns, Thread::Reader)),
        ];
        all.into_iter().flatten().min()
    }

    /// Returns the nodes whose host copies are needed.
    pub fn kept(&self) -> impl Iterator<Item = HostLock> + '_ {
        let anchors = self.ongoing.values().map(|id| self.prefetches[id].anchor);
        let queued = self.to_write.iter().map(|queued| &queued.item);
        let writing = self.writing.iter().map(|batch| &batch.of);
        let nodes = self.written.iter().chain(queued).chain(writing);
        let nodes = nodes.map(|backup| backup.kept);
        anchors.chain(nodes).chain(self.done.saved.iter().copied())
    }

    /// Returns the pages of the host that are reserved for prefetches.
    pub fn reserved_pages(&self) -> u64 {
        let each = self.prefetches.values();
        let reserved: u64 = each.filter_map(|p| p.reserved).map(u64::from).sum();
        reserved + u64::from(self.done.released)
    }

    /// Returns true if the scheduler knows of all that has been done.
    pub fn is_known(&self) -> bool {
        let Done {
            hits,
            acks,
            saved,
            released,
        } = &self.done;
        hits.is_empty() && acks.is_empty() && saved.is_empty() && *released == 0
    }
}

/// A batch to send.
#[derive(Debug)]
pub struct ThreadOrder {
    /// The pages and the tiers.
    pub order: Order,
    /// Time at which the thread begins with it.
    pub start_ns: u64,
}

/// The answer to a request that asks for pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asking {
    /// Its prefetch runs, or there is too little to ask for.
    Nothing,
    /// Prefetches in flight have their share of the host.
    Limited,
    /// The storage is asked.
    Asked,
}

/// A prefetch that brought nothing; the request may ask again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Missed {
    /// The request.
    pub request: u32,
    /// End of the pages that the storage is known to have, if the host had no capacity for them.
    pub known_end: Option<u32>,
}

/// A request's prefetch as its scheduler sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ongoing {
    /// Tokens of the pages that it asked for.
    pub requested_tokens: u64,
    /// Tokens of those that the storage has; 0 until it has been asked.
    pub hit_tokens: u64,
    /// True once the host has capacity for its pages.
    pub is_read: bool,
    /// True if all pages have come.
    pub is_whole: bool,
}

/// Number of the threads' results that the scheduler has counted.
#[derive(Debug, Clone, Copy, Default)]
pub struct Finished {
    pub(super) hits: usize,
    pub(super) acks: usize,
    pub(super) saved: usize,
    pub(super) released: u32,
}
