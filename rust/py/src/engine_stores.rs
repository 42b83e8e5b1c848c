//! The stores of engines for Python: vLLM's block pool, alone or above tiers, and SGLang's trees.

use kvsim_core::engines::below::Below;
use kvsim_core::engines::block_pool::NO_KEY;
use kvsim_core::engines::chunk_order::{ChunkOrder, ChunkPolicy};
use kvsim_core::engines::l1_order::L1Policy;
use kvsim_core::engines::lmcache_below::LmcacheBelow;
use kvsim_core::engines::offload_below::OffloadBelow;
use kvsim_core::engines::offload_tier::{AnyPolicy, OffloadTier};
use kvsim_core::engines::pool_store::PoolStore;
use kvsim_core::engines::radix_store::{Lengths, RadixConfig, RadixStore, StorageConfig};
use kvsim_core::engines::radix_tree::host_tier::WritePolicy;
use kvsim_core::engines::radix_tree::worth::LeafStrategy;
use kvsim_core::engines::ranked_lru::RankedLru;
use kvsim_core::engines::server_below::ServerBelow;
use kvsim_core::engines::tier_chunks::{TierBlocks, TierChunks};
use kvsim_core::engines::tiered_pool::TieredPool;
use kvsim_core::engines::used_tier::UsedTier;
use kvsim_core::store::contract::PrefetchingStore;
use pyo3::prelude::*;

use crate::argument::{from_tuples, tuple_structs, Arg};
use crate::engines::{at_least_one, no_such_policy, offload_policy};
use crate::keys::PyKeys;
use crate::machine_store::{own_store, store_calls, AnyStore, PyMachineStore};
use crate::refusal::{answered, refused};

/// The blocks of one GPU under vLLM's rules.
#[pyclass(name = "PoolStore", module = "kvcache_sim._core", extends = PyMachineStore)]
pub struct PyPoolStore;

own_store!(PyPoolStore, Pool(PoolStore));

store_calls! {
    PyPoolStore {
        #[new]
        fn new(keys: &PyKeys, capacity_blocks: Arg<u32>) -> PyResult<(Self, PyMachineStore)> {
            if capacity_blocks.0 >= 1 << 31 {
                return Err(refused("too many blocks", "fewer than 2^31"));
            }
            let store = PoolStore::new(keys.0.clone(), capacity_blocks.0);
            Ok((Self, PyMachineStore::new(AnyStore::Pool(store))))
        }

        /// The keys of the free blocks in the order of allocation; `None` for a block without a key.
        fn free_queue(slf: PyRefMut<'_, Self>) -> PyResult<Vec<Option<u64>>> {
            let keyed = |key| (key != NO_KEY).then_some(key);
            Self::call(slf, |store| {
                Ok(store.pool.free_queue().into_iter().map(keyed).collect())
            })
        }
    }
    plain fn log_changes() -> ();
    plain fn take_changes() -> Vec<(usize, bool, u64)>;
    plain fn clear() -> bool;
}

/// vLLM's pool and the tiers below it.
#[pyclass(name = "TieredPoolStore", module = "kvcache_sim._core", extends = PyMachineStore)]
pub struct PyTieredPoolStore;

impl PyTieredPoolStore {
    fn above(
        py: Python<'_>,
        below: Box<dyn Below>,
        keys: &PyKeys,
        capacity_blocks: u32,
        prompts: PromptTokens,
    ) -> PyResult<Py<Self>> {
        at_least_one(u64::from(capacity_blocks), "blocks")?;
        let made = TieredPool::new(
            keys.0.clone(),
            capacity_blocks,
            below,
            prompts.tokens,
            prompts.block_size_tokens,
        );
        let store = AnyStore::TieredPool(answered(made)?);
        Py::new(py, (Self, PyMachineStore::new(store)))
    }
}

own_store!(PyTieredPoolStore, TieredPool(TieredPool));

#[pymethods]
impl PyTieredPoolStore {
    /// The keys of the free blocks in the order of allocation; `None` for a block without a key.
    fn free_queue(slf: PyRefMut<'_, Self>) -> PyResult<Vec<Option<u64>>> {
        Self::call(slf, |store| Ok(store.free_queue()))
    }

    /// A pool above vLLM's CPU offloading; `prompts`: tokens of each prompt, and of a block.
    #[staticmethod]
    fn with_offload(
        py: Python<'_>,
        keys: &PyKeys,
        capacity_blocks: Arg<u32>,
        cpu_blocks: Arg<u64>,
        chunk_blocks: Arg<u32>,
        policy: &str,
        prompts: Arg<PromptTokens>,
    ) -> PyResult<Py<Self>> {
        let chunks = chunks_of(
            chunk_blocks.0,
            TierBlocks {
                cpu: cpu_blocks.0,
                disk: 0,
            },
        )?;
        let capacity = chunks.capacities().cpu;
        let policy: Box<AnyPolicy> = match policy {
            "lru" => Box::<RankedLru>::default(),
            other => offload_policy(other, capacity as usize)?,
        };
        let below = OffloadBelow::new(offload_tier(capacity, policy, keys.0.requests())?, chunks);
        Self::above(py, Box::new(below), keys, capacity_blocks.0, prompts.0)
    }

