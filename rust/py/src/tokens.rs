//! Tokens from hash ids: arrays cross the binding once, and the GIL is released.

use kvsim_core::tokens::{mersenne, seed, windows};
use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1, PyReadwriteArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

#[pyfunction]
pub fn seeds_of_ids<'py>(
    py: Python<'py>,
    prefix: &str,
    ids: PyReadonlyArray1<'py, i64>,
) -> PyResult<Bound<'py, PyArray1<u64>>> {
    let ids = ids.as_slice()?;
    let seeds = py.detach(|| seed::seeds_of_ids(prefix.as_bytes(), ids));
    Ok(seeds.into_pyarray(py))
}

#[pyfunction]
pub fn seeds_of_names<'py>(
    py: Python<'py>,
    prefix: &str,
    names: Vec<String>,
) -> Bound<'py, PyArray1<u64>> {
    let bytes: Vec<&[u8]> = names.iter().map(String::as_bytes).collect();
    py.detach(|| seed::seeds_of_names(prefix.as_bytes(), &bytes))
        .into_pyarray(py)
}

#[pyfunction]
pub fn first_randrange<'py>(
    py: Python<'py>,
    seeds: PyReadonlyArray1<'py, u64>,
    stop: u64,
) -> PyResult<Bound<'py, PyArray1<u64>>> {
    let seeds = seeds.as_slice()?;
    py.detach(|| mersenne::first_randrange(seeds, stop))
        .map(|drawn| drawn.into_pyarray(py))
        .ok_or_else(|| PyValueError::new_err("the range is empty"))
}

/// The columns of `windows::Rows`, read from an object's attributes of the same names.
#[derive(FromPyObject)]
pub struct RowColumns<'py> {
    lengths: PyReadonlyArray1<'py, i64>,
    id_offsets: PyReadonlyArray1<'py, i64>,
    block_ids: PyReadonlyArray1<'py, u32>,
    starts: PyReadonlyArray1<'py, u32>,
    tail_starts: PyReadonlyArray1<'py, u32>,
    block_size: usize,
    separator: Option<u32>,
}

/// The number of ids, which count up from 0, or the ids themselves.
#[derive(FromPyObject)]
pub enum CorpusArgument<'py> {
    Counting(u32),
    Listed(PyReadonlyArray1<'py, u32>),
}

#[pyfunction]
pub fn write_token_rows<'py>(
    py: Python<'py>,
    rows: RowColumns<'py>,
    corpus: CorpusArgument<'py>,
    first_row: usize,
    last_row: usize,
    mut out: PyReadwriteArray1<'py, u32>,
) -> PyResult<()> {
    let columns = windows::Rows {
        lengths: rows.lengths.as_slice()?,
        id_offsets: rows.id_offsets.as_slice()?,
        block_ids: rows.block_ids.as_slice()?,
        starts: rows.starts.as_slice()?,
        tail_starts: rows.tail_starts.as_slice()?,
        block_size: rows.block_size,
        separator: rows.separator,
    };
    let corpus = match &corpus {
        CorpusArgument::Counting(size) => windows::Corpus::Counting(*size),
        CorpusArgument::Listed(tokens) => windows::Corpus::Listed(tokens.as_slice()?),
    };
    let out = out.as_slice_mut()?;
    py.detach(|| columns.write(corpus, first_row..last_row, out))
        .map_err(|error| PyValueError::new_err(error.to_string()))
}
