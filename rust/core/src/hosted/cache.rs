//! Prefixes that a provider keeps, and what a request finds of them.
//!
//! Sources: Anthropic's skills/claude-api/shared/prompt-caching.md, OpenAI's guides/prompt-caching, DeepSeek's
//! guides/kv_cache. Where a prefix is written (breakpoints, ends of messages, everywhere) is the caller's.

use super::prefixes::{Extended, NoSuchPrefix, Prefixes};

/// Limits of what a request finds; `None`: no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reach {
    /// Blocks behind a breakpoint within which a kept prefix is found; without a limit breakpoints do not matter.
    pub look_back: Option<u32>,
    /// Kept prefixes that are looked at, longest first.
    pub searched: Option<u32>,
}

/// The times of a kept prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Life {
    /// The start of the request that wrote it.
    pub start_ns: u64,
    /// It can be read from then on: the first token of that request's answer.
    pub ready_ns: u64,
    /// It is kept for so long after the start of the last request that wrote or read it.
    pub idle_ns: u64,
    /// It is kept for so long in all.
    pub most_ns: u64,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    life: Life,
    used_ns: u64,
}

impl Entry {
    fn is_over(&self, now_ns: u64) -> bool {
        now_ns > self.used_ns.saturating_add(self.life.idle_ns)
            || now_ns > self.life.start_ns.saturating_add(self.life.most_ns)
    }
}

/// A reason why a request does not read a prefix that was written before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unread {
    /// Its time is over.
    Lapsed,
    /// The answer of the request that wrote it has not begun.
    NotReady,
    /// It is too many blocks, or too many kept prefixes, behind the breakpoints.
    OutOfReach,
}

/// A request's prefixes in a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// The longest prefix that is read.
    pub read: Option<u32>,
    /// The longest one that was written before and is not read, if it is longer; and why.
    pub unread: Option<(u32, Unread)>,
}

/// A cache of prefixes.
#[derive(Debug, Default)]
pub struct HostedCache {
    /// All prompts.
    pub prefixes: Prefixes,
    reach: Reach,
    entries: Vec<Option<Entry>>,
}

impl HostedCache {
    /// An empty cache.
    pub fn new(reach: Reach) -> Self {
        Self {
            reach,
            ..Self::default()
        }
    }

    /// Adds blocks to a prefix, as [`Prefixes::extend`].
    pub fn extend(&mut self, from: u32, contents: &[u64]) -> Result<Extended, NoSuchPrefix> {
        self.prefixes.extend(from, contents)
    }

    /// Looks up a request that starts now; `marks` are its breakpoints, prefixes of `tail`.
    pub fn find(&self, tail: u32, marks: &[u32], now_ns: u64) -> Result<Found, NoSuchPrefix> {
        self.prefixes.blocks(tail)?;
        let (mut unread, mut left, mut seen) = (None, None, 0);
        for prefix in self.prefixes.path(tail) {
            left = match self.reach.look_back {
                Some(most) if marks.contains(&prefix) => Some(most),
                _ => left.and_then(|blocks: u32| blocks.checked_sub(1)),
            };
            let Some(entry) = self.entry(prefix) else {
                continue;
            };
            seen += 1;
            let is_far = self.reach.look_back.is_some() && left.is_none();
            let why = if is_far || self.reach.searched.is_some_and(|most| seen > most) {
                Unread::OutOfReach
            } else if entry.is_over(now_ns) {
                Unread::Lapsed
            } else if now_ns < entry.life.ready_ns {
                Unread::NotReady
            } else {
                let read = Some(prefix);
                return Ok(Found { read, unread });
            };
            unread = unread.or(Some((prefix, why)));
        }
        Ok(Found { read: None, unread })
    }

    /// A read at this time: the prefix and all kept ones within it live on.
    pub fn refresh(&mut self, prefix: u32, now_ns: u64) -> Result<(), NoSuchPrefix> {
        self.prefixes.blocks(prefix)?;
        for at in self.prefixes.path(prefix) {
            if let Some(Some(entry)) = self.entries.get_mut(at as usize) {
                if !entry.is_over(now_ns) {
                    entry.used_ns = entry.used_ns.max(now_ns);
                }
            }
        }
        Ok(())
    }

