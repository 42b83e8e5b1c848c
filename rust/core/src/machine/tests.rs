//! The way of a request, told moment by moment. A step takes 10 ns, and 1 ns for each token of its prompts.

use std::sync::Arc;

use super::fetch::FetchPolicy;
use super::handover::Role;
use super::queue::QueueOrder;
use super::rows::Rows;
use super::{Arrival, AsyncScheduling, Replica, ReplicaConfig};
use crate::batch::{Batch, BatchConfig};
use crate::keys::BlockKeys;
use crate::step_time::StepTimeTable;
use crate::store::{Store, TierConfig};

/// Blocks of 4 tokens. Requests 0 to 2 have the blocks a b; requests 3 and 4 have c d, and e f.
fn store(capacity_blocks: u64) -> Store {
    tiers(&[capacity_blocks])
}

/// The same with lower tiers, each writing what leaves it to the next one.
pub(super) fn tiers(capacities_blocks: &[u64]) -> Store {
    let offsets = vec![0, 2, 4, 6, 8, 10];
    let ids = vec![0, 1, 0, 1, 0, 1, 2, 3, 4, 5];
    let keys = BlockKeys::new(offsets, ids, 1, vec![2; 5], vec![u32::MAX; 5]).unwrap();
    let last = capacities_blocks.len() - 1;
    let tiers = (0..).zip(capacities_blocks).map(|(n, &blocks)| TierConfig {
        capacity_blocks: Some(blocks),
        write_back: n < last,
    });
    Store::new(Arc::new(keys), &tiers.collect::<Vec<_>>())
}

pub(super) fn replica(change: impl FnOnce(&mut ReplicaConfig)) -> Replica {
    let mut config = ReplicaConfig {
        machine: 0,
        places: 4,
        block_size_tokens: 4,
        max_num_seqs: 2,
        waits_for_duplicates: false,
        queue_order: QueueOrder::Fcfs,
        async_scheduling: AsyncScheduling::None,
        cache_enabled: true,
        skips_full_prefill: false,
        cache_output: false,
        discard_on_finish: false,
        admits_prompts_only: false,
        fetch: FetchPolicy::Always,
        expires: false,
        look_ahead: 0,
        lost_blocks: 0,
        max_sessions: None,
        session_ttl_ns: None,
        prefix_view: None,
        prefetch: None,
        reads: None,
        role: Role::Both,
        record_window_ns: None,
    };
    change(&mut config);
    let batch = BatchConfig {
        block_size_tokens: 4,
        max_num_batched_tokens: 16,
        num_layers: 1,
        cache_enabled: config.cache_enabled,
        cache_output: config.cache_output,
        commit_at_begin: false,
        asks_every_step: false,
        room_by_step: false,
        speculation: None,
        commit_ends_stretch: false,
        step_overhead_ns: 0,
        least_step_ns: 0,
        late_ends: false,
    };
    let table = StepTimeTable {
        base_ns: (0..32).map(|tokens| 10 + tokens).collect(),
        decode_base_ns: vec![10; 8],
        ..StepTimeTable::default()
    };
    let columns = [
        "request",
        "queue_ns",
        "prefill_ns",
        "first_token_ns",
        "finish_ns",
        "cached_prefix_length_used",
        "preemptions",
    ];
    Replica::new(config, Batch::new(batch, table), Rows::new(columns, &[]))
}

pub(super) fn comes(
    replica: &mut Replica,
    store: &mut Store,
    request: u32,
    output_tokens: u64,
    now_ns: u64,
) {
    let arrival = Arrival {
        request,
        prompt_tokens: 9,
        output_tokens,
        session: -1,
        ..Arrival::default()
    };
    let place = replica.arrive(arrival, now_ns);
    replica.enqueue(store, place, now_ns).unwrap();
}

/// Runs until nothing is left to do; returns the times of the boundaries.
fn run(replica: &mut Replica, store: &mut Store) -> Vec<u64> {
    let mut boundaries = Vec::new();
    while let Some(now_ns) = replica.boundary_ns() {
        boundaries.push(now_ns);
        replica.at_boundary(store, now_ns).unwrap();
    }
    boundaries
}

