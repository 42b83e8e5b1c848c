//! Split of a wait for KV among the hops that carry it (the rules of `spec/ttft.py`).

use super::handles::TransferId;
use super::job::{Transmission, NOT_YET};
use super::mover::Mover;
use super::transfer::Transfer;
use crate::convert::fit;

impl Mover {
    /// Splits a wait from `start_ns` to `end_ns` for layer `layer` (from 0) by the hops that caused it: (tier that a hop reads,
    /// ns).
    ///
    /// The lowest hop causes the wait until it has brought what the next hop needs; from then on the next hop
    /// does, and so on. The parts sum to the span.
    pub fn split_by_hop(
        &self,
        transfer: TransferId,
        mut start_ns: u64,
        end_ns: u64,
        layer: u64,
    ) -> Vec<(usize, u64)> {
        let first = self.transfer(transfer);
        // For each lower hop: the tier it reads, and the time at which it had brought what the next one
        // needed.
        let mut chain: Vec<(usize, u64)> = Vec::new();
        let (mut at, mut needed) = (first, layer);
        let last = self.config.layers - 1;
        loop {
            for far in at.read.iter().flat_map(|read| &read.below) {
                needed = if far.feeds { needed } else { last };
                let arrival = far.arrivals_ns.get(fit::<usize>(needed)).copied();
                chain.push((far.from, arrival.unwrap_or(arrival_ns(far.sent, needed))));
            }
            let Some(below) = at.below.map(|below| self.transfer(below)) else {
                break;
            };
            if !(self.config.layer_pipelining && below.feeds(at)) {
                needed = last;
            }
            chain.push((below.from, self.layer_ns(below, needed)));
            at = below;
        }
        let mut parts = Vec::with_capacity(chain.len() + 1);
        for &(from, came_ns) in chain.iter().rev() {
            let came_ns = came_ns.max(start_ns).min(end_ns);
            parts.push((from, came_ns - start_ns));
            start_ns = came_ns;
        }
        parts.push((first.from, end_ns - start_ns));
        parts
    }

    /// Returns the arrival of a transfer's layer (from 0), as far as it is known.
    fn layer_ns(&self, transfer: &Transfer, layer: u64) -> u64 {
        match transfer.job {
            None => arrival_ns(transfer.sent, layer),
            Some(_) => self.arrival_ns(transfer, layer).unwrap_or(NOT_YET),
        }
    }
}

fn arrival_ns(sent: Option<Transmission>, layer: u64) -> u64 {
    match sent {
        None => 0,
        Some(sent) if layer == 0 => sent.first_layer_ns,
        Some(sent) => sent.completion_ns,
    }
}
