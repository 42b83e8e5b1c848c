//! `Cluster`: all replicas that hand requests over to each other, or read each other's tiers, their events in one order.

use kvsim_core::serving::handover::{Chosen, Cluster, Question, Way};
use pyo3::exceptions::PyValueError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::channel::PyChannel;
use crate::machines::{Replicas, Wires};
use crate::refusal::refused;
use crate::serving::{bytes, PyReplica};

/// The time, the priority and the machine of what is next.
type PyNext = Option<(u64, u8, u32)>;

/// The machine that computes a prompt; the request's number and when it came, its tokens as `Replica.arrive` takes them, its session.
type PyQuestion = (u32, (u32, u64), (u64, u64, u64), (i64, i64, bool, i64));

/// What is next, who is to be decoded somewhere, who has finished, and rows of events.
type PyRun<'py> = (
    PyNext,
    Option<PyQuestion>,
    Option<Vec<(u32, u32)>>,
    Option<Bound<'py, PyBytes>>,
);

/// All machines of a cluster that hand requests over to each other, or read each other's lower tiers.
#[pyclass(name = "Cluster")]
pub struct PyCluster {
    cluster: Cluster,
    replicas: Vec<Py<PyReplica>>,
    wires: Option<Wires>,
    question: Option<Question>,
}

impl PyCluster {
    fn next(&self) -> PyNext {
        let next = self.cluster.next();
        next.map(|(time_ns, priority, machine, _)| (time_ns, priority, machine))
    }
}

#[pymethods]
impl PyCluster {
    /// `between`: names the channel of (owner, reader) where machines read each other.
    #[new]
    #[pyo3(signature = (replicas, between=None))]
    fn new(replicas: Vec<Py<PyReplica>>, between: Option<Py<PyAny>>) -> Self {
        Self {
            cluster: Cluster::new(replicas.len()),
            replicas,
            wires: between.map(Wires::new),
            question: None,
        }
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

    /// Notes that a machine was told something; returns what is next of all.
    fn woken(&mut self, py: Python<'_>, machine: u32) -> PyResult<PyNext> {
        let Some(replica) = self.replicas.get(machine as usize) else {
            return Err(refused("no such machine", "one of the cluster"));
        };
        let next = replica.try_borrow_mut(py)?.inner().next_key();
        self.cluster.changed(machine, next);
        Ok(self.next())
    }

    /// Does what is next, and then what comes before `until_ns`; stops where a decode machine is to be chosen.
    fn run<'py>(&mut self, py: Python<'py>, now_ns: u64, until_ns: u64) -> PyResult<PyRun<'py>> {
        let mut replicas = Replicas::new(py, &self.replicas, self.wires.as_mut());
        self.question = self.cluster.run(&mut replicas, (now_ns, until_ns))?;
        let events = match replicas.events.as_slice() {
            [] => None,
            events => Some(bytes(py, events)?),
        };
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
        let closed = Some(self.cluster.take_closed()).filter(|closed| !closed.is_empty());
        Ok((self.next(), question, closed, events))
    }

    /// Answers who decodes the request in question: the machine, the channels to it, tokens expected to cross.
    fn assign(
        &mut self,
        py: Python<'_>,
        machine: u32,
        channels: Vec<PyRef<'_, PyChannel>>,
        expected_tokens: u64,
    ) -> PyResult<PyNext> {
        let Some(question) = self.question.take() else {
            return Err(refused(
                "no decode machine was asked for",
                "a question of `run`",
            ));
        };
        let hops: Vec<_> = channels.iter().map(|hop| hop.channel.clone()).collect();
        let way = match hops.as_slice() {
            [wire] => Way {
                wire: wire.clone(),
                memory: None,
            },
            [down, wire, up] => Way {
                wire: wire.clone(),
                memory: Some((down.clone(), up.clone())),
            },
            _ => {
                return Err(PyValueError::new_err(
                    "one channel, or down, between, and up",
                ))
            }
        };
        let chosen = Chosen {
            machine,
            way,
            expected_tokens,
        };
        let mut replicas = Replicas::new(py, &self.replicas, self.wires.as_mut());
        self.cluster.assign(&mut replicas, &question, chosen)?;
        Ok(self.next())
    }
}

/// Adds the class of this room.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyCluster>()
}
