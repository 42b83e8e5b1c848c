//! Prefetches before a request. A block of a layer takes 10 ns between any two tiers, a step 10 ns and 1 ns for each
//! token of its prompts.

use std::sync::{Arc, Mutex};

use super::plugins::Occasion;
use super::prefetch::PrefetchPolicy;
use super::tests::{comes, replica, tiers};
use super::{Now, Replica};
use crate::store::{Store, STAGING};
use crate::transfers::{
    Channel, ChannelConfig, Edge, HoldBack, Lane, Mover, MoverConfig, PrefetchConfig, WritePolicy,
};

const DISK: usize = STAGING + 1;

/// A machine with the blocks a b on the disk, c d on the CPU, and e f on the GPU. At 1000 no block is in transit.
fn machine(policy: PrefetchPolicy, prefetch_blocks: u64, hold_back: HoldBack) -> (Replica, Store) {
    let channel = || {
        let config = ChannelConfig {
            bandwidth_bytes_per_s: 1_000_000_000,
            ..ChannelConfig::default()
        };
        Lane::from(Arc::new(Mutex::new(Channel::new(config))))
    };
    let edge = || Edge {
        down: channel(),
        up: channel(),
    };
    let config = MoverConfig {
        remote: 3,
        block_bytes: 10,
        layers: 1,
        writes: vec![WritePolicy::Back; 2],
        exclusive: vec![false; 2],
        prefetch_state: Some(PrefetchConfig {
            prefetch_blocks,
            hold_back,
            storage_per_ki_token_ns: None,
        }),
        ..MoverConfig::default()
    };
    let mover = Mover::new(config, vec![edge(), edge()]);
    let mut replica = replica(|config| config.prefetch = Some(policy)).with_mover(mover);
    let mut store = tiers(&[3, 2, 9]);
    for (request, now_ns) in [(0, 0), (3, 300), (4, 600)] {
        comes(&mut replica, &mut store, request, 1, now_ns);
        run(&mut replica, &mut store);
    }
    replica.take_closed();
    replica.reports.rows.take_requests();
    (replica, store)
}

fn run(replica: &mut Replica, store: &mut Store) {
    while replica.next().is_some() {
        replica.run(&mut Now::alone(store, 0), 0).unwrap();
    }
}

/// Prefetches the blocks that request 1 would read.
fn ask(replica: &mut Replica, store: &mut Store, now_ns: u64) {
    let mut now = Now::alone(store, now_ns);
    replica
        .prefetch(&mut now, (1, 9), Occasion::Session)
        .unwrap();
}

/// The tiers that the leading blocks of a request are on, or are moving to.
fn tiers_of(store: &Store, request: u32) -> Vec<usize> {
    let parts = store.match_prefix(request, 2);
    let each = parts
        .iter()
        .flat_map(|part| (part.start..part.end).map(|_| part.tier));
    each.collect()
}

fn brought(replica: &Replica) -> u64 {
    replica
        .mover
        .prefetch_state
        .as_ref()
        .map_or(0, |prefetch_state| prefetch_state.blocks)
}

#[test]
fn blocks_on_the_disk_are_prefetched_before_a_turn() {
    let (mut replica, mut store) = machine(PrefetchPolicy::Session, 2, HoldBack::Never);
    assert_eq!(tiers_of(&store, 1), [DISK, DISK]);
    assert_eq!(tiers_of(&store, 3), [STAGING, STAGING]);
    ask(&mut replica, &mut store, 1000);
    run(&mut replica, &mut store);
    assert_eq!(tiers_of(&store, 1), [STAGING, STAGING]);
    assert_eq!(tiers_of(&store, 3), [DISK, DISK], "its blocks were demoted");
    assert_eq!(brought(&replica), 2);
    store.check().unwrap();
}

#[test]
fn prefetched_blocks_in_transit_are_bounded() {
    let (mut replica, mut store) = machine(PrefetchPolicy::Session, 1, HoldBack::Never);
    ask(&mut replica, &mut store, 1000);
    ask(&mut replica, &mut store, 1001);
    assert_eq!(brought(&replica), 1, "the first block is still in transit");
    run(&mut replica, &mut store);
    ask(&mut replica, &mut store, 2000);
    assert_eq!(brought(&replica), 2);
}

#[test]
fn a_held_back_request_waits_until_its_blocks_have_arrived() {
    // Two blocks go down for 20 ns, two come up for 20; then both are loaded for 20, and one token takes 11.
    for (hold_back, queue_ns) in [
        (HoldBack::Never, 0),
        (HoldBack::UntilCome, 40),
        (HoldBack::For(15), 15),
    ] {
        let (mut replica, mut store) = machine(PrefetchPolicy::Queued, 2, hold_back);
        comes(&mut replica, &mut store, 1, 1, 1000);
        run(&mut replica, &mut store);
        let row = replica.reports.rows.take_requests();
        assert_eq!(row[..2], [1, queue_ns], "{hold_back:?}");
        assert_eq!((row[3], row[5]), (1071, 8), "{hold_back:?}");
    }
}

#[test]
fn other_requests_pass_a_held_back_request() {
    let (mut replica, mut store) = machine(PrefetchPolicy::Queued, 2, HoldBack::UntilCome);
    comes(&mut replica, &mut store, 1, 1, 1000);
    comes(&mut replica, &mut store, 4, 1, 1000);
    run(&mut replica, &mut store);
    assert_eq!(replica.take_closed(), [4, 1]);
}
