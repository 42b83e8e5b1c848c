//! The tokens that sessions keep: leading blocks as shared prefixes, and a remainder of their own.

use std::collections::BTreeSet;

use crate::key_map::KeyMap;
use crate::views::EntryId;

/// What one session keeps.
#[derive(Clone, Debug)]
pub(super) struct Held {
    /// Its number among all that were ever kept, from 1; a later one is kept later.
    pub serial: u64,
    /// The last block that is a shared prefix.
    pub last: EntryId,
    /// Tokens after it.
    pub remainder: u64,
    /// The order of the last access when it was kept.
    pub access: u64,
    /// Requests that have taken tokens over: it cannot be evicted while there are any.
    pub users: u32,
}

/// What all sessions keep. Cost: a look-up a session, a tree operation where its users come or go.
#[derive(Debug, Default)]
pub(super) struct Kept {
    by_session: KeyMap<i64, Held>,
    /// Those without users, the one kept longest first.
    unused: BTreeSet<(u64, i64)>,
    last_serial: u64,
    remainders: u64,
    /// Remainders of those with users.
    pinned_remainders: u64,
}

impl Kept {
    /// Tokens of all remainders.
    pub fn remainders(&self) -> u64 {
        self.remainders
    }

    /// Tokens of the remainders that cannot be evicted.
    pub fn pinned_remainders(&self) -> u64 {
        self.pinned_remainders
    }

    /// What a session keeps.
    pub fn get(&self, session: i64) -> Option<&Held> {
        self.by_session.get(&session)
    }

    /// What a session keeps, if it is still what was kept under a number.
    pub fn same(&self, session: i64, serial: u64) -> Option<&Held> {
        self.get(session).filter(|held| held.serial == serial)
    }

    /// Keeps a prefix and a remainder for a session that keeps nothing.
    pub fn keep(&mut self, session: i64, last: EntryId, remainder: u64, access: u64) {
        self.last_serial += 1;
        self.remainders += remainder;
        self.unused.insert((self.last_serial, session));
        let held = Held {
            serial: self.last_serial,
            last,
            remainder,
            access,
            users: 0,
        };
        self.by_session.insert(session, held);
    }

    /// Frees what a session keeps, and returns it.
    pub fn remove(&mut self, session: i64) -> Option<Held> {
        let held = self.by_session.remove(&session)?;
        self.unused.remove(&(held.serial, session));
        self.remainders -= held.remainder;
        if held.users > 0 {
            self.pinned_remainders -= held.remainder;
        }
        Some(held)
    }

    /// Adds a user that takes up to so many tokens of a session's remainder; returns what it is of, the tokens taken,
    /// and whether it is the first user.
    pub fn take(&mut self, session: i64, most: u64) -> Option<(Held, u64, bool)> {
        let held = self.by_session.get_mut(&session)?;
        let taken = held.remainder.min(most);
        let is_first = held.users == 0;
        held.users += 1;
        if is_first {
            self.unused.remove(&(held.serial, session));
            self.pinned_remainders += held.remainder;
        }
        held.remainder -= taken;
        self.remainders -= taken;
        self.pinned_remainders -= taken;
        Some((held.clone(), taken, is_first))
    }

    /// Removes a user of a session that keeps something, which returns so many tokens; whether it was the last one.
    pub fn restore(&mut self, session: i64, tokens: u64) -> bool {
        let Some(held) = self.by_session.get_mut(&session) else {
            return false;
        };
        held.remainder += tokens;
        self.remainders += tokens;
        self.pinned_remainders += tokens;
        held.users -= 1;
        if held.users > 0 {
            return false;
        }
        self.pinned_remainders -= held.remainder;
        self.unused.insert((held.serial, session));
        true
    }

    /// The session without users that was kept first, and the order of the last access then.
    pub fn oldest_unused(&self) -> Option<(i64, u64)> {
        let &(_, session) = self.unused.first()?;
        self.get(session).map(|held| (session, held.access))
    }

    /// Every session, and what it keeps, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (i64, &Held)> {
        self.by_session
            .iter()
            .map(|(&session, held)| (session, held))
    }
}
