//! What requests could not go on from, though some group of layers could: how much, of which group, and why.

use super::manager::GroupManager;
use super::{Found, Kind};

/// Where a look-up ended behind what some group could have gone on from, since others had kept nothing there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Junction {
    /// Whose look-up.
    pub request: u32,
    /// Tokens that some group could have gone on from.
    pub tokens: u64,
    /// Whether the first group that kept nothing there keeps a state, not a window.
    pub is_state: bool,
}

/// The losses of all look-ups so far.
#[derive(Debug, Clone, Default)]
pub struct Losses {
    /// Look-ups of which some group had found more.
    pub junctions: u64,
    /// By group, tokens that another group had and it could not go on from: what it needs was not kept, or was
    /// evicted.
    pub tokens: Vec<(u64, u64)>,
}

impl Losses {
    /// Nothing lost by some groups.
    pub fn new(groups: usize) -> Self {
        Self {
            junctions: 0,
            tokens: vec![(0, 0); groups],
        }
    }

    /// Counts a look-up; its junction, where a group had kept nothing there.
    pub fn count(
        &mut self,
        manager: &GroupManager,
        request: u32,
        found: Found,
    ) -> Option<Junction> {
        self.junctions += u64::from(found.junction > found.tokens);
        let lost = found.junction.saturating_sub(found.tokens);
        let mut first = None;
        manager.lost(request, found, |group, not_kept| {
            let (unkept, evicted) = &mut self.tokens[group];
            *(if not_kept { &mut *unkept } else { evicted }) += lost;
            if not_kept {
                first.get_or_insert(manager.groups()[group].kind == Kind::Linear);
            }
        });
        first.map(|is_state| Junction {
            request,
            tokens: found.junction,
            is_state,
        })
    }
}
