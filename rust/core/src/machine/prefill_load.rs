//! What routers compare of machines: open requests, and prompt tokens that are still to be computed.

use crate::store::IndexEntry;

/// The open requests of a machine and their prompt tokens, counted where they come and go.
#[derive(Debug, Default)]
pub struct PrefillLoad {
    open_requests: u64,
    /// Where routers read the number of open requests.
    index_entries: Vec<IndexEntry>,
    queued_tokens: u64,
    expected_tokens: u64,
}

impl PrefillLoad {
    /// Requests that were sent here and are not finished.
    pub fn open_requests(&self) -> u64 {
        self.open_requests
    }

    /// Prompt tokens of these that are not computed yet.
    pub fn queued_tokens(&self) -> u64 {
        self.queued_tokens
    }

    /// Of the queued tokens those that the router expected to be computed, none of them cached.
    pub fn expected_tokens(&self) -> u64 {
        self.expected_tokens
    }

    /// Enters the number of open requests, from now on too, where routers read it.
    pub fn sit(&mut self, index_entry: IndexEntry) {
        index_entry.has_requests(self.open_requests);
        self.index_entries.push(index_entry);
    }

    /// Counts a request that has come, with the tokens of its prompt and those expected to be computed.
    pub(super) fn add(&mut self, prompt_tokens: u64, expected_tokens: u64) {
        self.count_open(1);
        self.queued_tokens += prompt_tokens;
        self.expected_tokens += expected_tokens;
    }

    /// Counts a request that has left.
    pub(super) fn remove(&mut self) {
        self.count_open(-1);
    }

    /// Takes out tokens that are computed, or that no one waits for any more.
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
