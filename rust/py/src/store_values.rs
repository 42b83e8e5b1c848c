//! What all stores take and answer, as Python says it.

use kvsim_core::store::{Room, Times};

use crate::refusal::Whole;

/// A room as Python sees it: None refused, else the moves to wait for.
pub fn room_to_py(room: Room) -> Option<Vec<u64>> {
    match room {
        Room::Refused => None,
        Room::Ready => Some(Vec::new()),
        Room::Pending(moves) => Some(moves),
    }
}

/// When a first layer and all of it are ready, as Python says it.
pub fn times((first_layer_ns, ready_ns): (Whole, Whole)) -> Times {
    Times {
        first_layer_ns: first_layer_ns.u64(),
        ready_ns: ready_ns.u64(),
    }
}
