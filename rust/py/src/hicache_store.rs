//! `HiCacheStore`: SGLang's default tree with HiCache's host tier, and maybe a storage, as the store of a machine.

use kvsim_core::engines::hicache_store::{HiCacheConfig, HiCacheStore, StorageConfig};
use kvsim_core::engines::radix_store::Lengths;
use kvsim_core::engines::unified_tree::host::WritePolicy;
use kvsim_core::engines::unified_tree::worth::LeafStrategy;
use kvsim_core::store::contract::BatchStore;
use kvsim_core::store::contract::MachineStore;
use kvsim_core::store::{StoreError, Times};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::engine_store::engine_store;
use crate::keys::PyKeys;
use crate::named;
use crate::refusal::{answered, refused, Whole};
use crate::store_values::{orders_to_py, parts_to_py, room_to_py, times, PyOrder, PyPart};

/// The pages of a machine's GPU and host under SGLang's rules.
#[pyclass(name = "HiCacheStore", module = "kvcache_sim._core")]
pub struct PyHiCacheStore(pub HiCacheStore);

engine_store!(PyHiCacheStore {
    /// `rules`: the eviction strategy and the write policy, by SGLang's names; `pages`: of the device and of the host;
    /// `lengths`: prompt and total tokens by request; `storage`: pages of the storage below, the fewest that are worth a
    /// prefetch, and the tokens that prefetches under way may have asked for; none where there is none.
    #[new]
    #[pyo3(signature = (keys, rules, page, pages, lengths, storage=None))]
    fn new(
        keys: &PyKeys,
        rules: (String, String),
        page: Whole,
        pages: (Whole, Whole),
        lengths: (Vec<Whole>, Vec<Whole>),
        storage: Option<(Whole, Whole, Whole)>,
    ) -> PyResult<Self> {
        let strategy = LeafStrategy::from_name(&rules.0, 0, 0);
        let strategy = strategy
            .ok_or_else(|| refused("no such eviction strategy", "one of SGLang's strategies"))?;
        let write = WritePolicy::from_name(&rules.1);
        let write =
            write.ok_or_else(|| refused("no such write policy", "one of SGLang's write policies"))?;
        let config = HiCacheConfig {
            strategy,
            page: page.u32(),
            device_pages: pages.0.u64(),
            host_pages: pages.1.u64(),
            write,
        };
        let tokens = |given: Vec<Whole>| given.into_iter().map(Whole::u64).collect();
        let lengths = Lengths {
            prompt_tokens: tokens(lengths.0),
            total_tokens: tokens(lengths.1),
        };
        let store = answered(HiCacheStore::new(keys.0.clone(), config, lengths))?;
        Ok(Self(match storage {
            Some((pages, least_pages, share_tokens)) => store.above(StorageConfig {
                pages: pages.u64(),
                least_pages: least_pages.u32(),
                share_tokens: share_tokens.u64(),
            }),
            None => store,
        }))
    }

    fn match_prefix(&self, request: Whole, limit: Whole) -> PyResult<Vec<PyPart>> {
        answered(self.0.known_request(request.u32()))?;
        Ok(parts_to_py(self.0.match_prefix(request.u32(), limit.u32())))
    }

    fn protect(&mut self, request: Whole, end: Whole, tier: Whole) -> u64 {
        let _ = (request, end, tier);
        0
    }

    fn unprotect(&mut self, tier: Whole, hold: Whole) {
        let _ = (tier, hold);
    }

    fn load(&mut self, lease: Whole, to: Whole, after: Vec<Whole>) -> PyResult<u64> {
        let after: Vec<u64> = after.into_iter().map(Whole::u64).collect();
        answered(self.0.load(lease.u64(), to.u32(), &after))
    }

    fn join(&mut self, lease: Whole, to: Whole) -> PyResult<()> {
        answered(self.0.join(lease.u64(), to.u32()))
    }

    fn step_computed(&mut self, leases: Vec<Whole>, now_ns: Whole) -> PyResult<()> {
        let leases: Vec<u64> = leases.into_iter().map(Whole::u64).collect();
        answered(self.0.step_computed(&leases, now_ns.u64()))
    }

    fn take_orders(&mut self) -> Vec<PyOrder> {
        orders_to_py(self.0.take_orders())
    }

    fn set_times(&mut self, r#move: Whole, first_layer_ns: Whole, ready_ns: Whole) {
        let _ = first_layer_ns;
        self.0.set_times(r#move.u64(), ready_ns.u64());
    }

    fn finish_move(&mut self, r#move: Whole) -> PyResult<()> {
        answered(self.0.finish_move(r#move.u64()))
    }

    fn duplicates(&self, tier: Whole) -> u64 {
        self.0.duplicates(tier.index())
    }

    fn start_prefetch(&mut self, request: Whole, limit: Whole, now_ns: Whole) -> PyResult<u32> {
        let (request, limit) = (request.u32(), limit.u32());
        answered(self.0.start_prefetch(request, limit, now_ns.u64()))
    }

    fn is_prefetching(&self, request: Whole) -> bool {
        self.0.is_prefetching(request.u32())
    }

    fn stop_prefetch(&mut self, request: Whole) -> PyResult<()> {
        answered(self.0.stop_prefetch(request.u32()))
    }

    #[getter]
    fn prefetched_blocks(&self) -> u64 {
        self.0.prefetched_pages()
    }
});

/// Adds the class of this room.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyHiCacheStore>()
}
