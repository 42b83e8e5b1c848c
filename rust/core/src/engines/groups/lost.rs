//! Prefixes that requests could not continue from although some layer group could: tokens, group and cause.

use super::manager::GroupManager;
use super::{Found, Kind};

/// Look-up that ended before a point that some group could have continued from, since other groups kept nothing
/// there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Junction {
    /// Request of the look-up.
    pub request: u32,
    /// Tokens that some group could have continued from.
    pub tokens: u64,
    /// True if the first group that kept nothing there keeps a state, false if it keeps a window.
    pub is_state: bool,
}

/// Lost prefixes of all look-ups so far.
#[derive(Debug, Clone, Default)]
pub struct Losses {
    /// Look-ups of which some group had found more.
    pub junctions: u64,
    /// For each group, tokens that another group had and it could not continue from: the blocks it needs were
    /// not kept, or were evicted.
    pub tokens: Vec<(u64, u64)>,
}

impl Losses {
    /// No losses, for `groups` groups.
    pub fn new(groups: usize) -> Self {
        Self {
            junctions: 0,
            tokens: vec![(0, 0); groups],
        }
    }

    /// Counts a look-up. Returns its junction, if a group had kept nothing there.
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
