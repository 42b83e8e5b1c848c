//! A replica among others: it runs its tasks with access to them, and they may visit it.

use kvsim_core::machine::engine::{Desk, EngineScheduler};
use kvsim_core::machine::messages::{Done, Task};
use kvsim_core::machine::neighbours::Visitor;
use kvsim_core::machine::{Now, Replica};
use kvsim_core::store::Store;
use kvsim_core::transfers::Peers;
use pyo3::prelude::*;

use crate::engine_of::{scheduled, with_desk, Engine};
use crate::machine_store::{with_store, AnyStore};
use crate::serving::PyReplica;

impl PyReplica {
    /// Runs a task of the cluster at a time; the scheduler of an engine has no access to other machines.
    pub fn perform(&mut self, py: Python<'_>, task: Task, now_ns: u64) -> PyResult<Done> {
        let answer = match (&self.engine, task) {
            (Some(_), Task::RunUntil(until_ns)) => {
                let engine = &mut self.engine;
                with_store!(self, py, r, s => scheduled!(engine, r, s, now_ns, run(until_ns)))?;
                false
            }
            (Some(_), Task::Next) => {
                let engine = &mut self.engine;
                with_store!(self, py, r, s => scheduled!(engine, r, s, now_ns, run(now_ns)))?;
                false
            }
            (Some(_), Task::Enqueue(slot)) => {
                self.enqueue(py, slot, now_ns)?;
                false
            }
            (Some(_), Task::Abort(request) | Task::AbortHandedOver(request)) => {
                self.gone(py, request, now_ns)?
            }
            (Some(_), Task::RequestCapacity(incoming)) => {
                let engine = &mut self.engine;
                with_store!(self, py, r, s => with_desk!(engine, r, s, now_ns, receive(*incoming)))?;
                false
            }
            (Some(_), Task::Release(slot, _)) => {
                let engine = &mut self.engine;
                with_store!(self, py, r, s => with_desk!(engine, r, s, now_ns, prompt_read(slot)))?;
                false
            }
            (engine, task) => {
                let has_engine = engine.is_some();
                let done =
                    with_store!(self, py, r, s => r.perform(&mut Now::alone(s, now_ns), task))?;
                let next = if has_engine {
                    self.next_key()
                } else {
                    done.next
                };
                return Ok(Done { next, ..done });
            }
        };
        Ok(Done {
            messages: self.replica.take_messages(),
            closed: self.replica.take_closed(),
            next: self.next_key(),
            answer,
            ..Done::default()
        })
    }

    /// Aborts a request; returns true if it is on this machine.
    pub fn gone(&mut self, py: Python<'_>, request: u32, now_ns: u64) -> PyResult<bool> {
        let Some(slot) = self.replica.client_leaves(request) else {
            return Ok(false);
        };
        let engine = &mut self.engine;
        with_store!(self, py, r, s => scheduled!(engine, r, s, now_ns, abort(slot)))?;
        Ok(true)
    }

    /// Runs a task of the cluster at a time, with access to the other machines.
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

    /// Passes the replica and its tree to `at`; does nothing if the store is not a tree.
    pub fn seen(&self, py: Python<'_>, at: &mut dyn FnMut(&Replica, &Store)) -> PyResult<()> {
        if let AnyStore::Tree(tree) = &self.store.try_borrow(py)?.store {
            at(&self.replica, tree);
        }
        Ok(())
    }

    /// Runs another machine's visitor on this replica.
    pub fn visited(&mut self, py: Python<'_>, visitor: Visitor<'_>) -> PyResult<()> {
        let own = &mut *self.store.try_borrow_mut(py)?;
        let Some(tree) = own.tree() else {
            return Ok(());
        };
        let answer = visitor(&mut self.replica, tree);
        own.answered(answer)
    }
}
