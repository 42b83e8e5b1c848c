//! `Fleet`: all machines at once, for one routing decision.

use kvsim_core::routing::longest_prefix;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::batch::PyBatch;
use crate::refusal::answered;
use crate::store::PyStore;

/// The stores of all machines, each with the batch that runs ahead of the clock on it.
#[pyclass(name = "Fleet", frozen)]
pub struct PyFleet {
    machines: Vec<(Py<PyStore>, Option<Py<PyBatch>>)>,
}

#[pymethods]
impl PyFleet {
    #[new]
    fn new(stores: Vec<Py<PyStore>>, batches: Vec<Option<Py<PyBatch>>>) -> PyResult<Self> {
        if stores.len() != batches.len() {
            return Err(PyValueError::new_err("a batch or None for each store"));
        }
        let machines = stores.into_iter().zip(batches).collect();
        Ok(Self { machines })
    }

    /// By machine: leading blocks found, and blocks active on the GPU; batches are brought to `now_ns` first.
    fn look(
        &self,
        py: Python<'_>,
        request: u32,
        limit: u32,
        now_ns: u64,
    ) -> PyResult<(Vec<u32>, Vec<u64>)> {
        let (mut found, mut active) = (Vec::new(), Vec::new());
        for (store, batch) in &self.machines {
            let mut store = store.borrow_mut(py);
            if let Some(batch) = batch {
                answered(batch.borrow_mut(py).0.advance(&mut store.0, now_ns))?;
            }
            answered(store.0.known_request(request))?;
            found.push(store.0.peek(request, limit).0);
            active.push(store.0.tier(0).active);
        }
        Ok((found, active))
    }

    /// Machines that longest-prefix routing finds equal; `loads` by machine. Only candidates are looked at.
    fn longest(
        &self,
        py: Python<'_>,
        wanted: (u32, u32),
        now_ns: u64,
        loads: Vec<u64>,
        threshold: f64,
    ) -> PyResult<Vec<u32>> {
        if loads.len() != self.machines.len() {
            return Err(PyValueError::new_err("a load for each machine"));
        }
        let (request, limit) = wanted;
        let mut failed = Ok(());
        let equal = longest_prefix(&loads, threshold, |machine| {
            let (store, batch) = &self.machines[machine];
            let mut store = store.borrow_mut(py);
            if let Some(batch) = batch {
                let advanced = batch.borrow_mut(py).0.advance(&mut store.0, now_ns);
                failed = failed.and(advanced.map(drop));
            }
            failed = failed.and(store.0.known_request(request));
            store.0.peek(request, limit).0
        });
        answered(failed).map(|()| equal)
    }
}

/// Adds the classes of this room.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyFleet>()
}
