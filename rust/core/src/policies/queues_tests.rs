//! Queues: what moves keep and change.

use super::queues::Queues;

#[test]
fn a_block_moves_between_queues_and_loses_its_mark() {
    let mut queues = Queues::<2>::new(0);
    queues.push_front(0, 7);
    queues.push_front(0, 3);
    *queues.mark(7) = 1;
    assert_eq!(
        (queues.back(0), queues.front_neighbor(7)),
        (Some(7), Some(3))
    );
    queues.unlink(7);
    queues.push_front(1, 7);
    assert_eq!((queues.len(0), queues.len(1)), (1, 1));
    assert_eq!((queues.queue_of(7), *queues.mark(7)), (Some(1), 0));
    assert_eq!(queues.queue_of(99), None);
}

/// The blocks of a queue from the back, each with its mark.
fn listed(queues: &Queues<2>, queue: usize) -> Vec<(u32, u8)> {
    let blocks = std::iter::successors(queues.back(queue), |&block| queues.front_neighbor(block));
    blocks.map(|block| (block, queues.mark_of(block))).collect()
}

#[test]
fn blocks_moved_together_end_where_each_alone_would() {
    let mut draw = 1u64;
    let mut below = |end: u64| {
        draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (draw >> 33) % end
    };
    let mut both = [Queues::<2>::new(0), Queues::<2>::new(0)];
    for block in 0..12 {
        let queue = below(2) as usize;
        both.iter_mut().for_each(|q| q.push_front(queue, block));
    }
    for step in 0..20_000 {
        let (first, len) = (below(12) as u32, below(6) as u32);
        let moved: Vec<u32> = (first..(first + len).min(12)).rev().collect();
        let (queue, held) = (below(2) as usize, below(1 << 12));
        let found = both
            .each_mut()
            .map(|q| q.last_free(queue, &|b| held >> b & 1 == 0));
        assert_eq!(found[0], found[1], "step {step}");
        *both[0].mark(first) = 1;
        *both[1].mark(first) = 1;
        let queue = below(2) as usize;
        both[0].move_all_to(queue, &moved);
        moved
            .iter()
            .rev()
            .for_each(|&block| both[1].move_to(queue, block));
        for queue in 0..2 {
            let [together, alone] = both.each_ref().map(|q| listed(q, queue));
            assert_eq!(together, alone, "step {step}");
            assert_eq!(together.len(), both[0].len(queue));
        }
        if below(4) == 0 {
            both.iter_mut().for_each(|q| q.freed(Some(first)));
        }
        if below(8) == 0 {
            let (most, stays) = (below(8) as usize, below(1 << 12));
            let turned = |block: u32, mark: u8| (stays >> block & 1 == 0).then_some(1 - mark);
            let together = both[0].turn(queue, most, turned);
            let alone = (0..most.min(both[1].len(queue)))
                .take_while(|_| both[1].turn(queue, 1, turned) > 0);
            assert_eq!(alone.count(), together, "step {step}");
        }
    }
}
