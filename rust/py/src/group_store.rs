//! `GroupStore`: vLLM's pool of several KV cache groups as the store of a machine, alone or above one tier.

use kvsim_core::engines::group_store::GroupStore;
use kvsim_core::engines::group_tier::{GroupTier, GroupWrites};
use kvsim_core::engines::groups::{Limits, Reuse};
use kvsim_core::engines::offload_tier::AnyPolicy;
use kvsim_core::engines::ranked_lru::RankedLru;
use kvsim_core::engines::simple_tier::SimpleTier;
use kvsim_core::engines::tier_chunks::TierBlocks;
use kvsim_core::store::contract::{BatchStore, BlockStore, GroupAdmission};
use kvsim_core::store::newcomer::{Entry, Newcomer};
use kvsim_core::store::StoreError;
use pyo3::prelude::*;

use crate::argument::{from_attributes, from_tuples, tuple_structs, Arg};
use crate::engine_stores::{chunks_of, offload_tier};
use crate::engines::offload_policy;
use crate::groups::{capacity_of, limits_of, KvGroups, LimitsArg};
use crate::machine_store::{own_store, store_calls, AnyStore, PyMachineStore};
use crate::named;
use crate::refusal::{answered, refused};

// `cache.groups.Newcomer`
from_attributes! {
    Newcomer {
        request, prompt_tokens, known_tokens, matchable_blocks, step_tokens, chunk_tokens, kept_blocks, whole,
        steps_in_flight, ..Self
    }
}

/// The blocks of one GPU for a model's cache groups, under vLLM's rules of reuse or the tree's.
#[pyclass(name = "GroupStore", module = "kvcache_sim._core", extends = PyMachineStore)]
pub struct PyGroupStore;

own_store!(PyGroupStore, Groups(GroupStore));

tuple_structs! {
    /// A tier below the pool.
    pub struct TierArg {
        cpu_blocks: Arg<u64>,
        chunk_blocks: Arg<u32>,
        /// Name of the eviction policy.
        policy: String,
        /// `engine`, `back` or `through`.
        writes: String,
    }
}

/// Tokens of a sequence: computed, and to have capacity for.
pub struct GrownTokens {
    computed: u64,
    end: u64,
}

from_tuples! {
    GrownTokens { computed, end }
}

fn made(
    groups: &KvGroups,
    limits: LimitsArg,
    blocks: Arg<u32>,
    rules: &str,
) -> PyResult<GroupStore> {
    let reuse = match rules {
        "vllm" => Reuse::Engine,
        "tree" => Reuse::Tree,
        _ => return Err(refused("no such rules of reuse", "vllm or tree")),
    };
    let limits = Limits {
        reuse,
        ..limits_of(limits)?
    };
    let capacity = capacity_of(blocks.0)?;
    Ok(GroupStore::new(
        groups.groups.clone(),
        groups.align,
        limits,
        capacity,
    ))
}

