//! Rows of a trace a part at a time, for replays and transforms that take them as they come.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use kvsim_core::parquet::Lists;
use kvsim_core::replay::blocks::end_of;
use kvsim_core::trace::columns::Columns;
use kvsim_core::trace::jsonl::Batch;
use kvsim_core::trace::row_reader::RowReader;
use kvsim_core::trace::sampler::Sampler;
use kvsim_core::trace::source::Source;
use kvsim_core::trace::ReadError;
use numpy::PyReadonlyArray1;
use pyo3::exceptions::{PyStopIteration, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::trace::{
    columns, get, open, read_error, row_columns, schema_from, settings_from, signals_are_quiet,
    TraceSource,
};
use crate::trace_ids::names_of;

/// The block ids of some rows.
#[pyclass(module = "kvcache_sim._core")]
pub struct IdLists {
    lists: Lists,
}

#[pymethods]
impl IdLists {
    /// The ids of rows one after another, and where each row's begin.
    #[staticmethod]
    fn of_values(
        offsets: PyReadonlyArray1<'_, i64>,
        values: PyReadonlyArray1<'_, u64>,
    ) -> PyResult<Self> {
        let lists = Lists::of_values(offsets.as_slice()?.to_vec(), values.as_slice()?.to_vec());
        Ok(Self { lists })
    }

    /// So many rows of a column chunk; see `_core.pyi`.
    #[staticmethod]
    fn of_chunk(chunk: &[u8], is_snappy: bool, rows: usize) -> Option<Self> {
        Lists::of_chunk(chunk, is_snappy, rows).map(|lists| Self { lists })
    }
}

/// The next columns of an iterator of dicts.
fn next_batch(batches: &Bound<'_, PyAny>) -> PyResult<Option<Batch>> {
    let columns = match batches.call_method0("__next__") {
        Err(error) if error.is_instance_of::<PyStopIteration>(batches.py()) => return Ok(None),
        next => next?.cast_into::<PyDict>()?,
    };
    let mut ids: PyRefMut<IdLists> = get(&columns, "ids")?;
    if ids.lists.offsets.is_empty() {
        return Err(PyValueError::new_err("ids read twice"));
    }
    let mut batch = Batch {
        ids: std::mem::take(&mut ids.lists),
        sessions: get(&columns, "sessions")?,
        extra: get(&columns, "extra")?,
        bytes: get(&columns, "bytes")?,
        ..Batch::default()
    };
    let numbers: Vec<PyReadonlyArray1<i64>> = get(&columns, "numbers")?;
    for (column, values) in batch.numbers.iter_mut().zip(&numbers) {
        *column = values.as_slice()?.to_vec();
    }
    Ok(Some(batch))
}

/// A reader of JSON rows that returns a part of the file at a time.
#[pyclass(module = "kvcache_sim._core")]
pub struct TraceRows {
    reader: Option<RowReader<Source>>,
    watch: Option<Py<PyAny>>,
    /// Block ids of the rows taken so far.
    taken: u64,
}

#[pymethods]
impl TraceRows {
    #[new]
    fn new(
        source: &mut TraceSource,
        schema: &Bound<'_, PyDict>,
        settings: &Bound<'_, PyDict>,
    ) -> PyResult<Self> {
        let (schema, settings) = (schema_from(schema)?, settings_from(settings)?);
        let source = open(source.source.take())?;
        Ok(Self::of(RowReader::new(source, schema, settings)))
    }

    /// A reader of rows that come as columns; see `_core.pyi`.
    #[staticmethod]
    fn of_batches(
        source: &mut TraceSource,
        schema: &Bound<'_, PyDict>,
        settings: &Bound<'_, PyDict>,
        batches: Py<PyAny>,
    ) -> PyResult<Self> {
        let (schema, settings) = (schema_from(schema)?, settings_from(settings)?);
        let source = open(source.source.take())?;
        let next = move || {
            Python::attach(|py| {
                next_batch(batches.bind(py)).map_err(|error| {
                    error.restore(py);
                    ReadError::Stopped
                })
            })
        };
        let next = Box::new(next);
        Ok(Self::of(RowReader::of_batches(
            source, schema, settings, next,
        )))
    }

    /// A reader of WEKA sessions; see `_core.pyi`.
    #[staticmethod]
    fn of_weka(source: &mut TraceSource, settings: &Bound<'_, PyDict>) -> PyResult<Self> {
        let settings = settings_from(settings)?;
        let source = open(source.source.take())?;
        Ok(Self::of(RowReader::of_weka(source, &settings)))
    }

    /// Calls `watch` at intervals while rows are read; see `_core.pyi`.
    fn watch(&mut self, watch: Py<PyAny>) {
        self.watch = Some(watch);
    }

    /// Reads until `most` rows are buffered; returns true if there may be more.
    fn read(&mut self, py: Python<'_>, most: usize) -> PyResult<bool> {
        let (reader, pulse) = (open(self.reader.as_mut())?, pulse(&self.watch, self.taken));
        py.detach(|| reader.read(most, pulse))
            .map_err(|e| read_error(py, e))
    }

    /// Reads until so many block ids are buffered; returns true if there may be more.
    fn buffer(&mut self, py: Python<'_>, references: usize) -> PyResult<bool> {
        let (reader, pulse) = (open(self.reader.as_mut())?, pulse(&self.watch, self.taken));
        py.detach(|| reader.buffer(references, pulse))
            .map_err(|e| read_error(py, e))
    }

    /// The first reason why the rows so far cannot be replayed one by one.
    #[getter]
    fn needs_whole(&mut self) -> PyResult<Option<&'static str>> {
        Ok(open(self.reader.as_mut())?.needs_whole())
    }

    /// True if no row so far has a session, a pause or a predecessor.
    #[getter]
    fn alone(&mut self) -> PyResult<bool> {
        Ok(open(self.reader.as_mut())?.alone())
    }

    /// Tokens per id that the file states so far, else 0.
    #[getter]
    fn block_size(&mut self) -> PyResult<u64> {
        Ok(open(self.reader.as_mut())?.block_size())
    }

    /// True if rows hold the new input of their turn only.
    #[getter]
    fn new_input_only(&mut self) -> PyResult<bool> {
        Ok(open(self.reader.as_mut())?.new_input_only())
    }

    /// The trace's own names of block ids, or their JSON texts.
    fn names(&mut self, py: Python<'_>, ids: PyReadonlyArray1<'_, u32>) -> PyResult<Py<PyAny>> {
        names_of(py, open(self.reader.as_mut())?.ids(), ids.as_slice()?)
    }

    /// The names of sessions from number `from` on.
    fn session_names<'py>(
        &mut self,
        py: Python<'py>,
        first: usize,
    ) -> PyResult<Bound<'py, PyList>> {
        let names = open(self.reader.as_mut())?.session_names();
        PyList::new(py, names.iter().skip(first).map(|n| &**n))
    }

    /// The buffered rows, in the form of `TraceSource`, without findings and names of sessions.
    fn take<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let taken = open(self.reader.as_mut())?.take();
        self.taken += taken.block_ids.len() as u64;
        let out = PyDict::new(py);
        row_columns(py, &out, taken)?;
        Ok(out)
    }

    /// Forgets all block ids except these.
    fn keep_ids(&mut self, numbers: PyReadonlyArray1<'_, u32>) -> PyResult<()> {
        open(self.reader.as_mut())?.keep_ids(numbers.as_slice()?);
        Ok(())
    }

    /// The buffered rows with every finding; and the source, for its digest.
    fn finish<'py>(&mut self, py: Python<'py>) -> PyResult<(Bound<'py, PyDict>, TraceSource)> {
        let (reading, source) = open(self.reader.take())?.finish();
        let source = TraceSource {
            source: Some(source),
        };
        Ok((columns(py, reading)?, source))
    }
}

