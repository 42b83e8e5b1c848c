//! `StepTable` and `Batch`: the running batch, advanced in stretches.

use kvsim_core::batch::{Batch, BatchConfig, Sequence};
use kvsim_core::step_time::StepTimeTable;
use numpy::PyReadonlyArray1;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::order::raised;
use crate::pool_store::PyPoolStore;
use crate::radix_store::PyRadixStore;
use crate::refusal::answered;
use crate::store::{room_to_py, PyStore};

/// The integers of a step-time model.
#[pyclass(name = "StepTable", frozen)]
pub struct PyStepTable(pub StepTimeTable);

#[pymethods]
impl PyStepTable {
    /// `coefficients_fs`: pair half, kv decode, kv mixed, sequence, past, spread decode, spread mixed, scan.
    /// `least_tokens`: of a sequence's KV, of a chunk against its past.
    /// `longest_fs`: a token of the longest sequence alone, by decode sequences; may be empty.
    #[new]
    fn new(
        base_ns: PyReadonlyArray1<'_, i64>,
        decode_base_ns: PyReadonlyArray1<'_, i64>,
        coefficients_fs: [u64; 8],
        least_tokens: (u64, u64),
        longest_fs: PyReadonlyArray1<'_, i64>,
    ) -> PyResult<Self> {
        let unsigned = |xs: PyReadonlyArray1<'_, i64>| -> PyResult<Vec<u64>> {
            let checked = xs
                .as_slice()?
                .iter()
                .map(|&x| u64::try_from(x))
                .collect::<Result<_, _>>();
            checked.map_err(|_| PyValueError::new_err("step times must not be negative"))
        };
        let [pair_half_fs, kv_decode_fs, kv_mixed_fs, sequence_fs, past_fs, spread_decode_fs, spread_mixed_fs, scan_fs] =
            coefficients_fs;
        Ok(Self(StepTimeTable {
            base_ns: unsigned(base_ns)?,
            decode_base_ns: decode_base_ns.as_slice()?.to_vec(),
            pair_half_fs,
            kv_decode_fs,
            kv_mixed_fs,
            sequence_fs,
            past_fs,
            spread_decode_fs,
            spread_mixed_fs,
            scan_fs,
            least_kv_tokens: least_tokens.0,
            least_query_tokens: least_tokens.1,
            longest_fs: unsigned(longest_fs)?,
        }))
    }
}

