//! The blocks of a machine's tiers, as samples hold them.

use kvsim_core::store::contract::MachineStore;
use kvsim_core::store::Answer;

/// Appends each tier's free, held, cached and in-flight blocks.
pub fn occupancies<S: MachineStore>(store: &S, tiers: usize, row: &mut Vec<u64>) -> Answer<()> {
    for tier in 0..tiers {
        let occupancy = store.occupancy(tier)?;
        row.extend([
            occupancy.free,
            occupancy.held,
            occupancy.cached,
            occupancy.in_flight,
        ]);
    }
    Ok(())
}
