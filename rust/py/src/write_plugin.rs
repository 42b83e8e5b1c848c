//! Write policies written in Python, which call the store that they are given.

use std::fmt;
use std::sync::Arc;

use kvsim_core::ids::BlockRange;
use kvsim_core::store::{Answer, LeaseId, MoveId, Store, TierConfig};
use kvsim_core::transfers::plugins::WritePlugin;
use kvsim_core::transfers::WritePolicy;
use pyo3::prelude::*;

use crate::machine_store::{AnyStore, PyMachineStore};
use crate::refusal::aborted;
use crate::store::PyStore;

/// `cache.tier_rules.WriteCall`, attribute by attribute: the checked methods of one edge's policy.
#[derive(FromPyObject)]
pub struct WriteCall {
    at_commit: bool,
    delays_step: bool,
    committed: Py<PyAny>,
    used: Py<PyAny>,
    arrived: Py<PyAny>,
}

impl WriteCall {
    /// The policy as a type of the core.
    pub fn policy(&self) -> WritePolicy {
        WritePolicy::Plugin {
            at_commit: self.at_commit,
            delays_step: self.delays_step,
        }
    }
}

/// The policies of a machine's edges that are plug-ins. Cost: one empty store for all of them.
pub fn writers(
    py: Python<'_>,
    calls: Vec<Option<WriteCall>>,
    store: &Py<PyMachineStore>,
) -> PyResult<Vec<Option<Box<dyn WritePlugin>>>> {
    let own = store.try_borrow(py)?;
    if !matches!(own.store, AnyStore::Tree(_)) || calls.iter().all(Option::is_none) {
        return Ok(Vec::new());
    }
    let view = Py::new(py, PyStore::over(nothing(), own.failure.clone()))?;
    let each = calls.into_iter().map(|call| {
        let calls = call?;
        let view = view.clone_ref(py);
        Some(Box::new(Writer { calls, view }) as Box<dyn WritePlugin>)
    });
    Ok(each.collect())
}

/// An empty store that stands in for a machine's while a policy has that store.
fn nothing() -> Store {
    let tier = TierConfig {
        capacity_blocks: Some(0),
        write_back: false,
    };
    Store::new(Arc::default(), &[tier])
}

/// A policy, and the object through which it sees the machine's store during a call.
struct Writer {
    calls: WriteCall,
    view: Py<PyStore>,
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Writer")
    }
}

impl Writer {
    /// Lends the machine's store to a call and takes it back afterwards.
    fn lend<T>(
        &self,
        store: &mut Store,
        call: impl FnOnce(Python<'_>, &WriteCall, &Bound<'_, PyStore>) -> PyResult<T>,
    ) -> Answer<T> {
        Python::attach(|py| {
            let view = self.view.bind(py);
            let swap = |store: &mut Store| -> PyResult<()> {
                let mut shown = view.as_super().try_borrow_mut()?;
                shown
                    .tree()
                    .into_iter()
                    .for_each(|tree| std::mem::swap(store, tree));
                Ok(())
            };
            swap(store)?;
            let given = call(py, &self.calls, view);
            swap(store)?;
            given
        })
        .map_err(aborted)
    }
}

impl WritePlugin for Writer {
    fn committed(
        &mut self,
        store: &mut Store,
        lease: LeaseId,
        blocks: BlockRange,
        now_ns: u64,
    ) -> Answer<Option<MoveId>> {
        self.lend(store, |py, calls, view| {
            let blocks = (blocks.start, blocks.end);
            let sent = calls
                .committed
                .bind(py)
                .call1((view, lease, blocks, now_ns))?;
            sent.extract()
        })
    }

    fn used(&mut self, store: &mut Store, lease: LeaseId, now_ns: u64) -> Answer<()> {
        self.lend(store, |py, calls, view| {
            calls.used.bind(py).call1((view, lease, now_ns)).map(|_| ())
        })
    }

    fn arrived(&mut self, store: &mut Store, id: MoveId, now_ns: u64) -> Answer<()> {
        self.lend(store, |py, calls, view| {
            calls.arrived.bind(py).call1((view, id, now_ns)).map(|_| ())
        })
    }
}
