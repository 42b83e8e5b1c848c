//! `Keys`: the block keys of a trace.

use std::sync::Arc;

use kvsim_core::keys::BlockKeys;
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;

use crate::argument::{tuple_structs, Arg};
use crate::machine_store::{AnyStore, PyMachineStore};
use crate::refusal::{answered, refused};

tuple_structs! {
    /// Requests: their ids with the offset of each request, and their full blocks.
    pub struct IdColumns<'py> {
        id_offsets: PyReadonlyArray1<'py, i64>,
        block_ids: PyReadonlyArray1<'py, u32>,
        full_blocks: PyReadonlyArray1<'py, u32>,
    }
}

/// Block keys of all requests, shared by the caches of all machines.
#[pyclass(name = "Keys", module = "kvcache_sim._core")]
pub struct PyKeys(pub Arc<BlockKeys>);

#[pymethods]
impl PyKeys {
    #[new]
    fn new(
        id_offsets: PyReadonlyArray1<'_, i64>,
        block_ids: PyReadonlyArray1<'_, u32>,
        blocks_per_id: Arg<u32>,
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
        BlockKeys::new(offsets, ids, blocks_per_id.0, full, next)
            .map(|keys| Self(Arc::new(keys)))
            .map_err(|error| refused("no block keys", &error.to_string()))
    }

    /// Keys of these requests and of the blocks that the stores still name; requests may be appended.
    fn kept(&self, stores: Vec<PyRef<'_, PyMachineStore>>, requests: Vec<u32>) -> Self {
        let mut named = requests;
        for store in &stores {
            if let AnyStore::Tree(tree) = &store.store {
                named.extend(tree.named_requests());
            }
        }
        Self(Arc::new(self.0.kept(named)))
    }

    /// Distinct ids, in ascending order.
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

    /// Appends requests; `stores` are all that share these keys. Ids are below `ids`.
    fn grow(
        &mut self,
        mut stores: Vec<PyRefMut<'_, PyMachineStore>>,
        columns: IdColumns<'_>,
        ids: Arg<u32>,
    ) -> PyResult<()> {
        let offsets = columns.id_offsets.as_slice()?;
        let offsets: Vec<u64> = offsets.iter().map(|&o| o as u64).collect();
        let block_ids = columns.block_ids.as_slice()?;
        let full = columns.full_blocks.as_slice()?;
        let mut keys = std::mem::take(&mut self.0);
        for store in &mut stores {
            drop(lend_keys(&mut store.store)?);
        }
        let own = Arc::get_mut(&mut keys);
        let grown = own.map(|keys| keys.append(&offsets, block_ids, full));
        for store in &mut stores {
            keep_keys(&mut store.store, keys.clone(), ids.0)?;
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

    fn key(&self, request: Arg<u32>, block: Arg<u32>) -> PyResult<u64> {
        answered(self.0.known_request(request.0))?;
        Ok(self.0.key(request.0, block.0))
    }
}

fn no_live_tree() -> PyErr {
    refused(
        "an engine's tree of pages or pool of groups",
        "a tree of runs or a pool, which take requests as they come",
    )
}

fn lend_keys(store: &mut AnyStore) -> PyResult<Arc<BlockKeys>> {
    match store {
        AnyStore::Tree(tree) => Ok(tree.lend_keys()),
        AnyStore::Pool(store) => Ok(store.pool.lend_keys()),
        _ => Err(no_live_tree()),
    }
}

fn keep_keys(store: &mut AnyStore, keys: Arc<BlockKeys>, ids: u32) -> PyResult<()> {
    match store {
        AnyStore::Tree(tree) => tree.keep_keys(keys),
        AnyStore::Pool(pool) => pool.keep_keys(keys, ids),
        _ => return Err(no_live_tree()),
    }
    Ok(())
}
