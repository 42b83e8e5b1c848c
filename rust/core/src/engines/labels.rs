//! Text of keys as the digests of vLLM's free queue write it.

use crate::convert::fit;
use std::fmt::Write;

use super::block_pool::NO_KEY;
use super::groups::pool::GroupKey;

/// Returns a line for each key: `id:slot` with the trace's own name of the id, `o<request>:<block>` for a key
/// that only one request can have, `-` for no key. `names` is empty if an id is its own name.
pub fn lines(keys: &[u64], blocks_per_id: u32, names: &[String]) -> String {
    let per = u64::from(blocks_per_id);
    let mut text = String::with_capacity(12 * keys.len());
    for &key in keys {
        let (id, slot) = (key / per, key % per);
        let written = if key == NO_KEY {
            writeln!(text, "-")
        } else if key >> 63 == 1 {
            writeln!(text, "o{}:{}", (key >> 32) & 0x7FFF_FFFF, key & 0xFFFF_FFFF)
        } else if let Some(name) = names.get(fit::<usize>(id)) {
            writeln!(text, "{name}:{slot}")
        } else {
            writeln!(text, "{id}:{slot}")
        };
        written.expect("a String takes any text");
    }
    text
}

/// Units of a group's keys: units per id of the trace, and tokens per unit.
#[derive(Debug, Clone, Copy)]
pub struct GroupUnits {
    /// Units per id.
    pub units_per_id: u32,
    /// Tokens per unit.
    pub unit_tokens: u64,
}

/// Returns lines as `lines` does for keys of several groups, behind `group/`. `id:slot` counts in hash blocks
/// inside the id, or in a common divisor if a hash block does not divide the id; `o<request>:<block>` in hash
/// blocks.
pub fn group_lines(
    queue: impl Iterator<Item = GroupKey>,
    groups: &[GroupUnits],
    hash_block: u64,
    trace_block: u64,
    names: &[String],
) -> String {
    let unit_size = gcd(hash_block, trace_block);
    let mut text = String::new();
    for GroupKey { group, key } in queue {
        let units = groups[group];
        let per = u64::from(units.units_per_id);
        let (id, slot) = (key / per, (key % per + 1) * units.unit_tokens);
        let slot = (slot / unit_size).max(1) - 1;
        let written = if key == NO_KEY {
            writeln!(text, "-")
        } else if key >> 63 == 1 {
            let end = ((key & 0xFFFF_FFFF) + 1) * units.unit_tokens;
            let block = (end / hash_block).max(1) - 1;
            writeln!(text, "{group}/o{}:{block}", (key >> 32) & 0x7FFF_FFFF)
        } else if let Some(name) = names.get(fit::<usize>(id)) {
            writeln!(text, "{group}/{name}:{slot}")
        } else {
            writeln!(text, "{group}/{id}:{slot}")
        };
        written.expect("a String takes any text");
    }
    text
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 {
        a
    } else {
        gcd(b, a % b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_key_has_its_line() {
        let names = ["9".to_string(), "x".to_string()];
        assert_eq!(
            lines(&[1, 5, 1 << 63 | 3 << 32 | 4, NO_KEY], 4, &names),
            "9:1\nx:1\no3:4\n-\n"
        );
        assert_eq!(lines(&[7], 4, &[]), "1:3\n");
    }
}
