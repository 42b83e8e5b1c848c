//! `GroupStore`: vLLM's pool of several KV cache groups as the store of a machine with a GPU tier alone.

use kvsim_core::batch::BatchStore;
use kvsim_core::engines::group_store::GroupStore;
use kvsim_core::engines::groups::{Limits, Reuse};
use kvsim_core::engines::newcomer::{Entry, Newcomer};
use kvsim_core::machine_store::MachineStore;
use kvsim_core::store::{StoreError, Times};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::engine_store::engine_store;
use crate::groups::{capacity_of, limits_of, KvGroups};
use crate::named;
use crate::refusal::{answered, refused, Whole};
use crate::store_values::{room_to_py, times};

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

    fn begin_step(&mut self) {
        self.0.begin_step();
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
