//! A replica among others: it does what it is asked to with the way to them, and is visited by them.

use kvsim_core::machine::engine::{Desk, EngineScheduler};
use kvsim_core::machine::messages::{Done, Task};
use kvsim_core::machine::neighbours::Visitor;
use kvsim_core::machine::{Now, Replica};
use kvsim_core::store::Store;
use kvsim_core::transfers::Peers;
use pyo3::prelude::*;

use crate::engine_of::{scheduled, Engine};
use crate::machine_store::{with_store, AnyStore};
use crate::serving::PyReplica;

impl PyReplica {
    /// Does what others ask of it at a time; an engine's own scheduler knows nobody else.
    pub fn perform(&mut self, py: Python<'_>, task: Task, now_ns: u64) -> PyResult<Done> {
        let answer = match (&self.engine, &task) {
            (Some(_), &Task::RunUntil(until_ns)) => {
                let engine = &mut self.engine;
                with_store!(self, py, r, s => scheduled!(engine, r, s, now_ns, run(until_ns)))?;
                false
            }
            (Some(_), &Task::Enqueue(slot)) => {
                let engine = &mut self.engine;
                with_store!(self, py, r, s => scheduled!(engine, r, s, now_ns, enqueue(slot)))?;
                false
            }
            (Some(_), &Task::Abort(request)) => self.gone(py, request, now_ns)?,
            _ => return with_store!(self, py, r, s => r.perform(&mut Now::alone(s, now_ns), task)),
        };
        Ok(Done {
            closed: self.replica.take_closed(),
            next: self.next_key(),
            answer,
            ..Done::default()
        })
    }

    /// Lets a request go that its client has given up; whether it is here.
    pub fn gone(&mut self, py: Python<'_>, request: u32, now_ns: u64) -> PyResult<bool> {
        let Some(slot) = self.replica.client_leaves(request) else {
            return Ok(false);
        };
        let engine = &mut self.engine;
        with_store!(self, py, r, s => scheduled!(engine, r, s, now_ns, abort(slot)))?;
        Ok(true)
    }

    /// Does what others ask of it at a time, with the way to them.
    pub fn perform_among(
        &mut self,
        py: Python<'_>,
        task: Task,
        now_ns: u64,
        neighbours: &mut dyn Peers,
    ) -> PyResult<Done> {
        if !matches!(self.store.try_borrow(py)?.store, AnyStore::Tree(_)) {
            return self.perform(py, task, now_ns);
        }
        let own = &mut *self.store.try_borrow_mut(py)?;
        let Some(tree) = own.tree() else {
            return Ok(Done::default());
        };
        let mut now = Now {
            store: tree,
            peers: Some(neighbours),
            ns: now_ns,
        };
        let answer = self.replica.perform(&mut now, task);
        own.answered(answer)
    }

    /// Shows it and its tree, where it serves from one, to another machine.
    pub fn seen(&self, py: Python<'_>, at: &mut dyn FnMut(&Replica, &Store)) -> PyResult<()> {
        if let AnyStore::Tree(tree) = &self.store.try_borrow(py)?.store {
            at(&self.replica, tree);
        }
        Ok(())
    }

    /// Lets another machine do something here.
    pub fn visited(&mut self, py: Python<'_>, visitor: Visitor<'_>) -> PyResult<()> {
        let own = &mut *self.store.try_borrow_mut(py)?;
        let Some(tree) = own.tree() else {
            return Ok(());
        };
        let answer = visitor(&mut self.replica, tree);
        own.answered(answer)
    }
}
