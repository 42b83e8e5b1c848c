//! Replays of engines with lower tiers of their own: SGLang's trees with HiCache, and LMCache.

use kvsim_core::engines::chunk_order::ChunkPolicy;
use kvsim_core::engines::l1_order::L1Policy;
use kvsim_core::engines::lmcache_server::LevelChunks;
use kvsim_core::engines::radix_tree::host_tier::{HostTier, WritePolicy};
use kvsim_core::engines::radix_tree::stored_pages::Storage;
use kvsim_core::engines::radix_tree::worth::LeafStrategy;
use kvsim_core::engines::radix_tree::TreeRules;
use kvsim_core::engines::{lmcache, lmcache_server, radix_replay};
use numpy::{IntoPyArray, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::argument::tuple_structs;
use crate::engines::{at_least_one, no_such_policy, set_causes, whole_pages, EngineRequests};
use crate::named::{set_arrays, set_entries};

tuple_structs! {
    /// An eviction strategy by its name, and its parameters.
    pub struct StrategyArg {
        name: String,
        threshold_tokens: u64,
        next_prompt_tokens: u64,
    }

    /// A host tier.
    pub struct HostArg {
        write_policy: String,
        pages: u64,
    }

    /// A storage: its pages, and the fewest tokens that are prefetched.
    pub struct StoragePages {
        /// None: unbounded.
        capacity_pages: Option<u64>,
        least_tokens: u32,
    }

    /// Chunks of a server's memory and of its storage.
    pub struct ServerChunks {
        memory: usize,
        /// 0: no storage.
        storage: usize,
    }
}

/// Replays one of SGLang's trees, `classic` or `unified`. `host`: write policy and pages of a host tier, which the
/// classic tree cannot have. `storage`: its pages, `None` if unbounded, and the fewest tokens that are prefetched.
#[pyfunction]
#[pyo3(signature = (requests, tree, strategy, capacity_tokens, host=None, storage=None))]
pub fn replay_sglang<'py>(
    py: Python<'py>,
    requests: &EngineRequests,
    tree: &str,
    strategy: StrategyArg,
    capacity_tokens: u64,
    host: Option<HostArg>,
    storage: Option<StoragePages>,
) -> PyResult<Bound<'py, PyDict>> {
    let StrategyArg {
        name,
        threshold_tokens,
        next_prompt_tokens,
    } = strategy;
    at_least_one(threshold_tokens.saturating_add(1), "tokens")?;
    at_least_one(next_prompt_tokens.saturating_add(1), "tokens")?;
    let (rules, strategy) = match tree {
        "classic" => (TreeRules::Classic, LeafStrategy::of_classic(&name)),
        "unified" => {
            let strategy = LeafStrategy::from_name(&name, threshold_tokens, next_prompt_tokens);
            (TreeRules::Unified, strategy)
        }
        _ => return Err(no_such_policy(tree)),
    };
    let strategy = strategy.ok_or_else(|| no_such_policy(&name))?;
    let requests = requests.requests();
    whole_pages(capacity_tokens, requests.block_size)?;
    if let Some(storage) = &storage {
        at_least_one(storage.capacity_pages.unwrap_or(1), "pages of the storage")?;
        at_least_one(u64::from(storage.least_tokens), "tokens")?;
    }
    let host = match host {
        None => None,
        Some(_) if rules == TreeRules::Classic => return Err(no_such_policy("a classic host")),
        Some(HostArg {
            write_policy,
            pages,
        }) => {
            at_least_one(pages, "pages of the host")?;
            let write = WritePolicy::from_name(&write_policy);
            let write = write.ok_or_else(|| no_such_policy(&write_policy))?;
            let storage = storage.map(|storage| {
                let least_pages = storage.least_tokens.div_ceil(requests.block_size);
                Storage::new(storage.capacity_pages, least_pages)
            });
            Some(HostTier::new(write, pages).above(storage))
        }
    };
    let done =
        py.detach(|| radix_replay::replay(&requests, rules, strategy, capacity_tokens, host));
    let answer = PyDict::new(py);
    let (keys, pages): (Vec<u64>, Vec<u32>) = done.leaves.into_iter().unzip();
    set_arrays!(answer, done => hits, loaded, prefetched);
    set_entries!(answer, done => forced = forced_finishes, evict_calls, free_tokens, host_free_pages, heap_bytes);
    set_entries!(answer, done.storage =>
        storage_pages = pages, storage_written_pages = written_pages, storage_evicted_pages = evicted_pages
    );
    set_entries!(answer, done.counts =>
        evicted_pages, evicted_leaves, device_pages, device_nodes, host_pages, host_nodes
    );
    set_entries!(answer, done.moves =>
        written_pages, host_evicted_pages = evicted_pages, host_evicted_leaves = evicted_leaves
    );
    answer.set_item("leaf_keys", keys.into_pyarray(py))?;
    answer.set_item("leaf_pages", pages.into_pyarray(py))?;
    set_causes(&answer, done.causes)?;
    Ok(answer)
}

/// Replays LMCache's CPU tier, with a disk tier below it unless that has 0 chunks.
#[pyfunction]
pub fn replay_lmcache<'py>(
    py: Python<'py>,
    requests: &EngineRequests,
    policy: &str,
    cpu_chunks: u64,
    disk_chunks: u64,
) -> PyResult<Bound<'py, PyDict>> {
    at_least_one(cpu_chunks, "chunks")?;
    at_least_one(disk_chunks.saturating_add(1), "chunks")?;
    let policy = ChunkPolicy::from_name(policy).ok_or_else(|| no_such_policy(policy))?;
    let requests = requests.requests();
    let done = py.detach(|| lmcache::replay(&requests, policy, cpu_chunks, disk_chunks));
    let answer = PyDict::new(py);
    set_arrays!(answer, done => hits, from_disk, cpu_keys, disk_keys);
    set_entries!(answer, done => cpu_hits, stored, short_stores, cpu_evictions, disk_evictions);
    set_causes(&answer, done.causes)?;
    Ok(answer)
}

/// Replays LMCache's server: requests at their times, in ns from the start of its loops; `chunks`: of its memory and of
/// its storage, 0: none.
#[pyfunction]
pub fn replay_lmcache_server<'py>(
    py: Python<'py>,
    requests: &EngineRequests,
    times_ns: PyReadonlyArray1<'_, u64>,
    policy: &str,
    chunks: ServerChunks,
    step_tokens: u64,
) -> PyResult<Bound<'py, PyDict>> {
    at_least_one(chunks.memory as u64, "chunks")?;
    at_least_one(step_tokens, "tokens of a step")?;
    let policy = L1Policy::from_name(policy).ok_or_else(|| no_such_policy(policy))?;
    let (requests, times) = (requests.requests(), times_ns.as_slice()?);
    if times.len() != requests.input_tokens.len() {
        return Err(PyValueError::new_err("times must be one a request"));
    }
    let chunks = LevelChunks {
        memory: chunks.memory,
        storage: chunks.storage,
    };
    let done = py.detach(|| lmcache_server::replay(&requests, times, policy, chunks, step_tokens));
    let answer = PyDict::new(py);
    set_arrays!(answer, done => hits, from_disk, keys, disk_keys);
    set_entries!(answer, done => stored, lost, evicted);
    set_causes(&answer, done.causes)?;
    Ok(answer)
}
