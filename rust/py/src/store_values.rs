//! Conversions of the values that all stores take and return.

use kvsim_core::ids::BlockRange;
use kvsim_core::store::{LeaseBlocks, Order, Part, Reservation, Times};
use pyo3::prelude::*;

use crate::argument::FromPython;

impl FromPython for BlockRange {
    /// Reads a pair: the first block, and the block after the last.
    fn read(given: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        <(u32, u32)>::read(given).map(|(start, end)| Self { start, end })
    }
}

impl FromPython for LeaseBlocks {
    /// Reads a pair: the lease, and the number of blocks.
    fn read(given: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        <(u64, u64)>::read(given).map(|(lease, blocks)| Self { lease, blocks })
    }
}

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

/// The times at which the first layer and all layers are ready.
pub fn times((first_layer_ns, ready_ns): (u64, u64)) -> Times {
    Times {
        first_layer_ns,
        ready_ns,
    }
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
