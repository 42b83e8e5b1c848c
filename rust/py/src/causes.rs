//! Causes of missed prompt tokens, of policy replays and of timed runs, from arrays.

use kvsim_core::causes::policy::{self, PolicyReplay};
use kvsim_core::causes::timed::TimedRun;
use kvsim_core::causes::{MissCause, TokensByCause};
use numpy::{IntoPyArray, PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Tokens by cause: a row per request, a column per cause.
pub fn by_cause<'py>(
    py: Python<'py>,
    rows: &[TokensByCause],
) -> PyResult<Bound<'py, PyArray2<i64>>> {
    let tokens: Vec<i64> = rows.iter().flatten().map(|&n| n as i64).collect();
    tokens
        .into_pyarray(py)
        .reshape([rows.len(), MissCause::NAMES.len()])
}

/// Tokens by cause, and ns since the last use of the evicted blocks.
type TimedAnswer<'py> = (Bound<'py, PyArray2<i64>>, Bound<'py, PyArray1<i64>>);

fn misfit(what: &str) -> PyErr {
    PyValueError::new_err(format!("miss causes: {what}"))
}

/// The missed tokens of a policy replay by cause; a row sums to the prompt minus its hit.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
pub fn policy_miss_tokens<'py>(
    py: Python<'py>,
    id_offsets: PyReadonlyArray1<'_, i64>,
    block_ids: PyReadonlyArray1<'_, u32>,
    blocks_per_id: u32,
    block_size_tokens: u32,
    input_tokens: PyReadonlyArray1<'_, i64>,
    blocks: PyReadonlyArray1<'_, u32>,
    limits: PyReadonlyArray1<'_, u32>,
    known: PyReadonlyArray1<'_, u32>,
    admitted: PyReadonlyArray1<'_, i64>,
    hits: PyReadonlyArray1<'_, u32>,
) -> PyResult<Bound<'py, PyArray2<i64>>> {
    let replay = PolicyReplay {
        id_offsets: id_offsets.as_slice()?,
        ids: block_ids.as_slice()?,
        blocks_per_id,
        block_tokens: block_size_tokens,
        input_tokens: input_tokens.as_slice()?,
        blocks: blocks.as_slice()?,
        limits: limits.as_slice()?,
        known: known.as_slice()?,
        admitted: admitted.as_slice()?,
        hits: hits.as_slice()?,
    };
    let n = replay.hits.len();
    let columns = [
        replay.input_tokens.len(),
        replay.blocks.len(),
        replay.limits.len(),
        replay.known.len(),
        replay.admitted.len(),
    ];
    let offsets = replay.id_offsets;
    let rising = offsets.windows(2).all(|two| two[0] <= two[1]);
    let ids = replay.ids.len() as i64;
    let inside = offsets.iter().all(|at| (0..=ids).contains(at));
    if offsets.len() != n + 1 || columns.iter().any(|&len| len != n) {
        return Err(misfit("one entry a request is needed"));
    }
    if !rising || !inside || blocks_per_id == 0 || block_size_tokens == 0 {
        return Err(misfit("offsets must rise within the ids, sizes be ≥ 1"));
    }
    let rows = py.detach(|| policy::miss_tokens(&replay));
    by_cause(py, &rows)
}

/// The missed tokens of a timed run by cause, and the longest idle time of evicted blocks.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
pub fn timed_miss_tokens<'py>(
    py: Python<'py>,
    id_offsets: PyReadonlyArray1<'_, i64>,
    block_ids: PyReadonlyArray1<'_, u32>,
    id_tokens: i64,
    block_size_tokens: i64,
    continuation: PyReadonlyArray1<'_, i32>,
    finished: PyReadonlyArray1<'_, bool>,
    machine: PyReadonlyArray1<'_, i64>,
    decode_machine: PyReadonlyArray1<'_, i64>,
    input_tokens: PyReadonlyArray1<'_, i64>,
    output_tokens: PyReadonlyArray1<'_, i64>,
    cached_tokens: PyReadonlyArray1<'_, i64>,
    admitted_ns: PyReadonlyArray1<'_, i64>,
    first_token_ns: PyReadonlyArray1<'_, i64>,
    finish_ns: PyReadonlyArray1<'_, i64>,
    junction_tokens: PyReadonlyArray1<'_, i64>,
    junction_cause: PyReadonlyArray1<'_, u8>,
    kept: bool,
) -> PyResult<TimedAnswer<'py>> {
    let run = TimedRun {
        id_offsets: id_offsets.as_slice()?,
        ids: block_ids.as_slice()?,
        id_tokens,
        block_tokens: block_size_tokens,
        continuation: continuation.as_slice()?,
        finished: finished.as_slice()?,
        machine: machine.as_slice()?,
        decode_machine: decode_machine.as_slice()?,
        input_tokens: input_tokens.as_slice()?,
        output_tokens: output_tokens.as_slice()?,
        cached_tokens: cached_tokens.as_slice()?,
        admitted_ns: admitted_ns.as_slice()?,
        first_token_ns: first_token_ns.as_slice()?,
        finish_ns: finish_ns.as_slice()?,
        junction_tokens: junction_tokens.as_slice()?,
        junction_cause: junction_cause.as_slice()?,
        kept,
    };
    let misses = py
        .detach(|| run.misses())
        .map_err(|error| misfit(&format!("{error:?}")))?;
    let tokens = by_cause(py, &misses.tokens)?;
    Ok((tokens, misses.evicted_idle_ns.into_pyarray(py)))
}
