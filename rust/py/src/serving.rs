//! `Replica`: the request lifecycle on one machine, one call per event.

use kvsim_core::batch::{Batch, BatchConfig};
use kvsim_core::machine::engine::{Desk, EngineScheduler};
use kvsim_core::machine::messages::EventKey;
use kvsim_core::machine::plugins::Occasion;
use kvsim_core::machine::rows::Rows;
use kvsim_core::machine::{Now, Phase, Replica};
use kvsim_core::store::contract::BlockStore;
use kvsim_core::store::IndexEntry;
use kvsim_core::store::{Answer, STAGING};
use kvsim_core::transfers::MoverConfig;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::argument::Arg;
use crate::arrival::{arrival, SessionArg, TokensArg};
use crate::bytes::bytes;
use crate::engine_of::{scheduled, with_engine, Engine};
use crate::machine_store::{with_store, PyMachineStore};
use crate::occupancies::occupancies;
use crate::outputs::PyOutputLog;
use crate::schedule::{schedule_to_py, PySchedule};
use crate::serving_rules::{config, ServingRules};
use crate::step_table::PyStepTable;

/// The time and phase of the next event; phase 0 is an arrival, 1 a step boundary.
type PyNext = Option<(u64, u8)>;

/// The next event, finished requests, rows of events; the last two are `None` if empty.
type PyRun<'py> = (PyNext, Option<Vec<u32>>, Option<Bound<'py, PyBytes>>);

/// Queue, admission, steps, transfers, milestones and rows of one machine.
#[pyclass(name = "Replica")]
pub struct PyReplica {
    pub store: Py<PyMachineStore>,
    pub replica: Replica,
    /// The engine's own scheduler; `None` for kvsim's.
    pub engine: Option<Engine>,
}

impl PyReplica {
    /// Runs the iterations that started before a time, on the replica's own store, which the caller has
    /// borrowed.
    pub fn catch_up<S: BlockStore + 'static>(&mut self, store: &mut S, now_ns: u64) -> Answer<()> {
        let replica = &mut self.replica;
        scheduled!(&mut self.engine, replica, store, now_ns, catch_up(now_ns))
    }

    /// Appends the counts and each tier's free, active, cached and in-flight blocks, as of a time.
    pub fn sample(
        &mut self,
        py: Python<'_>,
        now_ns: u64,
        tiers: usize,
        row: &mut Vec<u64>,
    ) -> PyResult<()> {
        self.py_catch_up(py, now_ns)?;
        let (queued, running, loading, generated) = self.counts();
        row.extend([queued as u64, running as u64, loading as u64, generated]);
        with_store!(self, py, _replica, store => occupancies(store, tiers, row))
    }

    fn next(&self) -> PyNext {
        if let Some(engine) = &self.engine {
            let next_ns = with_engine!(engine, scheduler => scheduler.next_ns(&self.replica));
            return next_ns.map(|now_ns| (now_ns, 1));
        }
        let next = self.replica.next();
        next.map(|(now_ns, phase)| (now_ns, u8::from(phase == Phase::Boundary)))
    }

    /// The next event's key in the order of all machines' events.
    pub fn next_key(&self) -> Option<EventKey> {
        if self.engine.is_none() {
            return self.replica.next_key();
        }
        let (time_ns, _) = self.next()?;
        let copy = self.replica.next_copy();
        let read = copy.filter(|&(ns, _)| ns == time_ns && self.replica.has_role());
        let phase = read.map_or(Phase::Boundary, |_| Phase::Transfer);
        Some(EventKey {
            time_ns,
            priority: phase.priority(),
            machine: self.replica.machine(),
            number: read.map_or(0, |(_, number)| number),
        })
    }

    /// Adds an index entry through which routers read the number of open requests.
    pub fn add_index_entry(&mut self, index_entry: IndexEntry) {
        self.replica.prefill_load.add_index_entry(index_entry);
    }
}

#[pymethods]
impl PyReplica {
    #[new]
    fn new(
        py: Python<'_>,
        store: Py<PyMachineStore>,
        table: &PyStepTable,
        batch: Arg<BatchConfig>,
        rules: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let (batch, given_rules) = (batch.0, rules);
        let mut rules: ServingRules = given_rules.extract()?;
        let config = config(given_rules, &batch, &rules)?;
        let engine = Engine::new(&config, &batch, &rules, &store.try_borrow(py)?.store)?;
        let columns = rules.request_columns.iter().map(String::as_str);
        let rows = Rows::new(columns, &rules.sources);
        let mover = rules.mover(py, batch.num_layers, &store)?;
        let replica = Replica::new(config, Batch::new(batch, table.0.clone()), rows)
            .with_plugins(rules.plugins.plugins())
            .with_mover(mover);
        Ok(Self {
            store,
            replica,
            engine,
        })
    }

