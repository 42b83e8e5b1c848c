//! Settings of replays, as Python names them.

use kvsim_core::replay::objects::Discipline;
use kvsim_core::replay::prompt_error::PromptError;
use kvsim_core::replay::TouchFrom;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::policy_settings::out_of_range;

pub(crate) fn touch_end(name: &str) -> PyResult<TouchFrom> {
    match name {
        "tail" => Ok(TouchFrom::Tail),
        "root" => Ok(TouchFrom::Root),
        other => Err(PyValueError::new_err(format!(
            "unknown end of a prompt {other:?}"
        ))),
    }
}

pub(crate) fn capacity_of(capacity: u64) -> PyResult<u64> {
    if capacity == 0 {
        return Err(out_of_range("capacity", capacity, "≥ 1 block"));
    }
    Ok(capacity)
}

pub(crate) fn refused(error: PromptError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// The discipline of a plain cache by its name.
pub(crate) fn plain_discipline(name: &str) -> PyResult<Discipline> {
    match name {
        "queue" => Ok(Discipline::Queue),
        end => touch_end(end).map(Discipline::Objects),
    }
}
