//! Requests that wait to be admitted.

use super::given_up::GivenUp;
use super::queue::{Queue, QueueOrder};

/// The waiting requests of a machine.
#[derive(Debug)]
pub(super) struct ArrivalQueue {
    /// Those that wait, in the order in which they are admitted.
    pub queue: Queue,
    /// The queue's head was refused; it is tried again when something has been freed.
    pub refused: bool,
    /// Requests whose clients have given them up, waiting or running.
    pub given_up: GivenUp,
}

impl ArrivalQueue {
    /// No request yet.
    pub fn new(order: QueueOrder) -> Self {
        Self {
            queue: Queue::new(order),
            refused: false,
            given_up: GivenUp::default(),
        }
    }
}
