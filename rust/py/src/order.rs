//! Eviction orders for a store's tiers: a policy of the core by name, or one written in Python.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kvsim_core::policies::leaf::Facts;
use kvsim_core::policies::order::{order_of, EvictionOrder, Named, Standing};
use pyo3::prelude::*;

use crate::policy_settings::{native_policy, ReplayPolicySettings};

/// The first thing that a policy written in Python raised.
pub type Failure = Arc<Mutex<Option<PyErr>>>;

/// Returns `value`, or raises what a policy has raised since the store was made.
pub fn raised<T>(failure: &Failure, value: T) -> PyResult<T> {
    match locked(failure).take() {
        Some(error) => Err(error),
        None => Ok(value),
    }
}

/// Locks what one thread alone uses at a time; a panic elsewhere changes nothing about it.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What decides on one tier: None is recency.
#[derive(FromPyObject)]
pub enum OrderChoice<'py> {
    /// Name, settings, blocks of the tier.
    Native(String, PyRef<'py, ReplayPolicySettings>, usize),
    /// An object with the calls of `HostedOrder`.
    Hosted(Bound<'py, PyAny>),
}

/// Returns the order that was chosen; what it raises later is found in `failure`.
pub fn order(choice: OrderChoice<'_>, failure: &Failure) -> PyResult<Box<dyn EvictionOrder>> {
    match choice {
        OrderChoice::Native(name, settings, capacity) => {
            let policy = native_policy(&name)?;
            Ok(order_of(policy, &settings.inner, capacity))
        }
        OrderChoice::Hosted(host) => Ok(Box::new(Hosted {
            host: host.unbind(),
            standing: Arc::default(),
            failure: failure.clone(),
            answered: Vec::new(),
        })),
    }
}

type Standings = Arc<Mutex<HashMap<u32, Standing>>>;

/// The blocks that may not leave, as ``number in pinned``; with ``leaves`` also those followed by another.
#[pyclass(frozen, module = "kvcache_sim._core")]
struct Pinned {
    standing: Standings,
    leaves: bool,
}

#[pymethods]
impl Pinned {
    fn __contains__(&self, number: u32) -> bool {
        let standing = locked(&self.standing);
        let free = |s: &Standing| s.idle && (s.leaf || !self.leaves);
        !standing.get(&number).is_some_and(free)
    }
}

/// A policy written in Python, asked through its host.
struct Hosted {
    host: Py<PyAny>,
    standing: Standings,
    failure: Failure,
    /// The rest of its last answer, next to leave last.
    answered: Vec<u32>,
}

impl Hosted {
    /// Calls the host; what it raises is kept and the policy asked no more.
    fn call<A>(&self, method: &str, arguments: A) -> Option<Py<PyAny>>
    where
        A: for<'py> pyo3::call::PyCallArgs<'py>,
    {
        if locked(&self.failure).is_some() {
            return None;
        }
        // not locked meanwhile: a policy may ask its store
        let answer = Python::attach(|py| self.host.call_method1(py, method, arguments));
        answer
            .map_err(|error| *locked(&self.failure) = Some(error))
            .ok()
    }
}

impl EvictionOrder for Hosted {
    fn join(&mut self, block: Named, facts: &Facts) {
        let (now, now_ns) = (facts.created, facts.last_access_ns);
        let told = (block.number, facts.depth, block.parent, now, now_ns);
        self.call("join", told);
    }

    fn used(&mut self, block: u32, facts: &Facts) {
        self.call("used", (block, facts.last_access, facts.last_access_ns));
    }

    fn leave(&mut self, block: u32) {
        locked(&self.standing).remove(&block);
        self.call("leave", (block,));
    }

    fn stands(&mut self, block: u32, standing: Standing) {
        locked(&self.standing).insert(block, standing);
    }

    fn next_victim(&mut self, wanted: u64, now_ns: u64) -> Option<u32> {
        if self.answered.is_empty() {
            let standing = self.standing.clone();
            let answer = Python::attach(|py| {
                let leaves: bool = self.host.getattr(py, "leaves").ok()?.extract(py).ok()?;
                let pinned = Py::new(py, Pinned { standing, leaves }).ok()?;
                Some(pinned)
            })?;
            let victims = self.call("victims", (wanted, now_ns, answer))?;
            self.answered = Python::attach(|py| victims.extract(py)).ok()?;
            self.answered.reverse();
        }
        self.answered.pop()
    }
}
