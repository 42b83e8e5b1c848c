//! Secondary tier below vLLM's CPU tier, key by key: evictions for a promotion, and notifications of a policy.

use std::sync::{Arc, Mutex};

use super::*;
use crate::engines::offload_tier::OffloadPolicy;

const REQUESTS: u32 = 8;

/// Keys of one-character names.
fn keys(names: &str) -> Vec<u64> {
    names.bytes().map(u64::from).collect()
}

fn names_of(keys: impl Iterator<Item = u64>) -> String {
    let mut there: Vec<char> = keys.map(|key| char::from(key as u8)).collect();
    there.sort_unstable();
    there.into_iter().collect()
}

fn tier_of(capacity: usize, below: &str) -> TieredOffload {
    let mut tier = TieredOffload::new("lru", capacity, REQUESTS).unwrap();
    tier.below.extend(keys(below));
    tier
}

fn there(tier: &TieredOffload) -> String {
    names_of(tier.policy.keys())
}

/// Offers a name as a request's first block for each pair. Returns the resident names after each offer.
fn after_each(tier: &mut TieredOffload, offers: &[(u32, &str)]) -> Vec<String> {
    let offer = |&(request, name): &(u32, &str)| {
        tier.offer(request, 0, &keys(name));
        there(tier)
    };
    offers.iter().map(offer).collect()
}

/// The first request has the lowest rank: among its keys a would be evicted for b if it were not being promoted
/// itself.
#[test]
fn what_a_look_up_promotes_stays_while_it_promotes_more() {
    let mut tier = tier_of(2, "abc");
    assert_eq!(tier.ask(0, 0, &keys("c")), 1);
    for (request, name) in [(1, "x"), (2, "y")] {
        tier.offer(request, 0, &keys(name));
        tier.finish(request);
    }
    assert_eq!(there(&tier), "xy");
    assert_eq!(tier.ask(0, 0, &keys("ab")), 2);
    let counts = TieringCounts {
        stored: 2,
        evicted: 3,
        promoted: 3,
        ..TieringCounts::default()
    };
    assert_eq!((there(&tier).as_str(), tier.counts), ("ab", counts));
}

#[test]
fn later_keys_of_a_request_are_evicted_first() {
    let mut tier = tier_of(3, "abc");
    assert_eq!(tier.ask(0, 0, &keys("abc")), 3);
    let left = after_each(&mut tier, &[(1, "x"), (2, "y"), (3, "z")]);
    assert_eq!(left, ["abx", "axy", "xyz"]);
}

#[test]
fn a_request_keeps_its_first_rank_and_takes_none_from_a_later_one() {
    let mut tier = tier_of(3, "abx");
    tier.ask(0, 0, &keys("a")); // rank 1
    tier.ask(1, 1, &keys("x")); // rank 2
    tier.load(1, 0, &keys("a")); // a has rank 2 as well, and an earlier index than x
    tier.ask(0, 1, &keys("b")); // b has rank 1
    tier.load(0, 0, &keys("a")); // and a keeps 2
    assert_eq!(after_each(&mut tier, &[(2, "u"), (3, "v")]), ["aux", "auv"]);
}

#[test]
fn keys_count_once_more_at_the_end_the_first_as_the_last() {
    let mut tier = tier_of(3, "abc");
    tier.ask(0, 0, &keys("abc"));
    tier.ask(1, 0, &keys("a"));
    tier.finish(0); // c, b, a: each a rank of its own
    assert_eq!(after_each(&mut tier, &[(2, "x"), (3, "y")]), ["abx", "axy"]);
}

#[test]
fn what_a_request_promoted_it_has_stored_and_what_it_found_it_uses_again() {
    let mut tier = tier_of(9, "ab");
    tier.offer(7, 0, &keys("c"));
    assert_eq!(tier.ask(0, 4, &keys("ab")), 2);
    tier.load(0, 4, &keys("abc"));
    let [a, b, c] = [b'a', b'b', b'c'].map(u64::from);
    let used = UsedKeys::from([
        (4, KeyUse::new(a, Access::Stored)),
        (5, KeyUse::new(b, Access::Stored)),
        (6, KeyUse::new(c, Access::Reused)),
    ]);
    assert_eq!(tier.running[0].used, used);
}

#[test]
fn an_offer_without_capacity_stores_nothing_in_either_tier() {
    let mut tier = tier_of(2, "a");
    tier.offer(0, 0, &keys("xyz"));
    assert_eq!((there(&tier).as_str(), tier.below.len()), ("", 1));
    assert_eq!((tier.counts.refused, tier.counts.stored), (1, 0));
    tier.offer(0, 0, &keys("xy"));
    assert_eq!((there(&tier).as_str(), tier.below.len()), ("xy", 3));
}

/// Policy that logs its notifications and keeps nothing but `kept`.
#[derive(Debug, Default, Clone)]
struct Forgets(Arc<Mutex<(String, String)>>);

impl OffloadPolicy for Forgets {
    fn resident(&self) -> usize {
        usize::MAX / 2
    }

    fn contains(&self, key: u64) -> bool {
        let state = self.0.lock().unwrap();
        state.0.bytes().any(|kept| u64::from(kept) == key)
    }

    fn offer(&mut self, keys: &[u64]) {
        self.0.lock().unwrap().1 += &names_of(keys.iter().copied());
    }

    fn evict(&mut self, _: usize, _: &dyn Fn(u64) -> bool) -> Option<Vec<u64>> {
        Some(vec![0])
    }

    fn insert(&mut self, _: u64) {}

    fn finish(&mut self, _: u64, _: Access) {}

    fn keys(&self) -> Box<dyn Iterator<Item = u64> + '_> {
        Box::new(std::iter::empty())
    }
}

fn forgetful(kept: &str, below: &str) -> (TieredOffload, Forgets) {
    let policy = Forgets(Arc::new(Mutex::new((kept.into(), String::new()))));
    let mut tier = TieredOffload::over(Box::new(policy.clone()), 4, REQUESTS);
    tier.below.extend(keys(below));
    (tier, policy)
}

/// Keys that are evicted as soon as they are promoted are looked up until the look-up is aborted.
#[test]
fn a_policy_learns_once_a_request_of_each_key_that_it_lacks() {
    let (mut tier, policy) = forgetful("", "ab");
    let learned = || policy.0.lock().unwrap().1.clone();
    assert_eq!(tier.ask(0, 0, &keys("ab")), 0);
    assert_eq!(learned(), "ab");
    let counts = tier.counts;
    assert_eq!((counts.aborted, counts.promoted, counts.evicted), (1, 6, 6));
    tier.ask(1, 0, &keys("a"));
    assert_eq!(learned(), "aba");
    tier.finish(0);
    tier.ask(0, 0, &keys("b"));
    assert_eq!((learned().as_str(), tier.counts.aborted), ("abab", 3));
}

#[test]
fn what_was_there_when_it_was_offered_is_not_missed_yet() {
    let (mut tier, policy) = forgetful("a", "a");
    tier.offer(0, 0, &keys("a"));
    policy.0.lock().unwrap().0.clear();
    tier.ask(0, 0, &keys("a"));
    assert_eq!(policy.0.lock().unwrap().1, "aa");
}

#[test]
fn no_more_is_asked_for_than_leads_and_fits() {
    let found = |below| tier_of(2, below).ask(0, 0, &keys("abcd"));
    assert_eq!(["", "a", "abd", "bc"].map(found), [0, 1, 2, 0]);
}
