//! What a replica of the core is told once, as dataclasses of Python say it.

use kvsim_core::batch::{BatchConfig, Speculation};
use kvsim_core::machine::fetch::FetchPolicy;
use kvsim_core::machine::handover::{HandoverConfig, Role};
use kvsim_core::machine::prefetch::PrefetchPolicy;
use kvsim_core::machine::queue::QueueOrder;
use kvsim_core::machine::{AsyncScheduling, ReadsConfig, ReplicaConfig, MOST_TIERS};
use kvsim_core::transfers::{
    AheadConfig, CopyRates, Edge, HoldBack, LayerPages, Mover, MoverConfig, WritePolicy,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::channel::{lane, PyLane};
use crate::engine_rules::{SglangRules, VllmRules};
use crate::machine_store::PyMachineStore;
use crate::plugins::PluginRules;
use crate::told::{told_by_attributes, FromTold, Told};
use crate::write_plugin::{writers, WriteCall};

// `serving.batch_settings.BatchSettings`, `serving.speculation.SpeculationRules`, `cache.tier_rules.ReadsRules`, and what
// `serving.replica.native_rules.ServingRules` says of how a replica schedules
told_by_attributes! {
    BatchConfig {
        block_size_tokens, max_num_batched_tokens, num_layers, cache_enabled, cache_output, commit_at_begin,
        asks_every_step, room_by_step, speculation, commit_ends_stretch = track_commits, step_overhead_ns, least_step_ns,
        late_ends
    }
    Speculation { thresholds, key, draft_ns }
    ReadsConfig { staged, machines, pool }
    ReplicaConfig {
        machine, max_num_seqs, waits_for_duplicates, queue_order, async_scheduling, skips_full_prefill,
        discard_on_finish, admits_prompts_only, lost_blocks, reads, expires, look_ahead, max_sessions, session_ttl_ns,
        prefix_view, record_window_ns, ..Self
    }
}

impl FromTold for QueueOrder {
    fn read(given: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let order = Self::from_name(&given.extract::<String>()?);
        order.ok_or_else(|| PyValueError::new_err("no queue order of the core"))
    }
}

impl FromTold for AsyncScheduling {
    fn read(given: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        match given.extract::<String>()?.as_str() {
            "none" => Ok(Self::None),
            "length" => Ok(Self::Length),
            "stop-token" => Ok(Self::StopToken),
            _ => Err(PyValueError::new_err("none, length or stop-token")),
        }
    }
}

/// The rest of `serving.replica.native_rules.ServingRules`, attribute by attribute.
#[derive(FromPyObject)]
pub struct ServingRules {
    machine: i64,
    pub request_columns: Vec<String>,
    /// Names of the places that KV may come from: tiers, fast to slow, then other machines.
    pub places: Vec<String>,
    reads: Told<Option<ReadsConfig>>,
    pub tiers: TierRules,
    copy_submit_ns: u64,
    copy_gpu_share: f64,
    pub vllm: Option<VllmRules>,
    pub sglang: Option<SglangRules>,
    handover: Option<HandoverRules>,
    pub plugins: PluginRules,
}

/// `serving.replica.native_rules.HandoverRules`, attribute by attribute.
#[derive(FromPyObject)]
struct HandoverRules {
    prefills: bool,
    layer_by_layer: bool,
    first_token_at_prefill: bool,
}

impl ServingRules {
    /// In place of a tier: another machine.
    fn remote(&self) -> usize {
        self.places.len().max(1) - 1
    }

    fn role(&self) -> Role {
        let Some(rules) = &self.handover else {
            return Role::Both;
        };
        let how = HandoverConfig {
            layer_by_layer: rules.layer_by_layer,
            first_token_at_prefill: rules.first_token_at_prefill,
            remote: self.remote(),
        };
        if rules.prefills {
            Role::Prefills(how)
        } else {
            Role::Decodes(how)
        }
    }

    /// What moves copies between the tiers, and brings what is handed over; `None` for a GPU alone that works by
    /// itself.
    pub fn mover(
        &mut self,
        py: Python<'_>,
        layers: u64,
        store: &Py<PyMachineStore>,
    ) -> PyResult<Mover> {
        let place = (self.machine as u32, self.remote());
        let Some(mut config) = mover_config(&self.tiers, place, layers, self.handover.is_some())?
        else {
            return Ok(Mover::default());
        };
        config.copies = self.copies();
        config.pool = self.reads.0.and_then(|reads| reads.pool);
        let writes = self.plugins.take_writes();
        with_writers(py, (config, writes), &mut self.tiers.channels, store)
    }

    fn copies(&self) -> Option<CopyRates> {
        let rates = CopyRates {
            submit_ns: self.copy_submit_ns,
            gpu_share: self.copy_gpu_share,
        };
        (rates != CopyRates::default()).then_some(rates)
    }
}

/// `cache.tier_rules.TierRules`, attribute by attribute.
#[derive(FromPyObject)]
pub struct TierRules {
    pub names: Vec<String>,
    /// By edge, from the GPU down: the channels over which KV is written, and those over which it is read.
    pub channels: Vec<(PyLane, PyLane)>,
    block_bytes: u64,
    layer_pipelining: bool,
    read_buffer_layers: Option<u64>,
    writes: Vec<String>,
    write_uses: u32,
    fetch: String,
    exclusive: Vec<bool>,
    prefetch: Option<PrefetchRules>,
    /// Bytes of a page, and the layers of each cache group, where blocks are of groups.
    pages: Option<(u64, Vec<Vec<usize>>)>,
}

/// `cache.tier_rules.PrefetchRules`, attribute by attribute.
#[derive(FromPyObject)]
struct PrefetchRules {
    policy: String,
    queued: bool,
    fetch: String,
    room_blocks: u64,
    timeout_ns: u64,
    storage_per_ki_token_ns: Option<u64>,
}

impl TierRules {
    fn prefetch(&self) -> PyResult<Option<PrefetchPolicy>> {
        let Some(rules) = &self.prefetch else {
            return Ok(None);
        };
        let policy = PrefetchPolicy::from_name(&rules.policy, rules.queued);
        policy
            .map(Some)
            .ok_or_else(|| PyValueError::new_err("no prefetch policy of the core"))
    }

    fn ahead(&self) -> Option<AheadConfig> {
        let rules = self.prefetch.as_ref()?;
        Some(AheadConfig {
            room_blocks: rules.room_blocks,
            hold_back: match rules.fetch.as_str() {
                "wait" => HoldBack::UntilCome,
                "timeout" => HoldBack::For(rules.timeout_ns),
                _ => HoldBack::Never,
            },
            storage_per_ki_token_ns: rules.storage_per_ki_token_ns,
        })
    }
}

/// What the transfers of a machine share; `None` where it has one tier and receives nothing.
pub fn mover_config(
    rules: &TierRules,
    (machine, remote): (u32, usize),
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
        return Err(PyValueError::new_err("more places than the core knows"));
    }
    Ok(Some(MoverConfig {
        machine,
        remote,
        block_bytes: rules.block_bytes,
        layers: layers.max(1),
        layer_pipelining: rules.layer_pipelining,
        read_buffer_layers: rules.read_buffer_layers,
        writes,
        exclusive: rules.exclusive.clone(),
        copies: None,
        ahead: rules.ahead(),
        pool: None,
        pages: rules
            .pages
            .clone()
            .map(|(page_bytes, layers_of)| LayerPages::new(page_bytes, layers_of, layers.max(1))),
    }))
}

