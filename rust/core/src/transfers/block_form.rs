//! Forms of KV: narrower blocks below the GPU and on the wire, and the time to encode and decode them.

use super::job::Job;
use crate::store::GPU;
use crate::tiers::Route;

/// The blocks of a tier; of the GPU, blocks on the wire from another GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockForm {
    /// Bytes of one block.
    pub block_bytes: u64,
    /// Time to encode a block that is written there from the tier above.
    pub encode_ns: u64,
    /// Time to decode a block that is read from there to the tier above.
    pub decode_ns: u64,
}

impl Job {
    /// Returns the job along a route of one machine, whose tiers have these forms (none: all the same). Blocks cross
    /// an edge in the form of its lower tier, and come from another machine in that of the tier they come to. They are
    /// encoded and decoded while they are sent.
    pub(crate) fn along(self, forms: &[BlockForm], route: Route, remote: usize) -> Self {
        let Route { from, to } = route;
        let is_read = from == remote;
        let lower = if is_read { to } else { from.max(to) };
        let Some(form) = forms.get(lower) else {
            return self;
        };
        let blocks = self.pieces / self.layers;
        let block_ns = match (is_read, to == GPU) {
            (true, true) => form.encode_ns.max(form.decode_ns),
            (true, false) => 0,
            _ if from < to => form.encode_ns,
            _ => form.decode_ns,
        };
        Self {
            size_bytes: blocks * form.block_bytes,
            coding_ns: blocks * block_ns,
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::STAGING;

    const FORMS: [BlockForm; 3] = [
        BlockForm {
            block_bytes: 80,
            encode_ns: 1,
            decode_ns: 2,
        },
        BlockForm {
            block_bytes: 50,
            encode_ns: 7,
            decode_ns: 3,
        },
        BlockForm {
            block_bytes: 20,
            encode_ns: 11,
            decode_ns: 0,
        },
    ];

    #[test]
    fn blocks_cross_an_edge_in_the_form_of_its_lower_tier() {
        let remote = 3;
        let job = Job {
            size_bytes: 400,
            pieces: 8,
            layers: 2,
            coding_ns: 0,
        };
        let cases = [
            (Route::new(GPU, STAGING), (200, 28)),
            (Route::new(STAGING, GPU), (200, 12)),
            (Route::new(STAGING, STAGING + 1), (80, 44)),
            (Route::new(STAGING + 1, STAGING), (80, 0)),
            (Route::new(remote, STAGING), (200, 0)),
            (Route::new(remote, GPU), (320, 8)),
        ];
        for (route, expected) in cases {
            let along = job.along(&FORMS, route, remote);
            assert_eq!((along.size_bytes, along.coding_ns), expected, "{route:?}");
            assert_eq!(job.along(&[], route, remote).size_bytes, 400);
        }
    }
}
