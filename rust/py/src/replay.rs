//! Cache decisions without time: a trace's prompts and every replay of them.

use std::borrow::Cow;
use std::sync::OnceLock;

use kvsim_core::ids::NONE;
use kvsim_core::policies::{Bounds, Kind, NativePolicy, PolicySettings};
use kvsim_core::replay::blocks::Blocks;
use kvsim_core::replay::leaf_tier::Leaves;
use kvsim_core::replay::objects::{self, Discipline, Objects};
use kvsim_core::replay::prompt_error::PromptError;
use kvsim_core::replay::runs::{Prompts, Runs};
use kvsim_core::replay::{belady, curve, leaves, recency, Decisions};
use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::policy_settings::{native_policy, ReplayPolicySettings};
use crate::replay_settings::{capacity_of, plain_discipline, refused, touch_end};

/// The result of one replay.
#[pyclass(frozen, get_all, module = "kvcache_sim._core")]
pub struct ReplayAnswer {
    /// Blocks that each request found.
    hits: Py<PyArray1<u32>>,
    /// Blocks evicted for capacity or because they had expired.
    evictions: u64,
    /// Evicted blocks that had expired.
    expired: u64,
    /// Blocks resident at the end.
    resident: u64,
    /// Request, request whose demand evicted the blocks (−1: never admitted), blocks; flat.
    missed: Py<PyArray1<i64>>,
}

#[pymethods]
impl ReplayAnswer {
    #[new]
    fn new(
        hits: Bound<'_, PyArray1<u32>>,
        evictions: u64,
        expired: u64,
        resident: u64,
        missed: Bound<'_, PyArray1<i64>>,
    ) -> Self {
        Self {
            hits: hits.unbind(),
            evictions,
            expired,
            resident,
            missed: missed.unbind(),
        }
    }
}

/// The reuses of a trace: an entry is a run of blocks that hit together.
#[pyclass(frozen, get_all, module = "kvcache_sim._core")]
pub struct ReuseColumns {
    /// The request that reuses the blocks.
    request: Py<PyArray1<u32>>,
    /// The smallest capacity at which the first block hits.
    capacity: Py<PyArray1<u64>>,
    /// Number of blocks in the run.
    blocks: Py<PyArray1<u32>>,
    /// Capacity that each further block needs in addition to the block before it.
    step: Py<PyArray1<u32>>,
    /// The request that last touched the blocks.
    before: Py<PyArray1<u32>>,
}

/// The prompts of a trace cut into blocks, copied once.
#[pyclass(frozen, module = "kvcache_sim._core")]
pub struct ReplayPrompts {
    ids: Vec<u32>,
    offsets: Vec<i64>,
    blocks_per_id: u32,
    blocks: Vec<u32>,
    private_blocks: Vec<u32>,
    arrival_ns: Vec<i64>,
    runs: OnceLock<Runs>,
}

#[pymethods]
impl ReplayPrompts {
    #[new]
    fn new(
        ids: PyReadonlyArray1<u32>,
        offsets: PyReadonlyArray1<i64>,
        blocks_per_id: u32,
        blocks: PyReadonlyArray1<u32>,
        private_blocks: PyReadonlyArray1<u32>,
        arrival_ns: PyReadonlyArray1<i64>,
    ) -> PyResult<Self> {
        let this = Self {
            ids: ids.as_slice()?.to_vec(),
            offsets: offsets.as_slice()?.to_vec(),
            blocks_per_id,
            blocks: blocks.as_slice()?.to_vec(),
            private_blocks: private_blocks.as_slice()?.to_vec(),
            arrival_ns: arrival_ns.as_slice()?.to_vec(),
            runs: OnceLock::new(),
        };
        this.prompts().check().map_err(refused)?;
        if this.arrival_ns.len() != this.blocks.len() {
            return Err(refused(PromptError::Shape));
        }
        Ok(this)
    }

    /// Replay least recently used, released tail first or touched root first.
    #[pyo3(signature = (capacity, touch_from, known = None))]
    fn recency(
        &self,
        py: Python<'_>,
        capacity: u64,
        touch_from: &str,
        known: Option<PyReadonlyArray1<u32>>,
    ) -> PyResult<ReplayAnswer> {
        let (runs, touch_from) = (self.runs(py)?, touch_end(touch_from)?);
        let (capacity, known) = (capacity_of(capacity)?, self.known(&known)?);
        let decisions = py.detach(|| recency::replay(runs, capacity, touch_from, known));
        Ok(answer(py, decisions))
    }

    /// Replay any policy leaf first: ranked policies on runs, queue policies block by block.
    #[pyo3(signature = (policy, capacity, settings, window = 0, known = None))]
    fn leaf_first(
        &self,
        py: Python<'_>,
        policy: &str,
        capacity: u64,
        settings: &ReplayPolicySettings,
        window: u32,
        known: Option<PyReadonlyArray1<u32>>,
    ) -> PyResult<ReplayAnswer> {
        let policy = native_policy(policy)?;
        let (capacity, known) = (capacity_of(capacity)?, self.known(&known)?);
        let Kind::Ranked(make) = policy.kind else {
            let settings = &settings.inner;
            let asked = OnBlocks {
                policy,
                settings,
                capacity,
                discipline: Discipline::LeafFirst,
                window,
                known,
            };
            return self.on_blocks(py, asked);
        };
        let (runs, arrival_ns) = (self.runs(py)?, &self.arrival_ns);
        let decisions = py.detach(|| {
            let policy = make(&settings.inner);
            let tier = Leaves::new(Cow::Borrowed(runs), capacity, policy, window);
            leaves::replay(runs, tier, arrival_ns, known)
        });
        Ok(answer(py, decisions))
    }

