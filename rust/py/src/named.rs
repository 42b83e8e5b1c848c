//! Named tuples of `kvcache_sim.cache.store`: what a store answers about the blocks of a tier.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

const MODULE: &str = "kvcache_sim.cache.store";

/// `Room` of (free, active, cached, in flight, evictable) blocks.
pub fn room(py: Python<'_>, blocks: (u64, u64, u64, u64, u64)) -> PyResult<Bound<'_, PyAny>> {
    static ROOM: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    ROOM.import(py, MODULE, "Room")?.call1(blocks)
}

/// `cache.groups.Brought` of the pool's own blocks, the moves that free room, and those that bring KV with their tiers.
pub fn brought(
    py: Python<'_>,
    what: (u32, Vec<u64>, Vec<(u64, usize)>),
) -> PyResult<Bound<'_, PyAny>> {
    static BROUGHT: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    BROUGHT
        .import(py, "kvcache_sim.cache.groups", "Brought")?
        .call1(what)
}

/// `Losses` of (evicted, overflowed, orphaned) blocks.
pub fn losses(py: Python<'_>, blocks: (u64, u64, u64)) -> PyResult<Bound<'_, PyAny>> {
    static LOSSES: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    LOSSES.import(py, MODULE, "Losses")?.call1(blocks)
}
