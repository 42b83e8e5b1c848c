//! Replays through the cache managers of real engines.

use std::sync::Arc;

use kvsim_core::causes::engine::MissCauses;
use kvsim_core::engines::offload_arc::OffloadArc;
use kvsim_core::engines::offload_lru::OffloadLru;
use kvsim_core::engines::offload_replay;
use kvsim_core::engines::offload_tier::{AnyPolicy, ArcSizes, OffloadTier};
use kvsim_core::engines::requests::Requests;
use kvsim_core::engines::tiered_offload::TieredOffload;
use kvsim_core::engines::vllm_replay::VllmReplay;
use kvsim_core::engines::{labels, vllm_offload_replay, vllm_replay, vllm_tiering_replay};
use kvsim_core::keys::BlockKeys;
use numpy::{IntoPyArray, PyArrayMethods, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::argument::tuple_structs;
use crate::causes::by_cause;
use crate::keys::PyKeys;
use crate::named::{set_arrays, set_entries};

tuple_structs! {
    /// Chunks of a CPU tier, and the blocks of a chunk.
    pub struct ChunksArg {
        cpu_chunks: u32,
        chunk_blocks: u32,
    }
}

/// Requests, one entry each, and the number in flight at a time.
#[pyclass(frozen, module = "kvcache_sim._core")]
pub struct EngineRequests {
    keys: Arc<BlockKeys>,
    input_tokens: Vec<u64>,
    total_tokens: Vec<u64>,
    block_size: u32,
    window: u32,
    explain: bool,
}

#[pymethods]
impl EngineRequests {
    #[new]
    fn new(
        keys: &PyKeys,
        input_tokens: PyReadonlyArray1<'_, u64>,
        total_tokens: PyReadonlyArray1<'_, u64>,
        block_size: u32,
        window: u32,
        explain: bool,
    ) -> PyResult<Self> {
        let input_tokens = input_tokens.as_slice()?.to_vec();
        let total_tokens = total_tokens.as_slice()?.to_vec();
        let requests = keys.0.requests() as usize;
        let shapes = input_tokens.len() == requests && total_tokens.len() == requests;
        let ordered = input_tokens
            .iter()
            .zip(&total_tokens)
            .all(|(&n, &total)| 0 < n && n <= total);
        let bounded = |&total: &u64| total.div_ceil(u64::from(block_size)) < MOST;
        if !shapes || !ordered || block_size == 0 || !total_tokens.iter().all(bounded) {
            return Err(PyValueError::new_err(
                "lengths must be ≥ 1, one a request, totals no shorter and fewer than 2³¹ blocks",
            ));
        }
        Ok(Self {
            keys: Arc::clone(&keys.0),
            input_tokens,
            total_tokens,
            block_size,
            window,
            explain,
        })
    }

    /// Replays through vLLM's block pool.
    fn vllm<'py>(&self, py: Python<'py>, capacity_blocks: u32) -> PyResult<Bound<'py, PyDict>> {
        at_least_one(u64::from(capacity_blocks), "blocks")?;
        let done = py.detach(|| vllm_replay::replay(&self.requests(), capacity_blocks));
        pool_answer(py, done)
    }

    /// Replays through vLLM's block pool with its CPU tier below.
    fn vllm_offloading<'py>(
        &self,
        py: Python<'py>,
        capacity_blocks: u32,
        policy: &str,
        chunks: ChunksArg,
        store_threshold: u32,
        step_tokens: u64,
    ) -> PyResult<Bound<'py, PyDict>> {
        let ChunksArg {
            cpu_chunks,
            chunk_blocks,
        } = chunks;
        at_least_one(u64::from(capacity_blocks), "blocks")?;
        at_least_one(u64::from(cpu_chunks), "chunks of the CPU")?;
        at_least_one(u64::from(chunk_blocks), "blocks of a chunk")?;
        at_least_one(step_tokens, "tokens of a step")?;
        let capacity = cpu_chunks as usize;
        let policy = offload_policy(policy, capacity)?;
        let (done, counts) = py.detach(|| {
            let tier = OffloadTier::new(policy, capacity, store_threshold);
            vllm_offload_replay::replay(
                &self.requests(),
                capacity_blocks,
                tier,
                chunk_blocks,
                step_tokens,
            )
        });
        let answer = pool_answer(py, done)?;
        set_arrays!(answer, counts => loaded);
        set_entries!(answer, counts => stored, tier_evicted = evicted, refused, resident);
        answer.set_item("arc", arc_lists(counts.arc))?;
        Ok(answer)
    }

    /// Replays through vLLM's block pool with its CPU tier and a secondary tier below.
    fn vllm_tiering<'py>(
        &self,
        py: Python<'py>,
        capacity_blocks: u32,
        policy: &str,
        cpu_blocks: u32,
        step_tokens: u64,
    ) -> PyResult<Bound<'py, PyDict>> {
        at_least_one(u64::from(capacity_blocks), "blocks")?;
        at_least_one(step_tokens, "tokens of a step")?;
        at_least_one(u64::from(cpu_blocks), "blocks of the CPU")?;
        let mut tiers = TieredOffload::new(policy, cpu_blocks as usize, self.keys.requests())
            .ok_or_else(|| no_such_policy(policy))?;
        let (done, tiering) = py.detach(|| {
            vllm_tiering_replay::replay(&self.requests(), capacity_blocks, &mut tiers, step_tokens)
        });
        let answer = pool_answer(py, done)?;
        let counts = tiering.counts;
        set_arrays!(answer, tiering => loaded);
        set_entries!(answer, counts => stored, tier_evicted = evicted, refused, promoted, aborted);
        set_entries!(answer, tiering => resident, below);
        answer.set_item("arc", arc_lists(tiering.arc))?;
        Ok(answer)
    }

    /// Replays against vLLM's CPU tier.
    fn offload<'py>(
        &self,
        py: Python<'py>,
        policy: &str,
        capacity_blocks: u32,
        store_threshold: u32,
    ) -> PyResult<Bound<'py, PyDict>> {
        at_least_one(u64::from(capacity_blocks), "blocks")?;
        let capacity = capacity_blocks as usize;
        let policy = offload_policy(policy, capacity)?;
        let done = py.detach(|| {
            let mut tier = OffloadTier::new(policy, capacity, store_threshold);
            offload_replay::replay(&self.requests(), &mut tier)
        });
        let answer = PyDict::new(py);
        set_arrays!(answer, done => hits);
        set_entries!(answer, done => stored, evicted, refused);
        answer.set_item("arc", arc_lists(done.arc))?;
        set_causes(&answer, done.causes)?;
        Ok(answer)
    }
}

