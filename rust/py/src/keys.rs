//! `Keys`: the block keys of a trace.

use std::sync::Arc;

use kvsim_core::keys::BlockKeys;
use numpy::PyReadonlyArray1;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Block keys of all requests, shared by the caches of all machines.
#[pyclass(name = "Keys", frozen, module = "kvcache_sim._core")]
pub struct PyKeys(pub Arc<BlockKeys>);

#[pymethods]
impl PyKeys {
    #[new]
    fn new(
        id_offsets: PyReadonlyArray1<'_, i64>,
        block_ids: PyReadonlyArray1<'_, u32>,
        blocks_per_id: u32,
        full_blocks: PyReadonlyArray1<'_, u32>,
        continuation: PyReadonlyArray1<'_, u32>,
    ) -> PyResult<Self> {
        let offsets = id_offsets.as_slice()?.iter().map(|&o| o as u64).collect();
        let ids = block_ids.as_slice()?.to_vec();
        let full = full_blocks.as_slice()?.to_vec();
        if ids.contains(&u32::MAX) || full.len() >= 1 << 31 {
            return Err(PyValueError::new_err(
                "block keys: ids must be below 2³² − 1, requests fewer than 2³¹",
            ));
        }
        let next = continuation.as_slice()?.to_vec();
        BlockKeys::new(offsets, ids, blocks_per_id, full, next)
            .map(|keys| Self(Arc::new(keys)))
            .map_err(|e| PyValueError::new_err(format!("block keys: {e:?}")))
    }

    fn key(&self, request: u32, block: u32) -> PyResult<u64> {
        known_request(request, self.0.requests())?;
        Ok(self.0.key(request, block))
    }
}

/// Refuses a request that the keys do not have.
pub fn known_request(request: u32, requests: u32) -> PyResult<()> {
    if request < requests {
        return Ok(());
    }
    let message = format!("no such request: {request}; there are {requests}");
    Err(PyValueError::new_err(message))
}

/// Adds the room to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyKeys>()
}
