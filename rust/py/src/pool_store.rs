//! `PoolStore`: vLLM's block pool as the store of a machine with a GPU tier alone.

use kvsim_core::engines::block_pool::NO_KEY;
use kvsim_core::engines::pool_store::PoolStore;
use kvsim_core::store::contract::BatchStore;
use kvsim_core::store::contract::MachineStore;
use kvsim_core::store::{StoreError, Times};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::engine_store::engine_store;
use crate::keys::PyKeys;
use crate::named;
use crate::refusal::{answered, refused, Whole};
use crate::store_values::{room_to_py, times};

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

    fn log_changes(&mut self) {
        self.0.log_changes();
    }

    fn take_changes(&mut self) -> Vec<(usize, bool, u64)> {
        self.0.take_changes()
    }

    fn clear(&mut self) -> bool {
        self.0.clear()
    }

    /// The keys of the free blocks, next to be taken first; `None` where there is none.
    fn free_queue(&self) -> Vec<Option<u64>> {
        let keys = self.0.free_queue().into_iter();
        keys.map(|key| (key != NO_KEY).then_some(key)).collect()
    }
});

/// Adds the class of this room.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyPoolStore>()
}