/// A mover over these channels, which it takes, with the write policies that are plug-ins.
pub fn with_writers(
    py: Python<'_>,
    (mut config, calls): (MoverConfig, Vec<Option<WriteCall>>),
    channels: &mut Vec<(PyLane, PyLane)>,
    store: &Py<PyMachineStore>,
) -> PyResult<Mover> {
    for (policy, plugin) in config.writes.iter_mut().zip(&calls) {
        if let Some(plugin) = plugin {
            *policy = plugin.policy();
        }
    }
    let mut mover = Mover::new(config, edges(std::mem::take(channels))?);
    mover.writers = writers(py, calls, store)?;
    Ok(mover)
}

/// The channels of each edge, from the GPU down.
fn edges(channels: Vec<(PyLane, PyLane)>) -> PyResult<Vec<Edge>> {
    let edges = channels.into_iter().map(|(down, up)| {
        let (down, up) = (lane(down)?, lane(up)?);
        Ok(Edge { down, up })
    });
    edges.collect()
}

/// `serving.replica.native_rules.PoolRules`, attribute by attribute.
#[derive(FromPyObject)]
pub struct PoolRules {
    machine: u32,
    places: usize,
    block_bytes: u64,
    layers: u64,
    layer_pipelining: bool,
}

impl From<PoolRules> for MoverConfig {
    fn from(rules: PoolRules) -> Self {
        Self {
            machine: rules.machine,
            remote: rules.places - 1,
            block_bytes: rules.block_bytes,
            layers: rules.layers.max(1),
            layer_pipelining: rules.layer_pipelining,
            ..MoverConfig::default()
        }
    }
}

/// How a replica with these rules schedules.
pub fn config(
    told: &Bound<'_, PyAny>,
    batch: &BatchConfig,
    rules: &ServingRules,
) -> PyResult<ReplicaConfig> {
    let Told(config): Told<ReplicaConfig> = told.extract()?;
    Ok(ReplicaConfig {
        places: rules.places.len() as i64,
        block_size_tokens: batch.block_size_tokens,
        cache_enabled: batch.cache_enabled,
        cache_output: batch.cache_output,
        fetch: FetchPolicy::from_name(&rules.tiers.fetch)
            .ok_or_else(|| PyValueError::new_err("no fetch policy of the core"))?,
        prefetch: rules.tiers.prefetch()?,
        role: rules.role(),
        ..config
    })
}
