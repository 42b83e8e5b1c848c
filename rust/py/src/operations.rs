//! `OperatedMachines`: machines that are operated manually, without requests.

use kvsim_core::cluster::Cluster;
use kvsim_core::machine::messages::{Operated, Operation, Task};
use kvsim_core::machine::{ReadsConfig, Replica, ReplicaConfig};
use kvsim_core::store::Part;
use kvsim_core::transfers::{Mover, Projection, TransferId, Transmission};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use crate::argument::Arg;
use crate::channel::{transmission_to_py, PyTimeline};
use crate::machine_store::PyMachineStore;
use crate::machines::{Replicas, Wires};
use crate::refusal::{answered, refused};
use crate::serving::PyReplica;
use crate::serving_rules::{mover_config, with_writers, TierRules};
use crate::store_values::{parts_to_py, PyPart};
use crate::write_plugin::WriteCall;

/// `cache.operations.native.OperationRules`, attribute by attribute.
#[derive(FromPyObject)]
pub struct OperationRules {
    pub machine: u32,
    pub sources: usize,
    layers: u64,
    reads: Arg<Option<ReadsConfig>>,
    tiers: TierRules,
    writes: Vec<Option<WriteCall>>,
}

impl OperationRules {
    /// Returns the mover that copies blocks between the tiers.
    pub fn mover(&mut self, py: Python<'_>, store: &Py<PyMachineStore>) -> PyResult<Mover> {
        let slot = (self.machine, self.sources.max(1) - 1);
        let Some(config) = mover_config(&self.tiers, slot, self.layers, false)? else {
            return Ok(Mover::default());
        };
        let writes = std::mem::take(&mut self.writes);
        with_writers(py, (config, writes), &mut self.tiers.channels, store)
    }
}

/// The next event: time, priority and machine.
type PyNext = Option<(u64, u8, i64)>;

/// Machines operated manually: the events of their transfers in one order.
#[pyclass(name = "OperatedMachines")]
pub struct PyOperatedMachines {
    cluster: Cluster,
    machines: Vec<Py<PyReplica>>,
    wires: Option<Wires>,
}

impl PyOperatedMachines {
    fn operate(
        &mut self,
        py: Python<'_>,
        machine: u32,
        operation: Operation,
        now_ns: u64,
    ) -> PyResult<Operated> {
        let mut machines = Replicas::new(py, &self.machines, self.wires.as_mut());
        self.cluster
            .operate(&mut machines, (machine, operation), now_ns)
    }

    fn moved(
        &mut self,
        py: Python<'_>,
        machine: u32,
        operation: Operation,
        now_ns: u64,
    ) -> PyResult<Option<u64>> {
        match self.operate(py, machine, operation, now_ns)? {
            Operated::Moved(id) => Ok(id),
            _ => Ok(None),
        }
    }

    fn with_mover<T>(
        &self,
        py: Python<'_>,
        machine: u32,
        with: impl FnOnce(&mut Mover) -> T,
    ) -> PyResult<T> {
        let Some(replica) = self.machines.get(machine as usize) else {
            return Err(refused("no such machine", "one of these"));
        };
        let mut replica = replica.try_borrow_mut(py)?;
        Ok(with(&mut replica.replica.mover))
    }
}

/// The machine that reads, and the run to find: request, first block, block after the last one.
pub type Wanted = (u32, (u32, u32, u32));

/// Returns the machine with the longest run of wanted blocks below its GPU, and the parts of that run.
pub fn longest(
    cluster: &mut Cluster,
    machines: &mut Replicas<'_, '_>,
    (machine, (request, start, limit)): Wanted,
    now_ns: u64,
) -> PyResult<Option<(u32, Vec<Part>)>> {
    let operation = Operation::Longest(request, (start, limit));
    match cluster.operate(machines, (machine, operation), now_ns)? {
        Operated::Found(run) => Ok(run),
        _ => Ok(None),
    }
}

/// The times of a move of a machine, if nothing else is queued; `None` where they depend on more.
#[pyfunction]
pub fn projected<'py>(
    py: Python<'py>,
    replicas: Vec<Py<PyReplica>>,
    machine: usize,
    id: u64,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let mut projection = Projection::default();
    for replica in &replicas {
        projection.add(&replica.try_borrow(py)?.replica.mover);
    }
    let sent = answered(projection.times(machine, id))?;
    sent.map(|sent| transmission_to_py(py, sent)).transpose()
}

/// The block after a run that `longest` found.
pub fn end_of(run: Option<(u32, Vec<Part>)>) -> Option<u32> {
    run.and_then(|(_, parts)| parts.last().map(|part| part.end))
}

fn part_of((tier, start, end, by): PyPart) -> Part {
    Part {
        tier,
        start,
        end,
        by,
    }
}

#[pymethods]
impl PyOperatedMachines {
    /// `machines`: the store and the rules of each; `between` and `timeline` as in `Cluster`.
    #[new]
    #[pyo3(signature = (machines, between=None, timeline=None))]
    fn new(
        py: Python<'_>,
        machines: Vec<(Py<PyMachineStore>, OperationRules)>,
        between: Option<Py<PyAny>>,
        timeline: Option<&PyTimeline>,
    ) -> PyResult<Self> {
        let mut made = Vec::with_capacity(machines.len());
        for (store, mut rules) in machines {
            let config = ReplicaConfig {
                machine: rules.machine.into(),
                sources: rules.sources as i64,
                reads: rules.reads.0,
                ..ReplicaConfig::default()
            };
            let mover = rules.mover(py, &store)?;
            let replica = PyReplica {
                store,
                replica: Replica::operated_manually(config, mover),
                engine: None,
            };
            made.push(Py::new(py, replica)?);
        }
        let cluster = Cluster::new(made.len());
        Ok(Self {
            cluster: match timeline {
                Some(timeline) => cluster.with_timeline(timeline.0.clone()),
                None => cluster,
            },
            machines: made,
            wires: between.map(Wires::new),
        })
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        match &self.wires {
            Some(wires) => visit.call(&wires.between),
            None => Ok(()),
        }
    }

