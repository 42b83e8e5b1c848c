//! Answers with names: the named tuples of `kvcache_sim.cache.store`, and entries of dicts.

use kvsim_core::store::contract::{EvictionCounts, TierOccupancy};
use kvsim_core::store::STAGING;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

const MODULE: &str = "kvcache_sim.cache.store";

/// `Occupancy` of a tier.
pub fn occupancy<'py>(py: Python<'py>, tier: &TierOccupancy) -> PyResult<Bound<'py, PyAny>> {
    static OCCUPANCY: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let (free, held, cached) = (tier.free, tier.held, tier.cached);
    let blocks = (free, held, cached, tier.in_flight, tier.private);
    OCCUPANCY.import(py, MODULE, "Occupancy")?.call1(blocks)
}

/// `cache.groups.Brought` from the pool's own blocks, the moves that free blocks, and the moves that load KV from the
/// tier below.
pub fn brought(
    py: Python<'_>,
    in_pool_blocks: u32,
    freeing_moves: Vec<u64>,
    loads: Vec<u64>,
) -> PyResult<Bound<'_, PyAny>> {
    let loads: Vec<_> = loads.into_iter().map(|id| (id, STAGING)).collect();
    static BROUGHT: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    BROUGHT
        .import(py, "kvcache_sim.cache.groups", "Brought")?
        .call1((in_pool_blocks, freeing_moves, loads))
}

/// `EvictionCounts` of a tier.
pub fn eviction_counts<'py>(
    py: Python<'py>,
    counts: &EvictionCounts,
) -> PyResult<Bound<'py, PyAny>> {
    static EVICTION_COUNTS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    EVICTION_COUNTS
        .import(py, MODULE, "EvictionCounts")?
        .call1((counts.evicted, counts.overflowed, counts.orphaned))
}

/// Sets entries of a dict from the fields of a struct, under their own names or the names before `=`.
macro_rules! set_entries {
    ($out:expr, $from:expr => $($name:ident $(= $field:ident)?),*) => {
        $($out.set_item(stringify!($name), $crate::named::field!($from, $name $($field)?))?;)*
    };
}

/// Sets entries like `set_entries`, from vectors as numpy arrays, moved rather than copied.
macro_rules! set_arrays {
    ($out:expr, $from:expr => $($name:ident $(= $field:ident)?),*) => {
        $(
            let array = numpy::PyArray1::from_vec($out.py(), $crate::named::field!($from, $name $($field)?));
            $out.set_item(stringify!($name), array)?;
        )*
    };
}

/// The field of an entry.
macro_rules! field {
    ($from:expr, $name:ident) => {
        $from.$name
    };
    ($from:expr, $name:ident $field:ident) => {
        $from.$field
    };
}

pub(crate) use {field, set_arrays, set_entries};
