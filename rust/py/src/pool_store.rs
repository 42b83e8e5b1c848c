//! `PoolStore`: vLLM's block pool as the store of a machine with a GPU tier alone.

use kvsim_core::batch::BatchStore;
use kvsim_core::exact::pool_store::PoolStore;
use kvsim_core::machine_store::MachineStore;
use kvsim_core::store::Times;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::keys::PyKeys;
use crate::named;
use crate::refusal::{answered, Whole};
use crate::store::room_to_py;

/// The blocks of one GPU under vLLM's rules.
#[pyclass(name = "PoolStore", module = "kvcache_sim._core")]
pub struct PyPoolStore(pub PoolStore);

#[pymethods]
impl PyPoolStore {
    #[new]
    fn new(keys: &PyKeys, capacity_blocks: u32) -> Self {
        Self(PoolStore::new(keys.0.clone(), capacity_blocks))
    }

    fn peek(&self, request: Whole, limit: Whole) -> PyResult<(u32, u32)> {
        answered(MachineStore::peek(&self.0, request.u32(), limit.u32()))
    }

    fn acquire(&mut self, request: u32, depth: u32) -> u64 {
        self.0.acquire(request, depth)
    }

    fn abandon(&mut self, lease: u64) {
        let _ = lease;
    }

    fn reserve(&mut self, lease: u64, blocks: u64, now_ns: u64) -> PyResult<Option<Vec<u64>>> {
        answered(self.0.reserve(&[(lease, blocks)], now_ns)).map(room_to_py)
    }

    fn reserve_many(&mut self, wanted: Vec<(u64, u64)>, now_ns: u64) -> PyResult<Option<Vec<u64>>> {
        answered(self.0.reserve(&wanted, now_ns)).map(room_to_py)
    }

    /// `ready`, when the blocks were computed, is not kept.
    #[pyo3(signature = (lease, to, ready=None))]
    fn commit(&mut self, lease: u64, to: u32, ready: Option<(u64, u64)>) -> PyResult<()> {
        let _ = ready;
        answered(self.0.commit(lease, to, Times::default()))
    }

    fn depth(&self, lease: u64) -> PyResult<u32> {
        answered(self.0.depth(lease))
    }

    fn release(&mut self, lease: u64, now_ns: u64) {
        let _ = now_ns;
        self.0.release(lease);
    }

    fn room<'py>(&self, py: Python<'py>, tier: Whole) -> PyResult<Bound<'py, PyAny>> {
        let t = answered(MachineStore::room(&self.0, tier.index()))?;
        named::room(py, (t.free, t.active, t.cached, t.in_flight, t.evictable))
    }

    fn losses<'py>(&self, py: Python<'py>, tier: Whole) -> PyResult<Bound<'py, PyAny>> {
        let t = answered(self.0.losses(tier.index()))?;
        named::losses(py, (t.evicted, t.overflowed, t.orphaned))
    }

    fn note(&mut self, kind: u8, now_ns: u64, subject: u64, value: u64) {
        self.0.records.note(kind, now_ns, subject, value);
    }

    fn log_evictions(&mut self) {
        self.0.records.log_evictions();
    }

    fn take_evictions(&mut self) -> Vec<(u64, usize, u64)> {
        self.0.records.take_evictions()
    }

    #[getter]
    fn digest(&self) -> u64 {
        self.0.records.digest()
    }

    #[getter]
    fn merged_blocks(&self) -> u64 {
        0
    }

    fn check(&self) -> PyResult<()> {
        self.0.check().map_err(PyRuntimeError::new_err)
    }
}

/// Adds the class of this room.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyPoolStore>()
}
