//! Eviction orders for a store's tiers: a policy of the core by name, or one written in Python.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use kvsim_core::policies::leaf::Facts;
use kvsim_core::policies::order::{order_of, EvictionOrder, Named, Standing};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::failure::{locked, Failure};
use crate::policy_settings::{native_policy, ReplayPolicySettings};
use crate::priority_order::Prioritized;

/// The eviction order of a tier; `None` is recency.
#[derive(FromPyObject)]
pub enum OrderChoice<'py> {
    /// Name, settings, blocks of the tier.
    Native(String, PyRef<'py, ReplayPolicySettings>, usize),
    /// A ``HostedPriority``, which calls a function of a block alone; the string is ``priority``.
    Priority(String, Bound<'py, PyAny>),
    /// An object with the calls of `HostedOrder`.
    Hosted(Bound<'py, PyAny>),
}

/// Returns the chosen order; its later exceptions are stored in `failure`.
pub fn order(choice: OrderChoice<'_>, failure: &Failure) -> PyResult<Box<dyn EvictionOrder>> {
    match choice {
        OrderChoice::Native(name, settings, capacity) => {
            let policy = native_policy(&name)?;
            Ok(order_of(policy, &settings.inner, capacity))
        }
        OrderChoice::Priority(word, host) if word == "priority" => {
            Ok(Box::new(Prioritized::new(host.unbind(), failure.clone())))
        }
        OrderChoice::Priority(word, _) => Err(PyValueError::new_err(format!(
            "no eviction order of two parts is named {word}"
        ))),
        OrderChoice::Hosted(host) => Ok(Box::new(Hosted {
            host: host.unbind(),
            standings: Arc::default(),
            failure: failure.clone(),
            answered: Vec::new(),
        })),
    }
}

/// The standing of each block, and the blocks that became evictable since the last query.
#[derive(Default)]
struct Standings {
    /// By block number, with true if the block is in `freed`.
    of: HashMap<u32, (Standing, bool)>,
    freed: Vec<u32>,
}

/// The blocks that may not be evicted, as ``number in pinned``; with ``leaves`` also the blocks that have
/// followers.
#[pyclass(frozen, module = "kvcache_sim._core")]
struct Pinned {
    standings: Arc<Mutex<Standings>>,
    leaves: bool,
}

#[pymethods]
impl Pinned {
    fn __contains__(&self, number: u32) -> bool {
        let standings = locked(&self.standings);
        let free = |(s, _): &(Standing, bool)| s.idle && (s.leaf || !self.leaves);
        !standings.of.get(&number).is_some_and(free)
    }

    /// Returns the blocks that have become ready, unheld and without followers since the last call.
    fn freed(&self) -> Vec<u32> {
        let mut standings = locked(&self.standings);
        let freed = std::mem::take(&mut standings.freed);
        for block in &freed {
            if let Some((_, noted)) = standings.of.get_mut(block) {
                *noted = false;
            }
        }
        freed
    }
}

/// A policy written in Python, called through its host.
struct Hosted {
    host: Py<PyAny>,
    standings: Arc<Mutex<Standings>>,
    failure: Failure,
    /// The rest of the last answer, next victim last.
    answered: Vec<u32>,
}

impl Hosted {
    /// Calls the host; keeps an exception and then never calls the policy again.
    fn call<A>(&self, method: &str, arguments: A) -> Option<Py<PyAny>>
    where
        A: for<'py> pyo3::call::PyCallArgs<'py>,
    {
        if locked(&self.failure).is_some() {
            return None;
        }
        // not locked during the call: a policy may query its store
        let answer = Python::attach(|py| self.host.call_method1(py, method, arguments));
        answer
            .map_err(|error| *locked(&self.failure) = Some(error))
            .ok()
    }
}

impl EvictionOrder for Hosted {
    fn join(&mut self, block: Named, facts: &Facts) {
        let (now, now_ns) = (facts.created, facts.last_access_ns);
        let arguments = (block.number, facts.depth, block.parent, now, now_ns);
        self.call("join", arguments);
    }

    fn used(&mut self, block: u32, facts: &Facts) {
        self.call("used", (block, facts.last_access, facts.last_access_ns));
    }

    fn leave(&mut self, block: u32) {
        locked(&self.standings).of.remove(&block);
        self.call("leave", (block,));
    }

    fn stands(&mut self, block: u32, standing: Standing) {
        let mut standings = locked(&self.standings);
        let own = standings.of.entry(block).or_default();
        let begins = standing.may_go() && !own.0.may_go() && !own.1;
        *own = (standing, own.1 || begins);
        if begins {
            standings.freed.push(block);
        }
    }

    fn next_victim(&mut self, wanted: u64, now_ns: u64) -> Option<u32> {
        if self.answered.is_empty() {
            let standings = self.standings.clone();
            let answer = Python::attach(|py| {
                let leaves: bool = self.host.getattr(py, "leaves").ok()?.extract(py).ok()?;
                let pinned = Py::new(py, Pinned { standings, leaves }).ok()?;
                Some(pinned)
            })?;
            let victims = self.call("victims", (wanted, now_ns, answer))?;
            self.answered = Python::attach(|py| victims.extract(py)).ok()?;
            self.answered.reverse();
        }
        self.answered.pop()
    }
}
