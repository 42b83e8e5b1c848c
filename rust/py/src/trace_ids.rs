//! Block ids of traces that are written again, and the reuse of ids.

use kvsim_core::replay::newer::distances;
use kvsim_core::trace::decimal::push_list;
use kvsim_core::trace::intern::{IdTable, Names};
use kvsim_core::trace::reuse;
use kvsim_core::trace::split::BlockSplit;
use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyString};

use crate::argument::tuple_structs;

/// The trace's own names of block ids: an array, or a list of texts or of large integers.
pub fn names_of(py: Python<'_>, table: &IdTable, ids: &[u32]) -> PyResult<Py<PyAny>> {
    Ok(match &table.names {
        Names::Numbers(names) => {
            let values: Vec<u64> = ids.iter().map(|&id| names.id(id as usize)).collect();
            values.into_pyarray(py).into_any().unbind()
        }
        Names::Texts(names) => {
            let integer = py.get_type::<PyInt>();
            let name = |&id: &u32| -> PyResult<Bound<'_, PyAny>> {
                let text = PyString::new(py, &names[id as usize]).into_any();
                match table.of_integers {
                    true => integer.call1((text,)),
                    false => Ok(text),
                }
            };
            let texts: Vec<_> = ids.iter().map(name).collect::<PyResult<_>>()?;
            texts.into_pyobject(py)?.into_any().unbind()
        }
    })
}

/// Ids of smaller blocks, numbered by first appearance over all parts of a trace.
#[pyclass(name = "BlockSplit", module = "kvcache_sim._core")]
pub struct PyBlockSplit {
    split: BlockSplit,
}

#[pymethods]
impl PyBlockSplit {
    #[new]
    fn new(old: u64, new: u64) -> Self {
        let split = BlockSplit::new(old, new);
        Self { split }
    }

    /// The new ids of rows, and their offsets.
    #[allow(clippy::type_complexity)]
    fn rows<'py>(
        &mut self,
        py: Python<'py>,
        ids: PyReadonlyArray1<'py, u32>,
        offsets: PyReadonlyArray1<'py, i64>,
        input_tokens: PyReadonlyArray1<'py, i64>,
    ) -> PyResult<(Bound<'py, PyArray1<u32>>, Bound<'py, PyArray1<i64>>)> {
        let (ids, offsets) = (ids.as_slice()?, offsets.as_slice()?);
        let (mut out, mut ends) = (Vec::new(), vec![0]);
        for (row, &input) in offsets.windows(2).zip(input_tokens.as_slice()?) {
            let own = &ids[row[0] as usize..row[1] as usize];
            let split = self.split.row(own, input as u64, &mut out);
            split.ok_or_else(|| PyOverflowError::new_err("more than 2³² distinct blocks"))?;
            ends.push(out.len() as i64);
        }
        Ok((out.into_pyarray(py), ends.into_pyarray(py)))
    }
}

/// The ids of each row as a JSON list.
#[pyfunction]
pub fn id_lists<'py>(
    py: Python<'py>,
    ids: PyReadonlyArray1<'py, u64>,
    offsets: PyReadonlyArray1<'py, i64>,
) -> PyResult<Vec<Bound<'py, PyString>>> {
    let (ids, mut text) = (ids.as_slice()?, Vec::new());
    let row = |ends: &[i64]| {
        text.clear();
        let own = &ids[ends[0] as usize..ends[1] as usize];
        push_list(own.iter().copied(), &mut text);
        PyString::from_bytes(py, &text)
    };
    offsets.as_slice()?.windows(2).map(row).collect()
}

tuple_structs! {
    /// Rows of a trace: their ids with the offset of each row, and the tokens of their prompts.
    pub struct IdRows<'py> {
        ids: PyReadonlyArray1<'py, u32>,
        offsets: PyReadonlyArray1<'py, i64>,
        input_tokens: PyReadonlyArray1<'py, i64>,
    }

    /// By row, the row that leaves it tokens of answers, and these tokens.
    pub struct LeftTokens<'py> {
        source: PyReadonlyArray1<'py, i64>,
        left_tokens: PyReadonlyArray1<'py, i64>,
    }

    /// Tokens of an id and of a block.
    pub struct BlockSizes {
        id_tokens: i64,
        block_tokens: i64,
    }
}

/// The leading blocks of each row that an unbounded cache has from rows before it.
#[pyfunction]
pub fn unbounded_hits<'py>(
    py: Python<'py>,
    rows: IdRows<'py>,
    left: LeftTokens<'py>,
    sizes: BlockSizes,
) -> PyResult<Bound<'py, PyArray1<i64>>> {
    let trace = reuse::Left {
        ids: rows.ids.as_slice()?,
        offsets: rows.offsets.as_slice()?,
        input_tokens: rows.input_tokens.as_slice()?,
        source: left.source.as_slice()?,
        left_tokens: left.left_tokens.as_slice()?,
    };
    let n = trace.input_tokens.len();
    let ends_well = trace.offsets.last() == Some(&(trace.ids.len() as i64));
    let ascends = trace.offsets.first() == Some(&0) && trace.offsets.is_sorted();
    let is_whole = trace.offsets.len() == n + 1 && trace.left_tokens.len() == n;
    let is_row = |&row: &i64| usize::try_from(row).is_ok_and(|row| row < n);
    if !(ends_well
        && ascends
        && is_whole
        && trace.source.len() == n
        && trace.source.iter().all(is_row))
    {
        return Err(PyValueError::new_err(
            "rows, offsets and what they leave do not fit together",
        ));
    }
    let (id_tokens, block_tokens) = (sizes.id_tokens, sizes.block_tokens);
    if block_tokens < 1 || id_tokens < block_tokens || id_tokens % block_tokens != 0 {
        return Err(PyValueError::new_err(
            "the block is no divisor of the id's tokens",
        ));
    }
    let found = py.detach(|| trace.found_blocks(id_tokens, block_tokens));
    Ok(PyArray1::from_vec(py, found))
}

/// Reuse distances of a flat array of dense ids.
#[pyfunction]
pub fn reuse_distances<'py>(
    py: Python<'py>,
    ids: PyReadonlyArray1<'py, u32>,
) -> PyResult<Bound<'py, PyArray1<i64>>> {
    let ids = ids.as_slice()?;
    let out = py.detach(|| distances(ids));
    Ok(PyArray1::from_vec(py, out))
}
