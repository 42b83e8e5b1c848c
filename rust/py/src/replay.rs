//! Cache decisions without time: a trace's prompts and every replay of them.

use std::sync::OnceLock;

use kvsim_core::policies::{self, priority::Range, PolicySettings};
use kvsim_core::replay::blocks::Blocks;
use kvsim_core::replay::objects::{self, Discipline};
use kvsim_core::replay::runs::{Prompts, Runs, NONE};
use kvsim_core::replay::{belady, curve, leaves, recency, Decisions, TouchOrder};
use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Hits a request, evictions, expired, resident at the end; request, who evicted (−1: never in), blocks.
type Answer<'py> = (
    Bound<'py, PyArray1<u32>>,
    u64,
    u64,
    u64,
    Bound<'py, PyArray1<i64>>,
);
/// Request, first capacity, blocks, step, the request that touched them before: one entry a reuse.
type Columns<'py> = (
    Bound<'py, PyArray1<u32>>,
    Bound<'py, PyArray1<u64>>,
    Bound<'py, PyArray1<u32>>,
    Bound<'py, PyArray1<u32>>,
    Bound<'py, PyArray1<u32>>,
);
/// First block, end, priority, duration.
type RangeTuple = (u32, u32, u8, Option<i64>);

/// The prompts of a trace cut into blocks, copied once.
#[pyclass(frozen, module = "kvcache_sim._core")]
struct ReplayPrompts {
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
        let shape = this.prompts().check();
        if shape.is_err() || this.arrival_ns.len() != this.blocks.len() {
            return Err(PyValueError::new_err(
                "ids, offsets and block counts do not fit together",
            ));
        }
        Ok(this)
    }

    /// Runs of the trace, entries of all paths, and bytes they take.
    fn run_shape(&self, py: Python<'_>) -> PyResult<(usize, usize, usize)> {
        let runs = self.runs(py)?;
        Ok((runs.len.len(), runs.path.len(), runs.bytes()))
    }

    #[pyo3(signature = (capacity, order, known = None))]
    fn recency<'py>(
        &self,
        py: Python<'py>,
        capacity: u64,
        order: &str,
        known: Option<PyReadonlyArray1<u32>>,
    ) -> PyResult<Answer<'py>> {
        let (runs, order) = (self.runs(py)?, touch_order(order)?);
        let known = self.known(&known)?;
        Ok(answer(
            py,
            py.detach(|| recency::replay(runs, capacity, order, known)),
        ))
    }

    #[pyo3(signature = (policy, capacity, settings, window = 0, known = None))]
    #[allow(clippy::too_many_arguments)]
    fn leaves<'py>(
        &self,
        py: Python<'py>,
        policy: &str,
        capacity: u64,
        settings: &ReplayPolicySettings,
        window: u32,
        known: Option<PyReadonlyArray1<u32>>,
    ) -> PyResult<Answer<'py>> {
        let (runs, arrival_ns) = (self.runs(py)?, &self.arrival_ns);
        let known = self.known(&known)?;
        let decisions = py.detach(|| {
            let mut policy = policies::leaf(policy, &settings.inner)?;
            Some(leaves::replay(
                runs,
                capacity,
                policy.as_mut(),
                arrival_ns,
                window,
                known,
            ))
        });
        Ok(answer(
            py,
            decisions.ok_or_else(|| unknown("policy", policy))?,
        ))
    }

    #[pyo3(signature = (policy, capacity, discipline, settings, window = 0, known = None))]
    #[allow(clippy::too_many_arguments)]
    fn objects<'py>(
        &self,
        py: Python<'py>,
        policy: &str,
        capacity: u64,
        discipline: &str,
        settings: &ReplayPolicySettings,
        window: u32,
        known: Option<PyReadonlyArray1<u32>>,
    ) -> PyResult<Answer<'py>> {
        let known = self.known(&known)?;
        let how = match discipline {
            "leaf-first" => Discipline::LeafFirst,
            "queue" => Discipline::Queue,
            order => Discipline::Objects(touch_order(order)?),
        };
        let decisions = py.detach(|| {
            let mut blocks = Blocks::of(self.prompts(), window)?;
            // more room than there are blocks is all the same, and policies size their queues by it
            let room = capacity.min(blocks.universe().max(1) as u64);
            let (settings, universe) = (&settings.inner, blocks.universe());
            let mut policy = policies::object(policy, settings, room as usize, universe)?;
            Some(objects::replay(
                &mut blocks,
                room,
                policy.as_mut(),
                how,
                &self.arrival_ns,
                known,
            ))
        });
        Ok(answer(
            py,
            decisions.ok_or_else(|| unknown("policy", policy))?,
        ))
    }

    fn belady<'py>(&self, py: Python<'py>, capacity: u64) -> PyResult<Answer<'py>> {
        let runs = self.runs(py)?;
        Ok(answer(py, py.detach(|| belady::replay(runs, capacity))))
    }

    fn belady_flat<'py>(
        &self,
        py: Python<'py>,
        capacity: u64,
        order: &str,
    ) -> PyResult<Answer<'py>> {
        let order = touch_order(order)?;
        let decisions = py.detach(|| {
            Some(belady::replay_flat(
                &mut Blocks::of(self.prompts(), 0)?,
                capacity,
                order,
            ))
        });
        Ok(answer(py, decisions.ok_or_else(too_many)?))
    }

    fn reuses<'py>(
        &self,
        py: Python<'py>,
        limits: PyReadonlyArray1<u32>,
        order: &str,
    ) -> PyResult<Columns<'py>> {
        let (runs, order) = (self.runs(py)?, touch_order(order)?);
        let limits = limits.as_slice()?;
        if limits.len() != self.blocks.len() {
            return Err(PyValueError::new_err("one limit a request is needed"));
        }
        let found = py.detach(|| curve::reuses(runs, limits, order));
        Ok((
            found
                .iter()
                .map(|r| r.request)
                .collect::<Vec<_>>()
                .into_pyarray(py),
            found
                .iter()
                .map(|r| r.capacity)
                .collect::<Vec<_>>()
                .into_pyarray(py),
            found
                .iter()
                .map(|r| r.blocks)
                .collect::<Vec<_>>()
                .into_pyarray(py),
            found
                .iter()
                .map(|r| r.step)
                .collect::<Vec<_>>()
                .into_pyarray(py),
            found
                .iter()
                .map(|r| r.before)
                .collect::<Vec<_>>()
                .into_pyarray(py),
        ))
    }
}

