//! `Fleet`: all machines at once, for one routing decision.

use kvsim_core::machine_store::MachineStore;
use kvsim_core::routing::longest_prefix;
use kvsim_core::store::{Answer, GPU};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::batch::PyBatch;
use crate::pool_store::PyPoolStore;
use crate::radix_store::PyRadixStore;
use crate::refusal::{answered, Whole};
use crate::store::PyStore;

/// The store of a machine: a tree of runs, vLLM's pool, or SGLang's tree.
#[derive(FromPyObject)]
enum StoreHandle {
    Tree(Py<PyStore>),
    Pool(Py<PyPoolStore>),
    Radix(Py<PyRadixStore>),
}

/// A store, and the batch that runs ahead of the clock on it.
struct Machine {
    store: StoreHandle,
    batch: Option<Py<PyBatch>>,
}

/// A request, and how many of its leading blocks may be found.
type Wanted = (u32, u32);

impl Machine {
    /// Leading blocks found, and blocks active on the GPU; the batch is brought to `now_ns` first.
    fn look(&self, py: Python<'_>, wanted: Wanted, now_ns: u64) -> Answer<(u32, u64)> {
        match &self.store {
            StoreHandle::Tree(s) => self.look_in(&mut s.borrow_mut(py).0, py, wanted, now_ns),
            StoreHandle::Pool(s) => self.look_in(&mut s.borrow_mut(py).0, py, wanted, now_ns),
            StoreHandle::Radix(s) => self.look_in(&mut s.borrow_mut(py).0, py, wanted, now_ns),
        }
    }

    fn look_in<S: MachineStore>(
        &self,
        store: &mut S,
        py: Python<'_>,
        (request, limit): Wanted,
        now_ns: u64,
    ) -> Answer<(u32, u64)> {
        store.known_request(request)?;
        if let Some(batch) = &self.batch {
            batch.borrow_mut(py).0.advance(store, now_ns)?;
        }
        Ok((store.peek(request, limit)?.0, store.room(GPU)?.active))
    }
}

/// The stores of all machines, each with the batch that runs ahead of the clock on it.
#[pyclass(name = "Fleet", frozen)]
pub struct PyFleet {
    machines: Vec<Machine>,
}

#[pymethods]
impl PyFleet {
    #[new]
    fn new(stores: Vec<StoreHandle>, batches: Vec<Option<Py<PyBatch>>>) -> PyResult<Self> {
        if stores.len() != batches.len() {
            return Err(PyValueError::new_err("a batch or None for each store"));
        }
        let machines = stores.into_iter().zip(batches);
        let machines = machines.map(|(store, batch)| Machine { store, batch });
        Ok(Self {
            machines: machines.collect(),
        })
    }

    /// By machine: leading blocks found, and blocks active on the GPU; batches are brought to `now_ns` first.
    fn look(
        &self,
        py: Python<'_>,
        request: Whole,
        limit: Whole,
        now_ns: Whole,
    ) -> PyResult<(Vec<u32>, Vec<u64>)> {
        let wanted = (request.u32(), limit.u32());
        let looks = self.machines.iter();
        let looks = looks.map(|machine| machine.look(py, wanted, now_ns.u64()));
        answered(looks.collect::<Answer<_>>())
    }

    /// Machines that longest-prefix routing finds equal; `loads` by machine. Only candidates are looked at.
    fn longest(
        &self,
        py: Python<'_>,
        wanted: (Whole, Whole),
        now_ns: Whole,
        loads: Vec<Whole>,
        threshold: f64,
    ) -> PyResult<Vec<u32>> {
        if loads.len() != self.machines.len() {
            return Err(PyValueError::new_err("a load for each machine"));
        }
        let wanted = (wanted.0.u32(), wanted.1.u32());
        let loads: Vec<u64> = loads.into_iter().map(Whole::u64).collect();
        let mut failed = Ok(());
        let equal = longest_prefix(&loads, threshold, |machine| {
            match self.machines[machine].look(py, wanted, now_ns.u64()) {
                Ok((found, _)) => found,
                Err(error) => {
                    failed = Err(error);
                    0
                }
            }
        });
        answered(failed).map(|()| equal)
    }
}

/// Adds the classes of this room.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyFleet>()
}
