//! The cache under simplified accounting: memory is a count of unique tokens (seed 000, 3.5).
//!
//! The tokens of a session's last turn and of a shared prefix are assumed to be resident, and reusing them
//! takes no further memory. Blocks are single tokens: every amount of the contracts is a number of tokens
//! here. Shared prefixes are made of the blocks of the trace.
//!
//! | file | contents |
//! |---|---|
//! | `mod` | look-ups, shared prefixes |
//! | `kept` | the tokens that sessions keep beyond shared prefixes |
//! | `turns` | tokens that a completed turn keeps, and a preempted one returns |
//! | `memory` | eviction: the oldest unused entry, session or prefix |
//! | `contract` | the contract of all stores, implemented by a count of tokens; leases |
//! | `check` | recounts everything |

mod check;
mod contract;
mod kept;
mod memory;
mod turns;

use std::sync::Arc;

use crate::error::{Answer, StoreError};
use crate::ids::LeaseId;
use crate::keys::BlockKeys;
use crate::records::Records;
use crate::store::Slots;
use crate::views::{EntryId, PrefixStore, Sessions};
use kept::Kept;

/// The columns of the trace that the views read, by request.
#[derive(Clone, Debug, Default)]
pub struct Prompts {
    /// Number of its session; negative without a session.
    pub sessions: Vec<i64>,
    /// Tokens of its prompt.
    pub input_tokens: Vec<u64>,
    /// Prompt tokens that a context window left of the session's history; negative if the trace does not say.
    pub history_tokens: Vec<i64>,
}

/// The tokens held by one request.
#[derive(Clone, Debug, Default)]
struct Lease {
    request: u32,
    /// The last block held as a shared prefix; it holds all before it.
    last: EntryId,
    /// Leading blocks held as shared prefixes: now, and when it was acquired.
    blocks: u32,
    first_blocks: u32,
    /// Tokens reused or computed.
    depth: u32,
    private: u64,
    /// Reused tokens that a reservation still has to count in memory.
    owed: u64,
    /// Serial number of the session's kept tokens, 0 for none; the request took over `taken` of these tokens.
    kept: u64,
    taken: u64,
}

/// Unique tokens on one tier: shared prefixes, tokens kept by sessions, and tokens added by running requests.
///
/// Cost: a look-up per block; an access of a prefix walks to its start.
#[derive(Debug)]
pub struct TokenStore {
    keys: Arc<BlockKeys>,
    prompts: Prompts,
    block_size_tokens: u64,
    /// In tokens; `None` is unbounded.
    capacity: Option<u64>,
    sessions: Sessions,
    prefixes: PrefixStore,
    kept: Kept,
    leases: Slots<Lease>,
    private: u64,
    evicted: u64,
    /// Tokens computed twice and merged.
    merged: u64,
    /// The digest and the eviction log.
    pub records: Records,
}

impl TokenStore {
    /// Creates an empty store of `capacity` tokens for requests of blocks of `block_size_tokens`. Refuses
    /// columns of another length than the keys.
    pub fn new(
        keys: Arc<BlockKeys>,
        prompts: Prompts,
        block_size_tokens: u64,
        capacity: Option<u64>,
        sessions: Sessions,
        prefixes: PrefixStore,
    ) -> Answer<Self> {
        let requests = keys.requests() as usize;
        let lengths = [
            prompts.sessions.len(),
            prompts.input_tokens.len(),
            prompts.history_tokens.len(),
        ];
        if lengths != [requests; 3] {
            return Err(StoreError::Lengths(keys.requests()));
        }
        Ok(Self {
            keys,
            prompts,
            block_size_tokens: block_size_tokens.max(1),
            capacity,
            sessions,
            prefixes,
            kept: Kept::default(),
            leases: Slots::default(),
            private: 0,
            evicted: 0,
            merged: 0,
            records: Records::default(),
        })
    }

    // -- look-ups

    /// Refuses a request that the trace does not have.
    pub fn known_request(&self, request: u32) -> Answer<()> {
        self.keys.known_request(request)
    }

    /// Returns how many of the first `limit` tokens are found, all of them ready: those of the session, else
    /// of a shared prefix. A session past its time to live is still found until a call passes the time
    /// ([`TokenStore::find`]).
    pub fn peek(&self, request: u32, limit: u32) -> u32 {
        let shared = self.shared_blocks(request, limit) * self.block_size_tokens as u32;
        shared.max(self.of_session(request, limit))
    }

    /// As [`TokenStore::peek`], after sessions past their time to live are dropped.
    pub fn find(&mut self, request: u32, limit: u32, now_ns: u64) -> u32 {
        if self.session_of(request).is_some() {
            self.expire_sessions(now_ns);
        }
        self.peek(request, limit)
    }

    fn session_of(&self, request: u32) -> Option<i64> {
        let session = self.prompts.sessions[request as usize];
        (session >= 0).then_some(session)
    }

    fn of_session(&self, request: u32, limit: u32) -> u32 {
        let session = self.session_of(request);
        let Some(total) = session.and_then(|session| self.sessions.left_by(session)) else {
            return 0;
        };
        let history = self.prompts.history_tokens[request as usize];
        let reused = match u64::try_from(history) {
            Ok(history) => total.min(history),
            // not the session's prompt: unrelated as far as the trace shows
            Err(_) if self.prompts.input_tokens[request as usize] <= total => 0,
            Err(_) => total,
        };
        reused.min(u64::from(limit)) as u32
    }

    fn shared_blocks(&self, request: u32, limit: u32) -> u32 {
        let blocks = self.whole_blocks(limit);
        let admitted = self
            .prefixes
            .admission
            .admitted_blocks(&self.keys, request, blocks);
        let shortest = self.prefixes.admission.shortest_blocks().max(1);
        self.prefixes
            .longest(&self.keys, request, admitted, shortest)
            .0
    }

    /// Returns the tokens of the whole blocks among `tokens` tokens.
    fn whole_blocks(&self, tokens: u32) -> u32 {
        (u64::from(tokens) / self.block_size_tokens) as u32
    }

    /// Returns the shared prefixes of a request's first `limit` tokens, shorter first. Of each: one past its
    /// last token, its users, and the order of its last access.
    pub fn uses(&self, request: u32, limit: u32) -> Vec<(u32, u32, u64)> {
        let keys = (0..self.whole_blocks(limit)).map(|block| self.keys.key(request, block));
        let held = keys.map_while(|key| self.prefixes.get(key));
        held.map(|entry| {
            let (blocks, users, access) = self.prefixes.describe(entry);
            (blocks * self.block_size_tokens as u32, users, access)
        })
        .collect()
    }

    // -- leases

    fn lease(&self, lease: LeaseId) -> Answer<&Lease> {
        self.leases.get(lease).ok_or(StoreError::NoSuchLease)
    }
}
