//! The base class of all stores, and the calls that every kind of store has.

use kvsim_core::engines::group_store::GroupStore;
use kvsim_core::engines::pool_store::PoolStore;
use kvsim_core::engines::radix_store::RadixStore;
use kvsim_core::engines::tiered_pool::TieredPool;
use kvsim_core::store::contract::{BlockStore, LoadingStore, MachineStore, MovingStore};
use kvsim_core::store::{Answer, LeaseBlocks, Store, StoreError, Times, GPU};
use kvsim_core::token_store::TokenStore;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::argument::Arg;
use crate::failure::{raised, Failure};
use crate::named;
use crate::refusal::answered;
use crate::store_values::{orders_to_py, parts_to_py, reservation_to_py, PyOrder, PyPart};

/// The store of a machine: a tree of runs, vLLM's pool (of one group or several, or above an engine's tiers), one of
/// SGLang's trees, or a count of tokens.
#[allow(clippy::large_enum_variant)] // one per machine
pub enum AnyStore {
    Tree(Store),
    Pool(PoolStore),
    Radix(RadixStore),
    Groups(GroupStore),
    TieredPool(TieredPool),
    Tokens(TokenStore),
}

/// Runs the same expression with any kind of store.
macro_rules! each_store {
    ($any:expr, $store:ident => $call:expr) => {
        match $any {
            $crate::machine_store::AnyStore::Tree($store) => $call,
            $crate::machine_store::AnyStore::Pool($store) => $call,
            $crate::machine_store::AnyStore::Radix($store) => $call,
            $crate::machine_store::AnyStore::Groups($store) => $call,
            $crate::machine_store::AnyStore::TieredPool($store) => $call,
            $crate::machine_store::AnyStore::Tokens($store) => $call,
        }
    };
}

/// Calls a method of a replica with its store; raises the exception of a policy in Python, if any.
macro_rules! with_store {
    ($self:ident, $py:ident, $replica:ident, $store:ident => $call:expr) => {{
        let $replica = &mut $self.replica;
        let own = &mut *$self.store.try_borrow_mut($py)?;
        let answer = $crate::machine_store::each_store!(&mut own.store, $store => $call);
        own.answered(answer)
    }};
}

pub(crate) use {each_store, with_store};

impl AnyStore {
    fn blocks(&mut self) -> &mut dyn BlockStore {
        each_store!(self, store => store)
    }

    /// The store as one with tiers below the GPU; a tree of one tier refuses its calls.
    fn moving(&mut self) -> Option<&mut dyn MovingStore> {
        match self {
            Self::Tree(tree) => Some(tree),
            other => other.blocks().moving(),
        }
    }

    /// The store as one whose blocks are loaded from lower tiers.
    fn loading(&mut self) -> Answer<&mut dyn LoadingStore> {
        let loading = match self {
            Self::Tree(tree) => Some(tree as &mut dyn LoadingStore),
            other => other.blocks().loading(),
        };
        loading.ok_or(StoreError::WrongTier)
    }
}

/// The store of a machine, and the exception of a policy of one of its tiers.
#[pyclass(name = "MachineStore", module = "kvcache_sim._core", subclass)]
pub struct PyMachineStore {
    pub store: AnyStore,
    pub failure: Failure,
}

impl PyMachineStore {
    /// A store without policies written in Python.
    pub fn new(store: AnyStore) -> Self {
        Self {
            store,
            failure: Failure::default(),
        }
    }

    /// An answer of the store, or an exception; the exception of a policy comes first.
    pub fn answered<T>(&self, answer: Answer<T>) -> PyResult<T> {
        raised(&self.failure, answer).and_then(answered)
    }

    /// The store as a tree, if it is one.
    pub fn tree(&mut self) -> Option<&mut Store> {
        match &mut self.store {
            AnyStore::Tree(tree) => Some(tree),
            _ => None,
        }
    }

    /// Blocks on the GPU that are private to running requests.
    pub fn active(&self) -> Answer<u64> {
        let occupancy = each_store!(&self.store, store => MachineStore::occupancy(store, GPU));
        occupancy.map(|occupancy| occupancy.private)
    }

    fn reserve_all(&mut self, wanted: &[LeaseBlocks], now_ns: u64) -> PyResult<Option<Vec<u64>>> {
        let occupancy = self.store.blocks().reserve(wanted, now_ns);
        self.answered(occupancy).map(reservation_to_py)
    }
}

