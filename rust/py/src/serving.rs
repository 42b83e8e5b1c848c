//! `Replica`: a request's way through one machine, a call an event.

use kvsim_core::batch::{Batch, BatchConfig};
use kvsim_core::machine_store::MachineStore;
use kvsim_core::serving::queue::QueueOrder;
use kvsim_core::serving::rows::Rows;
use kvsim_core::serving::{Arrival, AsyncScheduling, Replica, ReplicaConfig};
use kvsim_core::store::Answer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::batch::PyStepTable;
use crate::fleet::StoreHandle;
use crate::order::raised;
use crate::refusal::answered;

/// `serving.batch.BatchSettings`, attribute by attribute.
#[derive(FromPyObject)]
struct BatchSettings {
    block_size_tokens: u64,
    max_num_batched_tokens: u64,
    step_overhead_ns: u64,
    cache_enabled: bool,
    cache_output: bool,
    track_commits: bool,
    commit_at_begin: bool,
    asks_every_step: bool,
    least_step_ns: u64,
    late_ends: bool,
    num_layers: u64,
}

impl From<BatchSettings> for BatchConfig {
    fn from(settings: BatchSettings) -> Self {
        Self {
            block_size_tokens: settings.block_size_tokens,
            max_num_batched_tokens: settings.max_num_batched_tokens,
            num_layers: settings.num_layers,
            cache_enabled: settings.cache_enabled,
            cache_output: settings.cache_output,
            commit_at_begin: settings.commit_at_begin,
            asks_every_step: settings.asks_every_step,
            commit_ends_stretch: settings.track_commits,
            step_overhead_ns: settings.step_overhead_ns,
            least_step_ns: settings.least_step_ns,
            late_ends: settings.late_ends,
        }
    }
}

/// `serving.replica.native.ServingRules`, attribute by attribute.
#[derive(FromPyObject)]
struct ServingRules {
    machine: i64,
    max_num_seqs: u64,
    queue_order: String,
    async_scheduling: String,
    skips_full_prefill: bool,
    discard_on_finish: bool,
    admits_prompts_only: bool,
    expires: bool,
    look_ahead: usize,
    max_sessions: Option<usize>,
    session_ttl_ns: Option<u64>,
    record_window_ns: Option<(u64, u64)>,
    request_columns: Vec<String>,
}

fn config(batch: &BatchConfig, rules: &ServingRules) -> PyResult<ReplicaConfig> {
    let queue_order = QueueOrder::from_name(&rules.queue_order)
        .ok_or_else(|| PyValueError::new_err("no queue order of the core"))?;
    let async_scheduling = match rules.async_scheduling.as_str() {
        "none" => AsyncScheduling::None,
        "length" => AsyncScheduling::Length,
        "stop-token" => AsyncScheduling::StopToken,
        _ => return Err(PyValueError::new_err("none, length or stop-token")),
    };
    Ok(ReplicaConfig {
        machine: rules.machine,
        block_size_tokens: batch.block_size_tokens,
        max_num_seqs: rules.max_num_seqs,
        queue_order,
        async_scheduling,
        cache_enabled: batch.cache_enabled,
        skips_full_prefill: rules.skips_full_prefill,
        cache_output: batch.cache_output,
        discard_on_finish: rules.discard_on_finish,
        admits_prompts_only: rules.admits_prompts_only,
        expires: rules.expires,
        look_ahead: rules.look_ahead,
        max_sessions: rules.max_sessions,
        session_ttl_ns: rules.session_ttl_ns,
        record_window_ns: rules.record_window_ns,
    })
}

/// When the next boundary is due, requests that have finished, rows of events; the last two where there are any.
type PyBoundary<'py> = (Option<u64>, Option<Vec<u32>>, Option<Bound<'py, PyBytes>>);

/// Queue, admission, steps, milestones and rows of one machine that has a GPU alone.
#[pyclass(name = "Replica")]
pub struct PyReplica {
    store: StoreHandle,
    replica: Replica,
}

/// Calls a method of the replica with whichever store it serves from; what a policy in Python raised comes out.
macro_rules! with_store {
    ($self:ident, $py:ident, $replica:ident, $store:ident => $call:expr) => {{
        let $replica = &mut $self.replica;
        match &$self.store {
            StoreHandle::Tree(tree) => {
                let tree = &mut *tree.try_borrow_mut($py)?;
                let answer = {
                    let $store = &mut tree.0;
                    $call
                };
                raised(&tree.1, answer).and_then(answered)
            }
            StoreHandle::Pool(pool) => {
                let $store = &mut pool.try_borrow_mut($py)?.0;
                answered($call)
            }
            StoreHandle::Radix(radix) => {
                let $store = &mut radix.try_borrow_mut($py)?.0;
                answered($call)
            }
        }
    }};
}

fn rooms<S: MachineStore>(store: &S, tiers: usize, row: &mut Vec<u64>) -> Answer<()> {
    for tier in 0..tiers {
        let room = store.room(tier)?;
        row.extend([room.free, room.active, room.cached, room.in_flight]);
    }
    Ok(())
}

impl PyReplica {
    /// Runs the iterations that began before a time, on the replica's own store, which the caller has borrowed.
    pub fn catch_up<S: kvsim_core::serving::ServingStore>(
        &mut self,
        store: &mut S,
        now_ns: u64,
    ) -> Answer<()> {
        self.replica.catch_up(store, now_ns)
    }

