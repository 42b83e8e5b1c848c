//! Manual cache operations: moves of blocks on a machine that serves no requests.

use super::messages::{Operated, Operation};
use super::rows::Rows;
use super::{Now, Replica, ReplicaConfig};
use crate::batch::Batch;
use crate::store::Answer;
use crate::tiers::Route;
use crate::transfers::Mover;

impl Replica {
    /// A machine that is operated manually: it receives no requests and computes nothing.
    pub fn operated_manually(config: ReplicaConfig, mover: Mover) -> Self {
        Self::new(config, Batch::default(), Rows::default()).with_mover(mover)
    }

    /// Runs one operation at a time; the orders of the store are sent with [`super::messages::Task::Resume`].
    pub(super) fn operate(&mut self, now: &mut Now<'_>, operation: &Operation) -> Answer<Operated> {
        Ok(match operation {
            Operation::Load(of, part, freeing_moves) => {
                let loaded = self.load_part(now, *of, part, freeing_moves)?;
                Operated::Moved(loaded.map(|load| load.id))
            }
            Operation::Longest(request, blocks) => {
                let run = self.longest_elsewhere(now, *request, *blocks)?;
                Operated::Found(run)
            }
            Operation::Fetch(request, source) => {
                Operated::Moved(self.fetch_from(now, *request, *source)?)
            }
            Operation::Arrive(id, edge, blocks, sent) => {
                let route = Route::new(edge.0, edge.1);
                self.mover.arrive(*id, route, *blocks, *sent);
                Operated::Moved(Some(*id))
            }
        })
    }
}
