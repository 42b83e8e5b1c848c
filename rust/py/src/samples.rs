//! `Sampled`: the sampler's view of all machines, in one call.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::argument::Arg;
use crate::serving::PyReplica;

/// Native replicas, each with its number of tiers.
#[pyclass(name = "Sampled", frozen)]
pub struct PySampled {
    machines: Vec<(Py<PyReplica>, usize)>,
}

#[pymethods]
impl PySampled {
    #[new]
    fn new(replicas: Vec<Py<PyReplica>>, tiers: Vec<usize>) -> PyResult<Self> {
        if replicas.len() != tiers.len() {
            return Err(PyValueError::new_err("a number of tiers for each replica"));
        }
        Ok(Self {
            machines: replicas.into_iter().zip(tiers).collect(),
        })
    }

    /// By machine its counts and each tier's blocks; iterations that started before `now_ns` are run first.
    fn sample<'py>(&self, py: Python<'py>, now_ns: Arg<u64>) -> PyResult<Bound<'py, PyBytes>> {
        let mut row = Vec::new();
        for (replica, tiers) in &self.machines {
            let mut replica = replica.borrow_mut(py);
            replica.sample(py, now_ns.0, *tiers, &mut row)?;
        }
        let bytes: Vec<u8> = row.iter().flat_map(|value| value.to_le_bytes()).collect();
        Ok(PyBytes::new(py, &bytes))
    }

    /// Makes the machines publish their load at the end of each step.
    fn publish_load(&self, py: Python<'_>) {
        for (replica, _) in &self.machines {
            replica.borrow_mut(py).replica.publish_load();
        }
    }

    /// By machine the waiting and running requests and the blocks in use that it published last.
    fn loads(&self, py: Python<'_>) -> Vec<(u64, u64, u64)> {
        let of = |(replica, _): &(Py<PyReplica>, usize)| {
            let load = replica.borrow(py).replica.load_report();
            (load.waiting, load.running, load.used_blocks)
        };
        self.machines.iter().map(of).collect()
    }
}
