//! Estimates of name frequencies in little memory: a count-min sketch whose counts age.

/// Primes of XXH64.
const P1: u64 = 11_400_714_785_074_694_791;
const P2: u64 = 14_029_467_366_897_019_727;
const P3: u64 = 1_609_587_929_392_839_161;
const P4: u64 = 9_650_029_242_287_828_579;
const P5: u64 = 2_870_177_450_012_600_261;
/// Counters per name.
const COUNTERS: u32 = 10;
/// Seeds of the two hashes that choose a name's counters.
const SEEDS: [u64; 2] = [0x1234_5678, 0x1234_4321];
/// Counters for each name of a cache: −ln 0.001 / (ln 2)², as libCacheSim sizes its filter.
const COUNTERS_A_NAME: f64 = 14.377_587_566_1;

/// Return the XXH64 of a number's eight bytes, little endian.
fn xxh64(number: u64, seed: u64) -> u64 {
    let lane = number.wrapping_mul(P2).rotate_left(31).wrapping_mul(P1);
    let mut hash = seed.wrapping_add(P5).wrapping_add(8) ^ lane;
    hash = hash.rotate_left(27).wrapping_mul(P1).wrapping_add(P4);
    hash = (hash ^ (hash >> 33)).wrapping_mul(P2);
    hash = (hash ^ (hash >> 29)).wrapping_mul(P3);
    hash ^ (hash >> 32)
}

/// Counters of names (Cormode and Muthukrishnan 2005), as libCacheSim 0.3.5 keeps them: an addition
/// increments all counters of a name. 4 bytes per counter, 14.4 counters per name of the cache's capacity.
#[derive(Debug)]
pub struct Sketch {
    counters: Vec<u32>,
}

impl Sketch {
    /// Counters for a cache with a capacity of `names`.
    pub fn new(names: usize) -> Self {
        let counters = (COUNTERS_A_NAME * names as f64).ceil() as usize;
        Self {
            counters: vec![0; counters.max(1)],
        }
    }

    fn counters_of(&self, name: u64) -> impl Iterator<Item = usize> {
        let [first, step] = SEEDS.map(|seed| xxh64(name, seed) as u32);
        let among = self.counters.len();
        (0..COUNTERS).map(move |i| first.wrapping_add(i.wrapping_mul(step)) as usize % among)
    }

    /// Count a name once.
    pub fn add(&mut self, name: u64) {
        for counter in self.counters_of(name) {
            self.counters[counter] = self.counters[counter].saturating_add(1);
        }
    }

    /// Return the estimated count of a name, which is at least the true count.
    pub fn estimate(&self, name: u64) -> u32 {
        let counters = self.counters_of(name);
        counters.map(|c| self.counters[c]).min().unwrap_or(0)
    }

    /// Halve every count.
    pub fn age(&mut self) {
        self.counters.iter_mut().for_each(|count| *count >>= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of the reference implementation for the numbers' eight bytes.
    #[test]
    fn the_hash_is_xxh64() {
        assert_eq!(xxh64(0, 0), 0x34c9_6acd_cadb_1bbb);
    }

    #[test]
    fn a_name_counts_at_least_its_additions_and_half_of_them_when_aged() {
        let mut sketch = Sketch::new(100);
        (0..7).for_each(|_| sketch.add(42));
        sketch.add(43);
        assert_eq!((sketch.estimate(42), sketch.estimate(43)), (7, 1));
        sketch.age();
        assert_eq!((sketch.estimate(42), sketch.estimate(43)), (3, 0));
    }
}
