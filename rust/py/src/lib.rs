//! The Python binding: one file per package of `kvsim-core`; it converts values and decides nothing.

mod argument;
mod arrival;
mod bytes;
mod causes;
mod channel;
mod cluster;
mod cluster_values;
mod digest;
mod engine_of;
mod engine_rules;
mod engine_stores;
mod engine_tiers;
mod engines;
mod failure;
mod fault;
mod fetch_plan;
mod fleet;
mod gateway;
mod group_store;
mod groups;
mod hosted;
mod intake;
mod keys;
mod machine_store;
mod machines;
mod named;
mod occupancies;
mod online;
mod operations;
mod order;
mod outputs;
mod packaged;
mod plugins;
mod policy_settings;
mod priority_order;
mod priority_value;
mod refusal;
mod replay;
mod replay_settings;
mod samples;
mod schedule;
mod serving;
mod serving_rules;
mod sglang_pass;
mod stack;
mod step_table;
mod store;
mod store_values;
mod table;
mod token_store;
mod tokens;
mod trace;
mod trace_ids;
mod trace_rows;
mod views;
mod visits;
mod write_plugin;

/// The native module `kvcache_sim._core`; its contract is `python/kvcache_sim/_core.pyi`.
#[pyo3::pymodule]
mod _core {
    use kvsim_core::causes::MissCause;
    use pyo3::prelude::*;
    use pyo3::types::PyTuple;

    #[pymodule_export]
    use crate::{
        causes::{policy_miss_tokens, timed_miss_tokens},
        channel::{PyChannel, PyDemand, PyTimeline},
        cluster::PyCluster,
        digest::PyDigest,
        engine_stores::{PyPoolStore, PyRadixStore, PyTieredPoolStore},
        engine_tiers::{replay_lmcache, replay_lmcache_server, replay_sglang},
        engines::{key_lines, EngineRequests},
        fault::{last_panic, panic_for_test},
        fetch_plan::PyFetchPlan,
        fleet::PyFleet,
        gateway::PyGatewayRule,
        group_store::PyGroupStore,
        groups::KvGroups,
        hosted::PyHostedCache,
        keys::PyKeys,
        online::OnlineReplays,
        operations::{projected, PyOperatedMachines},
        outputs::PyOutputLog,
        packaged::{toml_values, PySha256},
        policy_settings::{native_policies, ReplayPolicySettings},
        replay::{ReplayAnswer, ReplayPrompts, ReuseColumns},
        samples::PySampled,
        serving::PyReplica,
        sglang_pass::sglang_pass,
        stack::{CurveSample, CurveStack, PyHitSteps},
        step_table::PyStepTable,
        store::PyStore,
        table::PyTableWriter,
        token_store::PyTokenStore,
        tokens::{first_randrange, seeds_of_ids, seeds_of_names, write_token_rows},
        trace::TraceSource,
        trace_ids::{id_lists, reuse_distances, unbounded_hits, PyBlockSplit},
        trace_rows::{IdLists, TraceRows},
    };

    #[pymodule_init]
    fn constants(m: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::fault::keep_panics();
        m.add("__version__", env!("CARGO_PKG_VERSION"))?;
        m.add("__release__", !cfg!(debug_assertions))?;
        m.add(
            "TraceProblem",
            m.py().get_type::<crate::trace::TraceProblem>(),
        )?;
        m.add("MISS_CAUSES", PyTuple::new(m.py(), MissCause::NAMES)?)
    }
}