impl EngineRequests {
    pub(crate) fn requests(&self) -> Requests<'_> {
        Requests {
            keys: &self.keys,
            input_tokens: &self.input_tokens,
            total_tokens: &self.total_tokens,
            block_size: self.block_size,
            window: self.window,
            explain: self.explain,
        }
    }
}

/// The entries of a replay through vLLM's block pool.
fn pool_answer(py: Python<'_>, done: VllmReplay) -> PyResult<Bound<'_, PyDict>> {
    let answer = PyDict::new(py);
    set_arrays!(answer, done => hits, free_queue);
    set_entries!(answer, done => forced = forced_frees, cached_blocks, unique_keys, heap_bytes);
    set_entries!(answer, done.counts => taken, inserted, evicted);
    set_causes(&answer, done.causes)?;
    Ok(answer)
}

/// The policy of vLLM's CPU tier by its name.
pub(crate) fn offload_policy(name: &str, capacity: usize) -> PyResult<Box<AnyPolicy>> {
    match name {
        "lru" => Ok(Box::new(OffloadLru::default())),
        "arc" => Ok(Box::new(OffloadArc::new(capacity))),
        _ => Err(no_such_policy(name)),
    }
}

pub(crate) fn no_such_policy(name: &str) -> PyErr {
    PyValueError::new_err(format!("no such policy: {name}"))
}

/// ARC's lists for Python: lengths, and the target.
fn arc_lists(arc: Option<ArcSizes>) -> Option<(u64, u64, u64, u64, f64)> {
    arc.map(|a| (a.t1, a.t2, a.b1, a.b2, a.target))
}

/// An upper bound on the blocks, and on the tokens of a request, of any replay.
pub(crate) const MOST: u64 = 1 << 31;

pub(crate) fn at_least_one(capacity: u64, of: &str) -> PyResult<()> {
    if (1..MOST).contains(&capacity) {
        return Ok(());
    }
    let message = format!("capacity must be 1 to 2³¹ − 1 {of}, not {capacity}");
    Err(PyValueError::new_err(message))
}

pub(crate) fn whole_pages(capacity_tokens: u64, page: u32) -> PyResult<()> {
    if page == 0 || capacity_tokens % u64::from(page) > 0 {
        return Err(PyValueError::new_err("capacity must be whole pages"));
    }
    at_least_one(capacity_tokens / u64::from(page), "pages")
}

/// Adds tokens by cause, a row per request, and evicted misses as rows of (request, evicting request,
/// blocks).
pub(crate) fn set_causes(answer: &Bound<'_, PyDict>, causes: Option<MissCauses>) -> PyResult<()> {
    let py = answer.py();
    let Some(causes) = causes else {
        answer.set_item("miss_tokens", py.None())?;
        return answer.set_item("evicted_misses", py.None());
    };
    let evicted: Vec<u32> = causes
        .evicted
        .iter()
        .flat_map(|m| [m.request, m.by, m.blocks])
        .collect();
    answer.set_item("miss_tokens", by_cause(py, &causes.tokens)?)?;
    answer.set_item(
        "evicted_misses",
        evicted
            .into_pyarray(py)
            .reshape([causes.evicted.len(), 3])?,
    )
}

/// The lines of vLLM's free queue for some keys, as its digest reads them.
#[pyfunction]
pub fn key_lines(
    py: Python<'_>,
    keys: PyReadonlyArray1<'_, u64>,
    blocks_per_id: u32,
    names: Vec<String>,
) -> PyResult<String> {
    if blocks_per_id == 0 {
        return Err(PyValueError::new_err("an id covers at least one block"));
    }
    let keys = keys.as_slice()?;
    Ok(py.detach(|| labels::lines(keys, blocks_per_id, &names)))
}
