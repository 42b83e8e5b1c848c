//! What carries one direction of an edge: one channel, or several side by side (`channels/choice/` has the policies).

use super::mover::{locked, SharedChannel};

/// The channels that carry an edge in one direction, in the scenario's order; never none.
#[derive(Clone, Debug)]
pub struct Lane(Vec<SharedChannel>);

impl Lane {
    /// Those of a lane; `None` without any.
    pub fn new(channels: Vec<SharedChannel>) -> Option<Self> {
        (!channels.is_empty()).then_some(Self(channels))
    }

    /// The first one: by it is estimated what a transfer would take, and it carries what other machines read.
    pub fn assigned(&self) -> &SharedChannel {
        &self.0[0]
    }

    /// The place of the channel that would begin first what is queued now; of equal ones the first.
    pub(super) fn emptiest(&self, now_ns: u64) -> usize {
        if self.0.len() == 1 {
            return 0;
        }
        let waits_ns = |&at: &usize| locked(&self.0[at]).wait_ns(now_ns, 0);
        (0..self.0.len()).min_by_key(waits_ns).unwrap_or(0)
    }

    /// The channel that would begin first what is queued now.
    pub fn chosen(&self, now_ns: u64) -> &SharedChannel {
        &self.0[self.emptiest(now_ns)]
    }

    /// The channel at a place.
    pub(super) fn at(&self, place: usize) -> &SharedChannel {
        &self.0[place]
    }
}

impl From<SharedChannel> for Lane {
    fn from(channel: SharedChannel) -> Self {
        Self(vec![channel])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transfers::{Channel, ChannelConfig, Job};

    fn link() -> SharedChannel {
        let config = ChannelConfig {
            bandwidth_bytes_per_s: 1_000_000_000,
            ..ChannelConfig::default()
        };
        SharedChannel::new(Channel::new(config).into())
    }

    #[test]
    fn the_channel_that_is_free_first_is_chosen_and_of_equal_ones_the_first() {
        let lane = Lane::new(vec![link(), link(), link()]).expect("three channels");
        let job = |size_bytes| Job {
            size_bytes,
            pieces: 0,
            layers: 1,
        };
        let mut chosen = Vec::new();
        for (size_bytes, now_ns) in [(100, 0), (50, 0), (70, 0), (10, 0), (5, 65), (5, 200)] {
            let at = lane.emptiest(now_ns);
            locked(lane.at(at)).transmit(&job(size_bytes), now_ns);
            chosen.push(at);
        }
        // free at 100, 50 and 70; then at 60; then, at 65 ns, the second is idle; then all are
        assert_eq!(chosen, [0, 1, 2, 1, 1, 0]);
    }

    #[test]
    fn a_lane_has_a_channel() {
        assert!(Lane::new(Vec::new()).is_none());
    }
}
