//! Load of a machine that routers compare: open requests, and prompt tokens that are not computed yet.

use crate::store::IndexEntry;

/// The open requests of a machine and their prompt tokens, counted at arrivals and departures.
#[derive(Debug, Default)]
pub struct PrefillLoad {
    open_requests: u64,
    /// Index entries from which routers read the number of open requests.
    index_entries: Vec<IndexEntry>,
    queued_tokens: u64,
    expected_tokens: u64,
}

impl PrefillLoad {
    /// Requests that were sent here and have not finished.
    pub fn open_requests(&self) -> u64 {
        self.open_requests
    }

    /// Prompt tokens of the open requests that are not computed yet.
    pub fn queued_tokens(&self) -> u64 {
        self.queued_tokens
    }

    /// Queued tokens that the router expected to be computed, that is, not cached.
    pub fn expected_tokens(&self) -> u64 {
        self.expected_tokens
    }

    /// Adds an index entry from which routers read the number of open requests, and keeps it current.
    pub fn add_index_entry(&mut self, index_entry: IndexEntry) {
        index_entry.has_requests(self.open_requests);
        self.index_entries.push(index_entry);
    }

    /// Counts an arrived request, with the tokens of its prompt and those expected to be computed.
    pub(super) fn add(&mut self, prompt_tokens: u64, expected_tokens: u64) {
        self.count_open(1);
        self.queued_tokens += prompt_tokens;
        self.expected_tokens += expected_tokens;
    }

    /// Counts a request that has left.
    pub(super) fn remove(&mut self) {
        self.count_open(-1);
    }

    /// Subtracts tokens that are computed, or whose request has left.
    pub(super) fn take_out(&mut self, prompt_tokens: u64, expected_tokens: u64) {
        self.queued_tokens -= prompt_tokens;
        self.expected_tokens -= expected_tokens;
    }

    fn count_open(&mut self, by: i64) {
        self.open_requests = self.open_requests.wrapping_add_signed(by);
        for index_entry in &self.index_entries {
            index_entry.has_requests(self.open_requests);
        }
    }
}
