//! One machine's view of sessions and of shared prefixes (seed 000, 3.1 to 3.4; semantics 6).
//!
//! | file | contents |
//! |---|---|
//! | `sessions` | the tokens that the last completed turn of each session left behind |
//! | `prefix_admission` | admission of prefixes for sharing: long enough, and seen often enough |
//! | `prefix_store` | the shared prefixes under simplified accounting |

mod prefix_admission;
mod prefix_store;
mod sessions;

pub use prefix_admission::{PrefixAdmission, PrefixViewConfig};
pub use prefix_store::{EntryId, PrefixStore, NO_ENTRY};
pub use sessions::Sessions;

/// The session view of one machine, and its admission of shared prefixes.
#[derive(Debug, Default)]
pub struct Views {
    /// The known sessions.
    pub sessions: Sessions,
    /// Admission of prefixes for sharing; `None`: all of them, at once.
    pub prefixes: Option<PrefixAdmission>,
}
