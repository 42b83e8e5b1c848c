//! The border: one file here per room of `kvsim-core`; nothing is decided on this side.

mod bytes;
mod causes;
mod channel;
mod cluster;
mod digest;
mod engine_of;
mod engine_pools;
mod engine_rules;
mod engine_store;
mod engine_tiers;
mod engines;
mod fetch_plan;
mod fleet;
mod group_store;
mod groups;
mod hicache_store;
mod intake;
mod keys;
mod machines;
mod named;
mod operations;
mod order;
mod outputs;
mod own_cache;
mod plugins;
mod policy_settings;
mod pool_store;
mod priority_order;
mod priority_value;
mod radix_store;
mod refusal;
mod replay;
mod samples;
mod schedule;
mod serving;
mod serving_rules;
mod sglang_pass;
mod step_table;
mod store;
mod store_values;
mod table;
mod tiered_pool_store;
mod token_store;
mod tokens;
mod trace;
mod views;
mod visits;
mod with_store;
mod write_plugin;

use pyo3::prelude::*;

/// The native module `kvcache_sim._core`; its contract is `python/kvcache_sim/_core.pyi`.
#[pymodule]
fn _core(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("__version__", env!("CARGO_PKG_VERSION"))?;
    m.add("__release__", !cfg!(debug_assertions))?;
    causes::register(m)?;
    engines::register(m)?;
    engine_pools::register(m)?;
    groups::register(m)?;
    engine_tiers::register(m)?;
    keys::register(m)?;
    policy_settings::register(m)?;
    replay::register(m)?;
    tokens::register(m)?;
    trace::register(m)?;
    digest::register(m)?;
    store::register(m)?;
    pool_store::register(m)?;
    group_store::register(m)?;
    hicache_store::register(m)?;
    radix_store::register(m)?;
    tiered_pool_store::register(m)?;
    token_store::register(m)?;
    step_table::register(m)?;
    table::register(m)?;
    channel::register(m)?;
    operations::register(m)?;
    outputs::register(m)?;
    serving::register(m)?;
    sglang_pass::register(m)?;
    cluster::register(m)?;
    fetch_plan::register(m)?;
    fleet::register(m)?;
    samples::register(m)?;
    Ok(())
}
