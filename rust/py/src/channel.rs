//! `Channel`: a link between two tiers; `Demand`: the rate demanded of it.

use std::sync::{Arc, MutexGuard, PoisonError};

use kvsim_core::transfers::{
    Channel, ChannelConfig, Job, Lane, SharedChannel, SharedTimeline, Slowdown, Transmission,
};
use numpy::{PyArray1, ToPyArray};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

use crate::argument::{from_attributes, Arg};
use crate::plugins::ChannelCall;
use crate::refusal::refused;

/// A `kvcache_sim.channels.channel.Transmission`.
pub fn transmission_to_py(py: Python<'_>, sent: Transmission) -> PyResult<Bound<'_, PyAny>> {
    static TRANSMISSION: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let class = TRANSMISSION.import(py, "kvcache_sim.channels.channel", "Transmission")?;
    class.call1((
        sent.start_ns,
        sent.first_layer_ns,
        sent.completion_ns,
        sent.per_layer_ns,
    ))
}

// `channels.channel.Transmission`, and `Slowdown` and `ChannelSettings` of `channels.settings`
from_attributes! {
    Transmission { start_ns, first_layer_ns, completion_ns, per_layer_ns }
    Slowdown { from_ns, until_ns, share_ppm }
    ChannelConfig {
        bandwidth_bytes_per_s, latency_ns, piece_overhead_ns, piece_gap_ns, piece_submit_ns, latency_occupies, is_fair,
        loads_first
    }
}

/// Locks a value that one thread at a time uses.
fn locked(channel: &SharedChannel) -> MutexGuard<'_, Channel> {
    channel.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A FIFO link; its times are final when a job is queued.
#[pyclass(name = "Channel", frozen)]
pub struct PyChannel {
    pub channel: SharedChannel,
    settings: Py<PyAny>,
}

fn job(size_bytes: Arg<u64>, pieces: Arg<u64>, layers: Arg<u64>) -> PyResult<Job> {
    if layers.0 == 0 {
        return Err(refused("a job without layers", "1 layer or more"));
    }
    Ok(Job {
        size_bytes: size_bytes.0,
        pieces: pieces.0,
        layers: layers.0,
        coding_ns: 0,
    })
}

impl PyChannel {
    /// Refuses a channel whose times are not final when a job is queued.
    fn is_final(&self) -> PyResult<()> {
        if self.by_layer() {
            let expected = "a channel whose times are final at once";
            return Err(refused("a channel served layer by layer", expected));
        }
        Ok(())
    }
}

/// The events of all channels of a cluster that are served layer by layer.
#[pyclass(name = "Timeline", frozen)]
pub struct PyTimeline(pub SharedTimeline);

#[pymethods]
impl PyTimeline {
    #[new]
    fn new() -> Self {
        Self(SharedTimeline::default())
    }
}

#[pymethods]
impl PyChannel {
    /// `timeline`: given for a link that is served layer by layer.
    #[new]
    #[pyo3(signature = (settings, timeline=None))]
    fn new(settings: &Bound<'_, PyAny>, timeline: Option<&PyTimeline>) -> PyResult<Self> {
        let Arg(config): Arg<ChannelConfig> = settings.extract()?;
        if config.bandwidth_bytes_per_s == 0 {
            let expected = "1 byte a second or more";
            return Err(refused("a channel that carries nothing", expected));
        }
        let channel = match timeline {
            Some(timeline) => Channel::layered(config, &timeline.0),
            None => {
                let mut channel = Channel::new(config);
                let slowdowns: Arg<_> = settings.getattr("slowdowns")?.extract()?;
                channel.slowdowns = slowdowns.0;
                SharedChannel::new(channel.into())
            }
        };
        Ok(Self {
            channel,
            settings: settings.clone().unbind(),
        })
    }

    #[getter]
    fn settings(&self, py: Python<'_>) -> Py<PyAny> {
        self.settings.clone_ref(py)
    }

    /// True if the link is served layer by layer.
    #[getter]
    fn by_layer(&self) -> bool {
        locked(&self.channel).is_layered()
    }

    #[getter]
    fn busy_ns(&self) -> u64 {
        locked(&self.channel).busy_ns
    }

    #[getter]
    fn queued_ns(&self) -> u64 {
        locked(&self.channel).queued_ns
    }

    #[getter]
    fn sent_bytes(&self) -> u64 {
        locked(&self.channel).sent_bytes
    }

    #[getter]
    fn jobs(&self) -> u64 {
        locked(&self.channel).jobs
    }

    #[getter]
    fn last_call_ns(&self) -> u64 {
        locked(&self.channel).last_call_ns
    }

    #[getter]
    fn demand(&self) -> PyDemand {
        PyDemand(self.channel.clone())
    }

    #[pyo3(signature = (now_ns, pieces=Arg(0)))]
    fn wait_ns(&self, now_ns: Arg<u64>, pieces: Arg<u64>) -> u64 {
        locked(&self.channel).wait_ns(now_ns.0, pieces.0)
    }

    fn transmit<'py>(
        &self,
        py: Python<'py>,
        size_bytes: Arg<u64>,
        pieces: Arg<u64>,
        layers: Arg<u64>,
        now_ns: Arg<u64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let job = job(size_bytes, pieces, layers)?;
        self.is_final()?;
        let sent = locked(&self.channel).transmit(&job, now_ns.0);
        transmission_to_py(py, sent)
    }

    fn forward<'py>(
        &self,
        py: Python<'py>,
        size_bytes: Arg<u64>,
        pieces: Arg<u64>,
        layers: Arg<u64>,
        feed: Arg<Transmission>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let job = job(size_bytes, pieces, layers)?;
        self.is_final()?;
        let sent = locked(&self.channel).forward(&job, &feed.0);
        transmission_to_py(py, sent)
    }
}

/// The rate demanded of a channel.
#[pyclass(name = "Demand", frozen)]
pub struct PyDemand(SharedChannel);

#[pymethods]
impl PyDemand {
    fn ask(&self, size_bytes: Arg<u64>, now_ns: Arg<u64>) {
        let mut channel = locked(&self.0);
        channel.demand.ask(size_bytes.0, now_ns.0);
    }

    fn hide(&self, size_bytes: Arg<u64>, compute_ns: Arg<u64>) {
        let mut channel = locked(&self.0);
        channel.demand.hide(size_bytes.0, compute_ns.0);
    }

    #[getter]
    fn hiding<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<i64>> {
        locked(&self.0).demand.hiding.to_pyarray(py)
    }

    #[getter]
    fn offered<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<i64>> {
        locked(&self.0).demand.offered().to_pyarray(py)
    }
}

/// Parallel channels, with a plug-in that chooses among them, if any.
#[derive(FromPyObject)]
pub enum PyLane {
    /// `cache.tier_rules.ChosenLane`, attribute by attribute.
    Chosen {
        channels: Vec<Py<PyChannel>>,
        choice: ChannelCall,
    },
    /// The channel with the shortest queue is used.
    Plain(Vec<Py<PyChannel>>),
}

/// Parallel channels as a type of the core.
pub fn lane(lane: PyLane) -> PyResult<Lane> {
    let (channels, choice) = match lane {
        PyLane::Chosen { channels, choice } => (channels, Some(Arc::new(choice) as _)),
        PyLane::Plain(channels) => (channels, None),
    };
    let channels = channels.iter().map(|one| one.get().channel.clone());
    let lane = Lane::new(channels.collect());
    let lane = lane.ok_or_else(|| PyValueError::new_err("a channel or more"))?;
    Ok(lane.with_plugin(choice))
}