/// The calls of every store, and those of stores with tiers below the GPU, which other stores refuse.
#[pymethods]
impl PyMachineStore {
    fn peek(&mut self, request: Arg<u32>, limit: Arg<u32>) -> PyResult<(u32, u32)> {
        answered(self.store.blocks().peek(request.0, limit.0))
    }

    fn acquire(&mut self, request: Arg<u32>, depth: Arg<u32>) -> PyResult<u64> {
        answered(self.store.blocks().acquire(request.0, depth.0))
    }

    fn abandon(&mut self, lease: Arg<u64>) -> PyResult<()> {
        answered(self.store.blocks().abandon(lease.0))
    }

    fn reserve(
        &mut self,
        lease: Arg<u64>,
        blocks: Arg<u64>,
        now_ns: Arg<u64>,
    ) -> PyResult<Option<Vec<u64>>> {
        self.reserve_all(&[LeaseBlocks::new(lease.0, blocks.0)], now_ns.0)
    }

    fn reserve_many(
        &mut self,
        wanted: Arg<Vec<LeaseBlocks>>,
        now_ns: Arg<u64>,
    ) -> PyResult<Option<Vec<u64>>> {
        self.reserve_all(&wanted.0, now_ns.0)
    }

    /// `ready`: times at which the blocks were computed; an engine's store does not keep them.
    #[pyo3(signature = (lease, to, ready=None))]
    fn commit(&mut self, lease: Arg<u64>, to: Arg<u32>, ready: Option<Arg<Times>>) -> PyResult<()> {
        let latest = match &self.store {
            AnyStore::Tree(tree) => Times::at(tree.now_ns()),
            _ => Times::default(),
        };
        let ready = ready.map_or(latest, |ready| ready.0);
        if ready.first_layer_ns > ready.ready_ns {
            return answered(Err(StoreError::LastLayerFirst));
        }
        let committed = self.store.blocks().commit(lease.0, to.0, ready);
        self.answered(committed)
    }

    fn depth(&mut self, lease: Arg<u64>) -> PyResult<u32> {
        answered(self.store.blocks().depth(lease.0))
    }

    fn release(&mut self, lease: Arg<u64>, now_ns: Arg<u64>) -> PyResult<()> {
        let released = self.store.blocks().release(lease.0, now_ns.0);
        self.answered(released)
    }

