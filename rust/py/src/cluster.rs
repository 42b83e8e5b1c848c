//! `Cluster`: all replicas whose events the core keeps in one order, and the requests that come to them.

use kvsim_core::cluster::intake::Outside;
use kvsim_core::cluster::{Chosen, Cluster, Question};
use kvsim_core::machine::messages::Task;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::bytes::bytes;
use crate::channel::{PyLane, PyTimeline};
use crate::digest::PyDigest;
use crate::intake::{route_of, Choice, DecodeDoor, FrontDoor, PyChoice};
use crate::machines::{Replicas, Wires};
use crate::operations::{end_of, longest, Wanted};
use crate::refusal::refused;
use crate::serving::PyReplica;

/// The priority of what arrives at a cluster (`engine.py`).
const ARRIVAL: u8 = 1;
/// Whose events those are.
const NO_MACHINE: i64 = -1;

/// The time, the priority and the machine of what is next.
type PyNext = Option<(u64, u8, i64)>;

/// The machine that computes a prompt; the request's number and when it came, its tokens as `Replica.arrive` takes them, its session.
type PyQuestion = (u32, (u32, u64), (u64, u64, u64), (i64, i64, bool, i64));

/// Machines and requests that have left there.
type PyClosed = Option<Vec<(u32, u32)>>;

/// What is next, who is to be decoded somewhere, who has finished, and rows of events.
type PyRun<'py> = (
    PyNext,
    Option<PyQuestion>,
    PyClosed,
    Option<Bound<'py, PyBytes>>,
);

/// As the last, without the question.
type PyNews<'py> = (PyNext, PyClosed, Option<Bound<'py, PyBytes>>);

/// All machines of a cluster whose events the core keeps in one order.
#[pyclass(name = "Cluster")]
pub struct PyCluster {
    cluster: Cluster,
    /// Those that serve, then the pool that they share, if any.
    replicas: Vec<Py<PyReplica>>,
    /// How many serve.
    serving: usize,
    wires: Option<Wires>,
    question: Option<Question>,
    /// Where requests come in without a word to Python.
    front: Option<FrontDoor>,
    /// Where the core chooses who decodes.
    decode: Option<DecodeDoor>,
}

impl PyCluster {
    fn next(&self) -> PyNext {
        let own = self.cluster.next();
        let own = own.map(|(time_ns, priority, machine, _)| (time_ns, priority, machine.into()));
        let front = self.front.as_ref();
        let coming = front.and_then(|front| front.intake.next_ns());
        let coming = coming.map(|time_ns| (time_ns, ARRIVAL, NO_MACHINE));
        let sent = self.cluster.channel_next_ns();
        let sent = sent.map(|time_ns| (time_ns, 0, NO_MACHINE));
        sent.into_iter().chain(own).chain(coming).min()
    }

