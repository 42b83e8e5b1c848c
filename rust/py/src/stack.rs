//! The curve of a trace that is read row by row, and curves as step functions.

use kvsim_core::replay::sampled::SampledCurve;
use kvsim_core::replay::stack::{Cut, RecencyStack, RowBlocks};
use kvsim_core::replay::steps::HitSteps;
use kvsim_core::trace::intern::IdTable;
use kvsim_core::trace::sampler::{Sample, Sampler};
use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;

use crate::argument::tuple_structs;
use crate::trace_rows::TraceRows;

/// A step function of capacity, exact at every capacity.
#[pyclass(name = "HitSteps", module = "kvcache_sim._core")]
#[derive(Default)]
pub struct PyHitSteps {
    steps: HitSteps,
}

#[pymethods]
impl PyHitSteps {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Add ramps: each of `count` capacities from `start` on gains `weight`.
    fn add(
        &mut self,
        start: PyReadonlyArray1<i64>,
        count: PyReadonlyArray1<i64>,
        weight: PyReadonlyArray1<i64>,
    ) -> PyResult<()> {
        let (start, count) = (start.as_slice()?, count.as_slice()?);
        for ((&start, &count), &weight) in start.iter().zip(count).zip(weight.as_slice()?) {
            self.steps
                .add(start.max(0) as u64, count.max(0) as u64, weight);
        }
        Ok(())
    }

    /// The sum at each capacity, in any order.
    fn at<'py>(
        &self,
        py: Python<'py>,
        capacity: PyReadonlyArray1<i64>,
    ) -> PyResult<Bound<'py, PyArray1<i64>>> {
        let asked = capacity.as_slice()?;
        let mut order: Vec<usize> = (0..asked.len()).collect();
        order.sort_by_key(|&k| asked[k]);
        let sorted: Vec<u64> = order.iter().map(|&k| asked[k].max(0) as u64).collect();
        let mut out = vec![0; asked.len()];
        for (&k, value) in order.iter().zip(self.steps.at(&sorted)) {
            out[k] = value;
        }
        Ok(out.into_pyarray(py))
    }

    /// The capacities between which the sum is a straight line, ascending from 0.
    #[getter]
    fn corners<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<i64>> {
        let corners = self.steps.corners();
        let corners: Vec<i64> = corners.into_iter().map(|c| c as i64).collect();
        corners.into_pyarray(py)
    }

    /// The smallest capacity with the largest sum.
    #[getter]
    fn last(&self) -> u64 {
        self.steps.top().0
    }

    /// The sum at `last` and beyond.
    #[getter]
    fn top(&self) -> i64 {
        self.steps.top().1
    }

    /// The smallest capacity at which the sum is at least an amount.
    fn reaching(&self, amount: f64) -> u64 {
        self.steps.reaching(amount)
    }

    /// The corner farthest above the straight line from nothing to the top.
    #[getter]
    fn knee(&self) -> u64 {
        self.steps.knee()
    }
}

/// The curve of least recently used, fed with rows as they are read.
#[pyclass(module = "kvcache_sim._core")]
pub struct CurveStack {
    stack: RecencyStack,
    cut: Cut,
    requests: u64,
    input_tokens: u64,
}

#[pymethods]
impl CurveStack {
    #[new]
    fn new(block_size: u64, keep_partial: bool, output_less: Option<u64>) -> Self {
        Self {
            stack: RecencyStack::new(block_size),
            cut: Cut {
                block_size,
                keep_partial,
                output_less,
            },
            requests: 0,
            input_tokens: 0,
        }
    }

    /// Take every row; false if one cannot be replayed alone.
    fn feed(&mut self, py: Python<'_>, rows: &mut TraceRows) -> PyResult<bool> {
        rows.each(py, |columns, _| {
            for row in 0..columns.len() {
                let ids = columns.ids(row);
                let (input, output) = (columns.input_tokens[row], columns.output_tokens[row]);
                let (input, output) = (input as u64, output as u64);
                let blocks = self.cut.row(input, output, ids.len() as u64, 1);
                self.stack.row(ids, blocks, input);
                self.requests += 1;
                self.input_tokens += input;
            }
        })
    }

    /// Requests, prompt tokens, references to blocks, and those to blocks seen before.
    #[getter]
    fn totals(&self) -> (u64, u64, u64, u64) {
        let stack = &self.stack;
        (
            self.requests,
            self.input_tokens,
            stack.references,
            stack.reused,
        )
    }