store_calls! {
    PyGroupStore {
        #[new]
        fn new(
            groups: &KvGroups,
            limits: LimitsArg,
            capacity_blocks: Arg<u32>,
            rules: &str,
        ) -> PyResult<(Self, PyMachineStore)> {
            let store = made(groups, limits, capacity_blocks, rules)?;
            Ok((Self, PyMachineStore::new(AnyStore::Groups(store))))
        }

        /// A store above a tier of so many blocks under a policy; `writes`: `engine`, `back` or `through`.
        #[staticmethod]
        fn with_tier(
            py: Python<'_>,
            groups: &KvGroups,
            limits: LimitsArg,
            capacity_blocks: Arg<u32>,
            rules: &str,
            tier: TierArg,
            prompt_tokens: Arg<Vec<u64>>,
        ) -> PyResult<Py<Self>> {
            let TierArg {
                cpu_blocks,
                chunk_blocks,
                policy,
                writes,
            } = tier;
            let requests = prompt_tokens.0.len() as u32;
            let writes = match writes.as_str() {
                "engine" => GroupWrites::Engine,
                "back" => GroupWrites::Back,
                "through" => GroupWrites::Through,
                _ => {
                    return Err(refused(
                        "no such rules of writing",
                        "engine, back or through",
                    ))
                }
            };
            if requests != groups.groups[0].keys.requests() {
                return answered(Err(StoreError::Lengths(groups.groups[0].keys.requests())));
            }
            let blocks = capacity_of(capacity_blocks.0)?;
            let chunks = chunks_of(chunk_blocks.0, TierBlocks { cpu: cpu_blocks.0, disk: 0 })?;
            let capacity = chunks.capacities().cpu;
            let order: Box<AnyPolicy> = match (policy.as_str(), writes) {
                ("lru", GroupWrites::Engine) => Box::<RankedLru>::default(),
                _ => offload_policy(&policy, capacity as usize)?,
            };
            let tier = match (offload_tier(capacity, order, requests)?, writes) {
                (tier, GroupWrites::Engine) => tier.of_groups(groups.groups.len() as u32),
                (tier, _) => tier,
            };
            let below = GroupTier::new(tier, chunks, writes, blocks, prompt_tokens.0);
            let store = made(groups, limits, capacity_blocks, rules)?;
            let store = AnyStore::Groups(store.above(below));
            Py::new(py, (Self, PyMachineStore::new(store)))
        }

        /// A store above the tier of vLLM's second offloader: its blocks, and for lazy stores the tokens of a step.
        #[staticmethod]
        fn with_simple_tier(
            py: Python<'_>,
            groups: &KvGroups,
            limits: LimitsArg,
            capacity_blocks: Arg<u32>,
            cpu_blocks: Arg<u32>,
            step_tokens: Option<Arg<u64>>,
        ) -> PyResult<Py<Self>> {
            let (blocks, cpu) = (capacity_of(capacity_blocks.0)?, capacity_of(cpu_blocks.0)?);
            let tokens = step_tokens.map(|tokens| tokens.0);
            let tier = SimpleTier::new(&groups.groups, blocks, cpu, tokens);
            let store = made(groups, limits, capacity_blocks, "vllm")?;
            let store = AnyStore::Groups(store.above_simple(tier));
            Py::new(py, (Self, PyMachineStore::new(store)))
        }

        fn brought<'py>(
            slf: PyRefMut<'py, Self>,
            py: Python<'py>,
            lease: Arg<u64>,
        ) -> PyResult<Bound<'py, PyAny>> {
            let admitted = Self::call(slf, |store| {
                let below = store.tier_mut();
                Ok(below.map(|tier| tier.brought(lease.0)).unwrap_or_default())
            })?;
            named::brought(
                py,
                admitted.in_pool_blocks,
                admitted.freeing_moves,
                admitted.loads,
            )
        }

        fn blocks_of_move(slf: PyRefMut<'_, Self>, r#move: Arg<u64>) -> PyResult<Vec<u64>> {
            Self::call(slf, |store| {
                let counts = store.moving().and_then(|tier| tier.blocks_of_move(r#move.0));
                counts.map(<[u64]>::to_vec).ok_or(StoreError::NoSuchMove)
            })
        }

        /// Lease, hit blocks, and tokens with capacity. If refused, the lease is `None` and the second entry is the
        /// reason: no blocks (0), no tokens (1), or the state is being computed in this step (2).
        fn admit(
            slf: PyRefMut<'_, Self>,
            asked: Arg<Newcomer>,
            now_ns: Arg<u64>,
        ) -> PyResult<(Option<u64>, u32, u64)> {
            Ok(
                match Self::call(slf, |store| store.admit(&asked.0, now_ns.0))? {
                    Entry::Admitted {
                        lease,
                        hit_blocks,
                        reserved_tokens,
                    } => (Some(lease), hit_blocks, reserved_tokens),
                    Entry::NoCapacity => (None, 0, 0),
                    Entry::NoTokens => (None, 1, 0),
                    Entry::NotYet | Entry::Later | Entry::Brings { .. } | Entry::Loads { .. } => (None, 2, 0),
                },
            )
        }

        /// `tokens`: computed tokens, and tokens to have capacity for.
        fn grow(
            slf: PyRefMut<'_, Self>,
            lease: Arg<u64>,
            tokens: Arg<GrownTokens>,
            now_ns: Arg<u64>,
        ) -> PyResult<bool> {
            let GrownTokens { computed, end } = tokens.0;
            Self::call(slf, |store| store.grow_to(lease.0, computed, end, now_ns.0))
        }

        /// By group: blocks that got a key, blocks that lost it, tokens lost since nothing was kept, tokens
        /// lost by eviction.
        fn by_group(slf: PyRefMut<'_, Self>) -> PyResult<Vec<(u64, u64, u64, u64)>> {
            Self::call(slf, |store| {
                let lost = store.lost().0.tokens.iter();
                let pairs = store.by_group().iter().zip(lost);
                Ok(pairs.map(|(&(a, b), &(c, d))| (a, b, c, d)).collect())
            })
        }

        /// Request, tokens, and true if a state was missing, for hits cut where some group had kept nothing.
        fn junctions(slf: PyRefMut<'_, Self>) -> PyResult<Vec<(u32, u64, bool)>> {
            Self::call(slf, |store| {
                let junctions = store.lost().1.iter();
                Ok(junctions
                    .map(|j| (j.request, j.tokens, j.is_state))
                    .collect())
            })
        }
    }
    fallible fn chunk(lease: u64, computed: u64, target: u64, tokens: u64) -> u64;
    plain fn most_blocks(tokens: u64, steps_in_flight: u64) -> u64;
    /// Group and key of the free blocks in the order of allocation; `None` for a block without a key.
    plain fn free_queue() -> Vec<Option<(u8, u64)>>;
}
