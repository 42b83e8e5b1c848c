//! A shared pool: a machine without a GPU that all other machines write and read (the rules of `spec/remote.py`).

use super::pool_counts::PoolCounts;
use super::rows::Rows;
use super::{Replica, ReplicaConfig};
use crate::batch::Batch;
use crate::convert::fit;
use crate::ids::BlockRange;
use crate::store::{Answer, Store};
use crate::transfers::{Mover, MoverConfig, SharedChannel, Source};

impl Replica {
    /// A pool, which receives no requests.
    pub fn of_pool(mover: MoverConfig) -> Self {
        let config = ReplicaConfig {
            machine: i64::from(mover.machine),
            sources: fit::<i64>(mover.remote) + 1,
            ..ReplicaConfig::default()
        };
        let mut pool = Self::new(config, Batch::default(), Rows::default());
        pool.reports.pool = Some(PoolCounts::default());
        pool.with_mover(Mover::new(mover, Vec::new()))
    }

    /// Its counts, if it is a pool.
    pub fn pool(&self) -> Option<PoolCounts> {
        self.reports.pool
    }

    /// Reserves blocks of the pool for blocks of a request; returns false if the pool has too few free blocks.
    pub(super) fn reserve_in_pool(
        &mut self,
        store: &mut Store,
        request: u32,
        blocks: BlockRange,
        now_ns: u64,
    ) -> Answer<bool> {
        let landed = store.receive(request, blocks, now_ns)?;
        if let Some(pool) = &mut self.reports.pool {
            let number = u64::from(blocks.len());
            match landed {
                Some(_) => pool.put_blocks += number,
                None => pool.refused_blocks += number,
            }
        }
        Ok(landed.is_some())
    }

    /// Starts the transfers of accepted blocks from the machine that has them ready.
    pub(super) fn take_in(
        &mut self,
        store: &mut Store,
        source: Source,
        wire: &SharedChannel,
        now_ns: u64,
    ) -> Answer<()> {
        self.mover.take_in(store, source, wire, now_ns)
    }

    /// Records that a machine reads blocks of a request: in a pool this makes their path recent.
    pub(super) fn was_read(
        &mut self,
        store: &mut Store,
        request: u32,
        blocks: BlockRange,
    ) -> Answer<()> {
        if let Some(pool) = &mut self.reports.pool {
            store.touch(request, blocks.end)?;
            pool.read_blocks += u64::from(blocks.len());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::super::tests::tiers;
    use super::*;
    use crate::machine::Now;
    use crate::store::{NO_MOVE, STAGING};
    use crate::transfers::{Channel, ChannelConfig};

    const TWO_BLOCKS: BlockRange = BlockRange { start: 0, end: 2 };

    /// A pool behind a channel on which a block takes 10 ns.
    struct Pool {
        node: Replica,
        store: Store,
        wire: SharedChannel,
        now_ns: u64,
    }

    impl Pool {
        fn of(capacity_blocks: u64) -> Self {
            let config = ChannelConfig {
                bandwidth_bytes_per_s: 1_000_000_000,
                ..ChannelConfig::default()
            };
            let wire = Arc::new(Mutex::new(Channel::new(config)));
            let mover = MoverConfig {
                machine: 7,
                remote: 3,
                block_bytes: 10,
                layers: 1,
                layer_pipelining: false,
                ..MoverConfig::default()
            };
            Self {
                node: Replica::of_pool(mover),
                store: tiers(&[0, capacity_blocks]),
                wire,
                now_ns: 0,
            }
        }

        /// Writes the two blocks of a request; returns true if there were free blocks.
        fn put(&mut self, request: u32) -> bool {
            let (store, now_ns) = (&mut self.store, self.now_ns);
            let reserved = self
                .node
                .reserve_in_pool(store, request, TWO_BLOCKS, now_ns)
                .unwrap();
            if reserved {
                let source = Source {
                    owner: 0,
                    tier: STAGING,
                    lent: NO_MOVE,
                    by: NO_MOVE,
                };
                self.node
                    .take_in(store, source, &self.wire, now_ns)
                    .unwrap();
            }
            reserved
        }

        fn run(&mut self) {
            while let Some((now_ns, _)) = self.node.next() {
                self.now_ns = now_ns;
                let mut now = Now::alone(&mut self.store, now_ns);
                self.node.run(&mut now, now_ns).unwrap();
            }
        }

        fn found(&self, request: u32) -> u32 {
            self.store.peek(request, 2).0
        }
    }

    #[test]
    fn a_put_takes_its_time_on_the_channel_and_is_found_at_once() {
        let mut pool = Pool::of(4);
        assert!(pool.put(0));
        assert_eq!(pool.found(1), 2, "in transit");
        assert_ne!(pool.store.match_below(1, 0, 2)[0].by, NO_MOVE);
        assert!(pool.put(3));
        pool.run();
        assert_eq!(pool.now_ns, 40, "one after the other");
        assert_eq!(pool.store.match_below(1, 0, 2)[0].by, NO_MOVE);
        let written = pool.node.mover.traffic.tiers[STAGING].written;
        assert_eq!(written, 40);
        pool.store.check().unwrap();
    }

    #[test]
    fn blocks_in_transit_are_not_evicted() {
        let mut pool = Pool::of(3);
        assert!(pool.put(0));
        assert!(!pool.put(3));
        pool.run();
        assert!(pool.put(3));
        let counts = pool.node.pool().unwrap();
        assert_eq!((counts.put_blocks, counts.refused_blocks), (4, 2));
    }

    #[test]
    fn blocks_read_last_are_evicted_last() {
        let mut pool = Pool::of(4);
        for request in [0, 3] {
            pool.put(request);
            pool.run();
        }
        pool.node.was_read(&mut pool.store, 1, TWO_BLOCKS).unwrap();
        pool.put(4);
        assert_eq!((pool.found(0), pool.found(3), pool.found(4)), (2, 0, 2));
        assert_eq!(pool.node.pool().unwrap().read_blocks, 2);
    }
}
