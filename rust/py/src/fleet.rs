//! `Fleet`: all machines at once, for one routing decision.

use kvsim_core::machine_store::MachineStore;
use kvsim_core::routing::longest_prefix;
use kvsim_core::serving::ServingStore;
use kvsim_core::store::GPU;
use pyo3::prelude::*;

use crate::batch::PyBatch;
use crate::group_store::PyGroupStore;
use crate::order::raised;
use crate::pool_store::PyPoolStore;
use crate::radix_store::PyRadixStore;
use crate::refusal::{answered, refused, Whole};
use crate::serving::PyReplica;
use crate::store::PyStore;

/// The store of a machine: a tree of runs, vLLM's pool (of one group or several), or SGLang's tree.
#[derive(FromPyObject)]
pub enum StoreHandle {
    Tree(Py<PyStore>),
    Pool(Py<PyPoolStore>),
    Radix(Py<PyRadixStore>),
    Groups(Py<PyGroupStore>),
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
    /// Leading blocks found; what runs ahead is brought to `now_ns` first.
    fn found(&self, py: Python<'_>, wanted: Wanted, now_ns: u64) -> PyResult<u32> {
        match &self.store {
            StoreHandle::Tree(tree) => {
                let tree = &mut *tree.try_borrow_mut(py)?;
                let found = self.found_in(&mut tree.0, py, wanted, now_ns);
                raised(&tree.1, found)?
            }
            StoreHandle::Pool(s) => self.found_in(&mut s.try_borrow_mut(py)?.0, py, wanted, now_ns),
            StoreHandle::Radix(s) => {
                self.found_in(&mut s.try_borrow_mut(py)?.0, py, wanted, now_ns)
            }
            StoreHandle::Groups(s) => {
                self.found_in(&mut s.try_borrow_mut(py)?.0, py, wanted, now_ns)
            }
        }
    }

    fn found_in<S: ServingStore>(
        &self,
        store: &mut S,
        py: Python<'_>,
        (request, limit): Wanted,
        now_ns: u64,
    ) -> PyResult<u32> {
        answered(store.known_request(request))?;
        match &self.ahead {
            Some(Ahead::Replica(replica)) => {
                answered(replica.try_borrow_mut(py)?.catch_up(store, now_ns))?;
            }
            Some(Ahead::Batch(batch)) => {
                answered(batch.try_borrow_mut(py)?.0.advance(store, now_ns))?;
            }
            None => {}
        }
        answered(store.peek(request, limit)).map(|found| found.0)
    }

    /// Blocks active on the GPU.
    fn active(&self, py: Python<'_>) -> PyResult<u64> {
        let room = match &self.store {
            StoreHandle::Tree(s) => s.try_borrow(py)?.0.room(GPU),
            StoreHandle::Pool(s) => MachineStore::room(&s.try_borrow(py)?.0, GPU),
            StoreHandle::Radix(s) => MachineStore::room(&s.try_borrow(py)?.0, GPU),
            StoreHandle::Groups(s) => MachineStore::room(&s.try_borrow(py)?.0, GPU),
        };
        answered(room).map(|room| room.active)
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
            let expected = "a replica, a batch or None for each store";
            return Err(refused("not what runs ahead a store", expected));
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
        let look = |machine: &Machine| {
            let found = machine.found(py, wanted, now_ns.u64())?;
            Ok((found, machine.active(py)?))
        };
        self.machines.iter().map(look).collect()
    }

    /// By machine, each of which has a native replica: requests sent there that are not finished.
    fn requests(&self, py: Python<'_>) -> PyResult<Vec<u64>> {
        let loads = self.machines.iter().map(|machine| match &machine.ahead {
            Some(Ahead::Replica(replica)) => Ok(replica.try_borrow(py)?.open_requests()),
            _ => Err(refused("no native replica", "one a machine")),
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
            return Err(refused("not a load a machine", "one for each"));
        }
        let wanted = (wanted.0.u32(), wanted.1.u32());
        let mut failed = Ok(());
        let equal = longest_prefix(&loads, threshold, |machine| {
            let found = self.machines[machine].found(py, wanted, now_ns.u64());
            found.unwrap_or_else(|error| {
                failed = Err(error);
                0
            })
        });
        failed.map(|()| equal)
    }
}

/// Adds the classes of this room.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyFleet>()
}
