//! Eviction policies, one small file each; [`POLICIES`] is the table of them.
//!
//! A *ranked* policy is a key of a leaf plus hooks ([`leaf`]): any store that keeps its candidate leaves
//! ordered by key can use it. A *queue* policy keeps queues of single blocks and names its victim itself
//! ([`object`]); [`ranked`] turns a ranked policy into one. [`order`] makes either kind the eviction order of
//! a tier that a simulation fills and empties.
//!
//! To add a policy, write its file with a `POLICY` in it, and add its `mod` line and its row below. Its
//! paper, description and setting are in `python/kvcache_sim/policies/table.py`.
#![deny(missing_docs)]

pub mod arc;
pub mod clock;
pub mod fifo;
pub mod gdsf;
pub mod leaf;
pub mod length_aware;
pub mod lfu;
pub mod lirs;
pub mod lru;
pub mod object;
pub mod order;
pub mod pgdsf;
pub mod priority;
pub mod queues;
pub mod ranked;
pub mod s3fifo;
pub mod s4lru;
pub mod segments;
pub mod sieve;
pub mod sketch;
pub mod slru;
pub mod ttl;
pub mod twoq;
pub mod wtinylfu;

#[cfg(test)]
mod queues_tests;
#[cfg(test)]
mod worked_examples;

use leaf::LeafPolicy;
use object::ObjectPolicy;
use queues::{QueuePolicy, QueueRule};
use ranked::Ranked;

/// Every policy that the core runs, in alphabetical order.
pub const POLICIES: &[NativePolicy] = &[
    arc::POLICY,
    clock::POLICY,
    fifo::POLICY,
    gdsf::POLICY,
    length_aware::POLICY,
    lfu::POLICY,
    lirs::POLICY,
    lru::POLICY,
    pgdsf::POLICY,
    priority::POLICY,
    s3fifo::POLICY,
    s4lru::POLICY,
    sieve::POLICY,
    slru::POLICY,
    ttl::POLICY,
    twoq::POLICY,
    wtinylfu::POLICY,
];

/// Settings that some policies take; each reads its own.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicySettings {
    /// `ttl`: time after its last use at which a block expires.
    pub ttl_ns: i64,
    /// `priority`: the priority and duration of each range of a prompt's blocks.
    pub ranges: Vec<priority::Range>,
    /// `pgdsf`: blocks before a token at which attention to them costs as much as all other work.
    pub attention_blocks: f64,
    /// `wtinylfu`: the name of each block in its sketch; empty: the block's number, counted from 1.
    pub names: Vec<u64>,
}

/// The capacity that a policy on single blocks manages.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Capacity in blocks.
    pub capacity: usize,
    /// Number of distinct blocks known beforehand, numbered from 0; queues grow for higher numbers.
    pub universe: usize,
}

impl Bounds {
    /// Return a policy of queues with this capacity.
    fn queues<const N: usize>(self, rule: impl QueueRule<N> + 'static) -> Box<dyn ObjectPolicy> {
        Box::new(QueuePolicy::new(rule, self.universe))
    }
}

/// Makes a ranked policy.
pub type MakeRanked = fn(&PolicySettings) -> Box<dyn LeafPolicy>;

/// Makes a policy on single blocks.
pub type MakeQueues = fn(&PolicySettings, Bounds) -> Box<dyn ObjectPolicy>;

/// The two kinds of policies, by their choice of victim.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// By a key of each leaf.
    Ranked(MakeRanked),
    /// From the policy's own queues.
    Queue(MakeQueues),
}

/// A row of the table: a policy's name and constructor.
#[derive(Debug, Clone, Copy)]
pub struct NativePolicy {
    /// Name for users.
    pub name: &'static str,
    /// Kind and constructor.
    pub kind: Kind,
    /// Queues that decide as the keys do in a plain cache, if that is cheaper.
    plain: Option<MakeQueues>,
}

impl NativePolicy {
    /// A policy that is a key of a leaf.
    pub const fn ranked(name: &'static str, make: MakeRanked) -> Self {
        Self {
            name,
            kind: Kind::Ranked(make),
            plain: None,
        }
    }

    /// A policy that keeps queues.
    pub const fn queue(name: &'static str, make: MakeQueues) -> Self {
        Self {
            name,
            kind: Kind::Queue(make),
            plain: None,
        }
    }

    /// Uses these queues in a plain cache instead of keys; both must decide alike.
    pub const fn with_queues(self, make: MakeQueues) -> Self {
        Self {
            plain: Some(make),
            ..self
        }
    }

    /// The policy of a name.
    pub fn named(name: &str) -> Option<&'static Self> {
        POLICIES.iter().find(|policy| policy.name == name)
    }

    /// The policy on single blocks of a plain cache, whatever its kind.
    pub fn on_blocks(&self, settings: &PolicySettings, bounds: Bounds) -> Box<dyn ObjectPolicy> {
        match (self.plain, self.kind) {
            (Some(make), _) | (None, Kind::Queue(make)) => make(settings, bounds),
            (None, Kind::Ranked(make)) => Box::new(Ranked::new(make(settings), bounds.universe)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::fs;

    /// A file with a `POLICY` that is not in the table would be unreachable.
    #[test]
    fn every_file_with_a_policy_has_a_row_under_its_name() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/policies");
        let mut files = BTreeSet::new();
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if fs::read_to_string(&path)
                .unwrap()
                .contains("\npub const POLICY:")
            {
                let stem = path.file_stem().unwrap().to_str().unwrap();
                files.insert(stem.replace('_', "-"));
            }
        }
        let rows: Vec<String> = POLICIES.iter().map(|row| row.name.to_owned()).collect();
        assert_eq!(rows, files.into_iter().collect::<Vec<_>>());
    }

    #[test]
    fn a_name_finds_its_policy_and_nothing_else() {
        assert_eq!(NativePolicy::named("arc").unwrap().name, "arc");
        assert!(NativePolicy::named("Arc").is_none());
    }
}
