//! Reasons why a trace cannot be replayed.

use std::fmt;

/// Reasons why a trace cannot be replayed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PromptError {
    /// Arrays whose lengths do not fit together.
    Shape,
    /// A request that names one id twice cannot be a path of a prefix tree.
    RepeatedId {
        /// The request.
        request: usize,
        /// The id that occurs twice.
        id: u32,
    },
    /// More blocks, in a request or in all, than 32 bits can number.
    TooManyBlocks,
    /// More ids than tables support.
    TooManyIds,
}

impl fmt::Display for PromptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shape => write!(f, "ids, offsets and block counts do not fit together"),
            Self::RepeatedId { request, id } => {
                write!(f, "request {request} names id {id} twice")
            }
            Self::TooManyBlocks => write!(f, "more than 2^32 blocks"),
            Self::TooManyIds => write!(f, "more than 2^30 ids; they count up from 0"),
        }
    }
}
