//! The timeline: events of all channels that are served layer by layer, in one order.

use crate::convert::fit;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::cross_machine::FarTransfer;
use super::layered::JobId;
use super::mover::SharedChannel;

/// A timeline, shared by its channels, which enter their events.
pub type SharedTimeline = Arc<Mutex<Timeline>>;

/// An event on a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Happening {
    /// A layer has been sent, or the link opens again.
    Served,
    /// The CPU has submitted a job.
    Submitted(JobId),
    /// This number of a job's layers has arrived.
    Arrived(JobId, u64),
}

/// The events of channels served layer by layer: by time, then in the order in which they were entered. They
/// belong to no machine, and come before the events of machines.
#[derive(Debug, Default)]
pub struct Timeline {
    /// (time, number, channel, event).
    events: BinaryHeap<Reverse<(u64, u64, u32, Happening)>>,
    entered: u64,
    /// By channel, the event at which its service changes next; earlier ones are canceled.
    serving: Vec<Option<u64>>,
    channels: Vec<Weak<Mutex<super::Channel>>>,
}

/// Locks a mutex that only one thread uses at a time.
pub(super) fn locked(timeline: &SharedTimeline) -> MutexGuard<'_, Timeline> {
    timeline.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Timeline {
    /// Adds a new channel; returns its index.
    pub(super) fn join(&mut self, channel: Weak<Mutex<super::Channel>>) -> u32 {
        self.channels.push(channel);
        self.serving.push(None);
        fit::<u32>(self.channels.len()) - 1
    }

    /// Cancels the event at which a channel's service changes.
    pub(super) fn cancel(&mut self, channel: u32) {
        self.serving[channel as usize] = None;
    }

    /// Enters the event at which a channel's service changes next.
    pub(super) fn serve_at(&mut self, time_ns: u64, channel: u32) {
        let number = self.enter(time_ns, channel, Happening::Served);
        self.serving[channel as usize] = Some(number);
    }

    /// Enters an event on a channel at a time; returns its number.
    pub(super) fn enter(&mut self, time_ns: u64, channel: u32, what: Happening) -> u64 {
        let number = self.entered;
        self.entered += 1;
        self.events.push(Reverse((time_ns, number, channel, what)));
        number
    }

    fn is_off(&self, number: u64, channel: u32, what: Happening) -> bool {
        what == Happening::Served && self.serving[channel as usize] != Some(number)
    }

    /// Returns the time of the next event; `None` if there is none.
    pub fn next_ns(&mut self) -> Option<u64> {
        while let Some(&Reverse((time_ns, number, channel, what))) = self.events.peek() {
            if !self.is_off(number, channel, what) {
                return Some(time_ns);
            }
            self.events.pop();
        }
        None
    }

    /// Returns the time of the next event in a shared timeline.
    pub fn next_of(timeline: &SharedTimeline) -> Option<u64> {
        locked(timeline).next_ns()
    }

    /// Runs the next event. Returns the transfer to notify and the number of its layers that have arrived.
    pub fn happen(timeline: &SharedTimeline) -> Option<(FarTransfer, u64)> {
        let (now_ns, channel, what) = locked(timeline).take_next()?;
        let reported = super::mover::locked(&channel).happen(what, now_ns);
        reported
    }

    /// Removes and returns the next event: its time, its channel, and its kind.
    fn take_next(&mut self) -> Option<(u64, SharedChannel, Happening)> {
        while let Some(Reverse((time_ns, number, channel, what))) = self.events.pop() {
            if self.is_off(number, channel, what) {
                continue;
            }
            if what == Happening::Served {
                self.serving[channel as usize] = None;
            }
            if let Some(link) = self.channels[channel as usize].upgrade() {
                return Some((time_ns, link, what));
            }
        }
        None
    }
}
