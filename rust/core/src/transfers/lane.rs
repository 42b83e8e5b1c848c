//! A lane: one or several parallel channels that carry one direction of an edge (`channels/choice/` has the
//! choices' names, and the contract of a plug-in).

use std::sync::Arc;

use super::channel::{locked, SharedChannel};
use super::plugins::{ChannelPlugin, Sending};
use crate::store::Answer;

/// The channels that carry an edge in one direction, in the scenario's order; never empty.
#[derive(Clone, Debug)]
pub struct Lane {
    pub(super) channels: Vec<SharedChannel>,
    /// Plug-in that replaces the choice of the shortest queue.
    plugin: Option<Arc<dyn ChannelPlugin>>,
}

impl Lane {
    /// Creates a lane from its channels; `None` if there are none.
    pub fn new(channels: Vec<SharedChannel>) -> Option<Self> {
        (!channels.is_empty()).then_some(Self {
            channels,
            plugin: None,
        })
    }

    /// Sets the plug-in that chooses among the channels.
    pub fn with_plugin(self, plugin: Option<Arc<dyn ChannelPlugin>>) -> Self {
        Self { plugin, ..self }
    }

    /// Returns the first channel: it is used for estimates, and carries the reads of other machines.
    pub fn assigned(&self) -> &SharedChannel {
        &self.channels[0]
    }

    /// Returns the index of the channel that would start a job queued now first; of equal ones the first.
    fn emptiest(&self, now_ns: u64) -> usize {
        if self.channels.len() == 1 {
            return 0;
        }
        let waits_ns = |&at: &usize| locked(&self.channels[at]).wait_ns(now_ns, 0);
        (0..self.channels.len()).min_by_key(waits_ns).unwrap_or(0)
    }

    /// Returns the index of the channel for a transfer queued now.
    pub(super) fn choose(&self, sending: &Sending) -> Answer<usize> {
        match &self.plugin {
            Some(plugin) => Ok(plugin.choose(sending)?.min(self.channels.len() - 1)),
            None => Ok(self.emptiest(sending.now_ns)),
        }
    }

    /// Returns the channel for a transfer queued now.
    pub fn chosen(&self, sending: &Sending) -> Answer<&SharedChannel> {
        Ok(&self.channels[self.choose(sending)?])
    }

    /// Returns the channel at an index.
    pub(super) fn at(&self, slot: usize) -> &SharedChannel {
        &self.channels[slot]
    }
}

impl From<SharedChannel> for Lane {
    fn from(channel: SharedChannel) -> Self {
        Self {
            channels: vec![channel],
            plugin: None,
        }
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
            coding_ns: 0,
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
