//! The pure core of kvsim: no Python, no `unsafe`, typed errors, integers in and integers out.
//!
//! Each module is one package; this page is their table of contents.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

/// The running batch of a replica, advanced in step runs.
pub mod batch;
pub mod causes;
pub mod cluster;
pub mod convert;
/// The rolling hash over semantic records.
pub mod digest;
/// The cache managers of real engines.
pub mod engines;
/// Reasons why a store refuses a call.
pub mod error;
/// A counted histogram of latencies.
pub mod histogram;
pub mod hosted;
pub mod ids;
/// A map by keys of blocks.
pub mod key_map;
/// Block keys of every request, never materialised.
pub mod keys;
pub mod machine;
mod names;
pub mod parquet;
pub mod policies;
/// The digest and the eviction log of a store.
pub mod records;
pub mod replay;
/// Residuals of the linear terms of a step-time table.
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
