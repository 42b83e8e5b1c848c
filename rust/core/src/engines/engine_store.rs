//! What the stores of engines that are a GPU alone answer alike.

/// What the stores of engines answer alike: a GPU alone, where what is found is ready.
macro_rules! engine_store {
    ($store:ident, room: $room:expr, merged: $merged:expr) => {
        impl MachineStore for $store {
            fn known_request(&self, request: u32) -> Answer<()> {
                $store::known_request(self, request)
            }

            fn peek(&self, request: u32, limit: u32) -> Answer<(u32, u32)> {
                $store::known_request(self, request)?;
                let found = $store::peek(self, request, limit);
                Ok((found, found))
            }

            fn room(&self, tier: usize) -> Answer<TierRoom> {
                gpu_alone(tier)?;
                let (free, active, cached, evictable) = $room(self);
                Ok(TierRoom {
                    free,
                    active,
                    cached,
                    in_flight: 0,
                    evictable,
                })
            }

            fn losses(&self, tier: usize) -> Answer<TierLosses> {
                gpu_alone(tier)?;
                Ok(TierLosses {
                    evicted: self.evictions(),
                    ..TierLosses::default()
                })
            }

            fn merged_blocks(&self) -> u64 {
                $merged(self)
            }

            fn records(&self) -> &Records {
                &self.records
            }

            fn records_mut(&mut self) -> &mut Records {
                &mut self.records
            }

            fn check(&self) -> Result<(), Violation> {
                $store::check(self)
            }
        }
    };
}

pub(crate) use engine_store;
