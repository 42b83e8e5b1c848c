//! Closed forms of channels served layer by layer, at one byte per nanosecond.

use super::channel::{locked, Channel, SharedChannel};
use super::handles::{FarTransfer, JobId, LayersCame};
use super::job::{ChannelConfig, Job};
use super::layer_service::LayerJobOf;
use super::timeline::{SharedTimeline, Timeline};

/// A channel, its timeline, and its notifications: (ns, transfer, layers).
struct Bench {
    timeline: SharedTimeline,
    channel: SharedChannel,
    reported: Vec<(u64, u32, u64)>,
}

impl Bench {
    fn new(change: impl FnOnce(&mut ChannelConfig)) -> Self {
        let mut config = ChannelConfig {
            bandwidth_bytes_per_s: 1_000_000_000,
            ..ChannelConfig::default()
        };
        change(&mut config);
        let timeline = SharedTimeline::default();
        let channel = Channel::layered(config, &timeline);
        Self {
            timeline,
            channel,
            reported: Vec::new(),
        }
    }

    /// Runs the events up to a time.
    fn run(&mut self, until_ns: u64) {
        while let Some(now_ns) = Timeline::next_of(&self.timeline).filter(|&ns| ns <= until_ns) {
            if let Some(LayersCame { of, layers }) = Timeline::happen(&self.timeline) {
                self.reported.push((now_ns, of.id, layers));
            }
        }
    }

    /// Queues a job of the given bytes and layers at a time; `at_hand` of its layers are ready.
    fn submit(
        &mut self,
        at_ns: u64,
        (size_bytes, layers): (u64, u64),
        (at_hand, is_load): (u64, bool),
    ) -> JobId {
        self.run(at_ns);
        let id = locked(&self.channel).jobs as u32;
        let asked = LayerJobOf {
            job: Job {
                size_bytes,
                pieces: 0,
                layers,
                coding_ns: 0,
            },
            at_hand,
            is_load,
            of: FarTransfer { machine: 0, id },
        };
        locked(&self.channel).submit(&asked, at_ns)
    }

    /// Queues loads of (time, bytes, layers), and returns the arrival of each.
    fn ends(&mut self, jobs: &[(u64, u64, u64)]) -> Vec<u64> {
        let queued = jobs.iter();
        let ids: Vec<_> = queued
            .map(|&(at_ns, bytes, layers)| self.submit(at_ns, (bytes, layers), (layers, true)))
            .collect();
        self.run(u64::MAX);
        let channel = locked(&self.channel);
        let ends = ids.iter().filter_map(|&id| channel.times(id));
        ends.map(|sent| sent.completion_ns).collect()
    }
}

#[test]
fn n_equal_jobs_share_a_fair_channel_and_end_together_after_n_times_as_long() {
    for jobs in [1, 2, 3, 5, 16] {
        let mut bench = Bench::new(|config| config.is_fair = true);
        let ends = bench.ends(&vec![(0, 400, 4); jobs]);
        assert_eq!(ends, vec![400 * jobs as u64; jobs]);
        assert_eq!(locked(&bench.channel).busy_ns, 400 * jobs as u64);
    }
}

#[test]
fn a_job_that_comes_later_slows_the_others_by_its_share() {
    let mut bench = Bench::new(|config| config.is_fair = true);
    // 100 alone, then both at half the rate: the small one takes 200, the large one has 100 left.
    assert_eq!(bench.ends(&[(0, 300, 3), (100, 100, 1)]), [400, 300]);
    // Three of 300, 600 and 900: 900 with three, 600 more with two, 300 alone.
    let mut bench = Bench::new(|config| config.is_fair = true);
    let ends = bench.ends(&[(0, 300, 1), (0, 600, 1), (0, 900, 1)]);
    assert_eq!(ends, [900, 1_500, 1_800]);
}

#[test]
fn loads_pass_stores_at_the_next_layer_or_at_once_where_sharing_is_fair() {
    for (is_fair, loads_first, wanted) in [
        (false, false, (400, 500)),
        (false, true, (500, 200)),
        (true, true, (500, 110)),
    ] {
        let mut bench = Bench::new(|config| {
            (config.is_fair, config.loads_first) = (is_fair, loads_first);
        });
        let store = bench.submit(0, (400, 4), (4, false));
        let load = bench.submit(10, (100, 1), (1, true));
        bench.run(u64::MAX);
        let channel = locked(&bench.channel);
        let end = |id| channel.times(id).unwrap().completion_ns;
        assert_eq!((end(store), end(load)), wanted);
    }
}