    /// Appends the counts and each tier's free, active, cached and in-flight blocks, as of a time.
    pub fn sample(
        &mut self,
        py: Python<'_>,
        now_ns: u64,
        tiers: usize,
        row: &mut Vec<u64>,
    ) -> PyResult<()> {
        with_store!(self, py, replica, store => replica.catch_up(store, now_ns))?;
        let (queued, running, loading, generated) = self.counts();
        row.extend([queued as u64, running as u64, loading as u64, generated]);
        with_store!(self, py, _replica, store => rooms(store, tiers, row))
    }

    /// Requests sent here that are not finished.
    pub fn open_requests(&self) -> u64 {
        self.replica.open_requests
    }
}

fn bytes<'py>(py: Python<'py>, numbers: &[i64]) -> PyResult<Bound<'py, PyBytes>> {
    PyBytes::new_with(py, numbers.len() * 8, |bytes| {
        for (place, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_ne_bytes());
        }
        Ok(())
    })
}

#[pymethods]
impl PyReplica {
    #[new]
    fn new(
        store: StoreHandle,
        table: &PyStepTable,
        batch: BatchSettings,
        rules: ServingRules,
    ) -> PyResult<Self> {
        let batch = BatchConfig::from(batch);
        let config = config(&batch, &rules)?;
        let rows = Rows::new(rules.request_columns.iter().map(String::as_str));
        let replica = Replica::new(config, Batch::new(batch, table.0.clone()), rows);
        Ok(Self { store, replica })
    }

    /// `tokens`: of prompt and answer, and expected to be computed; `session`: its number, the turn, the label.
    fn arrive(
        &mut self,
        request: u32,
        tokens: (u64, u64, u64),
        session: (i64, i64, bool),
        now_ns: u64,
    ) -> u32 {
        let arrival = Arrival {
            request,
            prompt_tokens: tokens.0,
            output_tokens: tokens.1,
            expected_prefill_tokens: tokens.2,
            session: session.0,
            turn: session.1,
            is_conversational_turn: session.2,
        };
        self.replica.arrive(arrival, now_ns)
    }

    /// As `arrive`, straight into the queue; returns when the next boundary is due.
    fn arrive_in_queue(
        &mut self,
        py: Python<'_>,
        request: u32,
        tokens: (u64, u64, u64),
        session: (i64, i64, bool),
        now_ns: u64,
    ) -> PyResult<Option<u64>> {
        let place = self.arrive(request, tokens, session, now_ns);
        self.enqueue(py, place, now_ns)
    }

    fn received(&mut self, place: u32, now_ns: u64) {
        self.replica.received(place, now_ns);
    }

    fn enqueue(&mut self, py: Python<'_>, place: u32, now_ns: u64) -> PyResult<Option<u64>> {
        with_store!(self, py, r, s => r.enqueue(s, place, now_ns))?;
        Ok(self.replica.boundary_ns())
    }

    fn at_boundary<'py>(&mut self, py: Python<'py>, now_ns: u64) -> PyResult<PyBoundary<'py>> {
        with_store!(self, py, r, s => r.at_boundary(s, now_ns))?;
        let closed = Some(self.replica.take_closed()).filter(|closed| !closed.is_empty());
        let rows = &mut self.replica.rows;
        let events = if rows.has_events() {
            Some(rows.take_events(|events| bytes(py, events))?)
        } else {
            None
        };
        Ok((self.replica.boundary_ns(), closed, events))
    }

    #[pyo3(name = "catch_up")]
    fn py_catch_up(&mut self, py: Python<'_>, now_ns: u64) -> PyResult<()> {
        with_store!(self, py, r, s => r.catch_up(s, now_ns))
    }

    fn take_rows<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        bytes(py, &self.replica.rows.take_requests())
    }

    fn tell_prefilled(&mut self) {
        self.replica.tell_prefilled();
    }

    fn take_prefilled(&mut self) -> Vec<(u32, u64)> {
        self.replica.take_prefilled()
    }

    fn log_steps(&mut self) {
        self.replica.batch.log_steps();
    }

    fn take_steps(&mut self) -> Vec<(u64, u64, u64, u64)> {
        let steps = self.replica.batch.take_steps().into_iter();
        steps
            .map(|s| {
                (
                    s.begin_ns,
                    s.duration_ns,
                    s.prefill_tokens,
                    s.decode_sequences,
                )
            })
            .collect()
    }

    /// Requests that wait, run, and wait for KV, and the tokens generated so far.
    fn counts(&self) -> (usize, usize, usize, u64) {
        let replica = &self.replica;
        let generated = replica.batch.generated_tokens;
        (replica.queued(), replica.running(), 0, generated)
    }

    #[getter]
    fn requests(&self) -> u64 {
        self.replica.open_requests
    }

    #[getter]
    fn queued_tokens(&self) -> u64 {
        self.replica.queued_tokens
    }

    #[getter]
    fn expected_prefill_tokens(&self) -> u64 {
        self.replica.expected_prefill_tokens
    }

    #[getter]
    fn steps(&self) -> u64 {
        self.replica.batch.steps
    }

    /// Time between tokens: (lower edges ns, counts, count, sum ns, min ns, max ns).
    #[allow(clippy::type_complexity)]
    fn itl(&self) -> (Vec<u64>, Vec<u64>, u64, u128, u64, u64) {
        let h = &self.replica.batch.itl;
        let (edges, counts) = h.buckets().into_iter().unzip();
        (edges, counts, h.count, h.sum, h.min, h.max)
    }
}

/// Adds the class of this room.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyReplica>()
}
