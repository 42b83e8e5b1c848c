//! Write policies written in Python, which call the store that they are given.

use std::fmt;
use std::sync::Arc;

use kvsim_core::keys::BlockKeys;
use kvsim_core::store::{Answer, LeaseId, MoveId, Store, TierConfig};
use kvsim_core::transfers::plugins::WritePlugin;
use kvsim_core::transfers::WritePolicy;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::fleet::StoreHandle;
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
    /// The policy as the core knows it.
    pub fn policy(&self) -> WritePolicy {
        WritePolicy::Plugin {
            at_commit: self.at_commit,
            delays_step: self.delays_step,
        }
    }
}

/// The policies of a machine's edges, each where it is a plug-in. Cost: an empty store for all of them.
pub fn writers(
    py: Python<'_>,
    calls: Vec<Option<WriteCall>>,
    store: &StoreHandle,
) -> PyResult<Vec<Option<Box<dyn WritePlugin>>>> {
    let StoreHandle::Tree(tree) = store else {
        return Ok(Vec::new());
    };
    if calls.iter().all(Option::is_none) {
        return Ok(Vec::new());
    }
    let failure = tree.try_borrow(py)?.1.clone();
    let view = Py::new(py, PyStore(nothing()?, failure))?;
    let each = calls.into_iter().map(|call| {
        let calls = call?;
        let view = view.clone_ref(py);
        Some(Box::new(Writer { calls, view }) as Box<dyn WritePlugin>)
    });
    Ok(each.collect())
}

/// A store of no request and no block, in the place of a machine's while a policy has that one.
fn nothing() -> PyResult<Store> {
    let keys = BlockKeys::new(vec![0], Vec::new(), 1, Vec::new(), Vec::new());
    let keys = keys.map_err(|_| PyRuntimeError::new_err("no keys of an empty trace"))?;
    let tier = TierConfig {
        capacity_blocks: Some(0),
        write_back: false,
    };
    Ok(Store::new(Arc::new(keys), &[tier]))
}

/// A policy, and the object under which it sees the machine's store while it is called.
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
    /// Shows the machine's store to a call; it is back when the call has ended.
    fn lend<T>(
        &self,
        store: &mut Store,
        call: impl FnOnce(Python<'_>, &WriteCall, &Bound<'_, PyStore>) -> PyResult<T>,
    ) -> Answer<T> {
        Python::attach(|py| {
            let view = self.view.bind(py);
            std::mem::swap(store, &mut view.try_borrow_mut()?.0);
            let given = call(py, &self.calls, view);
            std::mem::swap(store, &mut view.try_borrow_mut()?.0);
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
        blocks: (u32, u32),
        now_ns: u64,
    ) -> Answer<Option<MoveId>> {
        self.lend(store, |py, calls, view| {
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
