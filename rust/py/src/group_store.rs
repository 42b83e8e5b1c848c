//! `GroupStore`: vLLM's pool of several KV cache groups as the store of a machine with a GPU tier alone.

use kvsim_core::engines::group_store::GroupStore;
use kvsim_core::engines::group_tier::{GroupTier, GroupWrites};
use kvsim_core::engines::groups::{Limits, Reuse};
use kvsim_core::engines::offload_tier::OffloadTier;
use kvsim_core::engines::used_tier::UsedTier;
use kvsim_core::store::contract::BatchStore;
use kvsim_core::store::contract::MachineStore;
use kvsim_core::store::contract::{MovingStore, OffersComputed};
use kvsim_core::store::newcomer::{Entry, Newcomer};
use kvsim_core::store::{StoreError, Times, STAGING};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::engine_store::engine_store;
use crate::engines::{at_least_one, offload_policy};
use crate::groups::{capacity_of, limits_of, KvGroups};
use crate::named;
use crate::refusal::{answered, refused, Whole};
use crate::store_values::{orders_to_py, room_to_py, times, PyOrder};

/// `cache.groups.Newcomer`, attribute by attribute.
#[derive(FromPyObject)]
struct Asked {
    request: Whole,
    prompt_tokens: Whole,
    known_tokens: Whole,
    matchable_blocks: Whole,
    step_tokens: Whole,
    chunk_tokens: Whole,
    kept_blocks: Whole,
    whole: bool,
    steps_in_flight: Whole,
}

/// The blocks of one GPU for a model's cache groups, under vLLM's rules of reuse or the tree's.
#[pyclass(name = "GroupStore", module = "kvcache_sim._core")]
pub struct PyGroupStore(pub GroupStore);