    fn __clear__(&mut self) {
        self.wires = None;
    }

    /// The next event: time, priority and machine, -1 for a channel.
    fn next(&self) -> PyNext {
        let own = self.cluster.next();
        let own = own.map(|(time_ns, priority, machine, _)| (time_ns, priority, machine.into()));
        let sent = self.cluster.channel_next_ns();
        let sent = sent.map(|time_ns| (time_ns, 0, -1));
        sent.into_iter().chain(own).min()
    }

    /// Runs the next event.
    fn run(&mut self, py: Python<'_>, now_ns: u64) -> PyResult<()> {
        let mut machines = Replicas::new(py, &self.machines, self.wires.as_mut());
        self.cluster.run(&mut machines, (now_ns, now_ns))?;
        Ok(())
    }

    /// Sends the transmissions that a machine's store has decided.
    fn issue(&mut self, py: Python<'_>, machine: u32, now_ns: u64) -> PyResult<()> {
        let mut machines = Replicas::new(py, &self.machines, self.wires.as_mut());
        self.cluster
            .notify(&mut machines, (machine, Task::Resume), now_ns)
    }

    /// Loads a part for a request's lease, or joins its load; returns the move, `None` without capacity to
    /// stage it.
    fn load(
        &mut self,
        py: Python<'_>,
        machine: u32,
        of: (u32, u64),
        part: PyPart,
        freeing_moves: Vec<u64>,
        now_ns: u64,
    ) -> PyResult<Option<u64>> {
        let operation = Operation::Load(of, part_of(part), freeing_moves);
        self.moved(py, machine, operation, now_ns)
    }

    /// The longest run of a request's blocks that any other machine has below its GPU: that machine, and the parts there.
    fn longest(
        &mut self,
        py: Python<'_>,
        machine: u32,
        wanted: (u32, u32, u32),
        now_ns: u64,
    ) -> PyResult<Option<(u32, Vec<PyPart>)>> {
        let mut machines = Replicas::new(py, &self.machines, self.wires.as_mut());
        let run = longest(&mut self.cluster, &mut machines, (machine, wanted), now_ns)?;
        Ok(run.map(|(owner, parts)| (owner, parts_to_py(parts))))
    }

    /// Reads a part of another machine; returns the move, `None` if this machine has no capacity for it.
    fn fetch(
        &mut self,
        py: Python<'_>,
        machine: u32,
        request: u32,
        source: (u32, PyPart),
        now_ns: u64,
    ) -> PyResult<Option<u64>> {
        let operation = Operation::Fetch(request, (source.0, part_of(source.1)));
        self.moved(py, machine, operation, now_ns)
    }

    /// Lets a move over an edge (tiers from, to) arrive with so many blocks at the times of a transmission.
    fn arrive(
        &mut self,
        py: Python<'_>,
        machine: u32,
        of: (u64, (usize, usize), u64),
        sent: Arg<Transmission>,
        now_ns: u64,
    ) -> PyResult<Option<u64>> {
        let operation = Operation::Arrive(of.0, of.1, of.2, sent.0);
        self.moved(py, machine, operation, now_ns)
    }

    /// Moves of a machine that have not finished.
    fn moves(&self, py: Python<'_>, machine: u32) -> PyResult<Vec<u64>> {
        self.with_mover(py, machine, |mover| mover.unfinished_moves())
    }

    /// Keeps the transfer of an unfinished move; returns its number, the tiers from and to, and its blocks.
    fn keep(
        &self,
        py: Python<'_>,
        machine: u32,
        id: u64,
    ) -> PyResult<Option<(TransferId, usize, usize, u64)>> {
        self.with_mover(py, machine, |mover| {
            let number = mover.in_flight(id)?;
            mover.keep(number);
            let transfer = mover.transfer(number);
            Some((number, transfer.from, transfer.to, transfer.blocks))
        })
    }

    /// The times of a kept transfer as a `Transmission`, `None` before it is on its channel.
    fn sent<'py>(
        &self,
        py: Python<'py>,
        machine: u32,
        number: TransferId,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let sent = self.with_mover(py, machine, |mover| mover.sent(number))?;
        sent.map(|sent| transmission_to_py(py, sent)).transpose()
    }

    /// The replicas, as `projected` takes them.
    #[getter]
    fn replicas(&self, py: Python<'_>) -> Vec<Py<PyReplica>> {
        self.machines.iter().map(|one| one.clone_ref(py)).collect()
    }

    /// Tiers from and to, and bytes sent, of each edge of a machine that sent any.
    fn edge_bytes(&self, py: Python<'_>, machine: u32) -> PyResult<Vec<(usize, usize, u64)>> {
        let sent = self.with_mover(py, machine, |mover| mover.traffic.edges.clone())?;
        let sent = sent.into_iter();
        Ok(sent
            .map(|edge| (edge.route.from, edge.route.to, edge.bytes))
            .collect())
    }
}
