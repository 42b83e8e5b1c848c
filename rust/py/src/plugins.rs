//! Plug-ins written in Python, as the core calls them; the Python side has checked every answer.

use std::collections::HashMap;
use std::fmt;

use kvsim_core::machine::fetch::FetchPlan;
use kvsim_core::machine::plugins::{
    AdmissionPlugin, Candidate, FetchPlugin, Finished, Interrupt, Plugins, PrefetchPlugin,
    QueuePlugin, Waiting,
};
use kvsim_core::store::Answer;
use kvsim_core::transfers::plugins::{ChannelPlugin, Sending};
use pyo3::call::PyCallArgs;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::fetch_plan::PyFetchPlan;
use crate::refusal::aborted;
use crate::write_plugin::WriteCall;

/// `serving.replica.plugin_rules.PluginCall`, attribute by attribute: a checked method, and the class of its argument.
#[derive(FromPyObject)]
struct PluginCall {
    call: Py<PyAny>,
    view: Py<PyAny>,
}

impl fmt::Debug for PluginCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PluginCall")
    }
}

/// `cache.tier_rules.ChannelCall`, attribute by attribute: the choice of one machine for one edge.
#[derive(FromPyObject)]
pub struct ChannelCall {
    call: Py<PyAny>,
    view: Py<PyAny>,
    machine: i64,
    edge: Py<PyString>,
    /// By name, in the scenario's order.
    channels: Py<PyAny>,
    names: Vec<String>,
}

impl fmt::Debug for ChannelCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ChannelCall")
    }
}

impl ChannelPlugin for ChannelCall {
    fn choose(&self, sending: &Sending) -> Answer<usize> {
        Python::attach(|py| {
            let (edge, s) = (self.edge.bind(py), sending);
            let seen = (self.machine, edge, s.blocks, s.size_bytes, s.now_ns);
            let seen = self.view.bind(py).call1(seen)?;
            let chosen = self.call.bind(py).call1((seen, self.channels.bind(py)))?;
            let chosen: String = chosen.extract()?;
            let at = self.names.iter().position(|name| *name == chosen);
            Ok(at.unwrap_or(0))
        })
        .map_err(aborted)
    }
}

/// `serving.replica.plugin_rules.PluginRules`, attribute by attribute.
#[derive(FromPyObject)]
pub struct PluginRules {
    queue: Option<PluginCall>,
    admission: Option<PluginCall>,
    fetch: Option<PluginCall>,
    prefetch: Option<PluginCall>,
    /// By edge, from the GPU down.
    writes: Vec<Option<WriteCall>>,
}

impl PluginRules {
    /// The write policy of each edge that has a plug-in.
    pub fn take_writes(&mut self) -> Vec<Option<WriteCall>> {
        std::mem::take(&mut self.writes)
    }

    /// The plug-ins that a replica calls.
    pub fn plugins(self) -> Plugins {
        let mut plugins = Plugins::default();
        plugins.queue = self.queue.map(|order| {
            let keys = HashMap::new();
            Box::new(QueueKeys { order, keys }) as _
        });
        plugins.admission = self.admission.map(|call| Box::new(call) as _);
        plugins.fetch = self.fetch.map(|call| Box::new(call) as _);
        plugins.prefetch = self.prefetch.map(|call| Box::new(call) as _);
        plugins.interrupt = Some(Box::new(Signals));
        plugins
    }
}

/// Pending signals; an exception of a Python handler, such as Ctrl-C's, ends the run.
#[derive(Debug)]
struct Signals;

impl Interrupt for Signals {
    fn check(&self) -> Answer<()> {
        Python::attach(|py| py.check_signals()).map_err(aborted)
    }
}

/// A queue order, and the last key of each waiting request with what the key was made of: a key is a function of what
/// the order sees, and is asked for again when that has changed.
#[derive(Debug)]
struct QueueKeys {
    order: PluginCall,
    keys: HashMap<u32, (Waiting, Py<PyAny>)>,
}

impl QueueKeys {
    /// Returns the key of a waiting request.
    fn key<'py>(&mut self, py: Python<'py>, s: &Waiting) -> PyResult<Bound<'py, PyAny>> {
        match self.keys.get(&s.request) {
            Some((seen, key)) if seen == s => return Ok(key.bind(py).clone()),
            _ => {}
        }
        let seen = self.order.view.bind(py).call1((
            s.request,
            s.arrival_ns,
            s.turn,
            s.tokens,
            s.cached_tokens,
            s.passed,
            s.priority,
        ))?;
        let key = self.order.call.bind(py).call1((seen,))?;
        self.keys.insert(s.request, (*s, key.clone().unbind()));
        Ok(key)
    }
}

impl QueuePlugin for QueueKeys {
    fn first(&mut self, waiting: &[Waiting]) -> Answer<usize> {
        if self.keys.len() > 2 * waiting.len() + 64 {
            self.keys.clear(); // most of them have left the queue
        }
        Python::attach(|py| {
            let mut least: Option<(usize, Bound<'_, PyAny>)> = None;
            for (n, s) in waiting.iter().enumerate() {
                let key = self.key(py, s)?;
                let is_first = match &least {
                    Some((_, other)) => key.lt(other)?,
                    None => true,
                };
                if is_first {
                    least = Some((n, key));
                }
            }
            Ok(least.map_or(0, |(n, _)| n))
        })
        .map_err(aborted)
    }
}

impl PluginCall {
    /// Calls the method with a view of these values.
    fn decide<T, A>(&self, seen: A) -> Answer<T>
    where
        T: for<'a, 'py> FromPyObject<'a, 'py, Error = PyErr>,
        A: for<'py> PyCallArgs<'py>,
    {
        Python::attach(|py| {
            let seen = self.view.bind(py).call1(seen)?;
            self.call.bind(py).call1((seen,))?.extract()
        })
        .map_err(aborted)
    }
}

impl AdmissionPlugin for PluginCall {
    fn kept_blocks(&mut self, s: &Finished) -> Answer<u32> {
        self.decide((
            s.request,
            s.turn,
            s.in_session,
            s.prompt_tokens,
            s.output_tokens,
            s.cached_tokens,
            s.block_size_tokens,
            s.blocks,
        ))
    }
}

impl FetchPlugin for PluginCall {
    fn reuse(&mut self, plan: FetchPlan) -> Answer<u32> {
        Python::attach(|py| {
            let seen = PyFetchPlan::new(plan, self.view.clone_ref(py));
            self.call.bind(py).call1((seen,))?.extract()
        })
        .map_err(aborted)
    }
}

impl PrefetchPlugin for PluginCall {
    fn blocks(&mut self, s: &Candidate) -> Answer<u32> {
        let occasion = s.occasion.name();
        self.decide((occasion, s.request, s.prompt_tokens, s.blocks, s.now_ns))
    }
}
