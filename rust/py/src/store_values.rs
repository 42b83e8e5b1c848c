//! What all stores take and answer, as Python says it.

use kvsim_core::store::{Order, Part, Reservation, Times};

/// A transmission as Python sees it: (move, from tier, to tier, blocks, moves that must end first).
pub type PyOrder = (u64, usize, usize, u64, Vec<u64>);

/// A stretch of a path as Python sees it: (tier, first block, past the last, move writing it).
pub type PyPart = (usize, u32, u32, u64);

/// A room as Python sees it: None refused, else the moves to wait for.
pub fn reservation_to_py(reservation: Reservation) -> Option<Vec<u64>> {
    match reservation {
        Reservation::Refused => None,
        Reservation::Ready => Some(Vec::new()),
        Reservation::Pending(moves) => Some(moves),
    }
}

/// When a first layer and all of it are ready, as Python says it.
pub fn times((first_layer_ns, ready_ns): (u64, u64)) -> Times {
    Times {
        first_layer_ns,
        ready_ns,
    }
}

/// Transmissions as Python sees them.
pub fn orders_to_py(orders: Vec<Order>) -> Vec<PyOrder> {
    let each = orders.into_iter();
    each.map(|o| (o.id, o.from, o.to, o.blocks, o.after))
        .collect()
}

/// A path in parts as Python sees it.
pub fn parts_to_py(parts: Vec<Part>) -> Vec<PyPart> {
    let each = parts.into_iter();
    each.map(|p| (p.tier, p.start, p.end, p.by)).collect()
}
