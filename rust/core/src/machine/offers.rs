//! Offers of computed blocks to an engine's own tier, at the ends of steps.

use super::{Now, Replica};
use crate::store::{Answer, LeaseId};

impl Replica {
    /// Offers the prompt blocks that the finished step has computed, in the order in which the requests joined.
    pub(super) fn offer_computed(&self, now: &mut Now<'_>) -> Answer<()> {
        let leases = self.leases();
        let Some(offering) = now.store.offers() else {
            return Ok(());
        };
        let to_offer: Vec<LeaseId> = leases.filter(|&id| offering.is_to_offer(id)).collect();
        if to_offer.is_empty() {
            return Ok(());
        }
        offering.step_computed(&to_offer, now.ns)
    }

    /// True if blocks may be offered at the end of the step that starts, or if orders decided after the last send are
    /// sent then.
    pub(super) fn offers_next(&self, now: &mut Now<'_>) -> bool {
        let mut leases = self.leases();
        let Some(offering) = now.store.offers() else {
            return false;
        };
        leases.any(|id| offering.is_to_offer(id))
            || now.store.moving().is_some_and(|s| s.has_orders())
    }

    fn leases(&self) -> impl Iterator<Item = LeaseId> + '_ {
        let running = self.running.slots.iter();
        running.map(|&slot| self.requests[slot].lease)
    }
}
