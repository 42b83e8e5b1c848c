//! Integers as bytes, which Python reads as an array.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Packs 64-bit integers, in this machine's byte order.
pub fn bytes<'py>(py: Python<'py>, numbers: &[i64]) -> PyResult<Bound<'py, PyBytes>> {
    PyBytes::new_with(py, numbers.len() * 8, |bytes| {
        for (slot, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            slot.copy_from_slice(&number.to_ne_bytes());
        }
        Ok(())
    })
}