    /// What is next, who has left since that was last told, and these rows of events.
    fn news<'py>(&mut self, py: Python<'py>, rows: &[i64]) -> PyResult<PyNews<'py>> {
        let closed = Some(self.cluster.take_closed()).filter(|closed| !closed.is_empty());
        let events = match rows {
            [] => None,
            rows => Some(bytes(py, rows)?),
        };
        Ok((self.next(), closed, events))
    }

    /// Lets the machines do something; tells what came of it.
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

    /// Does what is next, and then what comes before `until_ns`, arrivals too.
    ///
    /// Stops where Python is to choose a decode machine, and where all requests that it was told of have come.
    fn advance(
        &mut self,
        replicas: &mut Replicas<'_, '_>,
        (now_ns, until_ns): (u64, u64),
    ) -> PyResult<Option<Question>> {
        let mut is_first = true;
        while let Some((at_ns, priority, _)) = self.next() {
            if !std::mem::take(&mut is_first) && at_ns >= until_ns {
                break;
            }
            if let (ARRIVAL, Some(front)) = (priority, &mut self.front) {
                match front.intake.take() {
                    Some(Outside::Comes(coming)) => {
                        if let Some((machine, slot)) = front.come(replicas, coming)? {
                            let task = (machine, Task::Enqueue(slot));
                            self.cluster.notify(replicas, task, coming.at_ns)?;
                        }
                    }
                    Some(Outside::Aborts {
                        machine,
                        request,
                        at_ns,
                    }) => {
                        let who = (machine, request);
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
                let question = self.cluster.run(replicas, (now_ns, until_ns))?;
                if question.is_some() || self.front.is_none() {
                    return Ok(question);
                }
                continue;
            };
            if let Some(question) = self.cluster.run(replicas, (u64::MAX, until_ns))? {
                let chosen = decode.answer(replicas.py, &question, self.cluster.now_ns())?;
                self.cluster.assign(replicas, &question, chosen)?;
            }
        }
        Ok(None)
    }
}

#[pymethods]
impl PyCluster {
    /// `between`: names the channel of (owner, reader) where machines read each other or hand over over their memory;
    /// `apart`: no machine takes note of another; `timeline`: what happens on channels that are served layer by layer;
    /// `pool`: what all share, numbered behind them.
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

    /// Lets requests come without a word to Python: a rule's name, its number and what it looks at; the machines that it
    /// chooses among; by machine what arrives there, and tokens of a prompt and of all of a request that it holds; most tokens
    /// of a prompt and its answer.
    fn open(
        &mut self,
        choice: PyChoice,
        machines: Vec<u32>,
        digests: Vec<Py<PyDigest>>,
        holds: Vec<(u64, u64)>,
        window_tokens: Option<u64>,
    ) -> PyResult<()> {
        let all = self.serving;
        let known = machines.iter().all(|&machine| (machine as usize) < all);
        if !known || digests.len() != all || holds.len() != all {
            let expected = "a digest and limits for each machine";
            return Err(refused("not what requests come to", expected));
        }
        let choice = Choice::new(choice, machines)?;
        self.front = Some(FrontDoor::new(choice, digests, holds, window_tokens));
        Ok(())
    }

    /// Chooses who decodes without a word to Python: as `open`, with the tokens of a request that each of the machines
    /// holds, and what names the channels from one machine to another.
    fn decode_by(
        &mut self,
        choice: PyChoice,
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

    /// Lets each so many machines, one after another, step together; by engine, what a dummy step takes.
    fn step_together(&mut self, size: u32, dummy_ns: Vec<u64>) -> PyResult<()> {
        if size as usize * dummy_ns.len() != self.replicas.len() {
            let expected = "as many machines an engine, and a dummy step of each";
            return Err(refused("not the ranks of engines", expected));
        }
        self.cluster.step_together(size, dummy_ns);
        Ok(())
    }

    /// Tells of requests that will come; returns what is next.
    fn feed(&mut self, packed: &[u8]) -> PyResult<PyNext> {
        let front = self.front.as_mut();
        front
            .ok_or_else(|| refused("requests that come unasked", "a cluster that is open"))?
            .feed(packed)?;
        Ok(self.next())
    }

    /// Requests that did not fit the machine they were sent to since the last call, and its number; and whether more
    /// requests are to be told of.
    fn take_rejected(&mut self) -> (Vec<(u32, u32)>, bool) {
        match &mut self.front {
            Some(front) => (std::mem::take(&mut front.rejected), front.intake.is_empty()),
            None => (Vec::new(), false),
        }
    }

    /// Rows of the requests that have finished on any machine since the last call.
    fn take_rows<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let mut rows = Vec::new();
        for replica in &self.replicas {
            rows.extend(
                replica
                    .try_borrow_mut(py)?
                    .replica
                    .reports
                    .rows
                    .take_requests(),
            );
        }
        bytes(py, &rows)
    }

    /// Notes that a machine was told something; returns what is next of all.
    fn woken(&mut self, py: Python<'_>, machine: u32) -> PyResult<PyNext> {
        let Some(replica) = self.replicas.get(machine as usize) else {
            return Err(refused("no such machine", "one of the cluster"));
        };
        let next = replica.try_borrow_mut(py)?.next_key();
        self.cluster.changed(machine, next);
        Ok(self.next())
    }

    /// Queues a request at a time that has come to a machine, by its place there.
    fn enqueue<'py>(
        &mut self,
        py: Python<'py>,
        machine: u32,
        slot: u32,
        now_ns: u64,
    ) -> PyResult<PyNews<'py>> {
        self.notify(py, |cluster, machines| {
            cluster.notify(machines, (machine, Task::Enqueue(slot)), now_ns)
        })
    }

    /// Brings up on a machine what a prompt of so many tokens would read from further down.
    fn prefetch<'py>(
        &mut self,
        py: Python<'py>,
        machine: u32,
        wanted: (u32, u64),
        now_ns: u64,
    ) -> PyResult<PyNews<'py>> {
        let (request, tokens) = wanted;
        self.notify(py, |cluster, machines| {
            cluster.notify(machines, (machine, Task::Prefetch(request, tokens)), now_ns)
        })
    }

    /// Lets a request go at a time whose client has given it up, wherever it is; it was sent to that machine.
    fn abort<'py>(
        &mut self,
        py: Python<'py>,
        machine: u32,
        request: u32,
        now_ns: u64,
    ) -> PyResult<PyNews<'py>> {
        self.notify(py, |cluster, machines| {
            cluster.abort(machines, (machine, request), now_ns)
        })
    }

    /// The block past the longest run that one other machine has below its GPU.
    fn longest(&mut self, py: Python<'_>, of: Wanted, now_ns: u64) -> PyResult<Option<u32>> {
        let mut machines = Replicas::new(py, &self.replicas, self.wires.as_mut());
        longest(&mut self.cluster, &mut machines, of, now_ns).map(end_of)
    }

    /// Does what is next, and then what comes before `until_ns`; stops where a decode machine is to be chosen.
    fn run<'py>(&mut self, py: Python<'py>, now_ns: u64, until_ns: u64) -> PyResult<PyRun<'py>> {
        let all = std::mem::take(&mut self.replicas);
        let mut wires = self.wires.take();
        let mut replicas = Replicas::new(py, &all, wires.as_mut());
        let advanced = self.advance(&mut replicas, (now_ns, until_ns));
        let rows = std::mem::take(&mut replicas.events);
        (self.replicas, self.wires) = (all, wires);
        self.question = advanced?;
        let question = self.question.map(|question| {
            let Question {
                source,
                arrival,
                arrival_ns,
                ..
            } = question;
            let tokens = (
                arrival.prompt_tokens,
                arrival.output_tokens,
                arrival.expected_prefill_tokens,
            );
            let session = (
                arrival.session,
                arrival.turn,
                arrival.is_conversational_turn,
                arrival.priority,
            );
            (source.0, (arrival.request, arrival_ns), tokens, session)
        });
        let (next, closed, events) = self.news(py, &rows)?;
        Ok((next, question, closed, events))
    }

    /// Answers who decodes the request in question: the machine, the channels of each hop to it, tokens expected to cross.
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
