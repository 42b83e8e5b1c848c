//! A replica among others: it does what it is asked to with the way to them, and is visited by them.

use kvsim_core::serving::handover::{Done, Task};
use kvsim_core::serving::neighbours::{Errand, Neighbours, Networked};
use kvsim_core::serving::Replica;
use kvsim_core::store::Store;
use pyo3::prelude::*;

use crate::fleet::StoreHandle;
use crate::order::raised;
use crate::refusal::answered;
use crate::serving::PyReplica;

impl PyReplica {
    /// Does what others ask of it at a time, with the way to them.
    pub fn perform_among(
        &mut self,
        py: Python<'_>,
        task: Task,
        now_ns: u64,
        neighbours: &mut dyn Neighbours,
    ) -> PyResult<Done> {
        let StoreHandle::Tree(tree) = &self.store else {
            return self.perform(py, task, now_ns);
        };
        let tree = &mut *tree.try_borrow_mut(py)?;
        let mut store = Networked {
            store: &mut tree.0,
            neighbours,
        };
        let answer = self.replica.perform(&mut store, task, now_ns);
        raised(&tree.1, answer).and_then(answered)
    }

    /// Shows it and its tree, where it serves from one, to another machine.
    pub fn seen(&self, py: Python<'_>, at: &mut dyn FnMut(&Replica, &Store)) -> PyResult<()> {
        if let StoreHandle::Tree(tree) = &self.store {
            at(&self.replica, &tree.try_borrow(py)?.0);
        }
        Ok(())
    }

    /// Lets another machine do something here.
    pub fn visited(&mut self, py: Python<'_>, errand: Errand<'_>) -> PyResult<()> {
        let StoreHandle::Tree(tree) = &self.store else {
            return Ok(());
        };
        let tree = &mut *tree.try_borrow_mut(py)?;
        let answer = errand(&mut self.replica, &mut tree.0);
        raised(&tree.1, answer).and_then(answered)
    }
}
