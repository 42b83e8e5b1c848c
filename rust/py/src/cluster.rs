//! `Cluster`: all replicas whose events the core keeps in one order, and the arrival of their requests.

use kvsim_core::cluster::intake::Outside;
use kvsim_core::cluster::{Chosen, Cluster, Question, SharedTime};
use kvsim_core::machine::messages::{RequestOn, SlotOn, Task};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::argument::Arg;
use crate::bytes::bytes;
use crate::channel::{PyLane, PyTimeline};
use crate::cluster_values::{question_to_py, PromptArg, PyNews, PyNext, PyRun};
use crate::digest::PyDigest;
use crate::intake::{route_of, Choice, ChoiceArg, DecodeDoor, FrontDoor, HoldsArg};
use crate::machines::{Replicas, Wires};
use crate::operations::{longest, RemoteRunArg};
use crate::refusal::refused;
use crate::serving::PyReplica;

/// The priority of an arrival at a cluster (`engine.py`).
const ARRIVAL: u8 = 1;
/// The machine number of an event that belongs to no machine.
const NO_MACHINE: i64 = -1;

/// All machines of a cluster whose events the core keeps in one order.
#[pyclass(name = "Cluster")]
pub struct PyCluster {
    cluster: Cluster,
    /// The machines that serve, then the pool that they share, if any.
    replicas: Vec<Py<PyReplica>>,
    /// Number of machines that serve.
    serving: usize,
    wires: Option<Wires>,
    question: Option<Question>,
    /// The native arrival path, if it is enabled.
    front: Option<FrontDoor>,
    /// The native choice of decode machines, if it is enabled.
    decode: Option<DecodeDoor>,
}

impl PyCluster {
    fn next(&self) -> PyNext {
        let own = self.cluster.next();
        let own = own.map(|key| (key.time_ns, key.priority, key.machine.into()));
        let front = self.front.as_ref();
        let coming = front.and_then(|front| front.intake.next_ns());
        let coming = coming.map(|time_ns| (time_ns, ARRIVAL, NO_MACHINE));
        let sent = self.cluster.channel_next_ns();
        let sent = sent.map(|time_ns| (time_ns, 0, NO_MACHINE));
        sent.into_iter().chain(own).chain(coming).min()
    }

    /// The next event, the requests finished since the last report, and these rows of events.
    fn news<'py>(&mut self, py: Python<'py>, rows: &[i64]) -> PyResult<PyNews<'py>> {
        let closed = self.cluster.take_closed().into_iter();
        let closed: Vec<_> = closed.map(|of| (of.machine, of.request)).collect();
        let closed = Some(closed).filter(|closed| !closed.is_empty());
        let events = match rows {
            [] => None,
            rows => Some(bytes(py, rows)?),
        };
        Ok((self.next(), closed, events))
    }

    /// Runs an operation on the machines; returns what changed.
    fn notify<'py>(
        &mut self,
        py: Python<'py>,
        what: impl FnOnce(&mut Cluster, &mut Replicas<'_, '_>) -> PyResult<()>,
    ) -> PyResult<PyNews<'py>> {
        let mut machines = Replicas::new(py, &self.replicas, self.wires.as_mut());
        what(&mut self.cluster, &mut machines)?;
        let rows = std::mem::take(&mut machines.events);
        self.news(py, &rows)
    }

    /// Runs the next event, then the events before `until_ns`, arrivals included.
    ///
    /// Stops where Python has to choose a decode machine, and after the last request that was fed.
    fn advance(
        &mut self,
        replicas: &mut Replicas<'_, '_>,
        now_ns: u64,
        until_ns: u64,
    ) -> PyResult<Option<Question>> {
        let mut is_first = true;
        while let Some((at_ns, priority, _)) = self.next() {
            if !std::mem::take(&mut is_first) && at_ns >= until_ns {
                break;
            }
            if let (ARRIVAL, Some(front)) = (priority, &mut self.front) {
                match front.intake.take() {
                    Some(Outside::Comes(coming)) => {
                        if let Some(SlotOn { machine, slot }) = front.come(replicas, coming)? {
                            let task = Task::Enqueue(slot);
                            self.cluster.notify(replicas, machine, task, coming.at_ns)?;
                        }
                    }
                    Some(Outside::Reaches(SlotOn { machine, slot }, at_ns)) => {
                        let mut replica = replicas.of(machine).try_borrow_mut(replicas.py)?;
                        replica.replica.received(slot, at_ns);
                        drop(replica);
                        let task = Task::Enqueue(slot);
                        self.cluster.notify(replicas, machine, task, at_ns)?;
                        continue;
                    }
                    Some(Outside::Aborts {
                        machine,
                        request,
                        at_ns,
                    }) => {
                        let who = RequestOn { machine, request };
                        self.cluster.abort(replicas, who, at_ns)?;
                        continue;
                    }
                    None => {}
                }
                if front.intake.is_empty() {
                    break;
                }
                continue;
            }
            let coming = self.front.as_ref();
            let coming = coming.and_then(|front| front.intake.next_ns());
            let until_ns = until_ns.min(coming.unwrap_or(u64::MAX));
            let Some(decode) = &mut self.decode else {
                let question = self.cluster.run(replicas, now_ns, until_ns)?;
                if question.is_some() || self.front.is_none() {
                    return Ok(question);
                }
                continue;
            };
            if let Some(question) = self.cluster.run(replicas, u64::MAX, until_ns)? {
                let chosen = decode.answer(replicas.py, &question, self.cluster.now_ns())?;
                self.cluster.assign(replicas, &question, chosen)?;
            }
        }
        Ok(None)
    }
}

