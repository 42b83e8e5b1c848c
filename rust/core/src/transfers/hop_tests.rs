//! Closed forms of hops that send layers of a running step over a channel served layer by layer, at one byte
//! per nanosecond.

use super::Now;
use crate::tiers::Route;

use super::channel::{Channel, SharedChannel};
use super::feed::{Computed, Feed};
use super::hop::Hop;
use super::job::{ChannelConfig, Transmission};
use super::mover::{Mover, MoverConfig};
use super::timeline::{SharedTimeline, Timeline};
use crate::keys::BlockKeys;
use crate::store::{Store, TierConfig, GPU};

const LAYERS: u64 = 4;
const REMOTE: usize = 3;
/// Time of each layer on the wire, and the latency.
const WIRE_NS: u64 = 25;
const LATENCY_NS: u64 = 7;

fn step(start_ns: u64, end_ns: u64) -> Transmission {
    let layer_ns = (end_ns - start_ns) / LAYERS;
    Transmission {
        start_ns,
        first_layer_ns: start_ns + layer_ns,
        completion_ns: end_ns,
        per_layer_ns: layer_ns,
    }
}

/// A machine that receives hand-overs of one block of 100 bytes: its store, its wire and its events.
struct Bench {
    mover: Mover,
    store: Store,
    wire: SharedChannel,
    timeline: SharedTimeline,
}

impl Bench {
    fn new(is_fair: bool) -> Self {
        let timeline = SharedTimeline::default();
        let config = ChannelConfig {
            bandwidth_bytes_per_s: 1_000_000_000,
            latency_ns: LATENCY_NS,
            is_fair,
            ..ChannelConfig::default()
        };
        let gpu = TierConfig {
            capacity_blocks: Some(4),
            write_back: false,
        };
        let mover = MoverConfig {
            machine: 1,
            remote: REMOTE,
            block_bytes: 100,
            layers: LAYERS,
            layer_pipelining: true,
            ..MoverConfig::default()
        };
        Self {
            mover: Mover::new(mover, Vec::new()),
            store: Store::new(BlockKeys::of_rows(1, &[[0]]), &[gpu]),
            wire: Channel::layered(config, &timeline),
            timeline,
        }
    }

    /// Runs the events of the wire up to a time.
    fn run(&mut self, until_ns: u64) {
        while Timeline::next_of(&self.timeline).is_some_and(|ns| ns <= until_ns) {
            Timeline::happen(&self.timeline);
        }
    }

    /// Hands over a block that a step computes, with a given departure; returns the arrival of each layer.
    fn hand_over(&mut self, step: Transmission, departs_ns: u64) -> Vec<u64> {
        let hop = Hop {
            feed: Feed::of_step(Some(step), departs_ns),
            is_first: true,
            is_last: true,
            ..Hop::over(0, self.wire.clone(), true)
        };
        let (mover, store) = (&mut self.mover, &mut self.store);
        let route = Route::new(REMOTE, GPU);
        let mut now = Now::alone(store, departs_ns);
        let id = mover.send_hop(&mut now, hop, route, 1, &[]).unwrap();
        assert_eq!(mover.reported_layers(id), LAYERS);
        for layers in 1..=LAYERS {
            let computed = match layers {
                1 => Computed::First,
                LAYERS => Computed::All,
                _ => Computed::Layers(layers),
            };
            let now_ns = step.computed_ns(layers, LAYERS).max(departs_ns);
            self.run(now_ns);
            let (mover, store) = (&mut self.mover, &mut self.store);
            let mut now = Now::alone(store, now_ns);
            let waits = mover.step_computed(&mut now, id, step, computed);
            assert!(waits.unwrap(), "the other layers are still to come");
        }
        self.run(u64::MAX);
        let arrivals = self.mover.layer_times(id).into_iter();
        arrivals.map(|(_, ns)| ns).collect()
    }
}

#[test]
fn a_slow_step_is_waited_for_layer_by_layer() {
    // computed at 200, 400, 600 and 800; each is on the wire for 25 ns
    let arrivals = Bench::new(true).hand_over(step(0, 800), 10);
    assert_eq!(arrivals, [232, 432, 632, 832]);
}

#[test]
fn a_slow_wire_is_waited_for_after_the_first_layer() {
    // computed at 10, 20, 30 and 40
    let arrivals = Bench::new(false).hand_over(step(0, 40), 0);
    assert_eq!(arrivals, [42, 67, 92, 117]);
}

#[test]
fn what_is_computed_when_it_departs_goes_at_once() {
    // at 250 ns two of four layers are computed
    let arrivals = Bench::new(true).hand_over(step(0, 400), 250);
    assert_eq!(arrivals, [282, 307, 332, 432]);
}

#[test]
fn it_is_the_later_of_wire_and_step_that_ends_it() {
    for end_ns in [4, 60, 100, 160, 1_000] {
        let layer_ns = end_ns / LAYERS;
        let arrivals = Bench::new(true).hand_over(step(0, end_ns), 0);
        let wire_ns = layer_ns + LAYERS * WIRE_NS;
        let step_ns = end_ns + WIRE_NS;
        assert_eq!(arrivals.last(), Some(&(wire_ns.max(step_ns) + LATENCY_NS)));
    }
}

#[test]
fn a_step_has_as_many_layers_as_it_has_had_time_for() {
    let step = step(100, 507);
    for now_ns in 90..520 {
        let computed = (1..=LAYERS).filter(|&layers| step.computed_ns(layers, LAYERS) <= now_ns);
        assert_eq!(step.computed_by(now_ns, LAYERS), computed.count() as u64);
    }
    assert_eq!(step.computed_ns(LAYERS, LAYERS), step.completion_ns);
}
