//! A hop of a hand-over: a transfer between machines, which is no move of the store but queues on a channel.

use super::channel::SharedChannel;
use super::feed::Feed;
use super::remote_read::FarJob;

/// A hop of a hand-over.
#[derive(Clone, Debug)]
pub struct Hop {
    /// Index of the hand-over in the machine's list.
    pub handover: u32,
    /// Its channel.
    pub channel: SharedChannel,
    /// True if it is fed, and feeds, layer by layer.
    pub streams: bool,
    /// Progress of the data it sends.
    pub feed: Feed,
    /// The job of another machine that feeds it, on a channel served layer by layer.
    pub far: Option<FarJob>,
    /// Number of transfers on another machine that must free its target blocks first.
    pub awaits: u32,
    /// Index of the request that leaves this machine's GPU with it, to continue elsewhere.
    pub leaves: Option<u32>,
    /// True if it reads the hand-over's source.
    pub is_first: bool,
    /// True if it completes the hand-over.
    pub is_last: bool,
}

impl Hop {
    /// Returns a middle hop of a hand-over over a channel, with its data available; `streams` as in its
    /// field.
    pub fn over(handover: u32, channel: SharedChannel, streams: bool) -> Self {
        Self {
            handover,
            channel,
            streams,
            feed: Feed::AtHand,
            far: None,
            awaits: 0,
            leaves: None,
            is_first: false,
            is_last: false,
        }
    }
}
