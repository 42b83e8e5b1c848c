//! The requests of a machine while they are served, each in a slot that is used again.

use std::ops::{Deref, DerefMut};

use super::{Place, Request};

/// Requests by place; reads and changes as a slice.
#[derive(Debug, Default)]
pub(super) struct Requests {
    slots: Vec<Request>,
    /// Places without a request.
    free: Vec<Place>,
}

impl Requests {
    /// Keeps a request; its place.
    pub fn keep(&mut self, request: Request) -> Place {
        match self.free.pop() {
            Some(place) => {
                self.slots[place as usize] = request;
                place
            }
            None => {
                self.slots.push(request);
                self.slots.len() as Place - 1
            }
        }
    }

    /// Forgets a request: its place is free.
    pub fn forget(&mut self, place: Place) {
        self.free.push(place);
    }
}

impl Deref for Requests {
    type Target = [Request];

    fn deref(&self) -> &[Request] {
        &self.slots
    }
}

impl DerefMut for Requests {
    fn deref_mut(&mut self) -> &mut [Request] {
        &mut self.slots
    }
}
