//! `FetchPlan`: a reusable run of blocks, as a fetch policy written in Python sees it.

use kvsim_core::machine::fetch::FetchPlan;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyList;

use crate::argument::Arg;

/// A reusable run of blocks; estimates use the channels' queues at the time of the call.
#[pyclass(name = "FetchPlan", frozen)]
pub struct PyFetchPlan {
    plan: FetchPlan,
    /// The Python class of the parts.
    part: Py<PyAny>,
    parts: PyOnceLock<Py<PyList>>,
}

impl PyFetchPlan {
    /// The plan of one admission; `part` is the Python class of its parts.
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
    /// The parts, from the first block on.
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

    /// Leading blocks that are ready for computation.
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

    /// The ns from now until the first and the last layer of the first blocks should arrive.
    fn arrival_ns(&self, blocks: Arg<u32>) -> (u64, u64) {
        let arrival = self.plan.arrival_ns(blocks.0);
        (arrival.first_layer_ns, arrival.ready_ns)
    }

    /// The time in ns to compute everything after the first blocks.
    fn compute_ns(&self, blocks: Arg<u32>) -> u64 {
        self.plan.compute_ns(blocks.0)
    }

    /// The ns from now until the prefill should end if the first blocks are reused.
    fn done_ns(&self, blocks: Arg<u32>) -> u64 {
        self.plan.done_ns(blocks.0)
    }
}
