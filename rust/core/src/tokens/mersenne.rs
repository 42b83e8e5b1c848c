//! The first draw of `random.Random(seed)`, bit for bit as in CPython, for many seeds at once.
//!
//! Seeding is MT19937's `init_by_array` (Matsumoto and Nishimura 2002): 1,247 steps, each of which depends on
//! the step before, so a single generator leaves the machine idle. Here `LANES` generators advance together,
//! and a step of all of them is a few vector instructions. The words of the first draw are tempered one by
//! one from the seeded state; the other 623 are never computed.

const N: usize = 624;
const M: usize = 397;
/// Generators seeded together: 16 states of 2.5 kB fit the first-level cache.
const LANES: usize = 16;
const FIRST_MULTIPLIER: u32 = 1_664_525;
const SECOND_MULTIPLIER: u32 = 1_566_083_941;

type Row = [u32; LANES];

/// `Random(seed).randrange(stop)` for each seed, in order; an empty range gives `None`.
pub fn first_randrange(seeds: &[u64], stop: u64) -> Option<Vec<u64>> {
    if stop == 0 {
        return None;
    }
    let base = default_state();
    let mut state = vec![[0u32; LANES]; N];
    let mut drawn = Vec::with_capacity(seeds.len());
    for chunk in seeds.chunks(LANES) {
        let mut lanes = [0u64; LANES];
        lanes[..chunk.len()].copy_from_slice(chunk);
        init_by_array(&mut state, &base, &lanes);
        for lane in 0..chunk.len() {
            drawn.push(Words::new(&mut state, lane).below(stop));
        }
    }
    Some(drawn)
}

/// `init_genrand(19650218)`: the initial state of every `init_by_array`.
fn default_state() -> [u32; N] {
    let mut state = [0u32; N];
    state[0] = 19_650_218;
    for i in 1..N {
        let before = state[i - 1];
        state[i] = (before ^ (before >> 30))
            .wrapping_mul(1_812_433_253)
            .wrapping_add(i as u32);
    }
    state
}

/// The addends of the first pass: the key's words in turn, each plus its index.
///
/// CPython's key is the seed's 32-bit digits, low first, without leading zeros: one word below 2³², else two.
fn key_words(seeds: &[u64; LANES]) -> [Row; 2] {
    let mut even = [0u32; LANES];
    let mut odd = [0u32; LANES];
    for (lane, &seed) in seeds.iter().enumerate() {
        even[lane] = seed as u32;
        let high = (seed >> 32) as u32;
        odd[lane] = if high == 0 {
            seed as u32
        } else {
            high.wrapping_add(1)
        };
    }
    [even, odd]
}

fn init_by_array(state: &mut [Row], base: &[u32; N], seeds: &[u64; LANES]) {
    let key = key_words(seeds);
    let mut before = [base[0]; LANES];
    for i in 1..N {
        let word = [base[i]; LANES];
        before = first_step(&word, &before, &key[(i - 1) & 1]);
        state[i] = before;
    }
    // the pass has one step more than the state has words after the first: it wraps to word 1
    state[0] = before;
    before = first_step(&state[1], &before, &key[(N - 1) & 1]);
    state[1] = before;
    for (i, word) in state.iter_mut().enumerate().skip(2) {
        before = second_step(word, &before, i as u32);
        *word = before;
    }
    state[1] = second_step(&state[1], &before, 1);
    state[0] = [0x8000_0000; LANES];
}

#[inline(always)]
fn first_step(word: &Row, before: &Row, add: &Row) -> Row {
    let mut next = [0u32; LANES];
    for lane in 0..LANES {
        let mixed = (before[lane] ^ (before[lane] >> 30)).wrapping_mul(FIRST_MULTIPLIER);
        next[lane] = (word[lane] ^ mixed).wrapping_add(add[lane]);
    }
    next
}

#[inline(always)]
fn second_step(word: &Row, before: &Row, index: u32) -> Row {
    let mut next = [0u32; LANES];
    for lane in 0..LANES {
        let mixed = (before[lane] ^ (before[lane] >> 30)).wrapping_mul(SECOND_MULTIPLIER);
        next[lane] = (word[lane] ^ mixed).wrapping_sub(index);
    }
    next
}

/// The outputs of one lane, computed one at a time; the recurrence is in place, so they equal the batch's.
struct Words<'a> {
    state: &'a mut [Row],
    lane: usize,
    next: usize,
}

impl<'a> Words<'a> {
    fn new(state: &'a mut [Row], lane: usize) -> Self {
        Words {
            state,
            lane,
            next: 0,
        }
    }

    fn word(&mut self) -> u32 {
        let (i, lane) = (self.next, self.lane);
        self.next = (i + 1) % N;
        let joined =
            (self.state[i][lane] & 0x8000_0000) | (self.state[self.next][lane] & 0x7fff_ffff);
        let twist = if joined & 1 == 1 { 0x9908_b0df } else { 0 };
        let fresh = self.state[(i + M) % N][lane] ^ (joined >> 1) ^ twist;
        self.state[i][lane] = fresh;
        let mut out = fresh;
        out ^= out >> 11;
        out ^= (out << 7) & 0x9d2c_5680;
        out ^= (out << 15) & 0xefc6_0000;
        out ^ (out >> 18)
    }

    /// `getrandbits(bits)` for 1 to 64 bits: low word first, the last one cut from its low end.
    fn bits(&mut self, bits: u32) -> u64 {
        if bits <= 32 {
            return u64::from(self.word() >> (32 - bits));
        }
        let low = u64::from(self.word());
        let high = u64::from(self.word() >> (64 - bits));
        (high << 32) | low
    }

    /// `Random._randbelow_with_getrandbits`: draws of `stop.bit_length()` bits until one is below `stop`.
    fn below(&mut self, stop: u64) -> u64 {
        let bits = 64 - stop.leading_zeros();
        loop {
            let drawn = self.bits(bits);
            if drawn < stop {
                return drawn;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values printed by CPython 3.11: `random.Random(seed).randrange(stop)`.
    #[test]
    fn draws_equal_those_of_cpython() {
        let seeds = [0, 1, 42, 4_294_967_295, 4_294_967_296, u64::MAX];
        assert_eq!(
            first_randrange(&seeds, 1_000_000).unwrap(),
            [885_440, 140_891, 670_487, 666_220, 118_483, 22_885]
        );
        // about every second draw is rejected, and a draw takes two words
        assert_eq!(
            first_randrange(&seeds, (1 << 31) + 1).unwrap(),
            [
                1_654_615_998,
                577_090_037,
                478_163_327,
                872_737_089,
                485_306_839,
                93_740_670
            ]
        );
        assert_eq!(
            first_randrange(&seeds[..2], (1 << 40) + 5).unwrap(),
            [849_735_321_549, 140_719_340_484]
        );
        assert_eq!(first_randrange(&seeds, 1).unwrap(), [0; 6]);
    }

    #[test]
    fn the_lane_of_a_seed_does_not_matter() {
        let seeds: Vec<u64> = (0..41u64)
            .map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15))
            .collect();
        let together = first_randrange(&seeds, 1_393_287).unwrap();
        for (seed, drawn) in seeds.iter().zip(together) {
            assert_eq!(first_randrange(&[*seed], 1_393_287).unwrap(), [drawn]);
        }
    }

    #[test]
    fn an_empty_range_has_no_draw() {
        assert_eq!(first_randrange(&[1], 0), None);
    }
}
