//! LMetric (arXiv 2603.15202): the least uncached prompt tokens × requests, and a detector of hot prefixes.
//!
//! Form of NVIDIA Dynamo, `lib/router-plugins/builtin/src/lmetric.rs` at 6dcfceb3: at least one token is computed, a
//! request more is in the batch, tiers below the GPU count nothing, and the first of equals wins.

use std::collections::{HashMap, VecDeque};

use super::gateway::{GatewayRule, Seen};

/// The rule, with or without the detector.
#[derive(Debug, Default)]
pub struct Lmetric {
    hot_spots: Option<HotSpots>,
}

/// Shares of the classes of prompts among the last choices, and streaks of alarms.
#[derive(Debug)]
struct HotSpots {
    class_blocks: u64,
    window: usize,
    recent: VecDeque<i64>,
    classes: HashMap<i64, Class>,
}

#[derive(Debug, Default)]
struct Class {
    /// Its requests in the window.
    requests: usize,
    /// Alarms in a row for which the best machine had the prefix.
    streak: usize,
}

impl HotSpots {
    /// Adds a request of a class, and returns the class with its share of the window as filled so far.
    fn enter(&mut self, class: i64) -> (&mut Class, f64) {
        if self.recent.len() == self.window {
            let oldest = self.recent.pop_front();
            if let Some((name, left)) =
                oldest.and_then(|name| Some((name, self.classes.get_mut(&name)?)))
            {
                left.requests -= 1;
                if left.requests == 0 {
                    self.classes.remove(&name);
                }
            }
        }
        self.recent.push_back(class);
        let entered = self.classes.entry(class).or_default();
        entered.requests += 1;
        let share = entered.requests as f64 / self.recent.len() as f64;
        (entered, share)
    }

    /// True if the machines with the prefix are to be left out for this request; `best` is the choice without it.
    fn leaves_out(&mut self, seen: &Seen<'_>, class: i64, best: usize) -> bool {
        let least = self.class_blocks;
        let has = |blocks: &u32| u64::from(*blocks) >= least;
        let holders = seen.gpu_blocks.iter().filter(|blocks| has(blocks)).count();
        let others = seen.gpu_blocks.len() - holders;
        let (state, share) = self.enter(class);
        let balanced = share * others as f64 <= (1.0 - share) * holders as f64;
        if holders == 0 || others == 0 || balanced || !has(&seen.gpu_blocks[best]) {
            state.streak = 0;
            return false;
        }
        state.streak += 1;
        state.streak >= 2 * holders
    }
}

impl Lmetric {
    /// The rule; `class_blocks`: blocks that name a class, 0 for no detector; `window`: choices in which it counts.
    pub fn new(class_blocks: u64, window: usize) -> Self {
        let hot_spots = (class_blocks > 0).then(|| HotSpots {
            class_blocks,
            window: window.max(1),
            recent: VecDeque::new(),
            classes: HashMap::new(),
        });
        Self { hot_spots }
    }

    fn best(seen: &Seen<'_>, among: impl Fn(usize) -> bool) -> Option<usize> {
        let cost = |&machine: &usize| {
            let cached = u64::from(seen.gpu_blocks[machine]) * seen.block_tokens;
            let uncached = seen.prompt_tokens.saturating_sub(cached).max(1);
            u128::from(uncached) * (u128::from(seen.active[machine]) + 1)
        };
        let machines = (0..seen.active.len()).filter(|&machine| among(machine));
        machines.min_by_key(cost)
    }
}

impl GatewayRule for Lmetric {
    fn class_blocks(&self) -> u64 {
        self.hot_spots
            .as_ref()
            .map_or(0, |spots| spots.class_blocks)
    }

    fn equal(&mut self, seen: &Seen<'_>) -> Vec<usize> {
        let best = Self::best(seen, |_| true);
        let (Some(spots), Some(class), Some(first)) = (&mut self.hot_spots, seen.class, best)
        else {
            return best.into_iter().collect();
        };
        if !spots.leaves_out(seen, class, first) {
            return vec![first];
        }
        let least = spots.class_blocks;
        let other = Self::best(seen, |machine| u64::from(seen.gpu_blocks[machine]) < least);
        other.or(best).into_iter().collect()
    }
}
