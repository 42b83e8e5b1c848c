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
});

/// Adds the class of this room.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyRadixStore>()
}
