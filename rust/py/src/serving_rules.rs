//! The options of a replica, read from Python dataclasses.

use kvsim_core::batch::{BatchConfig, Speculation};
use kvsim_core::machine::fetch::FetchPolicy;
use kvsim_core::machine::handover::{HandoverConfig, Role};
use kvsim_core::machine::prefetch_policy::PrefetchPolicy;
use kvsim_core::machine::queue::QueueOrder;
use kvsim_core::machine::sglang::SglangConfig;
use kvsim_core::machine::vllm::VllmConfig;
use kvsim_core::machine::{
    AsyncScheduling, ClientTimes, MovementConfig, ReadsConfig, ReplicaConfig, ReuseConfig,
    SchedulingConfig, SessionLimits, MOST_TIERS,
};
use kvsim_core::transfers::{
    BlockForm, CopyRates, Edge, HoldBack, LayerPages, Mover, MoverConfig, PrefetchConfig,
    WritePolicy,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::argument::{from_attributes, from_names, tuple_structs, Arg, FromPython};
use crate::channel::{lane, PyLane};
use crate::machine_store::PyMachineStore;
use crate::plugins::PluginRules;
use crate::write_plugin::{writers, WriteCall};

// `serving.batch_settings.BatchSettings`, `serving.speculation.SpeculationRules`, `ReadsRules` and `PrefetchRules` of
// `cache.tier_rules`; of `serving.replica.native_rules`: `HandoverRules`, `PoolRules`, and the scheduling part of
// `ServingRules`
from_attributes! {
    BatchConfig {
        block_size_tokens, max_num_batched_tokens, num_layers, cache_enabled, cache_output, commit_at_begin,
        asks_every_step, reserve_by_step, speculation, commit_ends_step_run = track_commits, step_overhead_ns, least_step_ns,
        late_ends
    }
    Speculation { thresholds, key, draft_ns }
    ReadsConfig { staged, machines, pool }
    HandoverConfig { layer_by_layer, first_token_at_prefill, remote }
    PrefetchConfig { prefetch_blocks, hold_back, storage_per_ki_token_ns }
    MoverConfig { machine, remote, block_bytes, layers, layer_pipelining, ..Self }
    ReplicaConfig { machine, record_window_ns, client, ..Self }
    ClientTimes { offset_ns, token_ns }
    SchedulingConfig { max_num_seqs, waits_for_duplicates, queue_order, async_scheduling, lookahead }
    ReuseConfig { skips_full_prefill, lost_blocks, discard_on_finish, admits_prompts_only, expires, ..Self }
    SessionLimits { max_sessions, session_ttl_ns }
}

from_names! {
    QueueOrder: "queue order"
    AsyncScheduling: "asynchronous scheduling"
    FetchPolicy: "fetch policy"
}

/// The rest of `serving.replica.native_rules.ServingRules`, attribute by attribute.
#[derive(FromPyObject)]
pub struct ServingRules {
    machine: i64,
    pub request_columns: Vec<String>,
    /// Names of the sources of KV: tiers, fast to slow, then other machines.
    pub sources: Vec<String>,
    reads: Arg<Option<ReadsConfig>>,
    pub tiers: TierRules,
    copy_submit_ns: u64,
    copy_gpu_share: f64,
    pub vllm: Arg<Option<VllmConfig>>,
    pub sglang: Arg<Option<SglangConfig>>,
    handover: Arg<Option<Role>>,
    pub plugins: PluginRules,
}

impl FromPython for Role {
    /// Reads a `serving.replica.native_rules.HandoverRules`.
    fn read(given: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let Arg(how) = given.extract()?;
        let prefills: bool = given.getattr("prefills")?.extract()?;
        Ok(if prefills {
            Self::Prefills(how)
        } else {
            Self::Decodes(how)
        })
    }
}

impl ServingRules {
    /// The index of other machines in the list of sources, after the tiers.
    fn remote(&self) -> usize {
        self.sources.len().max(1) - 1
    }

    /// The mover that copies blocks between tiers and receives hand-overs; `None` for a GPU-only machine that works alone.
    pub fn mover(
        &mut self,
        py: Python<'_>,
        layers: u64,
        store: &Py<PyMachineStore>,
    ) -> PyResult<Mover> {
        let (machine, receives) = (self.machine as u32, self.handover.0.is_some());
        let config = mover_config(&self.tiers, machine, self.remote(), layers, receives)?;
        let Some(mut config) = config else {
            return Ok(Mover::default());
        };
        config.copies = self.copies();
        config.pool = self.reads.0.and_then(|reads| reads.pool);
        let writes = self.plugins.take_writes();
        with_writers(py, config, writes, &mut self.tiers.channels, store)
    }

    fn copies(&self) -> Option<CopyRates> {
        let rates = CopyRates {
            submit_ns: self.copy_submit_ns,
            gpu_share: self.copy_gpu_share,
        };
        (rates != CopyRates::default()).then_some(rates)
    }
}

tuple_structs! {
    /// The channels that write KV over an edge, and the channels that read it.
    pub struct EdgeChannels {
        down: PyLane,
        up: PyLane,
    }
}

/// `cache.tier_rules.TierRules`, attribute by attribute.
#[derive(FromPyObject)]
pub struct TierRules {
    pub names: Vec<String>,
    /// By edge, from the GPU down.
    pub channels: Vec<EdgeChannels>,
    block_bytes: u64,
    layer_pipelining: bool,
    read_buffer_layers: Option<u64>,
    writes: Vec<String>,
    write_uses: u32,
    fetch: Arg<FetchPolicy>,
    exclusive: Vec<bool>,
    prefetch: Option<PrefetchRules>,
    #[pyo3(attribute("prefetch"))]
    prefetch_state: Arg<Option<PrefetchConfig>>,
    /// Bytes of a page, and the layers of each cache group, if blocks belong to groups.
    pages: Option<(u64, Vec<Vec<usize>>)>,
    /// By tier the bytes of a block there, and the ns to encode and to decode it; empty: all are the same.
    forms: Vec<(u64, u64, u64)>,
}

/// The part of `cache.tier_rules.PrefetchRules` that `PrefetchConfig` does not take.
#[derive(FromPyObject)]
struct PrefetchRules {
    policy: Arg<PrefetchPolicy>,
}

impl FromPython for PrefetchPolicy {
    /// Reads a name, and true if a plug-in is called at each arrival.
    fn read(given: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let (name, queued): (String, bool) = given.extract()?;
        let policy = Self::from_name(&name, queued);
        policy.ok_or_else(|| PyValueError::new_err("no prefetch policy of the core"))
    }
}

impl FromPython for HoldBack {
    /// Reads a fetch policy, and for how long `timeout` holds a request back.
    fn read(given: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let (fetch, timeout_ns): (String, u64) = given.extract()?;
        Ok(match fetch.as_str() {
            "wait" => Self::UntilCome,
            "timeout" => Self::For(timeout_ns),
            _ => Self::Never,
        })
    }
}

/// The settings that the transfers of a machine share; `None` if it has one tier and receives nothing.
pub fn mover_config(
    rules: &TierRules,
    machine: u32,
    remote: usize,
    layers: u64,
    receives: bool,
) -> PyResult<Option<MoverConfig>> {
    let edges = rules.channels.len();
    if edges == 0 && !receives {
        return Ok(None);
    }
    let few = rules.names.len() == edges + 1 && rules.names.len() <= MOST_TIERS;
    if !few || rules.writes.len() != edges || rules.exclusive.len() != edges {
        let expected = "of each edge its channels and its policy";
        return Err(PyValueError::new_err(expected));
    }
    let uses = rules.write_uses;
    let named = rules.writes.iter();
    let writes = named.map(|name| WritePolicy::from_name(name, uses));
    let writes: Option<Vec<_>> = writes.collect();
    let writes = writes.ok_or_else(|| PyValueError::new_err("no write policy of the core"))?;
    if remote >= MOST_TIERS {
        return Err(PyValueError::new_err(
            "more KV sources than the core has numbers for",
        ));
    }
    Ok(Some(MoverConfig {
        machine,
        remote,
        block_bytes: rules.block_bytes,
        forms: rules
            .forms
            .iter()
            .map(|&(block_bytes, encode_ns, decode_ns)| BlockForm {
                block_bytes,
                encode_ns,
                decode_ns,
            })
            .collect(),
        layers: layers.max(1),
        layer_pipelining: rules.layer_pipelining,
        read_buffer_layers: rules.read_buffer_layers,
        writes,
        exclusive: rules.exclusive.clone(),
        copies: None,
        prefetch_state: rules.prefetch_state.0,
        pool: None,
        pages: rules
            .pages
            .clone()
            .map(|(page_bytes, layers_of)| LayerPages::new(page_bytes, layers_of, layers.max(1))),
    }))
}

/// A mover that takes over these channels, with the write policies that are plug-ins.
pub fn with_writers(
    py: Python<'_>,
    mut config: MoverConfig,
    calls: Vec<Option<WriteCall>>,
    channels: &mut Vec<EdgeChannels>,
    store: &Py<PyMachineStore>,
) -> PyResult<Mover> {
    for (policy, plugin) in config.writes.iter_mut().zip(&calls) {
        if let Some(plugin) = plugin {
            *policy = plugin.policy();
        }
    }
    let mut mover = Mover::new(config, edges(std::mem::take(channels))?);
    mover.writes.plugins = writers(py, calls, store)?;
    Ok(mover)
}

/// The channels of each edge, from the GPU down.
fn edges(channels: Vec<EdgeChannels>) -> PyResult<Vec<Edge>> {
    let edges = channels.into_iter().map(|edge| {
        let (down, up) = (lane(edge.down)?, lane(edge.up)?);
        Ok(Edge { down, up })
    });
    edges.collect()
}

/// The scheduling options of a replica with these rules.
pub fn config(
    given_rules: &Bound<'_, PyAny>,
    batch: &BatchConfig,
    rules: &ServingRules,
) -> PyResult<ReplicaConfig> {
    let (Arg(config), Arg(scheduling)) = (given_rules.extract()?, given_rules.extract()?);
    let (Arg(reuse), Arg(sessions)) = (given_rules.extract()?, given_rules.extract()?);
    Ok(ReplicaConfig {
        sources: rules.sources.len() as i64,
        block_size_tokens: batch.block_size_tokens,
        scheduling,
        reuse: ReuseConfig {
            cache_enabled: batch.cache_enabled,
            cache_output: batch.cache_output,
            ..reuse
        },
        movement: MovementConfig {
            fetch: rules.tiers.fetch.0,
            prefetch: rules.tiers.prefetch.as_ref().map(|own| own.policy.0),
            reads: rules.reads.0,
        },
        sessions,
        role: rules.handover.0.unwrap_or_default(),
        ..config
    })
}
