//! Answers with names: the named tuples of `kvcache_sim.cache.store`, and entries of dicts.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

const MODULE: &str = "kvcache_sim.cache.store";

/// `Occupancy` from (free, held, cached, in flight, private) blocks.
pub fn occupancy(py: Python<'_>, blocks: (u64, u64, u64, u64, u64)) -> PyResult<Bound<'_, PyAny>> {
    static OCCUPANCY: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    OCCUPANCY.import(py, MODULE, "Occupancy")?.call1(blocks)
}

/// `cache.groups.Brought` from the pool's own blocks, the moves that free blocks, and the moves that load KV with their
/// tiers.
pub fn brought(
    py: Python<'_>,
    what: (u32, Vec<u64>, Vec<(u64, usize)>),
) -> PyResult<Bound<'_, PyAny>> {
    static BROUGHT: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    BROUGHT
        .import(py, "kvcache_sim.cache.groups", "Brought")?
        .call1(what)
}

/// `EvictionCounts` from (evicted, overflowed, orphaned) blocks.
pub fn eviction_counts(py: Python<'_>, blocks: (u64, u64, u64)) -> PyResult<Bound<'_, PyAny>> {
    static EVICTION_COUNTS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    EVICTION_COUNTS
        .import(py, MODULE, "EvictionCounts")?
        .call1(blocks)
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
