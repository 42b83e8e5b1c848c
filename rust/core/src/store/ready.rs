//! Ready times of a copy, and of the blocks of a run.

/// A time that is not known yet.
pub const NOT_YET: u64 = 1 << 62;

/// Ready times of a copy, of its first layer and of all layers, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Time at which the first layer is ready.
    pub first_layer_ns: u64,
    /// Time at which all layers are ready.
    pub ready_ns: u64,
}

impl Times {
    /// Times of a transmission that are not set yet.
    pub const UNKNOWN: Self = Self {
        first_layer_ns: NOT_YET,
        ready_ns: NOT_YET,
    };

    /// Returns times at which all layers are ready at one moment.
    pub fn at(now_ns: u64) -> Self {
        Self {
            first_layer_ns: now_ns,
            ready_ns: now_ns,
        }
    }
}

/// Blocks of a run, up to `end`, whose copy was ready at the same times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeSpan {
    pub end: u32,
    pub times: Times,
}
