//! `Digest`: a rolling hash over records.

use kvsim_core::digest::Digest;
use pyo3::prelude::*;

use crate::refusal::Whole;

/// A 64-bit rolling hash.
#[pyclass(name = "Digest")]
#[derive(Default)]
pub struct PyDigest(pub Digest);

#[pymethods]
impl PyDigest {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    fn record(&mut self, kind: Whole, time_ns: Whole, subject: Whole, value: Whole) {
        let (time_ns, subject) = (time_ns.u64(), subject.u64());
        self.0.record(kind.u8(), time_ns, subject, value.u64());
    }

    #[getter]
    fn value(&self) -> u64 {
        self.0.value()
    }
}

/// Adds the class of this room.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyDigest>()
}
