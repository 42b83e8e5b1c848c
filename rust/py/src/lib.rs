//! The border: one file here per room of `kvsim-core`; nothing is decided on this side.

mod bytes;
mod causes;
mod channel;
mod cluster;
mod digest;
mod engine_of;
mod engine_rules;
mod engine_stores;
mod engine_tiers;
mod engines;
mod fetch_plan;
mod fleet;
mod group_store;
mod groups;
mod intake;
mod keys;
mod machine_store;
mod machines;
mod named;
mod operations;
mod order;
mod outputs;
mod plugins;
mod policy_settings;
mod priority_order;
mod priority_value;
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
mod token_store;
mod tokens;
mod told;
mod trace;
mod views;
mod visits;
mod write_plugin;

use pyo3::prelude::*;

/// The native module `kvcache_sim._core`; its contract is `python/kvcache_sim/_core.pyi`.
#[pymodule]
fn _core(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("__version__", env!("CARGO_PKG_VERSION"))?;
    m.add("__release__", !cfg!(debug_assertions))?;
    causes::register(m)?;
    engines::register(m)?;
    groups::register(m)?;
    engine_tiers::register(m)?;
    keys::register(m)?;
    policy_settings::register(m)?;
    replay::register(m)?;
    tokens::register(m)?;
    trace::register(m)?;
    digest::register(m)?;
    store::register(m)?;
    engine_stores::register(m)?;
    group_store::register(m)?;
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
