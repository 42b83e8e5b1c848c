//! The steady set compared with a plain list of sequences that are all visited in every iteration.

use super::steady_set::SteadySet;
use super::tests::Draws;
use super::Sequence;

fn orders_of(sequences: &[Sequence], of: impl Fn(&Sequence) -> bool) -> Vec<u64> {
    let chosen = sequences.iter().filter(|s| of(s));
    chosen.map(|s| s.order).collect()
}

/// Blocks requested at the starts of some iterations after the first one, iteration by iteration.
fn blocks_one_by_one(sequences: &[Sequence], iterations: u64, block: u64) -> u64 {
    let fills = |computed: u64| computed % block == 0;
    let later = (1..iterations).flat_map(|i| sequences.iter().map(move |s| s.computed + i));
    later.filter(|&computed| fills(computed)).count() as u64
}

/// Asserts that every query of the steady set returns the result of the list.
fn check(steady: &mut SteadySet, list: &[Sequence], block: u64) {
    let shape = steady.shape();
    assert_eq!(shape.decode_sequences, list.len() as u64);
    assert_eq!(
        shape.decode_kv_tokens,
        list.iter().map(|s| s.computed).sum::<u64>()
    );
    let longest = list.iter().map(|s| s.computed).max();
    assert_eq!(shape.decode_max_kv_tokens, longest.unwrap_or(0));
    let filled: Vec<u64> = steady.filled().iter().map(|m| m.order).collect();
    assert_eq!(filled, orders_of(list, |s| s.computed % block == 0));
    let lacking: Vec<u64> = steady.lacking().iter().map(|(m, _)| m.order).collect();
    assert_eq!(lacking, orders_of(list, |s| s.computed == s.blocks * block));
    let mut ended: Vec<u64> = steady.ended().iter().map(|m| m.order).collect();
    ended.sort_unstable();
    assert_eq!(ended, orders_of(list, |s| s.computed == s.total));
    assert_eq!(steady.last().map(|m| m.order), list.last().map(|s| s.order));
    let first_end = list.iter().map(|s| s.total - s.computed).min();
    assert_eq!(steady.until_end(), first_end.map_or(u64::MAX, |n| n.max(1)));
    let first_fill = list.iter().map(|s| block - s.computed % block).min();
    assert_eq!(steady.until_fill(), first_fill.unwrap_or(u64::MAX));
    for iterations in 1..2 * block + 3 {
        let blocks = blocks_one_by_one(list, iterations, block);
        assert_eq!(steady.blocks(iterations), blocks);
        for spare in 0..8 {
            let within = (1..=iterations).rev();
            let most = within.map(|i| (i, blocks_one_by_one(list, i, block)));
            let fits = most.into_iter().find(|&(_, blocks)| blocks <= spare);
            let fits = fits.map(|(i, _)| i);
            assert_eq!(Some(steady.iterations_within(spare, iterations)), fits);
        }
    }
    for s in list {
        let member = steady.find(s.id).expect("all are members");
        assert_eq!(steady.computed_tokens(member), s.computed);
    }
}

#[test]
fn queries_equal_a_visit_of_every_sequence() {
    for seed in 0..40 {
        let mut draws = Draws(seed);
        let block = 1 + draws.below(7);
        let (mut steady, mut list) = (SteadySet::new(block), Vec::<Sequence>::new());
        for order in 1..120 {
            let now_ns = order * 10;
            match draws.below(4) {
                0 | 1 => {
                    let computed = draws.below(30);
                    let sequence = Sequence {
                        id: order as u32,
                        order,
                        computed,
                        total: computed + 1 + draws.below(40),
                        blocks: computed.div_ceil(block) + draws.below(2),
                        last_token_ns: Some(now_ns),
                        ..Sequence::default()
                    };
                    steady.join(sequence.clone());
                    list.push(sequence);
                }
                2 if !list.is_empty() => {
                    let gone = list.remove(draws.below(list.len() as u64) as usize);
                    let member = steady.find(gone.id).expect("all are members");
                    assert_eq!(steady.leave(member).computed, gone.computed);
                }
                _ => {}
            }
            check(&mut steady, &list, block);
            for member in steady.ended() {
                steady.leave(member);
            }
            list.retain(|s| s.computed < s.total);
            for (member, _) in steady.lacking() {
                steady.get_mut(member).0.blocks += 1;
            }
            steady.tick(now_ns + 5);
            for s in &mut list {
                s.blocks += u64::from(s.computed == s.blocks * block);
                s.computed += 1;
            }
        }
    }
}

#[test]
fn a_leaving_sequence_has_the_time_of_the_last_token() {
    let mut steady = SteadySet::new(4);
    steady.tick(100);
    let sequence = Sequence {
        id: 7,
        order: 1,
        computed: 9,
        total: 20,
        blocks: 3,
        last_token_ns: Some(100),
        ..Sequence::default()
    };
    steady.join(sequence);
    assert_eq!((steady.tick(130), steady.tick(170)), (30, 40));
    let member = steady.find(7).expect("it has joined");
    let left = steady.leave(member);
    assert_eq!((left.computed, left.last_token_ns), (11, Some(170)));
    assert_eq!((steady.len(), steady.shape().decode_kv_tokens), (0, 0));
}