impl TraceRows {
    fn of(reader: RowReader<Source>) -> Self {
        TraceRows {
            reader: Some(reader),
            watch: None,
            taken: 0,
        }
    }

    /// Gives all rows to `consume`; returns false if a row cannot be replayed alone.
    pub fn each(
        &mut self,
        py: Python<'_>,
        mut consume: impl FnMut(&Columns, Option<&Sampler>) + Send,
    ) -> PyResult<bool> {
        let reader = open(self.reader.as_mut())?;
        let watch = self.watch.as_ref();
        let (references, distinct) = (AtomicU64::new(0), AtomicU64::new(0));
        let counted = |columns: &Columns, sampler: Option<&Sampler>| {
            let all = match sampler {
                Some(sampler) => sampler.rows.iter().map(|row| u64::from(row.ids)).sum(),
                None => columns.block_ids.len() as u64,
            };
            references.fetch_add(all, Relaxed);
            let last = u64::from(end_of(&columns.block_ids));
            distinct.fetch_max(last, Relaxed);
            consume(columns, sampler);
        };
        let pulse = |bytes: u64| {
            let (references, distinct) = (references.load(Relaxed), distinct.load(Relaxed));
            let continues = |watch| watched(watch, bytes, references, distinct);
            signals_are_quiet() && watch.is_none_or(continues)
        };
        py.detach(|| reader.each(pulse, counted))
            .map_err(|e| read_error(py, e))?;
        Ok(reader.needs_whole().is_none())
    }
}

/// The pulse of a reading whose rows are taken afterwards; so many block ids were taken before.
fn pulse(watch: &Option<Py<PyAny>>, taken: u64) -> impl FnMut(u64) -> bool + Send + '_ {
    let call = move |bytes, watch: &Py<PyAny>| watched(watch, bytes, taken, 0);
    move |bytes| signals_are_quiet() && watch.as_ref().is_none_or(|watch| call(bytes, watch))
}

/// Calls a watcher with bytes, references and distinct ids; false if it raised, which ends the reading.
fn watched(watch: &Py<PyAny>, bytes: u64, references: u64, distinct: u64) -> bool {
    Python::attach(|py| {
        let called = watch.call1(py, (bytes, references, distinct));
        called.map_err(|error| error.restore(py)).is_ok()
    })
}