    /// A shared pool, which receives no requests.
    #[staticmethod]
    fn of_pool(store: Py<PyMachineStore>, rules: Arg<MoverConfig>) -> Self {
        Self {
            store,
            replica: Replica::of_pool(rules.0),
            engine: None,
        }
    }

    /// A pool's blocks written, blocks read, blocks refused and bytes written.
    fn pool_counts(&self) -> (u64, u64, u64, u64) {
        let counts = self.replica.pool().unwrap_or_default();
        let written = self.replica.mover.traffic.tiers.get(STAGING);
        let written = written.map_or(0, |tier| tier.written);
        (
            counts.put_blocks,
            counts.read_blocks,
            counts.refused_blocks,
            written,
        )
    }

    /// Blocks of first admissions that came from a shared pool.
    #[getter]
    fn pool_hit_blocks(&self) -> u64 {
        self.replica.reports.pool_hit_blocks
    }

    /// `tokens`: of the prompt, of the answer, expected to be computed, and of earlier turns (−1: not stated);
    /// `session`: number, turn, label and priority.
    fn arrive(&mut self, request: u32, tokens: TokensArg, session: SessionArg, now_ns: u64) -> u32 {
        let arrival = arrival(request, &tokens, &session);
        self.replica.arrive(arrival, now_ns)
    }

    /// Adds a request as `arrive` does and queues it; returns the next event.
    fn arrive_in_queue(
        &mut self,
        py: Python<'_>,
        request: u32,
        tokens: TokensArg,
        session: SessionArg,
        now_ns: u64,
    ) -> PyResult<PyNext> {
        let slot = self.arrive(request, tokens, session, now_ns);
        self.enqueue(py, slot, now_ns)
    }

    fn reaches_ns(&mut self, slot: u32) -> u64 {
        self.replica.reaches_ns(slot)
    }

    fn received(&mut self, slot: u32, now_ns: u64) {
        self.replica.received(slot, now_ns);
    }

    pub fn enqueue(&mut self, py: Python<'_>, slot: u32, now_ns: u64) -> PyResult<PyNext> {
        if self.replica.is_aborted(slot) {
            with_store!(self, py, replica, store => {
                replica.leave(&mut Now::alone(store, now_ns), slot);
                Ok(())
            })?;
            return Ok(self.next());
        }
        let engine = &mut self.engine;
        with_store!(self, py, r, s => scheduled!(engine, r, s, now_ns, enqueue(slot)))?;
        Ok(self.next())
    }

    /// Prefetches blocks of a prompt from lower tiers before a session's next turn; returns the next event.
    fn prefetch(
        &mut self,
        py: Python<'_>,
        request: u32,
        tokens: u64,
        now_ns: u64,
    ) -> PyResult<PyNext> {
        let occasion = Occasion::Session;
        with_store!(self, py, replica, store => {
            replica.prefetch(&mut Now::alone(store, now_ns), request, tokens, occasion)
        })?;
        Ok(self.next())
    }

    /// Blocks prefetched before their request so far.
    #[getter]
    fn prefetched_blocks(&self) -> u64 {
        self.replica
            .mover
            .prefetch_state
            .as_ref()
            .map_or(0, |prefetch_state| prefetch_state.blocks)
    }

