//! Worked examples: a plain cache of a few blocks, written as a line of accesses.

use super::leaf::Facts;
use super::{NativePolicy, PolicySettings, Room};

/// No setting that matters.
pub fn plain() -> PolicySettings {
    PolicySettings {
        ttl_ns: i64::MAX,
        ranges: Vec::new(),
        attention_blocks: 1.0,
        names: Vec::new(),
    }
}

/// Plays accesses against a plain cache with room for `capacity` blocks and returns who left, in that order.
///
/// `b` is an access of block b at depth 0, `b7` one at depth 7; `@30` moves the clock to 30 ns.
pub fn who_leaves(
    policy: &NativePolicy,
    settings: &PolicySettings,
    capacity: usize,
    accesses: &str,
) -> String {
    let room = Room {
        capacity,
        universe: 128,
    };
    let mut blocks = policy.on_blocks(settings, room);
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
            while let Some(gone) = blocks.give_up(&|_| true) {
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
        while let Some(gone) = blocks.give_up(&|_| true) {
            size -= 1;
            left.push(gone);
        }
    }
    let names = left.iter().map(|&block| block as u8 as char);
    names.map(String::from).collect::<Vec<_>>().join(" ")
}
