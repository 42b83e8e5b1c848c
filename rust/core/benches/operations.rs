//! Costs of each operation of the hot path in Rust: `cargo bench -p kvsim-core`.
//! `benches/bench_operations.py` runs the same work from Python.
//!
//! Wall clock, minimum of nine rounds, so a quiet machine is needed.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use kvsim_core::batch::{Batch, BatchConfig, Sequence};
use kvsim_core::cluster::routing::longest_prefix;
use kvsim_core::digest::Digest;
use kvsim_core::keys::{BlockKeys, NO_REQUEST};
use kvsim_core::step_time::{StepBases, StepCoefficients, StepTimeTable};
use kvsim_core::store::{LeaseBlocks, Store, TierConfig, Times};

const REQUESTS: u32 = 2_000;
const BLOCKS: u32 = 24;
const SHARED: u32 = 12;
const GROUPS: u32 = 50;
const CAPACITY: u64 = 10_000;
const MACHINES: usize = 16;
const ROUNDS: usize = 9;

fn keys() -> Arc<BlockKeys> {
    let id = |request: u32, block: u32| {
        if block < SHARED {
            request % GROUPS * SHARED + block
        } else {
            GROUPS * SHARED + request * (BLOCKS - SHARED) + block - SHARED
        }
    };
    let ids = (0..REQUESTS)
        .flat_map(|r| (0..BLOCKS).map(move |b| id(r, b)))
        .collect();
    let offsets = (0..=u64::from(REQUESTS))
        .map(|r| r * u64::from(BLOCKS))
        .collect();
    let requests = REQUESTS as usize;
    let keys = BlockKeys::new(
        offsets,
        ids,
        1,
        vec![BLOCKS; requests],
        vec![NO_REQUEST; requests],
    );
    Arc::new(keys.expect("columns that belong together"))
}

fn empty_store(keys: &Arc<BlockKeys>, capacity_blocks: u64) -> Store {
    let gpu = TierConfig {
        capacity_blocks: Some(capacity_blocks),
        write_back: false,
    };
    Store::new(Arc::clone(keys), &[gpu])
}

/// Look up, admit, evict, commit and release: the whole request lifecycle in the cache.
fn run_requests(store: &mut Store, requests: std::ops::Range<u32>) {
    for request in requests {
        let ready = store.peek(request, BLOCKS).1;
        let lease = store.acquire(request, ready).unwrap();
        store
            .reserve(
                &[LeaseBlocks::new(lease, u64::from(BLOCKS - ready))],
                u64::from(request),
            )
            .unwrap();
        store.commit(lease, BLOCKS, Times::at(0)).unwrap();
        store.release(lease, u64::from(request)).unwrap();
    }
}

/// Prints the minimum time of an operation; `work` does `operations` of them.
fn measure(name: &str, operations: u32, mut work: impl FnMut()) {
    let least = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            work();
            start.elapsed()
        })
        .min()
        .unwrap_or_default();
    let ns = least.as_nanos() as f64 / f64::from(operations);
    println!("{name:<28} {ns:>10.1} ns/op {:>14.0} op/s", 1e9 / ns);
}

fn step_run(keys: &Arc<BlockKeys>) {
    let config = BatchConfig {
        block_size_tokens: 16,
        max_num_batched_tokens: 8_192,
        num_layers: 32,
        cache_enabled: true,
        cache_output: false,
        commit_at_begin: false,
        asks_every_step: false,
        reserve_by_step: false,
        speculation: None,
        commit_ends_step_run: false,
        step_overhead_ns: 0,
        least_step_ns: 0,
        late_ends: false,
    };
    let table = StepTimeTable {
        bases: StepBases {
            chunk_ns: vec![5_000_000; 8_193],
            decode_ns: vec![5_000_000; 8_193],
            ..StepBases::default()
        },
        coefficients: StepCoefficients {
            kv_decode_fs: 80_000_000,
            ..StepCoefficients::default()
        },
        ..StepTimeTable::default()
    };
    let mut composed: Vec<(Batch, Store)> = (0..ROUNDS)
        .map(|_| {
            let mut store = empty_store(keys, 100_000);
            let mut batch = Batch::new(config.clone(), table.clone());
            batch.begin(&mut store, 0).unwrap();
            for id in 0..64 {
                let lease = store.acquire(id, 0).unwrap();
                store
                    .reserve(&[LeaseBlocks::new(lease, u64::from(BLOCKS))], 0)
                    .unwrap();
                store.commit(lease, BLOCKS, Times::at(0)).unwrap();
                let tokens = u64::from(BLOCKS) * 16;
                batch.add(Sequence {
                    id,
                    lease,
                    computed: tokens,
                    prefill_target: tokens,
                    total: tokens + 1_000,
                    prompt_tokens: tokens,
                    blocks: u64::from(BLOCKS),
                    last_token_ns: Some(0),
                    ..Sequence::default()
                });
            }
            (batch, store)
        })
        .collect();
    measure("stretch, 64 decoding", 1_000, || {
        let (mut batch, mut store) = composed.pop().expect("one for each round");
        batch.start(&store, 0, 0).unwrap();
        batch.advance(&mut store, 1 << 62).unwrap();
        assert!(batch.counts.steps >= 990);
    });
}

fn main() {
    if cfg!(debug_assertions) {
        println!("a debug build: nothing is measured (cargo bench builds a release)");
        return;
    }
    let keys = keys();
    measure("keys", REQUESTS * BLOCKS, || {
        for request in 0..REQUESTS {
            for block in 0..BLOCKS {
                black_box(keys.key(request, block));
            }
        }
    });
    let mut store = empty_store(&keys, CAPACITY);
    run_requests(&mut store, 0..REQUESTS);
    measure("peek", REQUESTS, || {
        for request in 0..REQUESTS {
            black_box(store.peek(request, BLOCKS));
        }
    });
    measure("match_prefix", REQUESTS, || {
        for request in 0..REQUESTS {
            black_box(store.match_prefix(request, BLOCKS));
        }
    });
    measure("acquire_reserve_release", REQUESTS, || {
        for request in 0..REQUESTS {
            let lease = store
                .acquire(request, store.peek(request, BLOCKS).1)
                .unwrap();
            store
                .reserve(&[LeaseBlocks::new(lease, 1)], u64::from(request))
                .unwrap();
            store.release(lease, u64::from(request)).unwrap();
        }
    });
    measure("whole_requests_evicting", REQUESTS, || {
        run_requests(&mut store, 0..REQUESTS);
    });
    step_run(&keys);
    let stores: Vec<Store> = (0..MACHINES as u32)
        .map(|machine| {
            let mut one = empty_store(&keys, CAPACITY);
            run_requests(&mut one, 100 * machine..100 * machine + 100);
            one
        })
        .collect();
    let loads: Vec<u64> = (0..MACHINES as u64).map(|m| m % 4).collect();
    measure("routing_decision", REQUESTS, || {
        for request in 0..REQUESTS {
            let found = |machine: usize| stores[machine].peek(request, BLOCKS).0;
            black_box(longest_prefix(&loads, 1e9, found));
        }
    });
    let mut digest = Digest::default();
    measure("digest_record", REQUESTS, || {
        for request in 0..REQUESTS {
            digest.record(1, u64::from(request), 7, 9);
        }
    });
    black_box(digest);
}
