//! The tokens that sessions keep: leading blocks as shared prefixes, and a remainder of their own.

use std::collections::BTreeSet;

use crate::key_map::KeyMap;
use crate::views::EntryId;

/// The tokens kept by one session.
#[derive(Clone, Debug)]
pub(super) struct Held {
    /// Serial number among all that were ever kept, from 1, in the order of keeping.
    pub serial: u64,
    /// The last block that is a shared prefix.
    pub last: EntryId,
    /// Tokens after it.
    pub remainder: u64,
    /// Order of the last access when it was kept.
    pub access: u64,
    /// Requests that have taken over some of its tokens; it cannot be evicted while there are any.
    pub users: u32,
}

/// The tokens kept by all sessions. Cost: a look-up per session, and a tree operation per change of its
/// users.
#[derive(Debug, Default)]
pub(super) struct Kept {
    by_session: KeyMap<i64, Held>,
    /// Sessions without users, the longest kept first.
    unused: BTreeSet<(u64, i64)>,
    last_serial: u64,
    remainders: u64,
    /// Tokens of the remainders of sessions with users.
    pinned_remainders: u64,
}

impl Kept {
    /// Returns the tokens of all remainders.
    pub fn remainders(&self) -> u64 {
        self.remainders
    }

    /// Returns the tokens of the remainders that cannot be evicted.
    pub fn pinned_remainders(&self) -> u64 {
        self.pinned_remainders
    }

    /// Returns the tokens kept by a session.
    pub fn get(&self, session: i64) -> Option<&Held> {
        self.by_session.get(&session)
    }

    /// Returns the tokens kept by a session, if they still have this serial number.
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

    /// Frees and returns the tokens kept by a session.
    pub fn remove(&mut self, session: i64) -> Option<Held> {
        let held = self.by_session.remove(&session)?;
        self.unused.remove(&(held.serial, session));
        self.remainders -= held.remainder;
        if held.users > 0 {
            self.pinned_remainders -= held.remainder;
        }
        Some(held)
    }

    /// Adds a user that takes up to `most` tokens of a session's remainder. Returns the kept state, the
    /// tokens taken, and true for the first user.
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

    /// Removes a user of a session, which returns `tokens` tokens to it. Returns true for the last user.
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

    /// Returns the session without users that was kept first, and the order of the last access then.
    pub fn oldest_unused(&self) -> Option<(i64, u64)> {
        let &(_, session) = self.unused.first()?;
        self.get(session).map(|held| (session, held.access))
    }

    /// Iterates over every session and its kept tokens, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (i64, &Held)> {
        self.by_session
            .iter()
            .map(|(&session, held)| (session, held))
    }
}
