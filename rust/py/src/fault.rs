//! Panics of the core: their text and source line are kept, and no line of them is printed.
//!
//! A panic reaches Python as a `PanicException`, which is no `Exception`; its callers report one line.

use std::panic;
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;

/// The last panic: source file, line and message.
static LAST: Mutex<String> = Mutex::new(String::new());

/// Keeps panics instead of printing them.
pub fn keep_panics() {
    panic::set_hook(Box::new(|panicked| {
        *LAST.lock().unwrap_or_else(PoisonError::into_inner) = panicked.to_string();
    }));
}

/// The last panic of the core, with its source line; empty if there was none.
#[pyfunction]
pub fn last_panic() -> String {
    LAST.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Panics, for the tests of what reports a panic.
#[pyfunction]
pub fn panic_for_test() {
    panic!("a panic\nof a test");
}
