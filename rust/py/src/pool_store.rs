//! `PoolStore`: vLLM's block pool as the store of a machine with a GPU tier alone.

use kvsim_core::batch::BatchStore;
use kvsim_core::engines::pool_store::PoolStore;
use kvsim_core::machine_store::MachineStore;
use kvsim_core::store::{StoreError, Times};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::engine_store::engine_store;
use crate::keys::PyKeys;
use crate::named;
use crate::refusal::{answered, refused, Whole};
use crate::store::{room_to_py, times};

/// The blocks of one GPU under vLLM's rules.
#[pyclass(name = "PoolStore", module = "kvcache_sim._core")]
pub struct PyPoolStore(pub PoolStore);

engine_store!(PyPoolStore {
    #[new]
    fn new(keys: &PyKeys, capacity_blocks: Whole) -> PyResult<Self> {
        let capacity = capacity_blocks.u32();
        if capacity >= 1 << 31 {
            return Err(refused("too many blocks", "fewer than 2^31"));
        }
        Ok(Self(PoolStore::new(keys.0.clone(), capacity)))
    }
});

/// Adds the class of this room.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyPoolStore>()
}
