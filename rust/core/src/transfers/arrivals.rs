//! The arrivals of a machine's transfers, in one order with its other events.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::handles::TransferId;

/// Transfer id that stands for an alarm among the arrivals: the time until which a request waits for its
/// blocks.
const ALARM: TransferId = TransferId::MAX;

/// An arrival: a transfer's first layer, or all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Arrival {
    /// The transfer.
    pub transfer: TransferId,
    /// True if all of it has arrived.
    pub complete: bool,
}

impl Arrival {
    /// Returns true for an alarm: the end of a request's wait for its blocks.
    pub fn is_alarm(&self) -> bool {
        self.transfer == ALARM
    }
}

/// An arrival at its time and with its number among the machine's events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Numbered {
    time_ns: u64,
    number: u64,
    arrival: Arrival,
}

/// The scheduled arrivals: by time, then in the order in which they were scheduled.
#[derive(Clone, Debug, Default)]
pub struct Arrivals {
    queue: BinaryHeap<Reverse<Numbered>>,
    /// Number of the machine's next event.
    next_number: u64,
}

impl Arrivals {
    /// Schedules an alarm among the arrivals.
    pub fn set_alarm(&mut self, time_ns: u64) {
        self.schedule(time_ns, ALARM, true);
    }

    /// Schedules the arrival of a transfer's first layer, or of all of it.
    pub(super) fn schedule(&mut self, time_ns: u64, transfer: TransferId, complete: bool) {
        let number = self.take_number();
        self.queue.push(Reverse(Numbered {
            time_ns,
            number,
            arrival: Arrival { transfer, complete },
        }));
    }

    /// Takes the next number of the machine's events, for an event other than an arrival.
    pub fn take_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number - 1
    }

    /// Returns the time and the number of the next arrival; `None` if there is none.
    pub fn next_numbered(&self) -> Option<(u64, u64)> {
        let Reverse(next) = self.queue.peek()?;
        Some((next.time_ns, next.number))
    }

    /// Returns the next arrival.
    pub fn peek(&self) -> Option<Arrival> {
        self.queue.peek().map(|next| next.0.arrival)
    }

    /// Removes and returns the next arrival.
    pub fn pop(&mut self) -> Option<Arrival> {
        self.queue.pop().map(|next| next.0.arrival)
    }
}
