//! The machines that a router finds equally good, from their cached prefixes and loads.

use crate::convert::fit;

mod aimd;
mod gateway;
mod lmetric;
mod rule;
mod two_tier;

pub use aimd::Aimd;
pub use gateway::{GatewayRule, Seen};
pub use lmetric::Lmetric;
pub use rule::{least, prefill_cost, Rule, Turns};
pub use two_tier::{TwoTier, TwoTierAdaptive};

/// The machines with the longest found prefix. Only the least loaded machines are candidates if the largest load is
/// above `threshold` times the smallest. Of equally long prefixes, those of the smallest load, in ascending order.
///
/// `found` looks up one machine and is called for candidates only.
pub fn longest_prefix(
    loads: &[u64],
    threshold: f64,
    mut found: impl FnMut(usize) -> u32,
) -> Vec<u32> {
    let is_candidate = candidates(loads, threshold);
    let mut best = (0, u64::MAX);
    let mut equal = Vec::new();
    for (machine, &load) in loads.iter().enumerate() {
        if !is_candidate(machine) {
            continue;
        }
        let blocks = found(machine);
        if equal.is_empty() || blocks > best.0 || (blocks == best.0 && load < best.1) {
            best = (blocks, load);
            equal.clear();
        }
        if (blocks, load) == best {
            equal.push(fit::<u32>(machine));
        }
    }
    equal
}

/// Candidates of longest-prefix routing: only the least loaded machines if the largest load is above `threshold`
/// times the smallest, else all.
pub fn candidates(loads: &[u64], threshold: f64) -> impl Fn(usize) -> bool + '_ {
    let least = loads.iter().min().copied().unwrap_or(0);
    let most = loads.iter().max().copied().unwrap_or(0);
    let uneven = most as f64 > threshold * least as f64;
    move |machine| !uneven || loads[machine] == least
}

#[cfg(test)]
mod tests {
    use super::longest_prefix;

    fn choose(found: &[u32], loads: &[u64], threshold: f64) -> Vec<u32> {
        longest_prefix(loads, threshold, |machine| found[machine])
    }

    #[test]
    fn the_longest_then_the_least_loaded() {
        assert_eq!(choose(&[1, 5, 5], &[3, 4, 2], 2.0), [2]);
        assert_eq!(choose(&[1, 5, 4], &[2, 4, 2], 2.0), [1]); // twice is not above twice
        assert_eq!(choose(&[1, 5, 4], &[2, 5, 2], 2.0), [2]);
        assert_eq!(choose(&[0, 0, 0, 9], &[0, 1, 0, 1], 2.0), [0, 2]);
        assert_eq!(choose(&[], &[], 2.0), []);
    }
}
