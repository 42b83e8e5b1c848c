//! The exceptions of policies written in Python, kept until a call can raise them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;

/// The first exception that a policy written in Python raised.
pub type Failure = Arc<Mutex<Option<PyErr>>>;

/// Returns `value`, or raises the exception of a policy since the store was made.
pub fn raised<T>(failure: &Failure, value: T) -> PyResult<T> {
    match locked(failure).take() {
        Some(error) => Err(error),
        None => Ok(value),
    }
}

/// Locks a value that one thread at a time uses; a panic on another thread leaves the value intact.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