    /// The hits in blocks, and the tokens that they count less than whole blocks; empties both.
    fn take(&mut self) -> (PyHitSteps, PyHitSteps) {
        let hits = std::mem::take(&mut self.stack.hits);
        let short = std::mem::take(&mut self.stack.short);
        (PyHitSteps { steps: hits }, PyHitSteps { steps: short })
    }
}

tuple_structs! {
    /// A sample of the ids.
    pub struct SampleArg {
        rate: f64,
        seed: u64,
    }

    /// By row, the blocks that ids name, blocks of the row alone, and blocks that may hit.
    pub struct RowBlockColumns<'py> {
        named: PyReadonlyArray1<'py, u32>,
        private: PyReadonlyArray1<'py, u32>,
        limits: PyReadonlyArray1<'py, u32>,
    }
}

/// The curve of least recently used from a sample of the ids.
#[pyclass(module = "kvcache_sim._core")]
pub struct CurveSample {
    curve: SampledCurve,
    sample: Sample,
}

#[pymethods]
impl CurveSample {
    #[new]
    fn new(
        block_size: u64,
        per_id: u64,
        keep_partial: bool,
        output_less: Option<u64>,
        sample: SampleArg,
    ) -> Self {
        let cut = Cut {
            block_size,
            keep_partial,
            output_less,
        };
        let sample = Sample {
            rate: sample.rate,
            seed: sample.seed,
        };
        Self {
            curve: SampledCurve::new(cut, per_id, sample),
            sample,
        }
    }

    /// Take every row of a reader that has the same sample; false if one cannot be replayed alone.
    fn feed(&mut self, py: Python<'_>, rows: &mut TraceRows) -> PyResult<bool> {
        rows.each(py, |columns, sampler| {
            if let Some(sampler) = sampler {
                self.curve.rows(sampler, columns);
            }
        })
    }

    /// Take the rows of a trace in memory: their blocks that ids name, of them alone, and that may hit; ids by row.
    fn feed_trace(
        &mut self,
        blocks: RowBlockColumns<'_>,
        offsets: PyReadonlyArray1<i64>,
        ids: PyReadonlyArray1<u32>,
        names: PyReadonlyArray1<u64>,
    ) -> PyResult<()> {
        let (named, private) = (blocks.named.as_slice()?, blocks.private.as_slice()?);
        let limits = blocks.limits.as_slice()?;
        let (offsets, ids, names) = (offsets.as_slice()?, ids.as_slice()?, names.as_slice()?);
        let (mut sampler, mut table) = (Sampler::new(self.sample), IdTable::default());
        let (mut values, mut taken) = (Vec::new(), Vec::new());
        for (row, ends) in offsets.windows(2).enumerate() {
            let name = |&id: &u32| names.get(id as usize).copied().unwrap_or(u64::from(id));
            let own = ids.get(ends[0] as usize..ends[1] as usize);
            values.clear();
            values.extend(own.unwrap_or_default().iter().map(name));
            taken.clear();
            sampler.start_row();
            if sampler.take(&values, &mut table, &mut taken).is_err() {
                break; // never: an id of a trace has a number
            }
            sampler.end_row();
            let blocks = RowBlocks {
                named: u64::from(named[row]),
                private: u64::from(private[row]),
                limit: u64::from(limits[row]),
            };
            let exact = sampler.rows[0].exact;
            self.curve.row(blocks, &taken, &sampler.taken, exact);
            sampler.clear();
        }
        self.curve.exact_ids = u64::from(sampler.exact_ids());
        Ok(())
    }

    /// The values by which ids that are texts, or integers beyond 64 bits or below 0, are sampled.
    #[staticmethod]
    fn values_of<'py>(py: Python<'py>, names: Vec<String>) -> Bound<'py, PyArray1<u64>> {
        let values = names.iter().map(|name| Sampler::value_of(name));
        PyArray1::from_iter(py, values)
    }

    /// Requests, prompt tokens, references to blocks, and those that may hit.
    #[getter]
    fn totals(&self) -> (u64, u64, u64, u64) {
        let c = &self.curve;
        (c.requests, c.input_tokens, c.references, c.countable)
    }

    /// Sampled ids, and of these the ids that are counted exactly.
    #[getter]
    fn ids(&self) -> (u64, u64) {
        (self.curve.ids, self.curve.exact_ids)
    }

    /// Hits at ascending capacities: of the whole sample, then of its disjoint parts.
    fn at(&self, capacities: PyReadonlyArray1<i64>) -> PyResult<Vec<Vec<i64>>> {
        let sizes: Vec<u64> = capacities.as_slice()?.iter().map(|&c| c as u64).collect();
        Ok(self.curve.at(&sizes))
    }
}
