//! The timeline: events of all channels that are served layer by layer, in one order.

use crate::convert::fit;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::handles::{JobId, LayersCame};

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

/// A channel whose events stand in a timeline.
pub(super) trait Eventful: Send + Sync {
    /// Runs an event; returns the layers of which a machine is to be notified.
    fn happen(&self, what: Happening, now_ns: u64) -> Option<LayersCame>;
}

/// An event at its time: earlier ones first, then those that were entered first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    time_ns: u64,
    number: u64,
    channel: u32,
    what: Happening,
}

/// The events of channels served layer by layer: by time, then in the order in which they were entered. They
/// belong to no machine, and come before the events of machines.
#[derive(Debug, Default)]
pub struct Timeline {
    events: BinaryHeap<Reverse<Event>>,
    entered: u64,
    /// By channel, the event at which its service changes next; earlier ones are canceled.
    serving: Vec<Option<u64>>,
    channels: Vec<Weak<dyn Eventful>>,
}

/// Locks a mutex that only one thread uses at a time.
pub(super) fn locked(timeline: &SharedTimeline) -> MutexGuard<'_, Timeline> {
    timeline.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Timeline {
    /// Adds a new channel; returns its index.
    pub(super) fn join(&mut self, channel: Weak<dyn Eventful>) -> u32 {
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
        self.events.push(Reverse(Event {
            time_ns,
            number,
            channel,
            what,
        }));
        number
    }

    fn is_canceled(&self, event: &Event) -> bool {
        event.what == Happening::Served
            && self.serving[event.channel as usize] != Some(event.number)
    }

    /// Returns the time of the next event; `None` if there is none.
    pub fn next_ns(&mut self) -> Option<u64> {
        while let Some(Reverse(event)) = self.events.peek() {
            if !self.is_canceled(event) {
                return Some(event.time_ns);
            }
            self.events.pop();
        }
        None
    }

    /// Returns the time of the next event in a shared timeline.
    pub fn next_of(timeline: &SharedTimeline) -> Option<u64> {
        locked(timeline).next_ns()
    }

    /// Runs the next event; returns the layers of which a machine is to be notified.
    pub fn happen(timeline: &SharedTimeline) -> Option<LayersCame> {
        let (event, channel) = locked(timeline).take_next()?;
        channel.happen(event.what, event.time_ns)
    }

    /// Removes and returns the next event, and its channel.
    fn take_next(&mut self) -> Option<(Event, Arc<dyn Eventful>)> {
        while let Some(Reverse(event)) = self.events.pop() {
            if self.is_canceled(&event) {
                continue;
            }
            let slot = event.channel as usize;
            if event.what == Happening::Served {
                self.serving[slot] = None;
            }
            if let Some(channel) = self.channels[slot].upgrade() {
                return Some((event, channel));
            }
        }
        None
    }
}