    fn occupancy<'py>(&mut self, py: Python<'py>, tier: Arg<usize>) -> PyResult<Bound<'py, PyAny>> {
        let t = answered(self.store.blocks().occupancy(tier.0))?;
        named::occupancy(py, &t)
    }

    fn eviction_counts<'py>(
        &mut self,
        py: Python<'py>,
        tier: Arg<usize>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let t = answered(self.store.blocks().eviction_counts(tier.0))?;
        named::eviction_counts(py, &t)
    }

    fn note(&mut self, kind: Arg<u8>, now_ns: Arg<u64>, subject: Arg<u64>, value: Arg<u64>) {
        let records = self.store.blocks().records_mut();
        records.note(kind.0, now_ns.0, subject.0, value.0);
    }

    fn log_evictions(&mut self) {
        self.store.blocks().records_mut().log_evictions();
    }

    fn not_loaded(&mut self) -> Vec<(u32, u32)> {
        self.store.blocks().records_mut().not_loaded.clone()
    }

    fn take_evictions(&mut self) -> Vec<(u64, usize, u64)> {
        self.store.blocks().records_mut().take_evictions()
    }

    #[getter]
    fn digest(&mut self) -> u64 {
        self.store.blocks().records().digest()
    }

    #[getter]
    fn merged_blocks(&mut self) -> u64 {
        self.store.blocks().merged_blocks()
    }

    fn check(&mut self) -> PyResult<()> {
        let checked = self.store.blocks().check();
        checked.map_err(PyRuntimeError::new_err)
    }

    fn match_prefix(&mut self, request: Arg<u32>, limit: Arg<u32>) -> PyResult<Vec<PyPart>> {
        answered(self.store.blocks().known_request(request.0))?;
        let store = answered(self.store.loading())?;
        Ok(parts_to_py(store.match_prefix(request.0, limit.0)))
    }

    fn protect(&mut self, request: Arg<u32>, end: Arg<u32>, tier: Arg<usize>) -> PyResult<u64> {
        answered(self.store.blocks().known_request(request.0))?;
        let store = answered(self.store.loading())?;
        answered(store.protect(request.0, end.0, tier.0))
    }

    fn unprotect(&mut self, tier: Arg<usize>, hold: Arg<u64>) -> PyResult<()> {
        let store = answered(self.store.loading())?;
        answered(store.unprotect(tier.0, hold.0))
    }

    fn load(&mut self, lease: Arg<u64>, to: Arg<u32>, after: Arg<Vec<u64>>) -> PyResult<u64> {
        let store = answered(self.store.loading())?;
        answered(store.load(lease.0, to.0, &after.0))
    }

    fn join(&mut self, lease: Arg<u64>, to: Arg<u32>) -> PyResult<()> {
        let store = answered(self.store.loading())?;
        answered(store.join(lease.0, to.0))
    }

    fn take_orders(&mut self) -> Vec<PyOrder> {
        let moving = self.store.moving();
        moving.map_or_else(Vec::new, |store| orders_to_py(store.take_orders()))
    }

    /// Sets the times at which a move's copies will be ready; no decision of an engine depends on them.
    fn set_times(
        &mut self,
        r#move: Arg<u64>,
        first_layer_ns: Arg<u64>,
        ready_ns: Arg<u64>,
    ) -> PyResult<()> {
        let arrival = Times {
            first_layer_ns: first_layer_ns.0,
            ready_ns: ready_ns.0,
        };
        let moving = self.store.moving();
        answered(moving.map_or(Ok(()), |store| store.set_times(r#move.0, arrival)))
    }

    fn finish_move(&mut self, r#move: Arg<u64>) -> PyResult<()> {
        let moving = self.store.moving().ok_or(StoreError::NoSuchMove);
        let ended = moving.and_then(|store| store.finish_move(r#move.0));
        self.answered(ended)
    }

    /// Reports the end of a step of these leases, to a store that copies computed blocks down.
    fn step_computed(&mut self, leases: Arg<Vec<u64>>, now_ns: Arg<u64>) -> PyResult<()> {
        let offers = self.store.blocks().offers();
        answered(offers.map_or(Ok(()), |store| store.step_computed(&leases.0, now_ns.0)))
    }

    /// A tier's blocks that are on a faster tier too.
    fn duplicates(&mut self, tier: Arg<usize>) -> PyResult<u64> {
        answered(self.store.blocks().occupancy(tier.0))?;
        Ok(match &self.store {
            AnyStore::Tree(tree) => tree.duplicates(tier.0),
            AnyStore::TieredPool(pool) => answered(pool.duplicates(tier.0))?,
            AnyStore::Radix(tree) => tree.duplicates(tier.0),
            AnyStore::Groups(groups) if tier.0 != GPU => groups.duplicates(),
            _ => 0,
        })
    }
}

/// Calls one kind of store from its class; raises the exception of a policy, if any.
macro_rules! own_store {
    ($class:ident, $kind:ident($core:ty)) => {
        impl $class {
            fn call<T>(
                mut slf: PyRefMut<'_, Self>,
                call: impl FnOnce(&mut $core) -> kvsim_core::store::Answer<T>,
            ) -> PyResult<T> {
                let base = slf.as_super();
                let $crate::machine_store::AnyStore::$kind(store) = &mut base.store else {
                    unreachable!("a class over another kind of store");
                };
                let answer = call(store);
                base.answered(answer)
            }
        }
    };
}

/// Adds methods that pass their numbers to one kind of store unchanged.
///
/// `fallible` methods may be refused, `plain` methods may not; methods `of` a request check that the trace
/// has it.
macro_rules! store_calls {
    ($class:ident { $($own:tt)* }
     $($(#[$meta:meta])* $kind:ident fn $name:ident($($given:ident: $number:ty),*) -> $answer:ty;)*) => {
        #[pymethods]
        impl $class {
            $($own)*

            $($(#[$meta])* fn $name(slf: PyRefMut<'_, Self>, $($given: Arg<$number>),*) -> PyResult<$answer> {
                Self::call(slf, |store| $crate::machine_store::store_call!($kind store.$name($($given.0),*)))
            })*
        }
    };
}

/// One call of `store_calls`, as an answer that may be refused.
macro_rules! store_call {
    (fallible $store:ident.$name:ident($($given:expr),*)) => {
        $store.$name($($given),*)
    };
    (plain $store:ident.$name:ident($($given:expr),*)) => {
        Ok($store.$name($($given),*))
    };
    (of $store:ident.$name:ident($request:expr $(, $given:expr)*)) => {
        $store.known_request($request).map(|()| $store.$name($request $(, $given)*))
    };
}

pub(crate) use {own_store, store_call, store_calls};
