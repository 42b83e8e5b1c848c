//! The request lifecycle, milestone by milestone. A step takes 10 ns, and 1 ns for each token of its prompts.

use super::queue::QueueOrder;
use super::rows::Rows;
use super::{Arrival, AsyncScheduling, Now, Replica, ReplicaConfig, ReuseConfig, SchedulingConfig};
use crate::batch::{Batch, BatchConfig};
use crate::keys::BlockKeys;
use crate::step_time::{StepBases, StepTimeTable};
use crate::store::{Store, TierConfig};

/// A store with blocks of 4 tokens. Requests 0 to 2 have the blocks a b; requests 3 and 4 have c d, and e f.
fn store(capacity_blocks: u64) -> Store {
    tiers(&[capacity_blocks])
}

/// The same store with lower tiers, each of which writes evicted blocks to the next one.
pub(super) fn tiers(capacities_blocks: &[u64]) -> Store {
    let keys = BlockKeys::of_rows(1, &[[0, 1], [0, 1], [0, 1], [2, 3], [4, 5]]);
    let last = capacities_blocks.len() - 1;
    let tiers = (0..).zip(capacities_blocks).map(|(n, &blocks)| TierConfig {
        capacity_blocks: Some(blocks),
        write_back: n < last,
    });
    Store::new(keys, &tiers.collect::<Vec<_>>())
}

