//! `StepTable` and `Batch`: the running batch, advanced in stretches.

use std::sync::Arc;

use kvsim_core::batch::{Batch, BatchConfig, Sequence};
use kvsim_core::rest_grid::RestGrid;
use kvsim_core::step_time::StepTimeTable;
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;

use crate::group_store::PyGroupStore;
use crate::order::raised;
use crate::pool_store::PyPoolStore;
use crate::radix_store::PyRadixStore;
use crate::refusal::{answered, refused, Whole};
use crate::store::PyStore;
use crate::store_values::room_to_py;
use crate::tiered_pool_store::PyTieredPoolStore;

/// The integers of a step-time model.
#[pyclass(name = "StepTable", frozen)]
pub struct PyStepTable(pub Arc<StepTimeTable>);

#[pymethods]
impl PyStepTable {
    /// `bases_ns`: of steps with a chunk, of those whose chunk has a past (may be empty), of decode steps.
    /// `coefficients_fs`: pair half, kv decode, kv mixed, sequence, past, spread decode, spread mixed, scan,
    /// idle, beside.
    /// `least_tokens`: of a sequence's KV, of a chunk against its past.
    /// `longest_fs`: a token of the longest sequence alone, by decode sequences; may be empty.
    /// `rests`: what these miss by decode sequences and the mean KV of one, the same beside a chunk, and by a chunk's tokens
    /// and its past: counts, tokens, and ns for each pair; all may be empty.
    /// `launch`: ns that launching a step of more tokens than the second takes, then ns of one with a chunk of up to
    /// as many, of a decode step, what a decode sequence adds, and the tail behind a launch and a sequence's part.
    #[new]
    fn new(
        bases_ns: (
            PyReadonlyArray1<'_, i64>,
            PyReadonlyArray1<'_, i64>,
            PyReadonlyArray1<'_, i64>,
        ),
        coefficients_fs: [Whole; 10],
        least_tokens: (Whole, Whole),
        longest_fs: PyReadonlyArray1<'_, i64>,
        rests: [Grid; 3],
        launch: [Whole; 7],
    ) -> PyResult<Self> {
        let unsigned = |xs: PyReadonlyArray1<'_, i64>| -> PyResult<Vec<u64>> {
            let checked = xs
                .as_slice()?
                .iter()
                .map(|&x| u64::try_from(x))
                .collect::<Result<_, _>>();
            checked.map_err(|_| refused("a negative step time", "0 ns or more"))
        };
        let [pair_half_fs, kv_decode_fs, kv_mixed_fs, sequence_fs, past_fs, spread_decode_fs, spread_mixed_fs, scan_fs, idle_fs, beside_fs] =
            coefficients_fs.map(Whole::u64);
        let (base_ns, past_base_ns) = (unsigned(bases_ns.0)?, unsigned(bases_ns.1)?);
        if !past_base_ns.is_empty() && past_base_ns.len() != base_ns.len() {
            return Err(refused("a base of another length", "as many token counts"));
        }
        let [launch_ns, captured_tokens, pieces_launch_ns, graph_launch_ns, launch_sequence_ns, tail_ns, tail_sequence_ns] =
            launch.map(Whole::u64);
        let [kv_rest, beside_rest, past_rest] = rests.map(rest_grid);
        let (kv_rest, beside_rest, past_rest) = (kv_rest?, beside_rest?, past_rest?);
        Ok(Self(Arc::new(StepTimeTable {
            base_ns,
            past_base_ns,
            decode_base_ns: bases_ns.2.as_slice()?.to_vec(),
            beside_fs,
            pair_half_fs,
            kv_decode_fs,
            kv_mixed_fs,
            sequence_fs,
            past_fs,
            spread_decode_fs,
            spread_mixed_fs,
            scan_fs,
            idle_fs,
            least_kv_tokens: least_tokens.0.u64(),
            least_query_tokens: least_tokens.1.u64(),
            longest_fs: unsigned(longest_fs)?,
            kv_rest,
            beside_rest,
            past_rest,
            launch_ns,
            captured_tokens,
            pieces_launch_ns,
            graph_launch_ns,
            launch_sequence_ns,
            tail_ns,
            tail_sequence_ns,
        })))
    }
}

/// Two axes and a value for each pair of their points.
type Grid = (Vec<Whole>, Vec<Whole>, Vec<i64>);

fn rest_grid((counts, tokens, ns): Grid) -> PyResult<RestGrid> {
    let axis = |points: Vec<Whole>| points.into_iter().map(Whole::u64).collect();
    let refusal = || {
        refused(
            "a grid of rests",
            "two axes that rise and a time for each pair",
        )
    };
    RestGrid::new(axis(counts), axis(tokens), ns).ok_or_else(refusal)
}

