//! `KvGroups`: vLLM's KV cache groups, and whole replays through their manager.

use kvsim_core::engines::block_pool::NO_KEY;
use kvsim_core::engines::groups::GroupKey;
use kvsim_core::engines::groups::{replay, Group, Kind, Limits, Reuse};
use kvsim_core::engines::labels::{self, GroupUnits};
use numpy::{IntoPyArray, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::argument::{tuple_structs, Arg};
use crate::keys::PyKeys;
use crate::named::{set_arrays, set_entries};
use crate::refusal::refused;

/// An upper bound on the blocks, and on the tokens of a request, of any pool.
const MOST: u64 = 1 << 31;

tuple_structs! {
    /// One cache group.
    pub struct GroupArg<'py> {
        kind: String,
        /// Tokens of a block.
        block_size: u64,
        /// Window or chunk in tokens.
        reach: u64,
        keys: PyRef<'py, PyKeys>,
        /// Units of a block.
        units: u32,
    }

    /// Requests that run at once.
    pub struct WindowArg {
        requests: Arg<u32>,
        /// True if tokens that each group alone could have continued from are counted.
        alone: bool,
    }

    /// The limits of the scheduler.
    pub struct LimitsArg {
        step_tokens: u64,
        retention_interval: Option<u64>,
        /// Longest sequence.
        longest_tokens: u64,
    }
}

/// Layers that share block tables, one entry per group, and the tokens of which every hit is a multiple.
#[pyclass(frozen, module = "kvcache_sim._core")]
pub struct KvGroups {
    pub groups: Vec<Group>,
    pub align: u64,
}

#[pymethods]
impl KvGroups {
    /// `groups`: kind, tokens per block, window or chunk in tokens, keys of units, units per block.
    #[new]
    fn new(groups: Vec<GroupArg<'_>>, align: u64) -> PyResult<Self> {
        let groups: Vec<Group> = groups
            .into_iter()
            .map(|group| {
                Ok(Group {
                    kind: kind_of(&group.kind, group.reach)?,
                    block_size: group.block_size,
                    keys: group.keys.0.clone(),
                    units: group.units,
                })
            })
            .collect::<PyResult<_>>()?;
        let requests = groups.first().map(|group| group.keys.requests());
        let alike = |group: &Group| {
            (1..MOST).contains(&group.block_size)
                && (1..=1 << 16).contains(&group.units)
                && align > 0
                && (align % group.block_size == 0 || group.block_size % align == 0)
                && Some(group.keys.requests()) == requests
        };
        if groups.is_empty() || groups.len() > 255 || !groups.iter().all(alike) {
            return Err(refused(
                "no such groups",
                "1 to 255 groups of one trace, blocks that divide the alignment or hold it",
            ));
        }
        Ok(Self { groups, align })
    }

