//! Cache managers of real engines, decision by decision, and the replays that feed them a trace.
//!
//! `block_pool` is vLLM's `KVCacheManager`; `radix_tree` with `radix_pool` are SGLang's two trees with HiCache and
//! their capacity in tokens. `lmcache` is LMCache's tiers, `lmcache_server` its server (`server_below` with time); `offload_lru` and `offload_arc` are the policies of vLLM's
//! CPU tier. Pools take one step of one request at a time, so a timed simulation drives them as the replays do.
#![cfg_attr(
    not(test),
    deny(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

/// Tiers that an engine keeps below vLLM's pool.
pub mod below;
/// vLLM's block pool: look up, allocate, extend, cache, release.
pub mod block_pool;
/// Chunks of LMCache's tiers, by cache policy.
pub mod chunk_order;
mod connector_jobs;
/// A pool of blocks with copies in flight to the tiers below.
pub mod copied_pool;
/// Copies in flight between a pool and the tiers below.
pub mod copies;
/// vLLM's pool of several cache groups as the GPU tier of a timed replica.
pub mod group_store;
/// A tier below a pool of several cache groups.
pub mod group_tier;
/// vLLM's manager of several KV cache groups.
pub mod groups;
/// Keys in use by copies.
mod held_keys;
/// Index from a block's key to the block.
mod key_index;
/// Maps from keys to numbers.
mod key_slots;
/// Chunks of LMCache's server, by eviction policy.
pub mod l1_order;
/// Text of keys as digests write it.
pub mod labels;
/// Leases of the stores below.
mod leases;
/// Queue of keys that moves any key in constant time.
mod linked_keys;
/// List that moves any value in constant time.
mod links;
/// Replay of requests, one after another, against LMCache's CPU and disk tiers.
pub mod lmcache;
/// LMCache's tiers below vLLM's pool, in a timed run.
pub mod lmcache_below;
/// LMCache's connector below vLLM's scheduler.
mod lmcache_connector;
/// Replay of requests at their times against LMCache's server.
pub mod lmcache_server;
/// LMCache's CPU and disk tiers.
mod lmcache_tiers;
/// Eviction policy ARC of vLLM's CPU tier.
pub mod offload_arc;
/// vLLM's CPU tier below its pool, in a timed run.
pub mod offload_below;
/// Eviction policy LRU of vLLM's CPU tier.
pub mod offload_lru;
/// Replay of requests, one after another, against vLLM's CPU tier.
pub mod offload_replay;
/// vLLM's CPU tier: keys that requests find, load, offer and have used.
pub mod offload_tier;
/// The block pool as the GPU tier of a timed replica.
pub mod pool_store;
/// SGLang's capacity in tokens, and the steps of a request.
pub mod radix_pool;
/// Replay of requests through SGLang's pool.
pub mod radix_replay;
/// SGLang's tree as the tiers of a timed replica.
pub mod radix_store;
/// SGLang's radix trees, with copies on the host (HiCache).
pub mod radix_tree;
/// Eviction policy LRU of vLLM's CPU tier by request and position: below cache groups, above a secondary tier.
pub mod ranked_lru;
/// Requests of a replay in file order, overlapping in a window.
pub mod requests;
/// LMCache's server below vLLM's pool, in a timed run.
pub mod server_below;
/// A level of LMCache's server, with its loop.
mod server_level;
/// The pool of vLLM's SimpleCPUOffloadConnector, below a pool of cache groups.
pub mod simple_tier;
/// Chunks of LMCache's tiers as blocks of the pool above.
pub mod tier_chunks;
/// vLLM's CPU tier with a secondary tier below it.
pub mod tiered_offload;
/// vLLM's pool with an engine's tiers below, as the store of a timed replica.
pub mod tiered_pool;
#[cfg(test)]
mod tiered_pool_tests;
/// vLLM's CPU tier, with its keys in use and the requests that used them.
pub mod used_tier;
/// Replay of requests through vLLM's pool with its CPU tier below.
pub mod vllm_offload_replay;
/// Replay of requests through vLLM's pool.
pub mod vllm_replay;
/// Replay of requests through vLLM's pool with its CPU tier and a secondary tier below.
pub mod vllm_tiering_replay;
