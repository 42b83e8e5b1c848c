//! Eviction policies by name, and the settings that some of them need.

use kvsim_core::policies::priority::Range;
use kvsim_core::policies::{Kind, NativePolicy, PolicySettings, POLICIES};
use numpy::PyReadonlyArray1;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::argument::tuple_structs;

tuple_structs! {
    /// A priority of blocks.
    pub struct RangeArg {
        from: u32,
        /// The block after the last one.
        to: u32,
        priority: u8,
        duration_ns: Option<i64>,
    }
}

/// Settings of the policies that need some.
#[pyclass(frozen, module = "kvcache_sim._core")]
pub struct ReplayPolicySettings {
    pub inner: PolicySettings,
}

#[pymethods]
impl ReplayPolicySettings {
    #[new]
    #[pyo3(signature = (ttl_ns, attention_blocks, ranges, names = None))]
    fn new(
        ttl_ns: i64,
        attention_blocks: f64,
        ranges: Vec<RangeArg>,
        names: Option<PyReadonlyArray1<u64>>,
    ) -> PyResult<Self> {
        if ttl_ns < 0 {
            return Err(out_of_range("ttl_ns", ttl_ns, "≥ 0"));
        }
        if !(attention_blocks.is_finite() && attention_blocks > 0.0) {
            return Err(out_of_range("attention_blocks", attention_blocks, "> 0"));
        }
        let ranges = ranges.into_iter().map(range).collect::<PyResult<_>>()?;
        Ok(Self {
            inner: PolicySettings {
                ttl_ns,
                ranges,
                attention_blocks,
                names: names.map_or(Ok(Vec::new()), |n| n.as_slice().map(<[u64]>::to_vec))?,
            },
        })
    }
}

fn range(given: RangeArg) -> PyResult<Range> {
    let RangeArg {
        from,
        to,
        priority,
        duration_ns,
    } = given;
    if priority > 100 {
        return Err(out_of_range("priority", priority, "0 to 100"));
    }
    if from >= to {
        return Err(out_of_range("range", format!("{from}-{to}"), "FROM < TO"));
    }
    if let Some(ns @ ..=-1) = duration_ns {
        return Err(out_of_range("duration_ns", ns, "≥ 0"));
    }
    Ok(Range {
        from,
        to,
        priority,
        duration_ns,
    })
}

/// The name and kind of every policy that the core runs: `ranked` or `queue`.
#[pyfunction]
pub fn native_policies() -> Vec<(&'static str, &'static str)> {
    let kind = |policy: &NativePolicy| match policy.kind {
        Kind::Ranked(_) => "ranked",
        Kind::Queue(_) => "queue",
    };
    POLICIES.iter().map(|row| (row.name, kind(row))).collect()
}

/// Returns the policy of a name, or the error that names it.
pub fn native_policy(name: &str) -> PyResult<&'static NativePolicy> {
    NativePolicy::named(name)
        .ok_or_else(|| PyValueError::new_err(format!("unknown policy {name:?}")))
}

/// The error of a number that is not what was expected.
pub(crate) fn out_of_range(what: &str, got: impl std::fmt::Display, expected: &str) -> PyErr {
    PyValueError::new_err(format!("{what}: got {got}; expected {expected}"))
}