#[test]
fn latency_comes_on_top_and_closes_the_link_only_where_that_is_said() {
    for (occupies, wanted) in [(false, [107, 207]), (true, [107, 214])] {
        let mut bench = Bench::new(|config| {
            (config.latency_ns, config.latency_occupies) = (7, occupies);
        });
        assert_eq!(bench.ends(&[(0, 100, 4), (0, 100, 4)]), wanted);
        let wait_ns = wanted[1] - 107;
        assert_eq!(locked(&bench.channel).queued_ns, wait_ns);
    }
}

#[test]
fn a_layer_leaves_when_it_is_at_hand_and_its_end_is_known_once_it_has_left() {
    let mut bench = Bench::new(|config| config.latency_ns = 5);
    let id = bench.submit(0, (40, 4), (1, true));
    bench.run(11);
    let (first, wait) = {
        let channel = locked(&bench.channel);
        let known = channel.times(id).unwrap();
        assert_eq!(known.completion_ns, super::NOT_YET);
        (known.first_layer_ns, channel.wait_ns(11, 0))
    };
    assert_eq!((first, wait), (15, 30));
    bench.run(50);
    locked(&bench.channel).report_all_layers(id);
    locked(&bench.channel).feed(id, 4, 50);
    bench.run(80);
    assert_eq!(locked(&bench.channel).arrivals_ns(id), [15, 65, 75, 85]);
    bench.run(u64::MAX);
    assert_eq!(
        bench.reported,
        [(15, 0, 1), (65, 0, 2), (75, 0, 3), (85, 0, 4)]
    );
}

#[test]
fn only_the_first_and_the_last_layer_are_reported_unless_another_job_sends_them_on() {
    let mut bench = Bench::new(|config| config.is_fair = true);
    bench.ends(&[(0, 50, 5), (0, 1, 1)]);
    let reported: Vec<_> = bench
        .reported
        .iter()
        .map(|&(_, id, layers)| (id, layers))
        .collect();
    assert_eq!(reported, [(1, 1), (0, 1), (0, 5)]);
}

#[test]
fn loads_go_before_stores_and_among_themselves_in_turn() {
    let mut bench = Bench::new(|config| config.loads_first = true);
    let jobs = [(100, false), (100, false), (300, true), (200, true)];
    let ids = jobs.map(|(bytes, is_load)| bench.submit(0, (bytes, 1), (1, is_load)));
    bench.run(u64::MAX);
    let channel = locked(&bench.channel);
    let ends = ids.map(|id| channel.times(id).unwrap().completion_ns);
    assert_eq!(ends, [600, 700, 300, 500]);
}

#[test]
fn what_a_job_was_given_too_much_of_is_lost_while_it_waits_for_its_next_layer() {
    // A sends one of its two layers alongside B, and C from 1 ns on. Three thirds of 299 ns are more than is
    // left of A's layer, 1/6 ns. At 1,000 its next layer comes, and with it eight more of 100 ns: nine ends
    // at 1,900.
    let mut bench = Bench::new(|config| config.is_fair = true);
    let first = bench.submit(0, (200, 2), (1, true));
    bench.submit(0, (100, 1), (1, true));
    bench.submit(1, (100, 1), (1, true));
    bench.run(1_000);
    locked(&bench.channel).report_all_layers(first);
    locked(&bench.channel).feed(first, 2, 1_000);
    for _ in 0..8 {
        bench.submit(1_000, (100, 1), (1, true));
    }
    bench.run(u64::MAX);
    assert_eq!(locked(&bench.channel).arrivals_ns(first), [300, 1_900]);
}

#[test]
fn a_job_waits_for_the_layers_that_others_have_not_sent() {
    for (is_fair, waits_ns) in [(false, [60, 50, 20, 0]), (true, [0; 4])] {
        let mut bench = Bench::new(|config| config.is_fair = is_fair);
        bench.submit(0, (40, 4), (4, false));
        bench.submit(0, (20, 2), (2, false));
        let mut wait_ns = |now_ns| {
            bench.run(now_ns);
            locked(&bench.channel).wait_ns(now_ns, 0)
        };
        assert_eq!([0, 10, 40, 60].map(&mut wait_ns), waits_ns);
    }
}
