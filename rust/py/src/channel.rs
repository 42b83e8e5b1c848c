//! `Channel`: a link between two tiers; `Demand`: what was asked of it.

use std::sync::{Arc, MutexGuard, PoisonError};

use kvsim_core::transfers::{
    Channel, ChannelConfig, Job, Lane, SharedChannel, SharedTimeline, Slowdown, Transmission,
};
use numpy::{PyArray1, ToPyArray};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

use crate::plugins::ChannelCall;
use crate::refusal::{refused, Whole};

/// A `kvcache_sim.channels.channel.Transmission`.
pub fn told(py: Python<'_>, sent: Transmission) -> PyResult<Bound<'_, PyAny>> {
    static TRANSMISSION: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let class = TRANSMISSION.import(py, "kvcache_sim.channels.channel", "Transmission")?;
    class.call1((
        sent.start_ns,
        sent.first_layer_ns,
        sent.completion_ns,
        sent.per_layer_ns,
    ))
}

/// A `Transmission` from Python, attribute by attribute.
#[derive(FromPyObject)]
pub struct Feed {
    start_ns: Whole,
    first_layer_ns: Whole,
    completion_ns: Whole,
    per_layer_ns: Whole,
}

impl Feed {
    /// The same in the core.
    pub fn transmission(&self) -> Transmission {
        Transmission {
            start_ns: self.start_ns.u64(),
            first_layer_ns: self.first_layer_ns.u64(),
            completion_ns: self.completion_ns.u64(),
            per_layer_ns: self.per_layer_ns.u64(),
        }
    }
}

/// `kvcache_sim.cache.settings.ChannelSettings`, attribute by attribute.
#[derive(FromPyObject)]
struct Settings {
    bandwidth_bytes_per_s: Whole,
    latency_ns: Whole,
    piece_overhead_ns: Whole,
    piece_gap_ns: Whole,
    piece_submit_ns: Whole,
    latency_occupies: bool,
    sharing: String,
    priority: String,
    slowdowns: Vec<SlowTime>,
}

/// `kvcache_sim.channels.settings.Slowdown`, attribute by attribute.
#[derive(FromPyObject)]
struct SlowTime {
    from_ns: Whole,
    until_ns: Whole,
    share_ppm: Whole,
}

/// Locks what one thread alone uses at a time.
fn locked(channel: &SharedChannel) -> MutexGuard<'_, Channel> {
    channel.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A FIFO link; its times are final when a job is queued.
#[pyclass(name = "Channel", frozen)]
pub struct PyChannel {
    pub channel: SharedChannel,
    settings: Py<PyAny>,
}

fn job(size_bytes: Whole, pieces: Whole, layers: Whole) -> PyResult<Job> {
    if layers.u64() == 0 {
        return Err(refused("a job without layers", "1 layer or more"));
    }
    Ok(Job {
        size_bytes: size_bytes.u64(),
        pieces: pieces.u64(),
        layers: layers.u64(),
    })
}

impl PyChannel {
    /// Refuses a channel on which no times are final when a job is queued.
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
    /// `timeline`: where it is served layer by layer.
    #[new]
    #[pyo3(signature = (settings, timeline=None))]
    fn new(settings: &Bound<'_, PyAny>, timeline: Option<&PyTimeline>) -> PyResult<Self> {
        let told: Settings = settings.extract()?;
        let config = ChannelConfig {
            bandwidth_bytes_per_s: told.bandwidth_bytes_per_s.u64(),
            latency_ns: told.latency_ns.u64(),
            piece_overhead_ns: told.piece_overhead_ns.u64(),
            piece_gap_ns: told.piece_gap_ns.u64(),
            piece_submit_ns: told.piece_submit_ns.u64(),
            latency_occupies: told.latency_occupies,
            is_fair: told.sharing == "fair",
            loads_first: told.priority == "loads-first",
        };
        if config.bandwidth_bytes_per_s == 0 {
            let expected = "1 byte a second or more";
            return Err(refused("a channel that carries nothing", expected));
        }
        let channel = match timeline {
            Some(timeline) => Channel::layered(config, &timeline.0),
            None => {
                let mut channel = Channel::new(config);
                channel.slowdowns = told
                    .slowdowns
                    .iter()
                    .map(|slow| Slowdown {
                        from_ns: slow.from_ns.u64(),
                        until_ns: slow.until_ns.u64(),
                        share_ppm: slow.share_ppm.u64(),
                    })
                    .collect();
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

    /// Whether it is served layer by layer.
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

    #[pyo3(signature = (now_ns, pieces=Whole::default()))]
    fn wait_ns(&self, now_ns: Whole, pieces: Whole) -> u64 {
        locked(&self.channel).wait_ns(now_ns.u64(), pieces.u64())
    }

    fn transmit<'py>(
        &self,
        py: Python<'py>,
        size_bytes: Whole,
        pieces: Whole,
        layers: Whole,
        now_ns: Whole,
    ) -> PyResult<Bound<'py, PyAny>> {
        let job = job(size_bytes, pieces, layers)?;
        self.is_final()?;
        let sent = locked(&self.channel).transmit(&job, now_ns.u64());
        told(py, sent)
    }

    fn forward<'py>(
        &self,
        py: Python<'py>,
        size_bytes: Whole,
        pieces: Whole,
        layers: Whole,
        feed: Feed,
    ) -> PyResult<Bound<'py, PyAny>> {
        let job = job(size_bytes, pieces, layers)?;
        self.is_final()?;
        let sent = locked(&self.channel).forward(&job, &feed.transmission());
        told(py, sent)
    }
}

/// What a channel was asked for.
#[pyclass(name = "Demand", frozen)]
pub struct PyDemand(SharedChannel);

#[pymethods]
impl PyDemand {
    fn ask(&self, size_bytes: Whole, now_ns: Whole) {
        let mut channel = locked(&self.0);
        channel.demand.ask(size_bytes.u64(), now_ns.u64());
    }

    fn hide(&self, size_bytes: Whole, compute_ns: Whole) {
        let mut channel = locked(&self.0);
        channel.demand.hide(size_bytes.u64(), compute_ns.u64());
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

/// Channels side by side, and what chooses among them where that is a plug-in.
#[derive(FromPyObject)]
pub enum PyLane {
    /// `cache.tier_rules.ChosenLane`, attribute by attribute.
    Chosen {
        channels: Vec<Py<PyChannel>>,
        choice: ChannelCall,
    },
    /// The one with the shortest queue is taken.
    Plain(Vec<Py<PyChannel>>),
}

/// Channels side by side, as the core has them.
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

/// Adds the classes of this room.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyChannel>()?;
    m.add_class::<PyTimeline>()?;
    m.add_class::<PyDemand>()
}
