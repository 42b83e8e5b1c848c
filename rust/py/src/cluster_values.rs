//! Values that `Cluster` takes and returns.

use kvsim_core::cluster::{Question, SharedTime};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::argument::{from_tuples, tuple_structs};

/// The next event: time, priority and machine.
pub type PyNext = Option<(u64, u8, i64)>;

/// A request that needs a decode machine: its prefill machine, its number and arrival, tokens and session as in
/// `Replica.arrive`.
pub type PyQuestion = (u32, (u32, u64), (u64, u64, u64), (i64, i64, bool, i64));

/// Finished requests, as (machine, request).
pub type PyClosed = Option<Vec<(u32, u32)>>;

/// The next event, a request that needs a decode machine, finished requests, and rows of events.
pub type PyRun<'py> = (
    PyNext,
    Option<PyQuestion>,
    PyClosed,
    Option<Bound<'py, PyBytes>>,
);

/// A [`PyRun`] without a request that needs a decode machine.
pub type PyNews<'py> = (PyNext, PyClosed, Option<Bound<'py, PyBytes>>);

from_tuples! {
    SharedTime { padded_ns, total_ns }
}

tuple_structs! {
    /// A request and the tokens of its prompt.
    pub struct PromptArg {
        request: u32,
        tokens: u64,
    }
}

/// A request that needs a decode machine as Python values.
pub fn question_to_py(question: &Question) -> PyQuestion {
    let arrival = question.arrival;
    let tokens = (
        arrival.prompt_tokens,
        arrival.output_tokens,
        arrival.expected_prefill_tokens,
    );
    let session = (
        arrival.session,
        arrival.turn,
        arrival.is_conversational_turn,
        arrival.priority,
    );
    (
        question.source.machine,
        (arrival.request, question.arrival_ns),
        tokens,
        session,
    )
}
