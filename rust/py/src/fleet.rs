//! `Fleet`: all machines at once, for one routing decision.

use kvsim_core::routing::longest_prefix;
use kvsim_core::serving::ServingStore;
use kvsim_core::store::{Answer, GPU};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::batch::PyBatch;
use crate::pool_store::PyPoolStore;
use crate::radix_store::PyRadixStore;
use crate::refusal::{answered, Whole};
use crate::serving::PyReplica;
use crate::store::PyStore;

/// The store of a machine: a tree of runs, vLLM's pool, or SGLang's tree.
#[derive(FromPyObject)]
pub enum StoreHandle {
    Tree(Py<PyStore>),
    Pool(Py<PyPoolStore>),
    Radix(Py<PyRadixStore>),
}

/// What runs ahead of the clock on a store: a native replica, or the batch of one in Python.
#[derive(FromPyObject)]
enum Ahead {
    Replica(Py<PyReplica>),
    Batch(Py<PyBatch>),
}

/// A store, and what runs ahead of the clock on it.
struct Machine {
    store: StoreHandle,
    ahead: Option<Ahead>,
}

/// A request, and how many of its leading blocks may be found.
type Wanted = (u32, u32);

impl Machine {
    /// Leading blocks found, and blocks active on the GPU; what runs ahead is brought to `now_ns` first.
    fn look(&self, py: Python<'_>, wanted: Wanted, now_ns: u64) -> Answer<(u32, u64)> {
        match &self.store {
            StoreHandle::Tree(s) => self.look_in(&mut s.borrow_mut(py).0, py, wanted, now_ns),
            StoreHandle::Pool(s) => self.look_in(&mut s.borrow_mut(py).0, py, wanted, now_ns),
            StoreHandle::Radix(s) => self.look_in(&mut s.borrow_mut(py).0, py, wanted, now_ns),
        }
    }

    fn look_in<S: ServingStore>(
        &self,
        store: &mut S,
        py: Python<'_>,
        (request, limit): Wanted,
        now_ns: u64,
    ) -> Answer<(u32, u64)> {
        store.known_request(request)?;
        match &self.ahead {
            Some(Ahead::Replica(replica)) => replica.borrow_mut(py).catch_up(store, now_ns)?,
            Some(Ahead::Batch(batch)) => {
                batch.borrow_mut(py).0.advance(store, now_ns)?;
            }
            None => {}
        }
        Ok((store.peek(request, limit)?.0, store.room(GPU)?.active))
    }
}

/// The stores of all machines, each with what runs ahead of the clock on it.
#[pyclass(name = "Fleet", frozen)]
pub struct PyFleet {
    machines: Vec<Machine>,
}

#[pymethods]
impl PyFleet {
    #[new]
    fn new(stores: Vec<StoreHandle>, ahead: Vec<Option<Ahead>>) -> PyResult<Self> {
        if stores.len() != ahead.len() {
            return Err(PyValueError::new_err(
                "a replica, a batch or None for each store",
            ));
        }
        let machines = stores.into_iter().zip(ahead);
        let machines = machines.map(|(store, ahead)| Machine { store, ahead });
        Ok(Self {
            machines: machines.collect(),
        })
    }

    /// By machine: leading blocks found, and blocks active on the GPU; what runs ahead is brought to `now_ns` first.
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

    /// By machine, each of which has a native replica: requests sent there that are not finished.
    fn requests(&self, py: Python<'_>) -> PyResult<Vec<u64>> {
        let loads = self.machines.iter().map(|machine| match &machine.ahead {
            Some(Ahead::Replica(replica)) => Ok(replica.borrow(py).open_requests()),
            _ => Err(PyValueError::new_err("a machine has no native replica")),
        });
        loads.collect()
    }

    /// Machines that longest-prefix routing finds equal; `loads` by machine, none given: requests of the native
    /// replicas. Only candidates are looked at.
    fn longest(
        &self,
        py: Python<'_>,
        wanted: (Whole, Whole),
        now_ns: Whole,
        loads: Option<Vec<Whole>>,
        threshold: f64,
    ) -> PyResult<Vec<u32>> {
        let loads = match loads {
            Some(loads) => loads.into_iter().map(Whole::u64).collect(),
            None => self.requests(py)?,
        };
        if loads.len() != self.machines.len() {
            return Err(PyValueError::new_err("a load for each machine"));
        }
        let wanted = (wanted.0.u32(), wanted.1.u32());
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
