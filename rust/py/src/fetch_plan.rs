//! `FetchPlan`: what a fetch policy written in Python sees of a run that could be reused.

use kvsim_core::machine::fetch::FetchPlan;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyList;

use crate::argument::Arg;

/// A run that could be reused; its estimates are by the channels' queues as they are when they are asked for.
#[pyclass(name = "FetchPlan", frozen)]
pub struct PyFetchPlan {
    plan: FetchPlan,
    /// The class of its parts.
    part: Py<PyAny>,
    parts: PyOnceLock<Py<PyList>>,
}

impl PyFetchPlan {
    /// The plan of one admission, whose parts are of a class of Python.
    pub fn new(plan: FetchPlan, part: Py<PyAny>) -> Self {
        Self {
            plan,
            part,
            parts: PyOnceLock::new(),
        }
    }
}

#[pymethods]
impl PyFetchPlan {
    /// Its parts, from the first block on.
    #[getter]
    fn parts<'py>(&self, py: Python<'py>) -> PyResult<&Bound<'py, PyList>> {
        let parts = self.parts.get_or_try_init(py, || -> PyResult<_> {
            let class = self.part.bind(py);
            let parts = PyList::empty(py);
            for (part, away) in self.plan.parts() {
                let (start, end) = (part.start, part.end);
                parts.append(class.call1((part.tier, start, end, part.by, away))?)?;
            }
            Ok(parts.unbind())
        })?;
        Ok(parts.bind(py))
    }

    /// Leading blocks that are ready to be computed on.
    #[getter]
    fn ready(&self) -> u32 {
        self.plan.facts.ready
    }

    /// The block after the last one found.
    #[getter]
    fn end(&self) -> u32 {
        self.plan.end()
    }

    #[getter]
    fn layers(&self) -> u64 {
        self.plan.facts.layers
    }

    #[getter]
    fn pipelining(&self) -> bool {
        self.plan.facts.layer_pipelining
    }

    /// When the first and the last layer of the first blocks should be here, in ns from now.
    fn arrival_ns(&self, blocks: Arg<u32>) -> (u64, u64) {
        self.plan.arrival_ns(blocks.0)
    }

    /// Computing everything after the first blocks, in ns.
    fn compute_ns(&self, blocks: Arg<u32>) -> u64 {
        self.plan.compute_ns(blocks.0)
    }

    /// When the prefill should end if the first blocks are reused, in ns from now.
    fn done_ns(&self, blocks: Arg<u32>) -> u64 {
        self.plan.done_ns(blocks.0)
    }
}
