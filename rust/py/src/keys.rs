//! `Keys`: the block keys of a trace.

use std::sync::Arc;

use kvsim_core::keys::BlockKeys;
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::fleet::StoreHandle;
use crate::refusal::{answered, refused, Whole};
use crate::store::PyStore;

/// Block keys of all requests, shared by the caches of all machines.
#[pyclass(name = "Keys", module = "kvcache_sim._core")]
pub struct PyKeys(pub Arc<BlockKeys>);

#[pymethods]
impl PyKeys {
    #[new]
    fn new(
        id_offsets: PyReadonlyArray1<'_, i64>,
        block_ids: PyReadonlyArray1<'_, u32>,
        blocks_per_id: Whole,
        full_blocks: PyReadonlyArray1<'_, u32>,
        continuation: PyReadonlyArray1<'_, u32>,
    ) -> PyResult<Self> {
        let offsets = id_offsets.as_slice()?.iter().map(|&o| o as u64).collect();
        let ids = block_ids.as_slice()?.to_vec();
        let full = full_blocks.as_slice()?.to_vec();
        if ids.contains(&u32::MAX) || full.len() >= 1 << 31 {
            let expected = "ids below 2^32 - 1, fewer than 2^31 requests";
            return Err(refused("no block keys", expected));
        }
        let next = continuation.as_slice()?.to_vec();
        BlockKeys::new(offsets, ids, blocks_per_id.u32(), full, next)
            .map(|keys| Self(Arc::new(keys)))
            .map_err(|error| refused("no block keys", &error.to_string()))
    }

    /// Keys of these requests, of what the stores still name, and of none to come.
    fn kept(&self, stores: Vec<PyRef<'_, PyStore>>, requests: Vec<u32>) -> Self {
        let mut named = requests;
        for store in &stores {
            named.extend(store.0.named_requests());
        }
        Self(Arc::new(self.0.kept(named)))
    }

    /// Different ids, in ascending order.
    fn kept_ids<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<u32>> {
        PyArray1::from_vec(py, self.0.kept_ids())
    }

    /// These keys with those of further requests.
    fn appended(
        &self,
        id_offsets: PyReadonlyArray1<'_, i64>,
        block_ids: PyReadonlyArray1<'_, u32>,
        full_blocks: PyReadonlyArray1<'_, u32>,
    ) -> PyResult<Self> {
        let mut keys = BlockKeys::clone(&self.0);
        let offsets: Vec<u64> = id_offsets.as_slice()?.iter().map(|&o| o as u64).collect();
        keys.append(&offsets, block_ids.as_slice()?, full_blocks.as_slice()?)
            .map_err(|error| refused("no block keys", &error.to_string()))?;
        Ok(Self(Arc::new(keys)))
    }

    /// Adds requests behind the last one; `stores` are all that share these keys. Ids are below `ids`.
    fn grow(
        &mut self,
        py: Python<'_>,
        stores: Vec<StoreHandle>,
        columns: (
            PyReadonlyArray1<'_, i64>,
            PyReadonlyArray1<'_, u32>,
            PyReadonlyArray1<'_, u32>,
        ),
        ids: Whole,
    ) -> PyResult<()> {
        let (offsets, block_ids, full) = &columns;
        let offsets: Vec<u64> = offsets.as_slice()?.iter().map(|&o| o as u64).collect();
        let (block_ids, full) = (block_ids.as_slice()?, full.as_slice()?);
        let mut keys = std::mem::take(&mut self.0);
        for store in &stores {
            drop(lend_keys(store, py)?);
        }
        let own = Arc::get_mut(&mut keys);
        let grown = own.map(|keys| keys.append(&offsets, block_ids, full));
        for store in &stores {
            keep_keys(store, py, keys.clone(), ids.u32())?;
        }
        self.0 = keys;
        match grown {
            Some(grown) => grown.map_err(|error| refused("no block keys", &error.to_string())),
            None => Err(refused(
                "keys that others share",
                "all stores that share them",
            )),
        }
    }

    fn key(&self, request: Whole, block: Whole) -> PyResult<u64> {
        answered(self.0.known_request(request.u32()))?;
        Ok(self.0.key(request.u32(), block.u32()))
    }
}

fn no_live_tree() -> PyErr {
    refused(
        "an engine's tree of pages or pool of groups",
        "a tree of runs or a pool, which take requests as they come",
    )
}

fn lend_keys(store: &StoreHandle, py: Python<'_>) -> PyResult<Arc<BlockKeys>> {
    match store {
        StoreHandle::Tree(s) => Ok(s.try_borrow_mut(py)?.0.lend_keys()),
        StoreHandle::Pool(s) => Ok(s.try_borrow_mut(py)?.0.lend_keys()),
        _ => Err(no_live_tree()),
    }
}

fn keep_keys(store: &StoreHandle, py: Python<'_>, keys: Arc<BlockKeys>, ids: u32) -> PyResult<()> {
    match store {
        StoreHandle::Tree(s) => s.try_borrow_mut(py)?.0.keep_keys(keys),
        StoreHandle::Pool(s) => s.try_borrow_mut(py)?.0.keep_keys(keys, ids),
        _ => return Err(no_live_tree()),
    }
    Ok(())
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
