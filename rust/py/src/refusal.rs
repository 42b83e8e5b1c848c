//! Refusals of the core as the exceptions of `kvcache_sim.base.errors`.

use std::cell::RefCell;

use kvsim_core::store::{Answer, StoreError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// `kvcache_sim.base.errors.StoreError`.
static STORE_ERROR: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

fn store_error(py: Python<'_>, what: &str, slot: &str, expected: &str) -> PyErr {
    let class = STORE_ERROR.get_or_try_init(py, || {
        let errors = py.import("kvcache_sim.base.errors")?;
        errors.getattr("StoreError").map(Bound::unbind)
    });
    let made = class.and_then(|class| class.call1(py, (what, slot, "", expected)));
    match made {
        Ok(error) => PyErr::from_value(error.into_bound(py)),
        Err(error) => error,
    }
}

thread_local! {
    /// The exception that a plug-in raised in the current call of the core on this thread.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Ends the call of the core in which a plug-in raised an exception; [`refusal`] raises it.
pub fn aborted(error: PyErr) -> StoreError {
    RAISED.set(Some(error));
    StoreError::Plugin
}

/// A refused call as a Python exception.
pub fn refusal(error: &StoreError) -> PyErr {
    if let (StoreError::Plugin, Some(raised)) = (error, RAISED.take()) {
        return raised;
    }
    Python::attach(|py| store_error(py, error.what(), error.slot(), &error.expected()))
}

/// The error of something that cannot be made or called so: one line with the problem and the expected value.
pub fn refused(what: &str, expected: &str) -> PyErr {
    Python::attach(|py| store_error(py, what, "store", expected))
}

/// The error of a number beyond 64 bits, or below 0.
pub fn out_of_range(py: Python<'_>) -> PyErr {
    store_error(py, "a number is out of range", "store", "0 to 2^64 - 1")
}

/// An answer, or the exception.
pub fn answered<T>(answer: Answer<T>) -> PyResult<T> {
    answer.map_err(|error| refusal(&error))
}
