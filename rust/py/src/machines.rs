//! The replicas of a cluster during one call: each runs its tasks, and may visit the others.

use std::collections::HashMap;

use kvsim_core::cluster::Machines;
use kvsim_core::machine::messages::{Done, EventKey, Task};
use kvsim_core::machine::neighbours::{Neighbours, Visitor};
use kvsim_core::machine::Replica;
use kvsim_core::store::{Answer, Store, StoreError};
use kvsim_core::transfers::SharedChannel;
use pyo3::prelude::*;

use crate::channel::PyChannel;
use crate::serving::PyReplica;

/// Tasks between two checks for signals.
const TASKS_A_LOOK: u32 = 1024;

/// The channels over which machines read each other, by owner and reader, created on first use.
pub struct Wires {
    /// Names the channel of (owner, reader).
    pub between: Py<PyAny>,
    known: HashMap<(u32, u32), SharedChannel>,
}

impl Wires {
    /// The channels that `between` names.
    pub fn new(between: Py<PyAny>) -> Self {
        Self {
            between,
            known: HashMap::new(),
        }
    }

    fn wire(&mut self, py: Python<'_>, owner: u32, reader: u32) -> PyResult<SharedChannel> {
        if let Some(known) = self.known.get(&(owner, reader)) {
            return Ok(known.clone());
        }
        let named = self.between.bind(py).call1((owner, reader))?;
        let wire = named.cast::<PyChannel>()?.get().channel.clone();
        self.known.insert((owner, reader), wire.clone());
        Ok(wire)
    }
}

/// The replicas during one call.
pub struct Replicas<'a, 'py> {
    pub py: Python<'py>,
    replicas: &'a [Py<PyReplica>],
    /// Set if machines interact in the middle of their tasks.
    wires: Option<&'a mut Wires>,
    /// Rows of events since the call began.
    pub events: Vec<i64>,
    /// Machines that another machine visited during its task.
    visited: Vec<u32>,
    /// The first exception that Python raised during the call.
    raised: Option<PyErr>,
    /// Tasks performed.
    tasks: u32,
}

impl<'a, 'py> Replicas<'a, 'py> {
    /// The replicas of a cluster.
    pub fn new(
        py: Python<'py>,
        replicas: &'a [Py<PyReplica>],
        wires: Option<&'a mut Wires>,
    ) -> Self {
        Self {
            py,
            replicas,
            wires,
            events: Vec::new(),
            visited: Vec::new(),
            raised: None,
            tasks: 0,
        }
    }

    /// The replica of a machine.
    pub fn of(&self, machine: u32) -> &Py<PyReplica> {
        &self.replicas[machine as usize]
    }

    fn take_events(&mut self, replica: &mut PyReplica) {
        let rows = &mut replica.replica.reports.rows;
        if rows.has_events() {
            rows.take_events(|events| self.events.extend_from_slice(events));
        }
    }

    /// Keeps a Python exception for the caller and stops the core.
    fn fails(&mut self, error: PyErr) -> StoreError {
        self.raised.get_or_insert(error);
        StoreError::NotFound
    }
}

impl Machines for Replicas<'_, '_> {
    type Error = PyErr;

    fn perform(&mut self, machine: u32, task: Task, now_ns: u64) -> PyResult<Done> {
        self.tasks = self.tasks.wrapping_add(1);
        if self.tasks % TASKS_A_LOOK == 0 {
            self.py.check_signals()?;
        }
        let replicas = self.replicas;
        let mut replica = replicas[machine as usize].try_borrow_mut(self.py)?;
        let done = if self.wires.is_some() {
            let done = replica.perform_among(self.py, task, now_ns, self);
            match self.raised.take() {
                Some(raised) => return Err(raised),
                None => done?,
            }
        } else {
            replica.perform(self.py, task, now_ns)?
        };
        self.take_events(&mut replica);
        Ok(done)
    }

    fn take_visited(&mut self) -> Vec<(u32, Option<EventKey>)> {
        let mut visited = std::mem::take(&mut self.visited);
        visited.sort_unstable();
        visited.dedup();
        let next = |machine: u32| {
            let replica = self.replicas[machine as usize].borrow(self.py);
            (machine, replica.replica.next_key())
        };
        visited.into_iter().map(next).collect()
    }

    fn with_replica(&mut self, machine: u32, with: &mut dyn FnMut(&mut Replica)) -> PyResult<()> {
        let mut replica = self.replicas[machine as usize].try_borrow_mut(self.py)?;
        with(&mut replica.replica);
        Ok(())
    }
}

impl Neighbours for Replicas<'_, '_> {
    fn machines(&self) -> u32 {
        self.replicas.len() as u32
    }

    fn look(&mut self, machine: u32, at: &mut dyn FnMut(&Replica, &Store)) {
        let seen = self.replicas[machine as usize]
            .try_borrow(self.py)
            .map_err(PyErr::from)
            .and_then(|replica| replica.seen(self.py, at));
        if let Err(error) = seen {
            self.fails(error);
        }
    }

    fn visit(&mut self, machine: u32, visitor: Visitor<'_>) -> Answer<()> {
        let replicas = self.replicas;
        let mut replica = match replicas[machine as usize].try_borrow_mut(self.py) {
            Ok(replica) => replica,
            Err(error) => return Err(self.fails(error.into())),
        };
        let done = replica.visited(self.py, visitor);
        self.take_events(&mut replica);
        self.visited.push(machine);
        done.map_err(|error| self.fails(error))
    }

    fn wire(&mut self, owner: u32, reader: u32) -> Answer<SharedChannel> {
        let py = self.py;
        let Some(wires) = &mut self.wires else {
            return Err(StoreError::NotFound);
        };
        let wire = wires.wire(py, owner, reader);
        wire.map_err(|error| self.fails(error))
    }
}