#[pymethods]
impl PyCluster {
    /// `between`: names the channel of (owner, reader), for machines that read each other or hand over through memory;
    /// `apart`: no machine depends on another; `timeline`: events on channels served layer by layer; `pool`: the shared
    /// pool, numbered after the machines.
    #[new]
    #[pyo3(signature = (replicas, between=None, apart=false, timeline=None, pool=None))]
    fn new(
        mut replicas: Vec<Py<PyReplica>>,
        between: Option<Py<PyAny>>,
        apart: bool,
        timeline: Option<&PyTimeline>,
        pool: Option<Py<PyReplica>>,
    ) -> Self {
        let serving = replicas.len();
        replicas.extend(pool);
        let cluster = if apart {
            Cluster::apart(replicas.len())
        } else {
            Cluster::new(replicas.len())
        };
        Self {
            cluster: match timeline {
                Some(timeline) => cluster.with_timeline(timeline.0.clone()),
                None => cluster,
            },
            replicas,
            serving,
            wires: between.map(Wires::new),
            question: None,
            front: None,
            decode: None,
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        if let Some(wires) = &self.wires {
            visit.call(&wires.between)?;
        }
        match &self.decode {
            Some(decode) => visit.call(&decode.between),
            None => Ok(()),
        }
    }

    fn __clear__(&mut self) {
        self.wires = None;
        self.decode = None;
    }

    /// Enables the native arrival path. `choice`: a rule's name, its parameter and the fleet; `machines`: the
    /// candidates. By machine: `digests` record arrivals, `holds` are tokens of a prompt and of a whole request that
    /// fit.
    fn open(
        &mut self,
        choice: ChoiceArg,
        machines: Vec<u32>,
        digests: Vec<Py<PyDigest>>,
        holds: Vec<HoldsArg>,
    ) -> PyResult<()> {
        let all = self.serving;
        let known = machines.iter().all(|&machine| (machine as usize) < all);
        if !known || digests.len() != all || holds.len() != all {
            let expected = "a digest and limits for each machine";
            return Err(refused("not what requests come to", expected));
        }
        let choice = Choice::new(choice, machines)?;
        self.front = Some(FrontDoor::new(choice, digests, holds));
        Ok(())
    }

    /// Enables the native choice of decode machines: as `open`, with the tokens of a request that fit each candidate;
    /// `between` names the channels from one machine to another.
    fn decode_by(
        &mut self,
        choice: ChoiceArg,
        machines: Vec<u32>,
        holds: Vec<u64>,
        between: Py<PyAny>,
    ) -> PyResult<()> {
        if machines.len() != holds.len() {
            return Err(refused("not what machines hold", "one for each"));
        }
        let choice = Choice::new(choice, machines)?;
        self.decode = Some(DecodeDoor::new(choice, holds, between));
        Ok(())
    }

    /// Groups each `size` consecutive machines into an engine whose ranks step together; `dummy_ns`: by
    /// engine, the time of a dummy step; `shared_ns`: by engine, the time of shared work, by the tokens of the
    /// largest rank while CUDA graphs hold all, and by those of all ranks.
    fn step_together(
        &mut self,
        size: u32,
        dummy_ns: Vec<u64>,
        shared_ns: Arg<Vec<SharedTime>>,
    ) -> PyResult<()> {
        let engines = dummy_ns.len();
        if size as usize * engines != self.replicas.len() || shared_ns.0.len() != engines {
            let expected = "as many machines an engine, and a dummy step of each";
            return Err(refused("not the ranks of engines", expected));
        }
        self.cluster.step_together(size, dummy_ns, shared_ns.0);
        Ok(())
    }

    /// Queues requests that will arrive; returns the next event.
    fn feed(&mut self, packed: &[u8]) -> PyResult<PyNext> {
        let front = self.front.as_mut();
        front
            .ok_or_else(|| refused("requests that come unasked", "a cluster that is open"))?
            .feed(packed)?;
        Ok(self.next())
    }

    /// (request, machine) of each request that did not fit its machine since the last call; and true if more requests
    /// are to be fed.
    fn take_rejected(&mut self) -> (Vec<(u32, u32)>, bool) {
        match &mut self.front {
            Some(front) => {
                let rejected = front.rejected.drain(..);
                let rejected = rejected.map(|of| (of.request, of.machine)).collect();
                (rejected, front.intake.is_empty())
            }
            None => (Vec::new(), false),
        }
    }

    /// Rows of the requests that finished on any machine since the last call.
    fn take_rows<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let mut rows = Vec::new();
        for replica in &self.replicas {
            let mut replica = replica.try_borrow_mut(py)?;
            rows.extend(replica.replica.reports.rows.take_requests());
        }
        bytes(py, &rows)
    }