/// The store of a batch's machine: a tree of runs, vLLM's pool, or SGLang's tree.
#[derive(FromPyObject)]
enum AnyStore<'py> {
    Tree(PyRefMut<'py, PyStore>),
    Pool(PyRefMut<'py, PyPoolStore>),
    Radix(PyRefMut<'py, PyRadixStore>),
}

/// Calls a method of the core with whichever store it is; what a policy in Python raised comes out here.
macro_rules! with_store {
    ($store:ident, $inner:ident => $call:expr) => {
        match $store {
            AnyStore::Tree(mut tree) => {
                let answer = {
                    let $inner = &mut tree.0;
                    $call
                };
                raised(&tree.1, answer).and_then(answered)
            }
            AnyStore::Pool(mut pool) => {
                let $inner = &mut pool.0;
                answered($call)
            }
            AnyStore::Radix(mut radix) => {
                let $inner = &mut radix.0;
                answered($call)
            }
        }
    };
}

/// The running batch of a replica.
#[pyclass(name = "Batch")]
pub struct PyBatch(pub Batch);

#[pymethods]
impl PyBatch {
    /// `durations_ns`: the overhead of a step, and the least that a step takes.
    #[new]
    #[pyo3(signature = (table, block_size_tokens, max_num_batched_tokens, durations_ns, late_ends, cache_enabled, cache_output, commit_ends_stretch, commit_at_begin, asks_every_step, num_layers=1))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        table: &PyStepTable,
        block_size_tokens: u64,
        max_num_batched_tokens: u64,
        durations_ns: (u64, u64),
        late_ends: bool,
        cache_enabled: bool,
        cache_output: bool,
        commit_ends_stretch: bool,
        commit_at_begin: bool,
        asks_every_step: bool,
        num_layers: u64,
    ) -> Self {
        let config = BatchConfig {
            block_size_tokens,
            max_num_batched_tokens,
            num_layers,
            cache_enabled,
            cache_output,
            commit_ends_stretch,
            commit_at_begin,
            asks_every_step,
            step_overhead_ns: durations_ns.0,
            least_step_ns: durations_ns.1,
            late_ends,
        };
        Self(Batch::new(config, table.0.clone()))
    }

    fn begin(&mut self, store: AnyStore<'_>, now_ns: u64) -> PyResult<Option<Vec<u64>>> {
        with_store!(store, s => self.0.begin(s, now_ns)).map(room_to_py)
    }

    /// `tokens`: (computed, prefill target, total, prompt, blocks); returns the tokens it got of the budget.
    fn add(
        &mut self,
        id: u32,
        lease: u64,
        tokens: (u64, u64, u64, u64, u64),
        last_token_ns: Option<u64>,
    ) -> u64 {
        let (computed, prefill_target, total, prompt_tokens, blocks) = tokens;
        let sequence = Sequence {
            id,
            lease,
            computed,
            prefill_target,
            total,
            prompt_tokens,
            blocks,
            last_token_ns,
            chunk: 0,
        };
        self.0.add(sequence)
    }

    fn commit_last(&mut self, store: AnyStore<'_>) -> PyResult<()> {
        with_store!(store, s => self.0.commit_last(s))
    }

    /// Takes the last sequence out: (id, tokens with KV, time of its last token).
    fn pop_last(&mut self) -> Option<(u32, u64, Option<u64>)> {
        self.0
            .pop_last()
            .map(|s| (s.id, s.computed, s.last_token_ns))
    }

    fn computed_tokens(&self, id: u32) -> Option<u64> {
        self.0.computed_tokens(id)
    }

    fn step_ns(&self) -> u64 {
        self.0.step_ns()
    }

    fn first_tokens_due(&self) -> Vec<u32> {
        self.0.first_tokens_due()
    }

    fn start(&mut self, store: AnyStore<'_>, now_ns: u64, stall_ns: u64) -> PyResult<u64> {
        with_store!(store, s => Ok(self.0.start(s, now_ns, stall_ns)))
    }

    fn advance(&mut self, store: AnyStore<'_>, now_ns: u64) -> PyResult<u64> {
        with_store!(store, s => self.0.advance(s, now_ns))
    }

    fn interrupt(&mut self, store: AnyStore<'_>, now_ns: u64) -> PyResult<u64> {
        with_store!(store, s => self.0.interrupt(s, now_ns))
    }

    /// (first tokens, finished, committed blocks): ids in batch order.
    #[allow(clippy::type_complexity)]
    fn end(&mut self, store: AnyStore<'_>) -> PyResult<(Vec<u32>, Vec<u32>, Vec<(u32, u32, u32)>)> {
        let ended = with_store!(store, s => self.0.end(s))?;
        Ok((ended.first_token, ended.finished, ended.committed))
    }

    #[getter]
    fn begin_ns(&self) -> u64 {
        self.0.begin_ns()
    }

    #[getter]
    fn budget_left(&self) -> u64 {
        self.0.budget_left()
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    #[getter]
    fn steps(&self) -> u64 {
        self.0.steps
    }

    #[getter]
    fn generated_tokens(&self) -> u64 {
        self.0.generated_tokens
    }

    /// Time between tokens: (lower edges ns, counts, count, sum ns, min ns, max ns).
    #[allow(clippy::type_complexity)]
    fn itl(&self) -> (Vec<u64>, Vec<u64>, u64, u128, u64, u64) {
        let h = &self.0.itl;
        let (edges, counts) = h.buckets().into_iter().unzip();
        (edges, counts, h.count, h.sum, h.min, h.max)
    }

    fn log_steps(&mut self) {
        self.0.log_steps();
    }

    fn take_steps(&mut self) -> Vec<(u64, u64, u64, u64)> {
        let steps = self.0.take_steps().into_iter();
        steps
            .map(|s| {
                (
                    s.begin_ns,
                    s.duration_ns,
                    s.prefill_tokens,
                    s.decode_sequences,
                )
            })
            .collect()
    }
}

/// Adds the classes of this room.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyStepTable>()?;
    m.add_class::<PyBatch>()
}
