//! How a wait for KV is split among the hops that the KV comes over (the rules of `serving/hops.py`).

use super::{Mover, Transfer, TransferId};

impl Mover {
    /// Which of a wait's `span` for layer `layer` (from 0) each hop caused: (tier that it is read from, ns).
    ///
    /// From the start of the wait until the lowest hop had brought what the next one needed, it is that hop's,
    /// from then on the next one's, and so on: the parts sum to the span.
    pub fn split_by_hop(
        &self,
        transfer: TransferId,
        (mut start, end): (u64, u64),
        layer: u64,
    ) -> Vec<(usize, u64)> {
        let mut chain = vec![(self.transfer(transfer), layer)];
        let mut at = (self.transfer(transfer), layer);
        while let Some(below) = at.0.below {
            let below = self.transfer(below);
            let feeds = self.config.layer_pipelining && below.feeds(at.0);
            at = (below, if feeds { at.1 } else { self.config.layers - 1 });
            chain.push(at);
        }
        let mut parts = Vec::with_capacity(chain.len());
        for &(hop, needed) in chain[1..].iter().rev() {
            let came = arrival_ns(hop, needed).max(start).min(end);
            parts.push((hop.from, came - start));
            start = came;
        }
        parts.push((chain[0].0.from, end - start));
        parts
    }
}

fn arrival_ns(hop: &Transfer, layer: u64) -> u64 {
    match hop.sent {
        None => 0,
        Some(sent) if layer == 0 => sent.first_layer_ns,
        Some(sent) => sent.completion_ns,
    }
}
