//! Worked examples: a plain cache of a few blocks, written as a line of accesses.

use super::leaf::Facts;
use super::priority::Range;
use super::{Bounds, Kind, NativePolicy, PolicySettings, POLICIES};

/// Settings: a block lives for 10 ns under `ttl`; under `priority` the first two of a prompt have priority 90
/// for 10 ns.
pub fn settings() -> PolicySettings {
    let head = Range {
        from: 0,
        to: 2,
        priority: 90,
        duration_ns: Some(10),
    };
    PolicySettings {
        ttl_ns: 10,
        ranges: vec![head],
        attention_blocks: 1.0,
        names: Vec::new(),
    }
}

/// Policy, capacity in blocks, accesses, and evicted blocks.
const EXAMPLES: &[(&str, usize, &str, &str)] = &[
    // b is evicted and returns: recency has earned capacity, so a is evicted although it was used twice.
    ("arc", 2, "a a b c b", "b a"),
    // A scan of new blocks passes by a, which was used twice.
    ("arc", 3, "a a b c d e", "b c"),
    // a was used and gets a second round; then, unused since, it is the oldest.
    ("clock", 3, "a b c a d e f", "b c a"),
    // The use of a does not help it.
    ("fifo", 3, "a b c a d e", "a b"),
    // a has value 3; b leaves at 1, c at 1 + 1, and d then has 2 + 1 like a, which was used longer ago.
    ("gdsf", 2, "a a a b c d e", "b c a"),
    // With equal costs the policy equals gdsf.
    ("pgdsf", 2, "a a a b c d e", "b c a"),
    // a, b and c were used once; b is deepest.
    ("length-aware", 3, "a0 b5 c1 d0", "b"),
    // b was used twice, so c, which is less deep, is evicted.
    ("length-aware", 3, "a0 b5 b5 c1 d0", "c"),
    // a and b were used twice.
    ("lfu", 3, "a b a b c d", "c"),
    // b and c were used once, b longer ago.
    ("lfu", 3, "a b c a d", "b"),
    // b was used twice and returns with a count of one.
    ("lfu", 2, "b b a a a c b d", "b c b"),
    // Capacity of three, one of it for the queue: a and b are low. c passes through the queue, and so does d.
    ("lirs", 3, "a b c d e", "c d"),
    // c returns while the stack has it: it becomes low, and a, at the bottom, moves to the queue.
    ("lirs", 3, "a b c d c e", "c d a"),
    // a was used after b and c.
    ("lru", 3, "a b c a d e", "b c"),
    // b and c have priority 35: they are evicted before the older a.
    ("priority", 2, "a0 b2 c2 d2", "b c"),
    // From 10 ns on a has priority 35 too, and was used longest ago.
    ("priority", 2, "a0 b2 @10 c2", "a"),
    // Capacity of ten: one small (a), nine main (b to j). k, l and m each evict the small block before them.
    ("s3fifo", 10, "a b c d e f g h i j k l m", "a k l"),
    // a returns while it is a ghost: the main queue holds one too many, and its oldest is evicted next.
    ("s3fifo", 10, "a b c d e f g h i j k l a m", "a k l b"),
    // a was used twice: it moves to the main queue, whose oldest, b, is evicted.
    ("s3fifo", 10, "a a a b c d e f g h i j k", "b"),
    // a to d fill the four segments from below. a climbs, so b falls into a's segment, and e takes b's; then
    // c climbs and d falls.
    ("s4lru", 4, "a b c d a e f c g", "b e f"),
    // Five blocks: the lowest segment takes the fifth, e, until b falls into it: then a is one too many.
    ("s4lru", 5, "a b c d e e f", "a"),
    // a was used and keeps its position behind the hand, which continues to newer blocks.
    ("sieve", 3, "a b c a d e f", "b c d"),
    // a was used twice, so b is evicted, although a was used longer ago.
    ("slru", 5, "a a b c d e f", "b"),
    // Five blocks are used twice; the first of them falls back on probation and is evicted.
    ("slru", 5, "a a b b c c d d e e f", "a"),
    // a was used at 0 and again at 9, b at 0 only: at 10 b has expired, at 19 a has.
    ("ttl", 8, "a b @9 a @10 c @19 d", "b a"),
    // The capacity is two blocks: a expires before b.
    ("ttl", 2, "a @3 b @4 c", "a"),
    // Capacity of four, one of it for new blocks: a returns to the main queue while it is a ghost, and the
    // new blocks are evicted one by one, however often they were used.
    ("twoq", 4, "a b c d e a b b f g", "a b c d e"),
    // Two ghosts are remembered: a's is forgotten when c leaves, so a returns as a new block and is evicted
    // again.
    ("twoq", 4, "a b c d e f g a h i j k", "a b c d e f g a"),
    // The main cache is full when c leaves the window, and c was used no more often than the victim: c is evicted. d
    // was used more often by the estimate, whose sketch holds two names.
    ("wtinylfu", 3, "a b c d e", "c b"),
];

#[test]
fn every_policy_decides_as_its_worked_examples_do() {
    for &(name, capacity, accesses, left) in EXAMPLES {
        let policy = NativePolicy::named(name).unwrap();
        assert_eq!(
            evictions_of(policy, capacity, accesses),
            left,
            "{name}: {accesses}"
        );
    }
}

/// Queues that replace keys in a plain cache decide as the keys do.
#[test]
fn the_queue_decides_as_the_key_does() {
    for policy in POLICIES {
        if let Kind::Ranked(make) = policy.kind {
            let accesses = "a b c a d b e a c d f a b";
            let by_key = evictions_of(&NativePolicy::ranked(policy.name, make), 3, accesses);
            assert_eq!(evictions_of(policy, 3, accesses), by_key);
        }
    }
}

/// Plays accesses against a plain cache of `capacity` blocks and returns the evicted blocks in order.
///
/// `b` is an access of block b at depth 0, `b7` an access at depth 7; `@30` moves the clock to 30 ns.
fn evictions_of(policy: &NativePolicy, capacity: usize, accesses: &str) -> String {
    let bounds = Bounds {
        capacity,
        universe: 128,
    };
    let mut blocks = policy.on_blocks(&settings(), bounds);
    let mut facts = Facts::default();
    let (mut size, mut left) = (0, Vec::new());
    for word in accesses.split_whitespace() {
        if let Some(now_ns) = word.strip_prefix('@') {
            facts.last_access_ns = now_ns.parse().unwrap();
            while let Some(gone) = blocks.expire(facts.last_access_ns, &|_| true) {
                size -= 1;
                left.push(gone);
            }
            continue;
        }
        let (name, depth) = word.split_at(1);
        let block = u32::from(name.as_bytes()[0]);
        facts.depth = depth.parse().unwrap_or(0);
        facts.last_access += 1;
        blocks.facts(facts);
        if blocks.contains(block) {
            blocks.on_hit(block);
            while let Some(gone) = blocks.abort(&|_| true) {
                size -= 1;
                left.push(gone);
            }
            continue;
        }
        blocks.on_miss(block);
        if size == capacity {
            left.push(blocks.evict(block, &|_| true).unwrap());
            size -= 1;
        }
        blocks.insert(block);
        size += 1;
        while let Some(gone) = blocks.abort(&|_| true) {
            size -= 1;
            left.push(gone);
        }
    }
    let names = left.iter().map(|&block| block as u8 as char);
    names.map(String::from).collect::<Vec<_>>().join(" ")
}