    /// A pool above LMCache's CPU and disk tiers of given blocks, in chunks of `chunk_blocks`; 0 disk blocks: no disk
    /// tier. `policy`: the replay's, `lmcache:lru` or `lmcache-server:lru`.
    #[staticmethod]
    fn with_lmcache(
        py: Python<'_>,
        keys: &PyKeys,
        capacity_blocks: Arg<u32>,
        blocks: Arg<TierBlocks>,
        chunk_blocks: Arg<u32>,
        policy: &str,
        prompts: Arg<PromptTokens>,
    ) -> PyResult<Py<Self>> {
        let chunks = chunks_of(chunk_blocks.0, blocks.0)?;
        let unknown = || no_such_policy(policy);
        let (mode, variant) = policy.split_once(':').ok_or_else(unknown)?;
        let below: Box<dyn Below> = if mode == "lmcache-server" {
            let order = L1Policy::from_name(variant).ok_or_else(unknown)?;
            Box::new(ServerBelow::new(order, chunks, keys.0.requests()))
        } else {
            let order = ChunkPolicy::from_name(variant).ok_or_else(unknown)?;
            let orders = [ChunkOrder::new(order), ChunkOrder::new(order)];
            Box::new(LmcacheBelow::new(orders, chunks, keys.0.requests()))
        };
        Self::above(py, below, keys, capacity_blocks.0, prompts.0)
    }
}

/// Chunks of tiers of given blocks.
pub fn chunks_of(blocks: u32, capacity_blocks: TierBlocks) -> PyResult<TierChunks> {
    at_least_one(u64::from(blocks), "blocks of a chunk")?;
    let chunks = TierChunks::new(blocks, capacity_blocks);
    at_least_one(chunks.capacities().cpu, "chunks of the CPU")?;
    Ok(chunks)
}

/// An empty tier of vLLM's CPU offloading.
pub fn offload_tier(chunks: u64, policy: Box<AnyPolicy>, requests: u32) -> PyResult<UsedTier> {
    let tier = OffloadTier::new(policy, chunks as usize, 0);
    Ok(UsedTier::new(tier, chunks, requests))
}

tuple_structs! {
    /// Settings of a storage.
    pub struct StorageArg {
        /// None: unbounded.
        pages: Arg<Option<u64>>,
        /// Smallest prefetch.
        least_pages: Arg<u32>,
        /// Upper bound on the tokens that prefetches request.
        share_tokens: Arg<u64>,
    }

    /// Eviction strategy and write policy by SGLang's names.
    pub struct RadixRules {
        strategy: String,
        /// Empty: the classic tree without a host.
        write: String,
    }
}

/// Pages of the device and of the host.
pub struct TierPages {
    device: u64,
    host: u64,
}

/// Tokens of each prompt, and of a block.
pub struct PromptTokens {
    tokens: Vec<u64>,
    block_size_tokens: u64,
}

from_tuples! {
    TierPages { device, host }
    TierBlocks { cpu, disk }
    PromptTokens { tokens, block_size_tokens }
    Lengths { prompt_tokens, total_tokens }
}

/// The pages of a machine's GPU, optionally with a host tier and a storage, under SGLang's rules.
#[pyclass(name = "RadixStore", module = "kvcache_sim._core", extends = PyMachineStore)]
pub struct PyRadixStore;

own_store!(PyRadixStore, Radix(RadixStore));

store_calls! {
    PyRadixStore {
        /// `rules`: eviction strategy and write policy by SGLang's names; write policy "": the classic tree without a
        /// host. `pages`: of the device and of the host. `lengths`: prompt and total tokens by request. `storage`:
        /// pages of the storage below (None: unbounded), the smallest prefetch, and the most tokens that running prefetches may request.
        #[new]
        #[pyo3(signature = (keys, rules, page, pages, lengths, storage=None))]
        fn new(
            keys: &PyKeys,
            rules: RadixRules,
            page: Arg<u32>,
            pages: Arg<TierPages>,
            lengths: Arg<Lengths>,
            storage: Option<StorageArg>,
        ) -> PyResult<(Self, PyMachineStore)> {
            let (strategy, host) = if rules.write.is_empty() {
                (LeafStrategy::of_classic(&rules.strategy), None)
            } else {
                let write = WritePolicy::from_name(&rules.write);
                let write = write
                    .ok_or_else(|| refused("no such write policy", "one of SGLang's write policies"))?;
                let strategy = LeafStrategy::from_name(&rules.strategy, 0, 0);
                (strategy, Some((pages.0.host, write)))
            };
            let config = RadixConfig {
                strategy: strategy.ok_or_else(|| {
                    refused("no such eviction strategy", "one of SGLang's strategies")
                })?,
                page: page.0,
                device_pages: pages.0.device,
                host,
            };
            let made = RadixStore::new(keys.0.clone(), config, lengths.0);
            let store = answered(made)?;
            let store = match storage {
                Some(storage) => store.above(StorageConfig {
                    pages: storage.pages.0,
                    least_pages: storage.least_pages.0,
                    share_tokens: storage.share_tokens.0,
                }),
                None => store,
            };
            Ok((Self, PyMachineStore::new(AnyStore::Radix(store))))
        }

        #[getter]
        fn prefetched_blocks(slf: PyRefMut<'_, Self>) -> PyResult<u64> {
            Self::call(slf, |store| Ok(store.prefetched_pages()))
        }
    }
    fallible fn start_prefetch(request: u32, limit: u32, now_ns: u64) -> u32;
    plain fn is_prefetching(request: u32) -> bool;
    fallible fn stop_prefetch(request: u32) -> ();
}
