//! One machine's view of sessions and of shared prefixes (seed 000, 3.1 to 3.4; semantics 6).
//!
//! | file | contents |
//! |---|---|
//! | `sessions` | the tokens that the last completed turn of each session left behind |
//! | `prefix_admission` | admission of prefixes for sharing: long enough, and seen often enough |
//! | `prefix_store` | the shared prefixes, within a size limit |

mod prefix_admission;
mod prefix_store;
mod sessions;

pub use prefix_admission::{PrefixAdmission, PrefixViewConfig};
pub use prefix_store::{Entered, EntryId, PrefixStore, NO_ENTRY};
pub use sessions::Sessions;