    fn run<'py>(&mut self, py: Python<'py>, until_ns: u64) -> PyResult<PyRun<'py>> {
        let now_ns = self.next().map_or(until_ns, |(next_ns, _)| next_ns);
        let engine = &mut self.engine;
        with_store!(self, py, r, s => scheduled!(engine, r, s, now_ns, run(until_ns)))?;
        self.news(py)
    }

    /// Aborts a request if it is on this machine.
    fn abort<'py>(&mut self, py: Python<'py>, request: u32, now_ns: u64) -> PyResult<PyRun<'py>> {
        self.gone(py, request, now_ns)?;
        self.news(py)
    }

    /// The next event, requests finished since the last report, and rows of events.
    fn news<'py>(&mut self, py: Python<'py>) -> PyResult<PyRun<'py>> {
        let closed = Some(self.replica.take_closed()).filter(|closed| !closed.is_empty());
        let rows = &mut self.replica.reports.rows;
        let events = if rows.has_events() {
            Some(rows.take_events(|events| bytes(py, events))?)
        } else {
            None
        };
        Ok((self.next(), closed, events))
    }

    #[pyo3(name = "catch_up")]
    fn py_catch_up(&mut self, py: Python<'_>, now_ns: u64) -> PyResult<()> {
        let engine = &mut self.engine;
        with_store!(self, py, r, s => scheduled!(engine, r, s, now_ns, catch_up(now_ns)))
    }

    fn take_rows<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        bytes(py, &self.replica.reports.rows.take_requests())
    }

    fn notify_prefilled(&mut self) {
        self.replica.notify_prefilled();
    }

    fn take_prefilled(&mut self) -> Vec<(u32, u64)> {
        self.replica.take_prefilled()
    }

    /// Starts logging tokens and closed requests; steps run one by one from then on.
    fn log_outputs(&mut self, log: &PyOutputLog) {
        self.replica.log_outputs(log.0.clone());
    }

    /// True if a copy between tiers is in flight.
    #[getter]
    fn is_moving(&self) -> bool {
        self.replica.mover.is_moving()
    }

    fn log_schedule(&mut self) {
        if let Some(engine) = &mut self.engine {
            engine.log_schedule();
        }
    }

    /// The logged schedule: counts, steps, admissions and requests; `None` without a log.
    fn schedule(&self) -> Option<PySchedule> {
        let log = self.engine.as_ref()?.log()?;
        Some(schedule_to_py(log))
    }

    fn log_steps(&mut self) {
        self.replica.batch.log_steps();
    }

    fn take_steps(&mut self) -> Vec<(u64, u64, u64, u64)> {
        let mut steps = Vec::new();
        for s in self.replica.batch.take_steps() {
            let (began, took) = (s.begin_ns, s.duration_ns);
            steps.push((began, took, s.prefill_tokens, s.decode_sequences));
        }
        steps
    }

    /// Requests waiting, running and waiting for KV, and the tokens generated so far.
    fn counts(&self) -> (usize, usize, usize, u64) {
        let replica = &self.replica;
        let generated = replica.batch.counts.generated_tokens;
        if let Some(engine) = &self.engine {
            let (waiting, loading, running) = with_engine!(engine, scheduler => {
                (scheduler.queued(), scheduler.loading(), scheduler.running())
            });
            return (waiting - loading, running, loading, generated);
        }
        (
            replica.queued(),
            replica.running(),
            replica.loading(),
            generated,
        )
    }

    /// Requests sent here that are not finished.
    #[getter(requests)]
    pub fn open_requests(&self) -> u64 {
        self.replica.prefill_load.open_requests()
    }

    /// Prompt tokens sent here that are not computed yet.
    #[getter]
    pub fn queued_tokens(&self) -> u64 {
        self.replica.prefill_load.queued_tokens()
    }

    #[getter]
    fn expected_prefill_tokens(&self) -> u64 {
        self.replica.prefill_load.expected_tokens()
    }

    #[getter]
    fn steps(&self) -> u64 {
        self.replica.batch.counts.steps
    }

    /// Tiers from and to, and bytes sent, of each edge that sent any.
    fn edge_bytes(&self) -> Vec<(usize, usize, u64)> {
        self.replica
            .mover
            .traffic
            .edges
            .iter()
            .map(|edge| (edge.route.from, edge.route.to, edge.bytes))
            .collect()
    }

    /// By tier, bytes that transfers have read from it, and written to it.
    fn moved_bytes(&self) -> Vec<(u64, u64)> {
        let tiers = self.replica.mover.traffic.tiers.iter();
        tiers.map(|tier| (tier.read, tier.written)).collect()
    }

    /// True if no move was in flight at some moment since the last call, or since a request last finished.
    fn take_drained(&mut self) -> bool {
        self.replica.mover.completions.take_drained()
    }

    /// Number of moves in flight.
    #[getter]
    fn open_moves(&self) -> usize {
        self.replica.mover.open_moves()
    }

    /// Speculation: decode steps of a sequence, tokens drafted, tokens accepted by position.
    fn accepted(&self) -> (u64, u64, Vec<u64>) {
        let accepted = &self.replica.batch.counts.accepted;
        (
            accepted.steps,
            accepted.drafted,
            accepted.by_position.clone(),
        )
    }

    /// Inter-token latency: (lower edges ns, counts, count, sum ns, min ns, max ns).
    #[allow(clippy::type_complexity)]
    fn itl(&self) -> (Vec<u64>, Vec<u64>, u64, u128, u64, u64) {
        let h = &self.replica.batch.counts.itl;
        let (edges, counts) = h.buckets().into_iter().unzip();
        (edges, counts, h.count, h.sum, h.min, h.max)
    }
}