engine_store!(PyGroupStore {
    #[new]
    fn new(
        groups: &KvGroups,
        limits: (u64, Option<u64>, u64),
        capacity_blocks: Whole,
        rules: &str,
    ) -> PyResult<Self> {
        let reuse = match rules {
            "vllm" => Reuse::Engine,
            "tree" => Reuse::Tree,
            _ => return Err(refused("no such rules of reuse", "vllm or tree")),
        };
        let limits = Limits {
            reuse,
            ..limits_of(limits)?
        };
        let capacity = capacity_of(capacity_blocks)?;
        let store = GroupStore::new(groups.groups.clone(), groups.align, limits, capacity);
        Ok(Self(store))
    }

    /// The same with a tier below, of so many blocks under a policy; `writes`: `engine`, `back` or `through`.
    #[staticmethod]
    fn with_tier(
        groups: &KvGroups,
        limits: (u64, Option<u64>, u64),
        capacity_blocks: Whole,
        rules: &str,
        tier: (Whole, String, String),
        prompt_tokens: Vec<Whole>,
    ) -> PyResult<Self> {
        let (cpu_blocks, policy, writes) = tier;
        at_least_one(cpu_blocks.u64(), "blocks of the CPU")?;
        let writes = match writes.as_str() {
            "engine" => GroupWrites::Engine,
            "back" => GroupWrites::Back,
            "through" => GroupWrites::Through,
            _ => return Err(refused("no such rules of writing", "engine, back or through")),
        };
        let capacity = cpu_blocks.u64();
        let policy = offload_policy(&policy, capacity as usize)?;
        let requests = prompt_tokens.len() as u32;
        if requests != groups.groups[0].keys.requests() {
            return answered(Err(StoreError::Lengths(groups.groups[0].keys.requests())));
        }
        let tier = OffloadTier::new(policy, capacity as usize, 0);
        let tier = UsedTier::new(tier, capacity, requests);
        let tokens = prompt_tokens.into_iter().map(Whole::u64).collect();
        let blocks = capacity_of(capacity_blocks)?;
        let below = GroupTier::new(tier, writes, blocks, tokens);
        let store = Self::new(groups, limits, capacity_blocks, rules)?;
        Ok(Self(store.0.above(below)))
    }

    fn brought<'py>(&mut self, py: Python<'py>, lease: Whole) -> PyResult<Bound<'py, PyAny>> {
        let below = self.0.tier_mut();
        let told = below.map(|tier| tier.brought(lease.u64())).unwrap_or_default();
        let loads = told.loads.into_iter().map(|id| (id, STAGING)).collect();
        named::brought(py, (told.in_pool_blocks, told.room, loads))
    }

    fn blocks_of_move(&self, r#move: Whole) -> PyResult<Vec<u64>> {
        let counts = self.0.tier().and_then(|tier| tier.blocks_of_move(r#move.u64()));
        answered(counts.map(<[u64]>::to_vec).ok_or(StoreError::NoSuchMove))
    }

    fn take_orders(&mut self) -> Vec<PyOrder> {
        let below = self.0.tier_mut();
        below.map_or_else(Vec::new, |tier| orders_to_py(tier.take_orders()))
    }

    /// Hears when a copy will be done, which no decision depends on.
    fn set_times(&mut self, r#move: Whole, first_layer_ns: Whole, ready_ns: Whole) {
        let _ = (r#move, first_layer_ns, ready_ns);
    }

    fn finish_move(&mut self, r#move: Whole) -> PyResult<()> {
        let below = self.0.tier_mut().ok_or(StoreError::NoSuchMove);
        answered(below.and_then(|tier| tier.finish_move(r#move.u64())))
    }

    fn step_computed(&mut self, leases: Vec<Whole>, now_ns: Whole) -> PyResult<()> {
        let leases: Vec<u64> = leases.into_iter().map(Whole::u64).collect();
        answered(self.0.step_computed(&leases, now_ns.u64()))
    }

    fn duplicates(&self, tier: Whole) -> PyResult<u64> {
        answered(MachineStore::room(&self.0, tier.index()))?;
        Ok(if tier.index() == STAGING { self.0.duplicates() } else { 0 })
    }

    /// Lease, hit blocks and tokens it has room for; the lease is `None` where it is refused, then the second
    /// tells whether for lack of blocks (0), of tokens (1), or since the state is computed in this step (2).
    fn admit(&mut self, asked: Asked, now_ns: Whole) -> PyResult<(Option<u64>, u32, u64)> {
        let asked = Newcomer {
            request: asked.request.u32(),
            prompt_tokens: asked.prompt_tokens.u64(),
            known_tokens: asked.known_tokens.u64(),
            matchable_blocks: asked.matchable_blocks.u32(),
            step_tokens: asked.step_tokens.u64(),
            chunk_tokens: asked.chunk_tokens.u64(),
            kept_blocks: asked.kept_blocks.u64(),
            whole: asked.whole,
            steps_in_flight: asked.steps_in_flight.u64(),
        };
        Ok(match answered(self.0.admit(&asked, now_ns.u64()))? {
            Entry::Admitted {
                lease,
                hit_blocks,
                room_tokens,
            } => (Some(lease), hit_blocks, room_tokens),
            Entry::NoRoom => (None, 0, 0),
            Entry::NoTokens => (None, 1, 0),
            Entry::NotYet => (None, 2, 0),
        })
    }

    fn chunk(&self, lease: Whole, computed: Whole, target: Whole, tokens: Whole) -> PyResult<u64> {
        let answer = self.0.chunk(lease.u64(), computed.u64(), target.u64(), tokens.u64());
        answered(answer)
    }

    fn most_blocks(&self, tokens: Whole, steps_in_flight: Whole) -> u64 {
        self.0.most_blocks(tokens.u64(), steps_in_flight.u64())
    }

    /// `tokens`: those that are computed, and those up to which room is asked for.
    fn grow(&mut self, lease: Whole, tokens: (Whole, Whole), now_ns: Whole) -> PyResult<bool> {
        let tokens = (tokens.0.u64(), tokens.1.u64());
        answered(self.0.grow(lease.u64(), tokens, now_ns.u64()))
    }

    /// By group: blocks that got a key, that lost it, tokens lost since nothing was kept, and by eviction.
    fn by_group(&self) -> Vec<(u64, u64, u64, u64)> {
        let lost = self.0.lost().0.tokens.iter();
        let pairs = self.0.by_group().iter().zip(lost);
        pairs.map(|(&(a, b), &(c, d))| (a, b, c, d)).collect()
    }

    /// Request, tokens and whether a state was lacking, where some group had kept nothing to go on from.
    fn junctions(&self) -> Vec<(u32, u64, bool)> {
        let junctions = self.0.lost().1.iter();
        junctions.map(|j| (j.request, j.tokens, j.is_state)).collect()
    }

    /// Group and key of the free blocks, next to be taken first; `None` where there is none.
    fn free_queue(&self) -> Vec<Option<(u8, u64)>> {
        self.0.free_queue()
    }
});

/// Adds the class of this room.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyGroupStore>()
}
