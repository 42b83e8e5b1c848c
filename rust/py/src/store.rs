//! `Store`: the block store of one machine.

use kvsim_core::ids::BlockRange;
use kvsim_core::store::{Overflow, Residency, Store, TierConfig, Times, Touch};
use kvsim_core::views::PrefixViewConfig;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::argument::{from_tuples, Arg};
use crate::failure::Failure;
use crate::keys::PyKeys;
use crate::machine_store::{own_store, store_calls, AnyStore, PyMachineStore};
use crate::order::{order, OrderChoice};
use crate::store_values::{parts_to_py, PyPart};

/// The block store of one machine.
#[pyclass(name = "Store", module = "kvcache_sim._core", extends = PyMachineStore)]
pub struct PyStore;

own_store!(PyStore, Tree(Store));

/// A run up to a block, with its copies: (tier, move writing it, first layer ready, whole ready, last access), times in ns.
type PyResidencies = (u32, Vec<(usize, u64, u64, u64, u64)>);

/// Settings of shared prefixes, and the tokens of a block.
pub struct SharedPrefixes {
    view: PrefixViewConfig,
    block_size_tokens: u64,
}

from_tuples! {
    SharedPrefixes { view, block_size_tokens }
}

/// A claim, and the moves that must finish before its capacity is free.
type PyClaim = (u64, Vec<u64>);

store_calls! {
    PyStore {
        /// `orders`: by tier, None for recency; no list means recency on all. `touch`: the event that makes blocks
        /// recent. `eviction_batch_blocks`: blocks that an eviction removes at least. `shared`: which prefixes are
        /// shared between requests, and the tokens of a block; None: all. `overflow`: of victims that the tier below
        /// cannot store now. `write_once`: victims that any lower tier has are not written again.
        #[allow(clippy::too_many_arguments)]
        #[new]
        #[pyo3(signature = (keys, capacities_blocks, write_back, orders=None, touch="release", eviction_batch_blocks=1, shared=None, overflow="wait", write_once=false))]
        fn new(
            keys: &PyKeys,
            capacities_blocks: Vec<Option<u64>>,
            write_back: Vec<bool>,
            orders: Option<Vec<Option<OrderChoice<'_>>>>,
            touch: &str,
            eviction_batch_blocks: u64,
            shared: Option<Arg<SharedPrefixes>>,
            overflow: &str,
            write_once: bool,
        ) -> PyResult<(Self, PyMachineStore)> {
            if capacities_blocks.is_empty() || capacities_blocks.len() != write_back.len() {
                return Err(PyValueError::new_err(
                    "a tier or more, each with its write policy",
                ));
            }
            let tiers: Vec<TierConfig> = capacities_blocks
                .into_iter()
                .zip(write_back)
                .map(|(capacity_blocks, write_back)| TierConfig {
                    capacity_blocks,
                    write_back,
                })
                .collect();
            let touch = match touch {
                "release" => Touch::Release,
                "admission" => Touch::Admission,
                _ => return Err(PyValueError::new_err("touch is release or admission")),
            };
            let failure = Failure::default();
            let orders = orders
                .unwrap_or_default()
                .into_iter()
                .map(|choice| choice.map(|choice| order(choice, &failure)).transpose())
                .collect::<PyResult<Vec<_>>>()?;
            let overflow = match overflow {
                "wait" => Overflow::Wait,
                "wait-for-writes" => Overflow::WaitForWrites,
                "drop" => Overflow::Drop,
                _ => return Err(PyValueError::new_err("overflow is wait, wait-for-writes or drop")),
            };
            let mut store = Store::new(keys.0.clone(), &tiers)
                .with_touch(touch)
                .with_eviction_batch(eviction_batch_blocks)
                .with_overflow(overflow)
                .with_write_once(write_once)
                .with_orders(orders);
            if let Some(Arg(shared)) = shared {
                store.share_prefixes(shared.view, shared.block_size_tokens);
            }
            Ok(Self::over(store, failure))
        }

        fn residency(
            slf: PyRefMut<'_, Self>,
            request: Arg<u32>,
            limit: Arg<u32>,
        ) -> PyResult<Vec<PyResidencies>> {
            let to_py = |r: Residency| {
                let Times { first_layer_ns, ready_ns } = r.times;
                (r.tier, r.by, first_layer_ns, ready_ns, r.last_access_ns)
            };
            Self::call(slf, |tree| {
                tree.known_request(request.0)?;
                let runs = tree.residency(request.0, limit.0).into_iter();
                Ok(runs.map(|(end, copies)| (end, copies.into_iter().map(to_py).collect())).collect())
            })
        }

        fn match_below(
            slf: PyRefMut<'_, Self>,
            request: Arg<u32>,
            start: Arg<u32>,
            limit: Arg<u32>,
        ) -> PyResult<Vec<PyPart>> {
            Self::call(slf, |tree| {
                tree.known_request(request.0)?;
                Ok(parts_to_py(tree.match_below(request.0, start.0, limit.0)))
            })
        }

        fn take_keys(slf: PyRefMut<'_, Self>, keys: &PyKeys) -> PyResult<()> {
            Self::call(slf, |tree| {
                tree.take_keys(keys.0.clone());
                Ok(())
            })
        }

        fn log_changes(slf: PyRefMut<'_, Self>) -> PyResult<()> {
            Self::call(slf, |tree| {
                tree.records.log_changes();
                Ok(())
            })
        }

        fn take_changes(slf: PyRefMut<'_, Self>) -> PyResult<Vec<(usize, bool, u64)>> {
            Self::call(slf, |tree| Ok(tree.records.take_changes()))
        }
    }
    of fn uses(request: u32, limit: u32) -> Vec<(u32, u32, u64)>;
    of fn copies(request: u32, limit: u32) -> Vec<(u32, Vec<u64>)>;
    plain fn expire(now_ns: u64) -> ();
    #[getter]
    plain fn runs() -> usize;
    plain fn clear() -> bool;
    fallible fn stage(request: u32, part: BlockRange, to_tier: usize, ready: Option<u64>, now_ns: u64) -> Option<u64>;
    fallible fn write_through(lease: u64, start: u32, end: u32, now_ns: u64) -> Option<u64>;
    fallible fn write_selected(lease: u64, tier: usize, uses: u32, now_ns: u64) -> Option<u64>;
    fallible fn write_on(r#move: u64, now_ns: u64) -> Option<u64>;
    fallible fn touch(request: u32, end: u32) -> ();
    fallible fn discard(request: u32, start: u32, end: u32) -> ();
    fallible fn moved_paths(r#move: u64) -> Vec<(u32, u32)>;
    fallible fn claim(tier: usize, blocks: u64, now_ns: u64) -> Option<PyClaim>;
    fallible fn release_claim(claim: u64) -> ();
    fallible fn fill_claim(claim: u64, request: u32, part: BlockRange, source: Option<usize>) -> bool;
    fallible fn remove(request: u32, part: BlockRange, tier: usize) -> u32;
    fallible fn lend(request: u32, end: u32, tier: usize) -> u64;
    fallible fn receive(request: u32, part: BlockRange, now_ns: u64) -> Option<u64>;
    fallible fn drop_copy(request: u32, start: u32, end: u32, tier: usize) -> ();
}

impl PyStore {
    /// The classes' contents for a tree; `failure` receives the exceptions of its policies.
    pub fn over(tree: Store, failure: Failure) -> (Self, PyMachineStore) {
        let store = AnyStore::Tree(tree);
        (Self, PyMachineStore { store, failure })
    }
}
