//! `OperatedMachines`: machines that are operated manually, without requests.

use kvsim_core::cluster::Cluster;
use kvsim_core::ids::BlockRange;
use kvsim_core::machine::messages::{Operated, Operation, PartOn, RequestLease, Task};
use kvsim_core::machine::{MovementConfig, ReadsConfig, RemoteRun, Replica, ReplicaConfig};
use kvsim_core::store::Part;
use kvsim_core::transfers::{Mover, Projection, TransferId, Transmission};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use crate::argument::{tuple_structs, Arg};
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
        let (machine, remote) = (self.machine, self.sources.max(1) - 1);
        let Some(config) = mover_config(&self.tiers, machine, remote, self.layers, false)? else {
            return Ok(Mover::default());
        };
        let writes = std::mem::take(&mut self.writes);
        with_writers(py, config, writes, &mut self.tiers.channels, store)
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
            .operate(&mut machines, machine, operation, now_ns)
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

tuple_structs! {
    /// The run to find: blocks of a request.
    pub struct RunArg {
        request: u32,
        start: u32,
        /// The block after the last one.
        end: u32,
    }

    /// The machine that reads, and the run to find on another machine.
    pub struct RemoteRunArg {
        machine: u32,
        run: RunArg,
    }

    /// A part of a path: its tier, its blocks, and the move writing it.
    pub struct PartArg {
        tier: usize,
        start: u32,
        end: u32,
        by: u64,
    }

    /// A part on another machine.
    pub struct SourceArg {
        owner: u32,
        part: PartArg,
    }

    /// A request and its lease.
    pub struct LeaseArg {
        request: u32,
        lease: u64,
    }

    /// The tiers that an edge reads and writes.
    pub struct EdgeArg {
        from: usize,
        to: usize,
    }

    /// A move over an edge, and the number of its blocks.
    pub struct MoveArg {
        id: u64,
        edge: EdgeArg,
        blocks: u64,
    }

    /// A machine's store and its rules.
    pub struct MachineArg {
        store: Py<PyMachineStore>,
        rules: OperationRules,
    }
}

/// Returns the longest run of wanted blocks that another machine than `machine` has below its GPU.
pub fn longest(
    cluster: &mut Cluster,
    machines: &mut Replicas<'_, '_>,
    machine: u32,
    run: RunArg,
    now_ns: u64,
) -> PyResult<Option<RemoteRun>> {
    let blocks = BlockRange {
        start: run.start,
        end: run.end,
    };
    let operation = Operation::Longest(run.request, blocks);
    match cluster.operate(machines, machine, operation, now_ns)? {
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

impl From<PartArg> for Part {
    fn from(given: PartArg) -> Self {
        Self {
            tier: given.tier,
            start: given.start,
            end: given.end,
            by: given.by,
        }
    }
}

#[pymethods]
impl PyOperatedMachines {
    /// `machines`: the store and the rules of each; `between` and `timeline` as in `Cluster`.
    #[new]
    #[pyo3(signature = (machines, between=None, timeline=None))]
    fn new(
        py: Python<'_>,
        machines: Vec<MachineArg>,
        between: Option<Py<PyAny>>,
        timeline: Option<&PyTimeline>,
    ) -> PyResult<Self> {
        let mut made = Vec::with_capacity(machines.len());
        for MachineArg { store, mut rules } in machines {
            let config = ReplicaConfig {
                machine: rules.machine.into(),
                sources: rules.sources as i64,
                movement: MovementConfig {
                    reads: rules.reads.0,
                    ..MovementConfig::default()
                },
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
        let own = own.map(|key| (key.time_ns, key.priority, key.machine.into()));
        let sent = self.cluster.channel_next_ns();
        let sent = sent.map(|time_ns| (time_ns, 0, -1));
        sent.into_iter().chain(own).min()
    }

    /// Runs the next event.
    fn run(&mut self, py: Python<'_>, now_ns: u64) -> PyResult<()> {
        let mut machines = Replicas::new(py, &self.machines, self.wires.as_mut());
        self.cluster.run(&mut machines, now_ns, now_ns)?;
        Ok(())
    }

    /// Sends the transmissions that a machine's store has decided.
    fn issue(&mut self, py: Python<'_>, machine: u32, now_ns: u64) -> PyResult<()> {
        let mut machines = Replicas::new(py, &self.machines, self.wires.as_mut());
        self.cluster
            .notify(&mut machines, machine, Task::Resume, now_ns)
    }

    /// Loads a part for a request's lease, or joins its load; returns the move, `None` without capacity to
    /// stage it.
    fn load(
        &mut self,
        py: Python<'_>,
        machine: u32,
        of: LeaseArg,
        part: PartArg,
        freeing_moves: Vec<u64>,
        now_ns: u64,
    ) -> PyResult<Option<u64>> {
        let LeaseArg { request, lease } = of;
        let of = RequestLease { request, lease };
        let operation = Operation::Load(of, part.into(), freeing_moves);
        self.moved(py, machine, operation, now_ns)
    }

    /// The longest run of a request's blocks that any other machine has below its GPU: that machine, and the parts there.
    fn longest(
        &mut self,
        py: Python<'_>,
        machine: u32,
        wanted: RunArg,
        now_ns: u64,
    ) -> PyResult<Option<(u32, Vec<PyPart>)>> {
        let mut machines = Replicas::new(py, &self.machines, self.wires.as_mut());
        let run = longest(&mut self.cluster, &mut machines, machine, wanted, now_ns)?;
        Ok(run.map(|run| (run.owner, parts_to_py(run.parts))))
    }

    /// Reads a part of another machine; returns the move, `None` if this machine has no capacity for it.
    fn fetch(
        &mut self,
        py: Python<'_>,
        machine: u32,
        request: u32,
        source: SourceArg,
        now_ns: u64,
    ) -> PyResult<Option<u64>> {
        let source = PartOn {
            owner: source.owner,
            part: source.part.into(),
        };
        let operation = Operation::Fetch(request, source);
        self.moved(py, machine, operation, now_ns)
    }

    /// Lets a move over an edge (tiers from, to) arrive with so many blocks at the times of a transmission.
    fn arrive(
        &mut self,
        py: Python<'_>,
        machine: u32,
        of: MoveArg,
        sent: Arg<Transmission>,
        now_ns: u64,
    ) -> PyResult<Option<u64>> {
        let operation = Operation::Arrive(of.id, (of.edge.from, of.edge.to), of.blocks, sent.0);
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