fn replica(change: impl FnOnce(&mut ReplicaConfig)) -> Replica {
    let mut config = ReplicaConfig {
        sources: 4,
        block_size_tokens: 4,
        scheduling: SchedulingConfig {
            max_num_seqs: 2,
            ..SchedulingConfig::default()
        },
        reuse: ReuseConfig {
            cache_enabled: true,
            ..ReuseConfig::default()
        },
        ..ReplicaConfig::default()
    };
    change(&mut config);
    let batch = BatchConfig {
        block_size_tokens: 4,
        max_num_batched_tokens: 16,
        num_layers: 1,
        cache_enabled: config.reuse.cache_enabled,
        cache_output: config.reuse.cache_output,
        ..BatchConfig::default()
    };
    let table = StepTimeTable {
        bases: StepBases {
            chunk_ns: (0..32).map(|tokens| 10 + tokens).collect(),
            decode_ns: vec![10; 8],
            ..StepBases::default()
        },
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

fn comes(replica: &mut Replica, store: &mut Store, request: u32, output_tokens: u64, now_ns: u64) {
    let arrival = Arrival {
        request,
        prompt_tokens: 9,
        output_tokens,
        session: -1,
        ..Arrival::default()
    };
    let slot = replica.arrive(arrival, now_ns);
    let mut now = Now::alone(store, now_ns);
    replica.enqueue(&mut now, slot).unwrap();
}

/// Runs until there is no work left; returns the times of the boundaries.
fn run(replica: &mut Replica, store: &mut Store) -> Vec<u64> {
    let mut boundaries = Vec::new();
    while let Some(now_ns) = replica.boundary_ns() {
        boundaries.push(now_ns);
        boundary(replica, store, now_ns);
    }
    boundaries
}

fn boundary(replica: &mut Replica, store: &mut Store, now_ns: u64) {
    let mut now = Now::alone(store, now_ns);
    replica.at_boundary(&mut now).unwrap();
}

#[test]
fn a_lone_request_takes_a_boundary_for_its_prompt_and_one_for_its_answer() {
    let (mut replica, mut store) = (replica(|_| {}), store(10));
    comes(&mut replica, &mut store, 0, 5, 100);
    // 9 tokens of prompt take 19 ns and bring the first token; four more come every 10 ns, in one step run.
    assert_eq!(run(&mut replica, &mut store), [100, 119, 159]);
    assert_eq!(
        replica.reports.rows.take_requests(),
        [0, 0, 19, 119, 159, 0, 0]
    );
    assert_eq!(replica.take_closed(), [0]);
    assert_eq!(
        (
            replica.prefill_load.open_requests(),
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
fn a_second_request_interrupts_the_step_run_and_reuses_the_prompt() {
    let (mut replica, mut store) = (replica(|_| {}), store(10));
    comes(&mut replica, &mut store, 0, 5, 100);
    for now_ns in [100, 119] {
        boundary(&mut replica, &mut store, now_ns);
    }
    assert_eq!(replica.boundary_ns(), Some(159));
    comes(&mut replica, &mut store, 1, 1, 125);
    assert_eq!(
        replica.boundary_ns(),
        Some(129),
        "the end of the iteration that runs"
    );
    run(&mut replica, &mut store);
    // Two blocks are cached, so one token is computed, alongside one sequence that decodes: 10 + 2 ns from 129 on.
    let rows = replica.reports.rows.take_requests();
    assert_eq!(rows[..7], [1, 4, 12, 141, 141, 8, 0]);
    assert_eq!(rows[7..], [0, 0, 19, 119, 161, 0, 0]);
}

#[test]
fn a_refused_request_waits_until_blocks_are_released() {
    let (mut replica, mut store) = (replica(|_| {}), store(4));
    comes(&mut replica, &mut store, 0, 2, 0);
    comes(&mut replica, &mut store, 3, 1, 0);
    // Three of four blocks are taken, and the other prompt needs three: it is tried when the first request has ended.
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
        "both need a fourth block at once"
    );
    assert_eq!(store.tier(0).active, 0);
    store.check().unwrap();
}

#[test]
fn longest_prefix_order_admits_the_longest_prefix_first() {
    let (mut replica, mut store) = (
        replica(|config| {
            config.scheduling.queue_order = QueueOrder::LongestPrefix;
            config.scheduling.max_num_seqs = 1;
        }),
        store(10),
    );
    comes(&mut replica, &mut store, 0, 1, 0);
    boundary(&mut replica, &mut store, 0);
    comes(&mut replica, &mut store, 3, 1, 5);
    comes(&mut replica, &mut store, 1, 1, 6);
    run(&mut replica, &mut store);
    assert_eq!(replica.take_closed(), [0, 1, 3]);
}

#[test]
fn a_lookahead_step_sees_arrivals_before_the_running_step_began() {
    let prefetch_state =
        |config: &mut ReplicaConfig| config.scheduling.async_scheduling = AsyncScheduling::Length;
    let (mut replica, mut store) = (replica(prefetch_state), store(10));
    comes(&mut replica, &mut store, 0, 3, 0);
    boundary(&mut replica, &mut store, 0);
    comes(&mut replica, &mut store, 3, 1, 5); // while the step from 0 to 19 runs: visible from 19 on
    let boundaries = run(&mut replica, &mut store);
    assert_eq!(
        boundaries[..2],
        [19, 29],
        "the step from 19 was decided without it"
    );
    let rows = replica.reports.rows.take_requests();
    let second: Vec<i64> = rows.chunks(7).find(|row| row[0] == 3).unwrap().to_vec();
    assert_eq!(second[1], 24, "it waits for the step from 29");
}

/// Faults that the assertion alone notices: each breaks one field of a run that is otherwise right.
#[cfg(debug_assertions)]
mod invariants {
    use super::*;

    /// A run of one request of five tokens, broken at 119 ns, when its first token is there.
    fn broken(fault: impl FnOnce(&mut Replica, &mut Store)) {
        let (mut replica, mut store) = (replica(|_| {}), store(10));
        comes(&mut replica, &mut store, 0, 5, 100);
        for now_ns in [100, 119] {
            boundary(&mut replica, &mut store, now_ns);
        }
        fault(&mut replica, &mut store);
        run(&mut replica, &mut store);
    }

    fn change(replica: &mut Replica, change: impl FnOnce(&mut super::super::request::Request)) {
        let slot = replica.running.slots[0];
        change(&mut replica.requests[slot]);
    }

    #[test]
    #[should_panic(expected = "I1")]
    fn a_request_that_has_left_does_not_leave_again() {
        broken(|replica, _| change(replica, |request| request.is_closed = true));
    }

    #[test]
    #[should_panic(expected = "I5")]
    fn the_clock_does_not_go_back() {
        broken(|replica, store| {
            replica.happen(&mut Now::alone(store, 160)).unwrap();
        });
    }

    #[test]
    #[should_panic(expected = "I6 or I8")]
    fn a_part_of_ttft_is_not_counted_twice() {
        broken(|replica, _| change(replica, |request| request.ttft.queue_ns += 1));
    }

    #[test]
    #[should_panic(expected = "I6 or I8")]
    fn a_prompt_is_cached_or_prefilled() {
        broken(|replica, _| change(replica, |request| request.cached.left_tokens -= 1));
    }

    #[test]
    #[should_panic(expected = "I12")]
    fn an_idle_engine_does_not_refuse() {
        broken(|replica, store| {
            run(replica, store);
            replica.arrivals.refused = true;
            boundary(replica, store, 200);
        });
    }
}
