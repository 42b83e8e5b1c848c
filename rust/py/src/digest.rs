//! `Digest`: a rolling hash over records.

use kvsim_core::digest::Digest;
use pyo3::prelude::*;

use crate::argument::Arg;

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

    fn record(&mut self, kind: Arg<u8>, time_ns: Arg<u64>, subject: Arg<u64>, value: Arg<u64>) {
        let (time_ns, subject) = (time_ns.0, subject.0);
        self.0.record(kind.0, time_ns, subject, value.0);
    }

    #[getter]
    fn value(&self) -> u64 {
        self.0.value()
    }
}