    /// Replay any policy as a plain cache of blocks, touched from tail or root, or as a queue.
    #[pyo3(signature = (policy, capacity, discipline, settings, window = 0))]
    fn plain(
        &self,
        py: Python<'_>,
        policy: &str,
        capacity: u64,
        discipline: &str,
        settings: &ReplayPolicySettings,
        window: u32,
    ) -> PyResult<ReplayAnswer> {
        let asked = OnBlocks {
            policy: native_policy(policy)?,
            settings: &settings.inner,
            capacity: capacity_of(capacity)?,
            discipline: plain_discipline(discipline)?,
            window,
            known: None,
        };
        self.on_blocks(py, asked)
    }

    fn belady(&self, py: Python<'_>, capacity: u64) -> PyResult<ReplayAnswer> {
        let (runs, capacity) = (self.runs(py)?, capacity_of(capacity)?);
        Ok(answer(py, py.detach(|| belady::replay(runs, capacity))))
    }

    fn belady_flat(
        &self,
        py: Python<'_>,
        capacity: u64,
        touch_from: &str,
    ) -> PyResult<ReplayAnswer> {
        let (touch_from, capacity) = (touch_end(touch_from)?, capacity_of(capacity)?);
        let decisions = py.detach(|| belady::replay_flat(&self.prompts(), capacity, touch_from));
        Ok(answer(py, decisions.map_err(refused)?))
    }

    fn reuses(
        &self,
        py: Python<'_>,
        limits: PyReadonlyArray1<u32>,
        touch_from: &str,
    ) -> PyResult<ReuseColumns> {
        let (runs, touch_from) = (self.runs(py)?, touch_end(touch_from)?);
        let limits = limits.as_slice()?;
        if limits.len() != self.blocks.len() {
            return Err(PyValueError::new_err("one limit a request is needed"));
        }
        let found = py.detach(|| curve::reuses(runs, limits, touch_from));
        Ok(ReuseColumns {
            request: column(py, &found, |r| r.request),
            capacity: column(py, &found, |r| r.capacity),
            blocks: column(py, &found, |r| r.blocks),
            step: column(py, &found, |r| r.step),
            before: column(py, &found, |r| r.before),
        })
    }
}

impl ReplayPrompts {
    /// The leading blocks of each request whose misses are attributed.
    fn known<'a>(&self, known: &'a Option<PyReadonlyArray1<u32>>) -> PyResult<Option<&'a [u32]>> {
        let Some(known) = known else { return Ok(None) };
        let known = known.as_slice()?;
        if known.len() != self.blocks.len() {
            return Err(PyValueError::new_err("one count a request is needed"));
        }
        Ok(Some(known))
    }

    /// Replay a policy on single blocks.
    fn on_blocks(&self, py: Python<'_>, asked: OnBlocks<'_>) -> PyResult<ReplayAnswer> {
        let decisions = py.detach(|| {
            let prompts = self.prompts();
            let (blocks, universe) = Blocks::of(&prompts, asked.window)?;
            // Capacity beyond the number of blocks changes no result, and policies size their queues by it.
            // The 3 further blocks cover what rounding takes from quarters of the capacity.
            let bound = asked.capacity.min(universe.max(1) as u64 + 3);
            let capacity = bound as usize;
            let policy = asked
                .policy
                .on_blocks(asked.settings, Bounds { capacity, universe });
            let tier = Objects::new(blocks, bound, policy, asked.discipline);
            objects::replay(&prompts, tier, &self.arrival_ns, asked.known)
        });
        Ok(answer(py, decisions.map_err(refused)?))
    }

    fn prompts(&self) -> Prompts<'_> {
        Prompts {
            ids: &self.ids,
            offsets: &self.offsets,
            blocks_per_id: self.blocks_per_id,
            blocks: &self.blocks,
            private_blocks: &self.private_blocks,
        }
    }

    fn runs(&self, py: Python<'_>) -> PyResult<&Runs> {
        if let Some(runs) = self.runs.get() {
            return Ok(runs);
        }
        let runs = py.detach(|| Runs::of(&self.prompts())).map_err(refused)?;
        Ok(self.runs.get_or_init(|| runs))
    }
}

/// Parameters of a replay block by block.
struct OnBlocks<'a> {
    policy: &'a NativePolicy,
    settings: &'a PolicySettings,
    capacity: u64,
    discipline: Discipline,
    window: u32,
    known: Option<&'a [u32]>,
}

fn column<T: numpy::Element>(
    py: Python<'_>,
    reuses: &[curve::Reuse],
    field: impl Fn(&curve::Reuse) -> T,
) -> Py<PyArray1<T>> {
    let values: Vec<T> = reuses.iter().map(field).collect();
    values.into_pyarray(py).unbind()
}

fn answer(py: Python<'_>, d: Decisions) -> ReplayAnswer {
    let missed: Vec<i64> = d
        .missed
        .iter()
        .flat_map(|m| {
            let by = if m.by == NONE { -1 } else { i64::from(m.by) };
            [i64::from(m.request), by, i64::from(m.blocks)]
        })
        .collect();
    ReplayAnswer {
        hits: d.hits.into_pyarray(py).unbind(),
        evictions: d.evictions,
        expired: d.expired,
        resident: d.resident,
        missed: missed.into_pyarray(py).unbind(),
    }
}
