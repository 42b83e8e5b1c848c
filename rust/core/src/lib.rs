//! The pure core of kvsim: no Python, no `unsafe`, typed errors, integers in and integers out.
//!
//! Each module is one room; this page is their table of contents.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

/// The running batch of a replica, advanced in stretches.
pub mod batch;
pub mod causes;
pub mod cluster;
/// The rolling hash over semantic records.
pub mod digest;
/// Real engines' cache managers.
pub mod engines;
/// Why a store refuses a call.
pub mod error;
/// A counted histogram of latencies.
pub mod histogram;
pub mod ids;
/// A map by keys of blocks.
pub mod key_map;
/// Block keys of every request, never materialised.
pub mod keys;
pub mod machine;
pub mod parquet;
pub mod policies;
/// What a store keeps of what happened: its digest and its evictions.
pub mod records;
pub mod replay;
/// What a table's linear terms miss.
pub mod residual_grid;
pub mod slab;
/// The time of a scheduler step from one table of integers.
pub mod step_time;
/// The block store of one machine: trie, residency, leases, eviction, moves.
pub mod store;
pub mod tiers;
/// The cache under simplified accounting: a count of unique tokens.
pub mod token_store;
pub mod tokens;
pub mod trace;
pub mod transfers;
pub mod views;
