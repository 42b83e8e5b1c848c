//! Recounts everything that the store keeps a count of.

use super::TokenStore;
use crate::views::NO_ENTRY;

impl TokenStore {
    /// Recomputes everything from scratch; the first violated invariant is the error.
    pub fn check(&self) -> Result<(), String> {
        let private: u64 = self.leases.iter().map(|(_, lease)| lease.private).sum();
        if private != self.private {
            return Err("I2: private tokens are not those of the leases".to_owned());
        }
        let (mut remainders, mut pinned) = (0, 0);
        let (mut used, mut in_use) = (Vec::new(), Vec::new());
        for (_, lease) in self
            .leases
            .iter()
            .filter(|(_, lease)| lease.last != NO_ENTRY)
        {
            used.push(lease.last);
            in_use.push(lease.last);
        }
        let mut sessions = 0;
        for (session, held) in self.kept.iter() {
            sessions += 1;
            remainders += held.remainder;
            if self.sessions.left_by(session).is_none() {
                return Err(format!("I3: session {session} is held and not known"));
            }
            if held.users > 0 {
                pinned += held.remainder;
            }
            if held.last != NO_ENTRY {
                used.push(held.last);
                in_use.extend((held.users > 0).then_some(held.last));
            }
        }
        if sessions != self.sessions.len() {
            return Err("I3: a session is known and not held".to_owned());
        }
        if (remainders, pinned) != (self.kept.remainders(), self.kept.pinned_remainders()) {
            return Err("I2: sessions' tokens are not those of the sessions".to_owned());
        }
        self.prefixes.check(&used, &in_use)?;
        match self.capacity {
            Some(capacity) if self.used() > capacity => {
                let used = self.used();
                Err(format!("I2: {used} tokens in memory for {capacity}"))
            }
            _ => Ok(()),
        }
    }
}