impl ReplayPrompts {
    /// The leading blocks of each request that are to be explained.
    fn known<'a>(&self, known: &'a Option<PyReadonlyArray1<u32>>) -> PyResult<Option<&'a [u32]>> {
        let Some(known) = known else { return Ok(None) };
        let known = known.as_slice()?;
        if known.len() != self.blocks.len() {
            return Err(PyValueError::new_err("one count a request is needed"));
        }
        Ok(Some(known))
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
        let runs = py
            .detach(|| Runs::of(&self.prompts()))
            .map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(self.runs.get_or_init(|| runs))
    }
}

/// What some policies need to be told.
#[pyclass(frozen, module = "kvcache_sim._core")]
pub struct ReplayPolicySettings {
    pub inner: PolicySettings,
}

#[pymethods]
impl ReplayPolicySettings {
    #[new]
    fn new(ttl_ns: i64, attention_blocks: f64, ranges: Vec<RangeTuple>) -> Self {
        let ranges = ranges
            .into_iter()
            .map(|(from, to, priority, duration_ns)| Range {
                from,
                to,
                priority,
                duration_ns,
            })
            .collect();
        Self {
            inner: PolicySettings {
                ttl_ns,
                ranges,
                attention_blocks,
            },
        }
    }
}

fn touch_order(order: &str) -> PyResult<TouchOrder> {
    match order {
        "tail" => Ok(TouchOrder::TailFirst),
        "root" => Ok(TouchOrder::RootFirst),
        other => Err(unknown("order", other)),
    }
}

fn unknown(what: &str, name: &str) -> PyErr {
    PyValueError::new_err(format!("unknown {what} {name:?}"))
}

fn too_many() -> PyErr {
    PyValueError::new_err("more than 2^32 distinct blocks")
}

fn answer(py: Python<'_>, d: Decisions) -> Answer<'_> {
    let missed: Vec<i64> = d
        .missed
        .iter()
        .flat_map(|m| {
            let by = if m.by == NONE { -1 } else { i64::from(m.by) };
            [i64::from(m.request), by, i64::from(m.blocks)]
        })
        .collect();
    (
        d.hits.into_pyarray(py),
        d.evictions,
        d.expired,
        d.resident,
        missed.into_pyarray(py),
    )
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<ReplayPrompts>()?;
    m.add_class::<ReplayPolicySettings>()
}
