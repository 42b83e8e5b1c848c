//! Conversions of the values that all stores take and return.

use kvsim_core::ids::BlockRange;
use kvsim_core::store::{LeaseBlocks, Order, Part, Reservation, Times};

use crate::argument::from_tuples;

/// A transmission: (move, from tier, to tier, blocks, moves that must finish first).
pub type PyOrder = (u64, usize, usize, u64, Vec<u64>);

/// A part of a path: (tier, first block, past the last, move writing it).
pub type PyPart = (usize, u32, u32, u64);

/// A reservation: `None` if refused, else the moves to wait for.
pub fn reservation_to_py(reservation: Reservation) -> Option<Vec<u64>> {
    match reservation {
        Reservation::Refused => None,
        Reservation::Ready => Some(Vec::new()),
        Reservation::Pending(moves) => Some(moves),
    }
}

from_tuples! {
    Times { first_layer_ns, ready_ns }
    BlockRange { start, end }
    LeaseBlocks { lease, blocks }
}

/// Transmissions as Python values.
pub fn orders_to_py(orders: Vec<Order>) -> Vec<PyOrder> {
    let each = orders.into_iter();
    each.map(|o| (o.id, o.from, o.to, o.blocks, o.after))
        .collect()
}

/// The parts of a path as Python values.
pub fn parts_to_py(parts: Vec<Part>) -> Vec<PyPart> {
    let each = parts.into_iter();
    each.map(|p| (p.tier, p.start, p.end, p.by)).collect()
}