/// The store of a batch's machine: a tree of runs, vLLM's pool (of one group or several, or with tiers of an engine below),
/// or SGLang's tree.
#[derive(FromPyObject)]
enum AnyStore<'py> {
    Tree(PyRefMut<'py, PyStore>),
    Pool(PyRefMut<'py, PyPoolStore>),
    Radix(PyRefMut<'py, PyRadixStore>),
    Groups(PyRefMut<'py, PyGroupStore>),
    TieredPool(PyRefMut<'py, PyTieredPoolStore>),
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
            AnyStore::Groups(mut groups) => {
                let $inner = &mut groups.0;
                answered($call)
            }
            AnyStore::TieredPool(mut pool) => {
                let $inner = &mut pool.0;
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
    #[allow(clippy::too_many_arguments)]
    fn new(
        table: &PyStepTable,
        block_size_tokens: Whole,
        max_num_batched_tokens: Whole,
        durations_ns: (Whole, Whole),
        late_ends: bool,
        cache_enabled: bool,
        cache_output: bool,
        commit_ends_stretch: bool,
        commit_at_begin: bool,
        asks_every_step: bool,
        room_by_step: bool,
        num_layers: Whole,
    ) -> PyResult<Self> {
        if block_size_tokens.u64() == 0 {
            return Err(refused("a block of no tokens", "1 token or more"));
        }
        if max_num_batched_tokens.index() >= table.0.base_ns.len() {
            let expected = "the time of a step of every token count up to the budget";
            return Err(refused("a step table that ends too soon", expected));
        }
        let config = BatchConfig {
            block_size_tokens: block_size_tokens.u64(),
            max_num_batched_tokens: max_num_batched_tokens.u64(),
            num_layers: num_layers.u64(),
            cache_enabled,
            cache_output,
            commit_ends_stretch,
            commit_at_begin,
            asks_every_step,
            room_by_step,
            speculation: None,
            step_overhead_ns: durations_ns.0.u64(),
            least_step_ns: durations_ns.1.u64(),
            late_ends,
        };
        Ok(Self(Batch::new(config, table.0.clone())))
    }

    fn begin(&mut self, store: AnyStore<'_>, now_ns: Whole) -> PyResult<Option<Vec<u64>>> {
        with_store!(store, s => self.0.begin(s, now_ns.u64())).map(room_to_py)
    }

    /// `tokens`: (computed, prefill target, total, prompt, blocks); returns the tokens it got of the budget.
    fn add(
        &mut self,
        id: Whole,
        lease: Whole,
        tokens: (Whole, Whole, Whole, Whole, Whole),
        last_token_ns: Option<Whole>,
    ) -> PyResult<u64> {
        if self.0.len() + 1 >= self.0.most_sequences() {
            let expected = "the time of a step of every number of sequences";
            return Err(refused("a step table that ends too soon", expected));
        }
        let (computed, prefill_target, total, prompt_tokens, blocks) = tokens;
        let sequence = Sequence {
            id: id.u32(),
            lease: lease.u64(),
            computed: computed.u64(),
            prefill_target: prefill_target.u64(),
            total: total.u64(),
            prompt_tokens: prompt_tokens.u64(),
            blocks: blocks.u64(),
            last_token_ns: last_token_ns.map(Whole::u64),
            ..Sequence::default()
        };
        Ok(self.0.add(sequence))
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

    /// Takes a sequence out between two steps, as `pop_last`.
    fn take_out(&mut self, id: Whole) -> Option<(u32, u64, Option<u64>)> {
        self.0
            .take_out(id.u32())
            .map(|s| (s.id, s.computed, s.last_token_ns))
    }

    fn computed_tokens(&self, id: Whole) -> Option<u64> {
        self.0.computed_tokens(id.u32())
    }

    fn step_ns(&self) -> u64 {
        self.0.step_ns()
    }

    fn first_tokens_due(&self) -> Vec<u32> {
        self.0.first_tokens_due()
    }

    fn start(&mut self, store: AnyStore<'_>, now_ns: Whole, stall_ns: Whole) -> PyResult<u64> {
        with_store!(store, s => self.0.start(s, now_ns.u64(), stall_ns.u64()))
    }

    fn advance(&mut self, store: AnyStore<'_>, now_ns: Whole) -> PyResult<u64> {
        with_store!(store, s => self.0.advance(s, now_ns.u64()))
    }

    fn interrupt(&mut self, store: AnyStore<'_>, now_ns: Whole) -> PyResult<u64> {
        with_store!(store, s => self.0.interrupt(s, now_ns.u64()))
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

    /// Drafts: decode steps of a sequence, tokens drafted, tokens accepted by position.
    fn accepted(&self) -> (u64, u64, Vec<u64>) {
        let accepted = &self.0.accepted;
        (
            accepted.steps,
            accepted.drafted,
            accepted.by_position.clone(),
        )
    }

    /// Time between tokens: (lower edges ns, counts, count, sum ns, min ns, max ns).
    #[allow(clippy::type_complexity)]
    fn itl(&self) -> (Vec<u64>, Vec<u64>, u64, u128, u64, u64) {
        let h = &self.0.itl;
        let (edges, counts) = h.buckets().into_iter().unzip();
        (edges, counts, h.count, h.sum, h.min, h.max)
    }

    fn log_later_tokens(&mut self) {
        self.0.log_later_tokens();
    }

    fn take_later_tokens(&mut self) -> Vec<u32> {
        self.0.take_later_tokens()
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
