//! `StepTable`: the integers of a step-time model.

use std::sync::Arc;

use kvsim_core::residual_grid::ResidualGrid;
use kvsim_core::step_time::{
    LaunchTimes, LeastTokens, StageTimes, StepBases, StepCoefficients, StepResiduals,
    StepTimeTable, UnsplitKv,
};
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;

use crate::argument::{from_tuples, tuple_structs, Arg};
use crate::refusal::refused;

/// The integer form of a step-time model.
#[pyclass(name = "StepTable", frozen)]
pub struct PyStepTable(pub Arc<StepTimeTable>);

#[pymethods]
impl PyStepTable {
    /// Builds the table; entries are:
    ///
    /// - `bases_ns`: of steps with a chunk, of steps whose chunk has a past (may be empty), of decode steps.
    /// - `coefficients_fs`: pair half, kv decode, kv mixed, sequence, past, spread decode, spread mixed, scan, idle, `beside`.
    /// - `least_tokens`: least count of a sequence's KV tokens, and of a chunk's tokens against its past.
    /// - `longest_fs`: per token of the longest sequence, by number of decode sequences; may be empty.
    /// - `residuals`: three grids of (counts, tokens, ns of each pair): by decode sequences and their mean KV, the same with a chunk in the step, and
    ///   by a chunk's tokens and its past; may be empty.
    /// - `unsplit`: least number of decode sequences whose KV is not split (0: none), fs per token of the longest, and fs per token of the mean that others hide of it.
    /// - `timed`: launch and stages. Launch: ns to launch a step of more tokens than the second entry; then ns of a step with a chunk of at most that many tokens, of a decode
    ///   step, per decode sequence, of the tail after a launch, and a sequence's part of it.
    ///   Stages: layers of each pipeline stage, ns of the head and ns between two stages, both by tokens; each may be empty.
    #[new]
    fn new(
        bases_ns: BaseColumns<'_>,
        coefficients_fs: [Arg<u64>; 10],
        least_tokens: Arg<LeastTokens>,
        longest_fs: PyReadonlyArray1<'_, i64>,
        unsplit: [Arg<u64>; 3],
        residuals: [GridArg; 3],
        timed: TimedArg,
    ) -> PyResult<Self> {
        let unsigned = |xs: PyReadonlyArray1<'_, i64>| -> PyResult<Vec<u64>> {
            let checked = xs
                .as_slice()?
                .iter()
                .map(|&x| u64::try_from(x))
                .collect::<Result<_, _>>();
            checked.map_err(|_| refused("a negative step time", "0 ns or more"))
        };
        let [pair_half_fs, kv_decode_fs, kv_mixed_fs, sequence_fs, past_fs, spread_decode_fs, spread_mixed_fs, scan_fs, idle_fs, alongside_fs] =
            coefficients_fs.map(|whole| whole.0);
        let (base_ns, past_base_ns) = (unsigned(bases_ns.chunk)?, unsigned(bases_ns.past)?);
        if !past_base_ns.is_empty() && past_base_ns.len() != base_ns.len() {
            return Err(refused("a base of another length", "as many token counts"));
        }
        let [launch_ns, captured_tokens, pieces_launch_ns, graph_launch_ns, launch_sequence_ns, tail_ns, tail_sequence_ns] =
            timed.launch.map(|whole| whole.0);
        let [unsplit_sequences, unsplit_fs, unsplit_hidden_fs] = unsplit.map(|whole| whole.0);
        let [kv_residuals, mixed_residuals, past_residuals] = residuals.map(residual_grid);
        let (kv_residuals, mixed_residuals, past_residuals) =
            (kv_residuals?, mixed_residuals?, past_residuals?);
        Ok(Self(Arc::new(StepTimeTable {
            bases: StepBases {
                chunk_ns: base_ns,
                past_chunk_ns: past_base_ns,
                decode_ns: bases_ns.decode.as_slice()?.to_vec(),
            },
            coefficients: StepCoefficients {
                alongside_fs,
                pair_half_fs,
                kv_decode_fs,
                kv_mixed_fs,
                sequence_fs,
                past_fs,
                spread_decode_fs,
                spread_mixed_fs,
                scan_fs,
                idle_fs,
            },
            least: least_tokens.0,
            unsplit: UnsplitKv {
                sequences: unsplit_sequences,
                fs: unsplit_fs,
                hidden_fs: unsplit_hidden_fs,
            },
            residuals: StepResiduals {
                kv: kv_residuals,
                mixed: mixed_residuals,
                past: past_residuals,
            },
            launch: LaunchTimes {
                eager_ns: launch_ns,
                captured_tokens,
                pieces_ns: pieces_launch_ns,
                graph_ns: graph_launch_ns,
                sequence_ns: launch_sequence_ns,
                tail_ns,
                tail_sequence_ns,
            },
            longest_fs: unsigned(longest_fs)?,
            stages: timed.stages.0,
        })))
    }
}

tuple_structs! {
    /// Step times by tokens: of steps with a chunk, of steps whose chunk has a past, of decode steps.
    pub struct BaseColumns<'py> {
        chunk: PyReadonlyArray1<'py, i64>,
        past: PyReadonlyArray1<'py, i64>,
        decode: PyReadonlyArray1<'py, i64>,
    }

    /// The host's launch times, and the parts on pipeline stages.
    pub struct TimedArg {
        launch: [Arg<u64>; 7],
        stages: Arg<StageTimes>,
    }

    /// Two axes and a value for each pair of their points.
    pub struct GridArg {
        counts: Arg<Vec<u64>>,
        tokens: Arg<Vec<u64>>,
        ns: Vec<i64>,
    }
}

from_tuples! {
    LeastTokens { kv_tokens, query_tokens }
    StageTimes { layers, head_ns, hop_ns }
}

fn residual_grid(grid: GridArg) -> PyResult<ResidualGrid> {
    let refusal = || {
        refused(
            "a grid of rests",
            "two axes that rise and a time for each pair",
        )
    };
    ResidualGrid::new(grid.counts.0, grid.tokens.0, grid.ns).ok_or_else(refusal)
}
