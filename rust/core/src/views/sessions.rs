//! Sessions as the cache sees them: the tokens that the last completed turn of each left cached.

use std::collections::{BTreeMap, HashMap};

/// The known sessions of one machine, within their bounds: seed 000's `active_sessions_kv_state`.
#[derive(Debug, Default)]
pub struct Sessions {
    max_sessions: Option<usize>,
    ttl_ns: Option<u64>,
    /// Tokens of prompt and answer together, and the number of the turn among all turns.
    known: HashMap<i64, (u64, u64)>,
    /// Sessions by the number of their last turn, each with the time of that turn's end; oldest first.
    turns: BTreeMap<u64, (i64, u64)>,
    next_turn: u64,
}

impl Sessions {
    /// Creates a view without sessions.
    pub fn new(max_sessions: Option<usize>, ttl_ns: Option<u64>) -> Self {
        Self {
            max_sessions,
            ttl_ns,
            ..Self::default()
        }
    }

    /// Enters a completed turn in place of the session's last one, then applies the bounds. Returns the
    /// sessions dropped.
    pub fn complete_turn(&mut self, session: i64, tokens: u64, now_ns: u64) -> Vec<i64> {
        let turn = self.next_turn;
        self.next_turn += 1;
        if let Some((_, last)) = self.known.insert(session, (tokens, turn)) {
            self.turns.remove(&last);
        }
        self.turns.insert(turn, (session, now_ns));
        let mut dropped = Vec::new();
        while self
            .max_sessions
            .is_some_and(|most| self.turns.len() > most)
        {
            dropped.extend(self.drop_oldest());
        }
        dropped.append(&mut self.expire(now_ns));
        dropped
    }

    /// Returns the tokens of a session's last turn; `None` if no turn of it is known any more.
    pub fn tokens(&mut self, session: i64, now_ns: u64) -> Option<u64> {
        self.expire(now_ns);
        self.left_by(session)
    }

    /// Returns the tokens of a session's last turn, as of the last expiry of sessions.
    pub fn left_by(&self, session: i64) -> Option<u64> {
        self.known.get(&session).map(|known| known.0)
    }

    /// Drops the sessions past their time to live, and returns them.
    pub fn expire(&mut self, now_ns: u64) -> Vec<i64> {
        let mut dropped = Vec::new();
        let Some(ttl_ns) = self.ttl_ns else {
            return dropped;
        };
        while let Some((_, &(_, done_ns))) = self.turns.first_key_value() {
            if now_ns - done_ns < ttl_ns {
                break;
            }
            dropped.extend(self.drop_oldest());
        }
        dropped
    }

    /// Drops a session; false if it is not known.
    pub fn forget(&mut self, session: i64) -> bool {
        match self.known.remove(&session) {
            Some((_, turn)) => self.turns.remove(&turn).is_some(),
            None => false,
        }
    }

    /// Returns the number of known sessions.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Returns true if no session is known.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    fn drop_oldest(&mut self) -> Option<i64> {
        let (_, (session, _)) = self.turns.pop_first()?;
        self.known.remove(&session);
        Some(session)
    }
}