    /// Replays requests in file order; `limits`: tokens of a step, retention interval, longest sequence.
    fn replay<'py>(
        &self,
        py: Python<'py>,
        input_tokens: PyReadonlyArray1<'_, u64>,
        total_tokens: PyReadonlyArray1<'_, u64>,
        window: WindowArg,
        limits: LimitsArg,
        capacity_blocks: Arg<u32>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let (input_tokens, total_tokens) = (input_tokens.as_slice()?, total_tokens.as_slice()?);
        let requests = self.groups[0].keys.requests() as usize;
        let ordered = input_tokens
            .iter()
            .zip(total_tokens)
            .all(|(&n, &total)| 0 < n && n <= total && total < MOST);
        if input_tokens.len() != requests || total_tokens.len() != requests || !ordered {
            return Err(PyValueError::new_err(
                "lengths must be 1 to 2³¹ − 1, one a request, totals no shorter",
            ));
        }
        let (limits, capacity) = (limits_of(limits)?, capacity_of(capacity_blocks.0)?);
        let requests = replay::GroupRequests {
            input_tokens,
            total_tokens,
            window: window.requests.0,
            alone: window.alone,
        };
        let done = py
            .detach(|| replay::replay(requests, self.groups.clone(), self.align, limits, capacity));
        let mut keyed = vec![0u64; self.groups.len()];
        for (group, _) in done.free_queue.iter().flatten() {
            keyed[usize::from(*group)] += 1;
        }
        let answer = PyDict::new(py);
        let (unkept, evicted): (Vec<u64>, Vec<u64>) = done.lost_tokens.into_iter().unzip();
        answer.set_item("lost_not_kept", unkept)?;
        answer.set_item("lost_evicted", evicted)?;
        let unkept = done
            .unkept
            .iter()
            .map(|j| (j.request, j.tokens, j.is_state));
        answer.set_item("unkept", unkept.collect::<Vec<_>>())?;
        answer.set_item("keyed_at_end", keyed)?;
        set_arrays!(answer, done => hits);
        set_entries!(answer, done.counts => taken, inserted, evicted);
        set_entries!(answer, done =>
            forced = forced_frees, junctions, alone = alone_tokens, chunks, peak_used_blocks, heap_bytes
        );
        let lines = done.free_queue.iter();
        let lines = lines.map(|line| line.unwrap_or((0, NO_KEY)));
        let (groups, keys): (Vec<u8>, Vec<u64>) = lines.unzip();
        answer.set_item("queue_groups", groups.into_pyarray(py))?;
        answer.set_item("queue_keys", keys.into_pyarray(py))?;
        Ok(answer)
    }

    /// The lines of a free queue, as its digest reads them; `trace_block`: tokens per id, `names`: names of
    /// the ids.
    fn queue_lines(
        &self,
        py: Python<'_>,
        groups: PyReadonlyArray1<'_, u8>,
        keys: PyReadonlyArray1<'_, u64>,
        hash_block: u64,
        trace_block: u64,
        names: Vec<String>,
    ) -> PyResult<String> {
        let (groups, keys) = (groups.as_slice()?, keys.as_slice()?);
        let known = |&group: &u8| usize::from(group) < self.groups.len();
        if hash_block == 0
            || trace_block == 0
            || groups.len() != keys.len()
            || !groups.iter().all(known)
        {
            return Err(PyValueError::new_err(
                "lines need a group a key, and blocks",
            ));
        }
        let units: Vec<GroupUnits> = self
            .groups
            .iter()
            .map(|group| GroupUnits {
                units_per_id: group.keys.blocks_per_id(),
                unit_tokens: group.block_size / u64::from(group.units),
            })
            .collect();
        let queue = groups.iter().zip(keys).map(|(&group, &key)| GroupKey {
            group: usize::from(group),
            key,
        });
        Ok(py.detach(|| labels::group_lines(queue, &units, hash_block, trace_block, &names)))
    }
}

fn kind_of(name: &str, reach: u64) -> PyResult<Kind> {
    match (name, reach) {
        ("full", 0) => Ok(Kind::Full),
        ("linear", 0) => Ok(Kind::Linear),
        ("sliding", 1..MOST) => Ok(Kind::Sliding(reach)),
        ("chunked", 1..MOST) => Ok(Kind::Chunked(reach)),
        _ => Err(refused(
            "no such group",
            "full and linear without a reach, sliding and chunked with one",
        )),
    }
}

/// The engine's settings from Python.
pub fn limits_of(limits: LimitsArg) -> PyResult<Limits> {
    let LimitsArg {
        step_tokens: step,
        retention_interval,
        longest_tokens: longest,
    } = limits;
    if step == 0 || step >= MOST || longest >= MOST || retention_interval.is_some_and(|r| r >= MOST)
    {
        return Err(refused(
            "no such limits",
            "tokens of a step, all below 2^31",
        ));
    }
    Ok(Limits {
        max_num_batched_tokens: step,
        retention_interval,
        max_model_len: longest,
        reuse: Reuse::Engine,
    })
}

/// A capacity from Python.
pub fn capacity_of(capacity: u32) -> PyResult<u32> {
    if capacity == 0 || u64::from(capacity) >= MOST {
        return Err(refused("no such capacity", "1 to 2^31 - 1 blocks"));
    }
    Ok(capacity)
}
