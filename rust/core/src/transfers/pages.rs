//! Pages of cache groups' blocks, layer by layer: a block is a page of each layer of its group.

use super::job::{Job, Transmission};
use crate::convert::fit;

/// The layers of a model's cache groups, and the bytes of a page on all GPUs.
#[derive(Clone, Debug)]
pub struct LayerPages {
    page_bytes: u64,
    layers_of: Vec<Vec<usize>>,
    layers: usize,
}

/// Pages of each layer in a transfer, and the layers' arrivals if these are known and uneven.
#[derive(Clone, Debug, Default)]
pub(super) struct Carried {
    pages: Vec<u64>,
    pub(super) arrivals_ns: Vec<u64>,
}

impl LayerPages {
    /// Creates the pages of cache groups with these layers, for a model of `layers` layers.
    pub fn new(page_bytes: u64, layers_of: Vec<Vec<usize>>, layers: u64) -> Self {
        let last = layers_of.iter().flatten().max().map_or(0, |last| last + 1);
        Self {
            page_bytes,
            layers: last.max(fit::<usize>(layers)),
            layers_of,
        }
    }

    /// Returns the pages of each layer in the given blocks of each group.
    pub(super) fn of(&self, blocks: &[u64]) -> Carried {
        let mut pages = vec![0; self.layers];
        for (&count, layers) in blocks.iter().zip(&self.layers_of) {
            layers.iter().for_each(|&layer| pages[layer] += count);
        }
        Carried {
            pages,
            arrivals_ns: Vec::new(),
        }
    }

    /// Returns the job of a transfer's pages.
    pub(super) fn job(&self, carried: &Carried, layers: u64) -> Job {
        let pages: u64 = carried.pages.iter().sum();
        Job {
            size_bytes: pages * self.page_bytes,
            pieces: pages,
            layers,
            coding_ns: 0,
        }
    }
}

impl Carried {
    /// Records the arrivals of layers that are sent one after another, each after its own pages. Returns the
    /// arrival of the first layer.
    ///
    /// The channel's occupied time does not change. A layer without pages arrives with the layer before it.
    pub(super) fn arrive(&mut self, sent: &Transmission, latency_ns: u64) -> u64 {
        let start_ns = u128::from(sent.start_ns) + u128::from(latency_ns);
        let occupied_ns = u128::from(sent.completion_ns).saturating_sub(start_ns);
        let total = u128::from(self.pages.iter().sum::<u64>().max(1));
        let mut come = 0;
        let arrivals = self.pages.iter().map(|&pages| {
            come += u128::from(pages);
            fit::<u64>(start_ns + (occupied_ns * come).div_ceil(total))
        });
        self.arrivals_ns = arrivals.collect();
        self.arrivals_ns
            .first()
            .copied()
            .unwrap_or(sent.first_layer_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_come_one_after_another_each_after_its_own_pages() {
        let layout = LayerPages::new(10, vec![vec![0, 3], vec![1, 2]], 5);
        let mut carried = layout.of(&[7, 2]);
        assert_eq!(carried.pages, [7, 2, 2, 7, 0]);
        let sent = Transmission {
            start_ns: 1000,
            first_layer_ns: 1070,
            completion_ns: 1370,
            per_layer_ns: 60,
        };
        assert_eq!(carried.arrive(&sent, 10), 1150);
        assert_eq!(carried.arrivals_ns, [1150, 1190, 1230, 1370, 1370]);
    }
}