    /// Keeps a prefix; one that is kept already lives on, and is ready when either is.
    pub fn write(&mut self, prefix: u32, life: Life) -> Result<(), NoSuchPrefix> {
        self.prefixes.blocks(prefix)?;
        let at = prefix as usize;
        if at >= self.entries.len() {
            self.entries.resize(at + 1, None);
        }
        let used_ns = life.start_ns;
        let entry = self.entries[at].get_or_insert(Entry { life, used_ns });
        if entry.is_over(used_ns) {
            entry.life = life;
        } else if life.idle_ns > entry.life.idle_ns {
            entry.life.idle_ns = life.idle_ns;
        }
        entry.life.ready_ns = entry.life.ready_ns.min(life.ready_ns);
        entry.used_ns = entry.used_ns.max(used_ns);
        Ok(())
    }

    /// Keeps a prefix and every prefix within it.
    pub fn write_path(&mut self, prefix: u32, life: Life) -> Result<(), NoSuchPrefix> {
        let path: Vec<u32> = self.prefixes.path(prefix).collect();
        path.into_iter().try_for_each(|at| self.write(at, life))
    }

    fn entry(&self, prefix: u32) -> Option<Entry> {
        self.entries.get(prefix as usize).copied().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn life(start_ns: u64, idle_ns: u64) -> Life {
        Life {
            start_ns,
            ready_ns: start_ns + 2 * S,
            idle_ns,
            most_ns: u64::MAX,
        }
    }

    fn extended(cache: &mut HostedCache, from: u32, contents: &[u64]) -> u32 {
        let added = cache.extend(from, contents);
        added.map_or(0, |added| added.prefixes.last().copied().unwrap_or(from))
    }

    /// A cache with the prefix of these blocks, written at 0 for 300 s.
    fn written(reach: Reach, contents: &[u64]) -> (HostedCache, u32) {
        let mut cache = HostedCache::new(reach);
        let tail = extended(&mut cache, 0, contents);
        assert_eq!(cache.write(tail, life(0, 300 * S)), Ok(()));
        (cache, tail)
    }

    #[test]
    fn a_breakpoint_finds_what_lies_twenty_blocks_behind_and_no_further() {
        let reach = Reach {
            look_back: Some(20),
            searched: None,
        };
        for (added, is_read) in [(18, true), (20, true), (21, false), (22, false)] {
            let (mut cache, kept) = written(reach, &[1, 2]);
            let more: Vec<u64> = (10..10 + added).collect();
            let tail = extended(&mut cache, kept, &more);
            let found = cache.find(tail, &[tail], 10 * S);
            let read = found.map(|found| found.read == Some(kept));
            assert_eq!(read, Ok(is_read), "{added} blocks");
            let why = found.map(|found| found.unread.map(|(_, why)| why));
            assert_eq!(why, Ok((!is_read).then_some(Unread::OutOfReach)));
        }
    }

    #[test]
    fn a_prefix_lives_from_the_start_of_its_last_use_and_is_read_from_its_first_token_on() {
        let (mut cache, kept) = written(Reach::default(), &[1]);
        let why = |cache: &HostedCache, now| {
            let found = cache.find(kept, &[], now);
            found.map(|found| found.unread.map(|(_, why)| why))
        };
        assert_eq!(why(&cache, 2 * S - 1), Ok(Some(Unread::NotReady)));
        assert_eq!(why(&cache, 2 * S), Ok(None));
        assert_eq!(why(&cache, 300 * S), Ok(None));
        assert_eq!(why(&cache, 300 * S + 1), Ok(Some(Unread::Lapsed)));
        assert_eq!(cache.refresh(kept, 200 * S), Ok(()));
        assert_eq!(why(&cache, 500 * S), Ok(None));
        assert_eq!(why(&cache, 501 * S), Ok(Some(Unread::Lapsed)));
        assert_eq!(cache.write(kept, life(600 * S, 300 * S)), Ok(()));
        assert_eq!(why(&cache, 900 * S), Ok(None));
    }

    #[test]
    fn a_refused_handle_changes_nothing() {
        let (mut cache, kept) = written(Reach::default(), &[1]);
        assert_eq!(cache.write(kept + 1, life(0, S)), Err(NoSuchPrefix));
        assert_eq!(cache.refresh(kept + 1, 0), Err(NoSuchPrefix));
        assert!(cache.extend(9, &[1]).is_err());
    }
}
