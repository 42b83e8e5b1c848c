//! The routing rules that the core evaluates by itself: the cost of each machine, and turns among equal machines.

use crate::convert::{fit, whole};

/// Rule for choosing a machine; the rules of `serving/router/` in Python.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// Each machine in turn.
    RoundRobin,
    /// Fewest queued prompt tokens.
    LeastLoaded,
    /// The longest found prefix; only among the least loaded machines if the largest load is above this multiple of
    /// the smallest.
    LongestPrefix(f64),
    /// The smallest product of prompt tokens not found and number of requests, for blocks of this many tokens.
    PrefillCost(u64),
}

impl Rule {
    /// The rule of a name and its one number; `None`: the core has no such rule.
    pub fn of(name: &str, number: f64) -> Option<Self> {
        match name {
            "round-robin" => Some(Self::RoundRobin),
            "least-loaded" => Some(Self::LeastLoaded),
            "longest-prefix" => Some(Self::LongestPrefix(number)),
            "prefill-cost" => Some(Self::PrefillCost(whole(number))),
            _ => None,
        }
    }
}

/// Cost of a prompt on a machine: its tokens not found there, times the machine's requests including this one.
pub fn prefill_cost(prompt_tokens: u64, found_tokens: u64, requests: u64) -> u64 {
    prompt_tokens.saturating_sub(found_tokens) * (requests + 1)
}

/// The machines of the smallest cost, in ascending order.
pub fn least(costs: impl IntoIterator<Item = u64>) -> Vec<u32> {
    let mut smallest = u64::MAX;
    let mut equal = Vec::new();
    for (machine, cost) in (0..).zip(costs) {
        if cost < smallest {
            smallest = cost;
            equal.clear();
        }
        if cost == smallest {
            equal.push(machine);
        }
    }
    equal
}

/// Number of times that each machine was chosen.
#[derive(Clone, Debug, Default)]
pub struct Turns {
    chosen: Vec<u64>,
    /// Number of calls of [`Turns::in_turn`].
    asked: u64,
}

impl Turns {
    /// Turns of `machines` machines, none of them chosen yet.
    pub fn new(machines: usize) -> Self {
        Self {
            chosen: vec![0; machines],
            asked: 0,
        }
    }

    /// Of equal machines, given in ascending order, the first of those chosen least often so far.
    pub fn take(&mut self, equal: &[u32]) -> Option<u32> {
        let chosen = *equal
            .iter()
            .min_by_key(|&&machine| self.chosen[machine as usize])?;
        self.chosen[chosen as usize] += 1;
        Some(chosen)
    }

    /// Each machine in turn, independent of other choices.
    pub fn in_turn(&mut self) -> Option<u32> {
        let machine = self.asked.checked_rem(self.chosen.len() as u64)?;
        self.asked += 1;
        Some(fit::<u32>(machine))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_machines_take_turns() {
        let mut turns = Turns::new(3);
        assert_eq!(turns.take(&[1, 2]), Some(1));
        assert_eq!(turns.take(&[1, 2]), Some(2));
        assert_eq!(turns.take(&[1, 2]), Some(1));
        assert_eq!(turns.take(&[0, 2]), Some(0));
        assert_eq!(turns.take(&[0, 2]), Some(0), "both were chosen once");
        assert_eq!(turns.take(&[]), None);
    }

    #[test]
    fn each_in_turn() {
        let mut turns = Turns::new(2);
        let chosen: Vec<_> = (0..5).map(|_| turns.in_turn()).collect();
        assert_eq!(chosen, [0, 1, 0, 1, 0].map(Some));
    }

    #[test]
    fn costs_by_hand() {
        assert_eq!(prefill_cost(100, 32, 2), 204);
        assert_eq!(prefill_cost(100, 128, 2), 0);
        assert_eq!(least([3, 1, 4, 1]), [1, 3]);
        assert_eq!(least([u64::MAX]), [0]);
        assert!(least([]).is_empty());
        assert_eq!(Rule::of("least-loaded", 0.0), Some(Rule::LeastLoaded));
        assert_eq!(Rule::of("prefill-cost", 16.0), Some(Rule::PrefillCost(16)));
        assert_eq!(Rule::of("random", 0.0), None);
    }
}
