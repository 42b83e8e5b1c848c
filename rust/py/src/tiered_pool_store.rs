//! `TieredPoolStore`: vLLM's block pool with an engine's tiers below, as the store of a machine.

use kvsim_core::engines::below::Below;
use kvsim_core::engines::chunk_order::{ChunkOrder, ChunkPolicy};
use kvsim_core::engines::lmcache_below::LmcacheBelow;
use kvsim_core::engines::offload_below::OffloadBelow;
use kvsim_core::engines::offload_tier::OffloadTier;
use kvsim_core::engines::tiered_pool::TieredPool;
use kvsim_core::engines::used_tier::UsedTier;
use kvsim_core::store::contract::BatchStore;
use kvsim_core::store::contract::MachineStore;
use kvsim_core::store::contract::{LoadingStore, MovingStore, OffersComputed};
use kvsim_core::store::{StoreError, Times};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::engine_store::engine_store;
use crate::engines::{at_least_one, no_such_policy, offload_policy};
use crate::keys::PyKeys;
use crate::named;
use crate::refusal::{answered, Whole};
use crate::store_values::{orders_to_py, parts_to_py, room_to_py, times, PyOrder, PyPart};

/// vLLM's pool and the tiers below it.
#[pyclass(name = "TieredPoolStore", module = "kvcache_sim._core")]
pub struct PyTieredPoolStore(pub TieredPool);

impl PyTieredPoolStore {
    fn above(
        below: Box<dyn Below>,
        keys: &PyKeys,
        capacity_blocks: Whole,
        prompts: (Vec<Whole>, Whole),
    ) -> PyResult<Self> {
        at_least_one(capacity_blocks.u64(), "blocks")?;
        let (capacity, tokens) = (capacity_blocks.u32(), prompts.0.into_iter());
        let (keys, tokens) = (keys.0.clone(), tokens.map(Whole::u64).collect());
        let made = TieredPool::new(keys, capacity, below, tokens, prompts.1.u64());
        answered(made).map(Self)
    }
}

engine_store!(PyTieredPoolStore {
    /// vLLM's CPU offloading below; `prompts`: the tokens of each, and of a block.
    #[staticmethod]
    fn with_offload(
        keys: &PyKeys,
        capacity_blocks: Whole,
        cpu_blocks: Whole,
        policy: &str,
        prompts: (Vec<Whole>, Whole),
    ) -> PyResult<Self> {
        at_least_one(cpu_blocks.u64(), "blocks of the CPU")?;
        let capacity = cpu_blocks.u64();
        let tier = OffloadTier::new(offload_policy(policy, capacity as usize)?, capacity as usize, 0);
        let below = OffloadBelow(UsedTier::new(tier, capacity, keys.0.requests()));
        Self::above(Box::new(below), keys, capacity_blocks, prompts)
    }

    /// LMCache's CPU and disk tiers below, of so many chunks; a disk of none is none.
    #[staticmethod]
    fn with_lmcache(
        keys: &PyKeys,
        capacity_blocks: Whole,
        chunks: (Whole, Whole),
        policy: &str,
        prompts: (Vec<Whole>, Whole),
    ) -> PyResult<Self> {
        at_least_one(chunks.0.u64(), "chunks of the CPU")?;
        let order = ChunkPolicy::from_name(policy).ok_or_else(|| no_such_policy(policy))?;
        let orders = [ChunkOrder::new(order), ChunkOrder::new(order)];
        let capacities = (chunks.0.u64(), chunks.1.u64());
        let below = LmcacheBelow::new(orders, capacities, keys.0.requests());
        Self::above(Box::new(below), keys, capacity_blocks, prompts)
    }

    fn match_prefix(&self, request: Whole, limit: Whole) -> PyResult<Vec<PyPart>> {
        answered(self.0.known_request(request.u32()))?;
        Ok(parts_to_py(self.0.match_prefix(request.u32(), limit.u32())))
    }

    fn protect(&mut self, request: Whole, end: Whole, tier: Whole) -> PyResult<u64> {
        answered(self.0.known_request(request.u32()))?;
        answered(self.0.protect(request.u32(), end.u32(), tier.index()))
    }

    fn unprotect(&mut self, tier: Whole, hold: Whole) -> PyResult<()> {
        answered(self.0.unprotect(tier.index(), hold.u64()))
    }

    fn load(&mut self, lease: Whole, to: Whole, after: Vec<Whole>) -> PyResult<u64> {
        let after: Vec<u64> = after.into_iter().map(Whole::u64).collect();
        answered(self.0.load(lease.u64(), to.u32(), &after))
    }

    fn join(&mut self, lease: Whole, to: Whole) -> PyResult<()> {
        answered(self.0.join(lease.u64(), to.u32()))
    }

    fn take_orders(&mut self) -> Vec<PyOrder> {
        orders_to_py(self.0.take_orders())
    }

    fn set_times(&mut self, r#move: Whole, first_layer_ns: Whole, ready_ns: Whole) -> PyResult<()> {
        let arrival = times((first_layer_ns, ready_ns));
        answered(self.0.set_times(r#move.u64(), arrival))
    }

    fn finish_move(&mut self, r#move: Whole) -> PyResult<()> {
        answered(self.0.finish_move(r#move.u64()))
    }

    fn step_computed(&mut self, leases: Vec<Whole>, now_ns: Whole) -> PyResult<()> {
        let leases: Vec<u64> = leases.into_iter().map(Whole::u64).collect();
        answered(self.0.step_computed(&leases, now_ns.u64()))
    }

    fn duplicates(&self, tier: Whole) -> PyResult<u64> {
        answered(self.0.duplicates(tier.index()))
    }
});

/// Adds the class of this room.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyTieredPoolStore>()
}
