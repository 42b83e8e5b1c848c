//! `OutputLog`: tokens and closed requests of the machines of a live run.

use kvsim_core::machine::OutputLog;
use pyo3::prelude::*;

/// A time in ns, a machine, the request of each token, requests that finished.
type PyOutput = (u64, u32, Vec<u32>, Vec<u32>);

/// The log of output tokens and finished requests of all machines that use it.
#[pyclass(name = "OutputLog", frozen)]
pub struct PyOutputLog(pub OutputLog);

#[pymethods]
impl PyOutputLog {
    #[new]
    fn new() -> Self {
        Self(OutputLog::default())
    }

    /// Returns the entries since the last call, in order of time.
    fn take(&self) -> Vec<PyOutput> {
        let outputs = self.0.take().into_iter();
        outputs
            .map(|output| (output.time_ns, output.machine, output.tokens, output.closed))
            .collect()
    }
}
