//! Unique tokens in memory, with manual counts: blocks of 16 tokens, prompts as strings of characters, one
//! character per block.

use std::collections::HashMap;

use super::{Prompts, TokenStore};
use crate::ids::LeaseId;
use crate::keys::BlockKeys;
use crate::store::contract::{BatchStore, BlockStore};
use crate::store::{Reservation, Times};
use crate::views::{PrefixAdmission, PrefixViewConfig, Sessions};

const BLOCK: u64 = 16;

/// Session (negative: none), prompt tokens, output tokens, and the text of prompt and answer.
type Row = (i64, u64, u64, &'static str);

/// A store that serves one request after another, a nanosecond each.
struct Machine {
    rows: Vec<Row>,
    store: TokenStore,
    now_ns: u64,
}

impl Machine {
    fn new(rows: &[Row], capacity: Option<u64>, view: PrefixViewConfig) -> Self {
        Self::with_sessions(rows, capacity, view, Sessions::default())
    }

    fn with_sessions(
        rows: &[Row],
        capacity: Option<u64>,
        view: PrefixViewConfig,
        sessions: Sessions,
    ) -> Self {
        let mut names: HashMap<&str, u32> = HashMap::new();
        let mut id = |beginning| {
            let next = names.len() as u32;
            *names.entry(beginning).or_insert(next)
        };
        let texts = rows.iter().map(|row| row.3);
        let ids: Vec<Vec<u32>> = texts
            .map(|text| (1..=text.len()).map(|end| id(&text[..end])).collect())
            .collect();
        let keys = BlockKeys::of_rows(1, &ids);
        let prompts = Prompts {
            sessions: rows.iter().map(|row| row.0).collect(),
            input_tokens: rows.iter().map(|row| row.1).collect(),
            history_tokens: vec![-1; rows.len()],
        };
        let admission = PrefixAdmission::new(view, BLOCK);
        let size = (BLOCK, capacity);
        let store = TokenStore::new(keys, prompts, size, sessions, admission).unwrap();
        Self {
            rows: rows.to_vec(),
            store,
            now_ns: 0,
        }
    }

    /// Returns the tokens that a request reuses, and its lease; no lease if the reservation is refused.
    fn admit(&mut self, request: u32) -> (u32, Option<LeaseId>) {
        let (_, prompt, output, _) = self.rows[request as usize];
        let found = self.store.find(request, prompt as u32 - 1, self.now_ns);
        let lease = self.store.acquire(request, found).unwrap();
        let wanted = [(lease, prompt + output - 1 - u64::from(found))];
        if self.store.reserve(&wanted, self.now_ns).unwrap() == Reservation::Refused {
            self.store.abandon(lease).unwrap();
            return (found, None);
        }
        self.store.observe(request, prompt);
        (found, Some(lease))
    }

    fn finish(&mut self, request: u32, lease: LeaseId) {
        let (session, prompt, output, _) = self.rows[request as usize];
        self.now_ns += 1;
        let to = (prompt + output - 1) as u32;
        let ready = Times::at(self.now_ns);
        self.store.commit(lease, to, ready).unwrap();
        self.store.release(lease, self.now_ns).unwrap();
        if session >= 0 {
            let tokens = prompt + output;
            self.store
                .complete_turn(request, session, tokens, self.now_ns);
        }
        self.store.check().unwrap();
    }

    fn serve(&mut self, request: u32) -> u32 {
        let (found, lease) = self.admit(request);
        self.finish(request, lease.expect("the tokens fit"));
        found
    }
}

#[test]
fn a_conversation_is_held_once_and_hit_by_its_total() {
    let rows = [(0, 40, 10, "abc"), (0, 70, 10, "abcde"), (0, 60, 1, "abcd")];
    let mut machine = Machine::new(&rows, None, PrefixViewConfig::default());
    assert_eq!((machine.serve(0), machine.store.used()), (0, 50));
    assert_eq!((machine.serve(1), machine.store.used()), (50, 80)); // all of prompt and answer

    // A prompt not above the total is unrelated to it, but its whole blocks are shared prefixes. Then a to d are
    // left, and the 61 tokens of the session are among them.
    assert_eq!((machine.serve(2), machine.store.used()), (48, 64));
}

#[test]
fn n_turns_of_t_tokens_hold_n_times_t() {
    // Turn k has a prompt of 16 (2 k + 1) tokens and an answer of 16: each turn adds 32 tokens, whatever it reuses.
    let text = "abcdefghijklmnopqrst";
    let rows: Vec<Row> = (0..10)
        .map(|k| (0, 16 * (2 * k + 1), 16, &text[..2 * k as usize + 2]))
        .collect();
    let mut machine = Machine::new(&rows, None, PrefixViewConfig::default());
    for k in 0..10 {
        assert_eq!(machine.serve(k), 32 * k);
        assert_eq!(machine.store.used(), 32 * (u64::from(k) + 1));
    }
}

#[test]
fn a_prefix_in_use_twice_counts_once_and_leaves_with_neither() {
    let rows = [(-1, 40, 1, "ab"), (-1, 40, 1, "ab"), (-1, 40, 1, "cd")];
    let mut machine = Machine::new(&rows, Some(80), PrefixViewConfig::default());
    machine.serve(0);
    let ((found, first), (again, second)) = (machine.admit(0), machine.admit(1));
    assert_eq!((found, again, machine.store.used()), (32, 32, 32 + 8 + 8));
    assert_eq!(machine.admit(2), (0, None)); // 40 more do not fit, and nothing is unused
    machine.store.check().unwrap();
    machine.finish(0, first.unwrap());
    assert!(machine.admit(2).1.is_some());
    machine.finish(1, second.unwrap());
}

#[test]
fn the_oldest_unused_entry_goes_session_or_prefix() {
    let rows = [
        (-1, 33, 1, "ab"),
        (0, 33, 7, "cd"),
        (-1, 33, 1, "ab"),
        (-1, 60, 1, "efg"),
        (0, 60, 1, "cde"),
    ];
    let mut machine = Machine::new(&rows, Some(100), PrefixViewConfig::default());
    for request in 0..3 {
        machine.serve(request);
    }
    assert_eq!(machine.store.used(), 32 + 40);
    machine.serve(3); // 60 more: the session (40) is older than a and b
    assert_eq!(machine.store.session_tokens(0, machine.now_ns), None);
    assert_eq!((machine.store.peek(2, 32), machine.store.evicted), (32, 40));
    assert_eq!(machine.store.peek(4, 59), 0); // c and d went with it
}

#[test]
fn a_preempted_turn_returns_to_its_session_what_it_took() {
    let rows = [(0, 40, 10, "abc"), (0, 80, 10, "abcde")];
    let mut machine = Machine::new(&rows, None, PrefixViewConfig::default());
    machine.serve(0);
    let (found, lease) = machine.admit(1);
    assert_eq!(found, 50);
    let lease = lease.unwrap();
    machine.store.commit(lease, 66, Times::default()).unwrap();
    machine.store.release(lease, 9).unwrap();
    machine.store.check().unwrap();
    assert_eq!(machine.store.used(), 64); // a to d; the session's fifty tokens are among them
    assert_eq!((machine.serve(1), machine.store.used()), (64, 90));
}

#[test]
fn a_session_in_use_stays_however_short_memory_is() {
    let rows = [
        (0, 40, 10, "abc"),
        (-1, 33, 1, "mn"),
        (0, 60, 5, "abcd"),
        (-1, 30, 1, "tu"),
    ];
    let mut machine = Machine::new(&rows, Some(100), PrefixViewConfig::default());
    machine.serve(0);
    machine.serve(1);
    let (found, lease) = machine.admit(2);
    assert_eq!((found, machine.store.used()), (50, 50 + 32 + 14));
    assert!(machine.admit(3).1.is_some()); // m and n are evicted, not the older session, whose next turn runs
    assert_eq!(machine.store.session_tokens(0, 3), Some(50));
    assert_eq!(machine.store.peek(1, 32), 0);
    machine.store.release(lease.unwrap(), 4).unwrap(); // preempted before anything was computed
    machine.store.check().unwrap();
    assert_eq!(machine.store.used(), 50 + 30);
}

#[test]
fn prefixes_enter_by_how_often_they_were_seen_and_within_their_limit() {
    let rows = [(-1, 40, 1, "ab"), (-1, 40, 1, "ab"), (-1, 40, 1, "ab")];
    let found = |view: PrefixViewConfig| {
        let mut machine = Machine::new(&rows, None, view);
        [0, 1, 2].map(|request| machine.serve(request))
    };
    let view = PrefixViewConfig::default();
    let seen = PrefixViewConfig {
        min_seen: 2,
        ..view
    };
    let bounded = PrefixViewConfig {
        max_tokens: Some(16),
        ..view
    };
    let long = PrefixViewConfig {
        min_tokens: Some(33),
        ..view
    };
    assert_eq!(found(view), [0, 32, 32]);
    assert_eq!(found(seen), [0, 0, 32]);
    assert_eq!(found(bounded), [0, 16, 16]);
    assert_eq!(found(long), [0, 0, 0]);
}

#[test]
fn a_session_and_its_tokens_are_dropped_when_it_expires_or_another_replaces_it() {
    let rows = [(0, 40, 10, "abc"), (1, 20, 4, "x"), (0, 70, 2, "abcde")];
    let view = PrefixViewConfig::default();
    let brief = Sessions::new(None, Some(5));
    let mut machine = Machine::with_sessions(&rows, None, view, brief);
    machine.serve(0); // done at 1 ns: a and b stay as prefixes, c's 16 tokens and 2 of the answer are the session's
    assert_eq!(machine.store.find(2, 69, 5), 50);
    assert_eq!(machine.store.find(2, 69, 6), 48);
    assert_eq!(machine.store.used(), 48);
    let one = Sessions::new(Some(1), None);
    let mut machine = Machine::with_sessions(&rows, None, view, one);
    machine.serve(0);
    machine.serve(1);
    assert_eq!(machine.store.session_tokens(0, 2), None);
    assert_eq!(machine.store.session_tokens(1, 2), Some(24));
    machine.store.check().unwrap();
}

#[test]
fn a_lease_that_has_ended_is_refused_and_nothing_changes() {
    let mut machine = Machine::new(&[(-1, 32, 1, "ab")], Some(64), PrefixViewConfig::default());
    let store = &mut machine.store;
    let lease = store.acquire(0, 0).unwrap();
    store.reserve(&[(lease, 32)], 0).unwrap();
    assert!(store.commit(lease, 33, Times::default()).is_err()); // a token more than is reserved
    store.release(lease, 0).unwrap();
    assert!(store.release(lease, 0).is_err());
    assert!(store.abandon(lease).is_err());
    assert!(store.commit(lease, 16, Times::default()).is_err());
    assert!(store.reserve(&[(lease, 1)], 0).is_err());
    assert!(store.depth(lease).is_err());
    assert!(store.acquire(7, 0).is_err());
    assert_eq!(store.used(), 0);
    store.check().unwrap();
}