#[test]
fn a_lone_request_takes_a_boundary_for_its_prompt_and_one_for_its_answer() {
    let (mut replica, mut store) = (replica(|_| {}), store(10));
    comes(&mut replica, &mut store, 0, 5, 100);
    // 9 tokens of prompt take 19 ns and bring the first token; four more come every 10 ns, in one stretch.
    assert_eq!(run(&mut replica, &mut store), [100, 119, 159]);
    assert_eq!(
        replica.reports.rows.take_requests(),
        [0, 0, 19, 119, 159, 0, 0]
    );
    assert_eq!(replica.take_closed(), [0]);
    assert_eq!(
        (
            replica.open_requests(),
            replica.prefill_load.queued_tokens()
        ),
        (0, 0)
    );
    assert_eq!(
        store.tier(0).cached,
        2,
        "both whole blocks of the prompt stay"
    );
}

#[test]
fn a_second_request_interrupts_the_stretch_and_reuses_the_prompt() {
    let (mut replica, mut store) = (replica(|_| {}), store(10));
    comes(&mut replica, &mut store, 0, 5, 100);
    for now_ns in [100, 119] {
        replica.at_boundary(&mut store, now_ns).unwrap();
    }
    assert_eq!(replica.boundary_ns(), Some(159));
    comes(&mut replica, &mut store, 1, 1, 125);
    assert_eq!(
        replica.boundary_ns(),
        Some(129),
        "the end of the iteration that runs"
    );
    run(&mut replica, &mut store);
    // Two blocks are there, so one token is computed, beside one that decodes: 10 + 2 ns from 129 on.
    let rows = replica.reports.rows.take_requests();
    assert_eq!(rows[..7], [1, 4, 12, 141, 141, 8, 0]);
    assert_eq!(rows[7..], [0, 0, 19, 119, 161, 0, 0]);
}

#[test]
fn who_finds_no_room_waits_until_some_is_given_back() {
    let (mut replica, mut store) = (replica(|_| {}), store(4));
    comes(&mut replica, &mut store, 0, 2, 0);
    comes(&mut replica, &mut store, 3, 1, 0);
    // Three of four blocks are taken, and the other prompt needs three: it is tried when the first has ended.
    assert_eq!(run(&mut replica, &mut store), [0, 19, 29, 48]);
    let rows = replica.reports.rows.take_requests();
    assert_eq!(rows[7..], [3, 29, 19, 48, 48, 0, 0]);
}

#[test]
fn the_last_that_joined_is_preempted_and_comes_first_again() {
    let (mut replica, mut store) = (replica(|_| {}), store(6));
    comes(&mut replica, &mut store, 0, 8, 0);
    comes(&mut replica, &mut store, 3, 8, 0);
    run(&mut replica, &mut store);
    let rows = replica.reports.rows.take_requests();
    let (first, second) = (&rows[..7], &rows[7..]);
    assert_eq!((first[0], first[6]), (0, 0));
    assert_eq!(
        (second[0], second[6]),
        (3, 1),
        "both ask for a fourth block at once"
    );
    assert_eq!(store.tier(0).active, 0);
    store.check().unwrap();
}

#[test]
fn the_longest_prefix_goes_first_where_the_order_says_so() {
    let (mut replica, mut store) = (
        replica(|config| {
            config.queue_order = QueueOrder::LongestPrefix;
            config.max_num_seqs = 1;
        }),
        store(10),
    );
    comes(&mut replica, &mut store, 0, 1, 0);
    replica.at_boundary(&mut store, 0).unwrap();
    comes(&mut replica, &mut store, 3, 1, 5);
    comes(&mut replica, &mut store, 1, 1, 6);
    run(&mut replica, &mut store);
    assert_eq!(replica.take_closed(), [0, 1, 3]);
}

#[test]
fn a_step_ahead_knows_who_came_before_the_step_that_runs() {
    let ahead = |config: &mut ReplicaConfig| config.async_scheduling = AsyncScheduling::Length;
    let (mut replica, mut store) = (replica(ahead), store(10));
    comes(&mut replica, &mut store, 0, 3, 0);
    replica.at_boundary(&mut store, 0).unwrap();
    comes(&mut replica, &mut store, 3, 1, 5); // while the step from 0 to 19 runs: known from 19 on
    let boundaries = run(&mut replica, &mut store);
    assert_eq!(
        boundaries[..2],
        [19, 29],
        "the step from 19 was decided on without it"
    );
    let rows = replica.reports.rows.take_requests();
    let second: Vec<i64> = rows.chunks(7).find(|row| row[0] == 3).unwrap().to_vec();
    assert_eq!(second[1], 24, "it waits for the step from 29");
}
