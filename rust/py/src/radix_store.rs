//! `RadixStore`: SGLang's radix tree as the store of a machine with a GPU tier alone.

use kvsim_core::engines::leaf_order::LeafOrder;
use kvsim_core::engines::radix_store::{Lengths, RadixStore};
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

/// The pages of one GPU under SGLang's rules.
#[pyclass(name = "RadixStore", module = "kvcache_sim._core")]
pub struct PyRadixStore(pub RadixStore);

engine_store!(PyRadixStore {
    #[new]
    fn new(
        keys: &PyKeys,
        policy: &str,
        page: Whole,
        capacity_pages: Whole,
        prompt_tokens: Vec<Whole>,
        total_tokens: Vec<Whole>,
    ) -> PyResult<Self> {
        let policy = LeafOrder::from_name(policy);
        let policy = policy
            .ok_or_else(|| refused("no such eviction strategy", "one of SGLang's strategies"))?;
        let tokens = |given: Vec<Whole>| given.into_iter().map(Whole::u64).collect();
        let lengths = Lengths {
            prompt_tokens: tokens(prompt_tokens),
            total_tokens: tokens(total_tokens),
        };
        let (keys, pages) = (keys.0.clone(), capacity_pages.u64());
        answered(RadixStore::new(keys, policy, page.u32(), pages, lengths)).map(Self)
    }

    fn find(&mut self, request: Whole, tokens: Whole) -> PyResult<u64> {
        answered(self.0.known_request(request.u32()))?;
        Ok(self.0.find(request.u32(), tokens.u64()).tokens)
    }

    fn key(&self, request: Whole, page: Whole) -> PyResult<u64> {
        answered(self.0.known_request(request.u32()))?;
        Ok(self.0.key(request.u32(), page.u32()))
    }

    #[getter]
    fn free_tokens(&self) -> u64 {
        self.0.free_tokens()
    }

    #[getter]
    fn spare_tokens(&self) -> u64 {
        self.0.spare_tokens()
    }

    fn spare_tokens_beside(&self, request: Whole, tokens: Whole) -> PyResult<u64> {
        let found = answered(self.0.found(request.u32(), tokens.u64()))?;
        Ok(self.0.spare_tokens_beside(found))
    }

    fn evict_until_free(&mut self, tokens: Whole, now_ns: Whole) {
        self.0.evict_until_free(tokens.u64(), now_ns.u64());
    }

    fn hold(&mut self, request: Whole, tokens: Whole) -> PyResult<()> {
        let found = answered(self.0.found(request.u32(), tokens.u64()))?;
        if self.0.known_held(request.u32()).is_ok() {
            return answered(Err(StoreError::LeasedAlready));
        }
        self.0.hold(request.u32(), found);
        Ok(())
    }

    fn grow(&mut self, request: Whole, tokens: Whole) -> PyResult<()> {
        answered(self.0.known_held(request.u32()))?;
        answered(self.0.grow(request.u32(), tokens.u64()))
    }

    fn check_in(&mut self, request: Whole, tokens: Whole) -> PyResult<()> {
        answered(self.0.known_held(request.u32()))?;
        answered(self.0.check_in(request.u32(), tokens.u64()))
    }

    fn finish(&mut self, request: Whole, tokens: Whole) -> PyResult<()> {
        answered(self.0.known_held(request.u32()))?;
        answered(self.0.finish(request.u32(), tokens.u64()))
    }

    fn retract(&mut self, request: Whole) -> PyResult<()> {
        answered(self.0.known_held(request.u32()))?;
        self.0.retract(request.u32());
        Ok(())
    }

    #[getter]
    fn evicts_least_recent(&self) -> bool {
        self.0.evicts_least_recent()
    }

    fn depth_first(&self, found: Vec<(Whole, Whole)>) -> PyResult<Vec<usize>> {
        let found = found.iter().map(|f| self.0.found(f.0.u32(), f.1.u64()));
        let nodes: Result<Vec<u32>, StoreError> = found.map(|f| f.map(|f| f.node)).collect();
        Ok(self.0.depth_first(&answered(nodes)?))
    }
});

/// Adds the class of this room.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyRadixStore>()
}