    /// Records that Python changed a machine; returns the next event.
    fn woken(&mut self, py: Python<'_>, machine: u32) -> PyResult<PyNext> {
        let Some(replica) = self.replicas.get(machine as usize) else {
            return Err(refused("no such machine", "one of the cluster"));
        };
        let next = replica.try_borrow_mut(py)?.next_key();
        self.cluster.changed(machine, next);
        Ok(self.next())
    }

    /// Adds a request to a machine's queue; `slot` is its index there.
    fn enqueue<'py>(
        &mut self,
        py: Python<'py>,
        machine: u32,
        slot: u32,
        now_ns: u64,
    ) -> PyResult<PyNews<'py>> {
        self.notify(py, |cluster, machines| {
            cluster.notify(machines, machine, Task::Enqueue(slot), now_ns)
        })
    }

    /// Prefetches blocks of a prompt on a machine from lower tiers.
    fn prefetch<'py>(
        &mut self,
        py: Python<'py>,
        machine: u32,
        wanted: PromptArg,
        now_ns: u64,
    ) -> PyResult<PyNews<'py>> {
        self.notify(py, |cluster, machines| {
            let task = Task::Prefetch(wanted.request, wanted.tokens);
            cluster.notify(machines, machine, task, now_ns)
        })
    }

    /// Aborts a request that was sent to `machine`, wherever it is now.
    fn abort<'py>(
        &mut self,
        py: Python<'py>,
        machine: u32,
        request: u32,
        now_ns: u64,
    ) -> PyResult<PyNews<'py>> {
        self.notify(py, |cluster, machines| {
            cluster.abort(machines, RequestOn { machine, request }, now_ns)
        })
    }

    /// The block past the longest run that any other machine has below its GPU.
    fn longest(&mut self, py: Python<'_>, of: RemoteRunArg, now_ns: u64) -> PyResult<Option<u32>> {
        let mut machines = Replicas::new(py, &self.replicas, self.wires.as_mut());
        let found = longest(&mut self.cluster, &mut machines, of.machine, of.run, now_ns)?;
        Ok(found.map(|run| run.end()))
    }

    /// Runs the next event, then the events before `until_ns`; stops where a decode machine must be chosen.
    fn run<'py>(&mut self, py: Python<'py>, now_ns: u64, until_ns: u64) -> PyResult<PyRun<'py>> {
        let all = std::mem::take(&mut self.replicas);
        let mut wires = self.wires.take();
        let mut replicas = Replicas::new(py, &all, wires.as_mut());
        let advanced = self.advance(&mut replicas, now_ns, until_ns);
        let rows = std::mem::take(&mut replicas.events);
        (self.replicas, self.wires) = (all, wires);
        self.question = advanced?;
        let question = self.question.as_ref().map(question_to_py);
        let (next, closed, events) = self.news(py, &rows)?;
        Ok((next, question, closed, events))
    }

    /// Assigns the open request to a decode machine, with the channels of each hop to it and the tokens expected to cross.
    fn assign(
        &mut self,
        py: Python<'_>,
        machine: u32,
        hops: Vec<PyLane>,
        expected_tokens: u64,
    ) -> PyResult<PyNext> {
        let Some(question) = self.question.take() else {
            return Err(refused(
                "no decode machine was asked for",
                "a question of `run`",
            ));
        };
        let chosen = Chosen {
            machine,
            route: route_of(hops)?,
            expected_tokens,
        };
        let mut replicas = Replicas::new(py, &self.replicas, self.wires.as_mut());
        self.cluster.assign(&mut replicas, &question, chosen)?;
        Ok(self.next())
    }
}
