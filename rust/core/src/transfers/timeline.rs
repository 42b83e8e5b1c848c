//! What happens next on all channels that are served layer by layer, in one order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::cross_machine::FarTransfer;
use super::layered::JobId;
use super::mover::SharedChannel;

/// A timeline, which all its channels enter their events in.
pub type SharedTimeline = Arc<Mutex<Timeline>>;

/// What happens on a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Happening {
    /// A layer has been sent, or the link opens again.
    Served,
    /// The CPU has submitted a job.
    Submitted(JobId),
    /// So many layers of a job have arrived.
    Arrived(JobId, u64),
}

/// The events of channels whose times are final only as they come: by time, then in the order in which they were
/// entered. They belong to no machine, and come before those of machines.
#[derive(Debug, Default)]
pub struct Timeline {
    /// (time, number, channel, what).
    events: BinaryHeap<Reverse<(u64, u64, u32, Happening)>>,
    entered: u64,
    /// Of each channel the event at which its service changes; an earlier one has been taken back.
    serving: Vec<Option<u64>>,
    channels: Vec<Weak<Mutex<super::Channel>>>,
}

/// Locks what one thread alone uses at a time.
pub(super) fn locked(timeline: &SharedTimeline) -> MutexGuard<'_, Timeline> {
    timeline.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Timeline {
    /// Takes in a channel that is being made; returns its place.
    pub(super) fn join(&mut self, channel: Weak<Mutex<super::Channel>>) -> u32 {
        self.channels.push(channel);
        self.serving.push(None);
        self.channels.len() as u32 - 1
    }

    /// Takes back when a channel's service changes.
    pub(super) fn cancel(&mut self, channel: u32) {
        self.serving[channel as usize] = None;
    }

    /// Enters when a channel's service changes next.
    pub(super) fn serve_at(&mut self, time_ns: u64, channel: u32) {
        let number = self.enter(time_ns, channel, Happening::Served);
        self.serving[channel as usize] = Some(number);
    }

    /// Enters what happens on a channel at a time; returns its number.
    pub(super) fn enter(&mut self, time_ns: u64, channel: u32, what: Happening) -> u64 {
        let number = self.entered;
        self.entered += 1;
        self.events.push(Reverse((time_ns, number, channel, what)));
        number
    }

    fn is_off(&self, number: u64, channel: u32, what: Happening) -> bool {
        what == Happening::Served && self.serving[channel as usize] != Some(number)
    }

    /// When something happens next; `None` while nothing is on any channel.
    pub fn next_ns(&mut self) -> Option<u64> {
        while let Some(&Reverse((time_ns, number, channel, what))) = self.events.peek() {
            if !self.is_off(number, channel, what) {
                return Some(time_ns);
            }
            self.events.pop();
        }
        None
    }

    /// When something happens next in a timeline that is shared.
    pub fn next_of(timeline: &SharedTimeline) -> Option<u64> {
        locked(timeline).next_ns()
    }

    /// Lets happen what is next; returns the transfer that hears of so many layers that have arrived.
    pub fn happen(timeline: &SharedTimeline) -> Option<(FarTransfer, u64)> {
        let (now_ns, channel, what) = locked(timeline).take_next()?;
        let reported = super::mover::locked(&channel).happen(what, now_ns);
        reported
    }

    /// Takes what happens next off the list: its time, its channel, and what it is.
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
