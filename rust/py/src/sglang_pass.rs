//! `sglang_pass`: one pass of SGLang's scheduler over its queue, from a given state.

use kvsim_core::machine::engine::Desk;
use kvsim_core::machine::sglang::{BeforePass, Given};
use kvsim_core::machine::Arrival;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::argument::tuple_structs;
use crate::engine_of::Engine;
use crate::machine_store::AnyStore;
use crate::refusal::answered;
use crate::serving::PyReplica;

tuple_structs! {
    /// A request, its tokens, and the generated tokens of its answer.
    pub struct GivenArg {
        request: u32,
        prompt_tokens: u64,
        output_tokens: u64,
        generated_tokens: u64,
    }
}

/// Running requests before the pass, admitted chunks, the queue, the prompt that continues, true if the batch
/// is full.
type PyPass = (usize, Vec<(u32, u64, u64)>, Vec<u32>, Option<u32>, bool);

fn given(requests: Vec<GivenArg>) -> Vec<Given> {
    let given = |own: GivenArg| {
        let arrival = Arrival {
            request: own.request,
            prompt_tokens: own.prompt_tokens,
            output_tokens: own.output_tokens,
            session: -1,
            ..Arrival::default()
        };
        Given {
            arrival,
            generated_tokens: own.generated_tokens,
        }
    };
    requests.into_iter().map(given).collect()
}

/// Enters a state into a new replica with SGLang's scheduler and composes one prefill step.
#[pyfunction]
pub fn sglang_pass(
    py: Python<'_>,
    replica: &Bound<'_, PyReplica>,
    ended: Vec<GivenArg>,
    running: Vec<GivenArg>,
    waiting: Vec<GivenArg>,
    ratio: f64,
) -> PyResult<PyPass> {
    let own = &mut *replica.try_borrow_mut()?;
    let store = &mut own.store.try_borrow_mut(py)?.store;
    let (Some(Engine::Sglang(engine)), AnyStore::Radix(tree)) = (&mut own.engine, store) else {
        return Err(PyValueError::new_err("not a replica of SGLang's scheduler"));
    };
    let before = BeforePass {
        ended: given(ended),
        running: given(running),
        waiting: given(waiting),
        ratio,
    };
    let mut desk = Desk {
        replica: &mut own.replica,
        store: tree,
        now_ns: 0,
    };
    let pass = answered(engine.single_pass(&mut desk, &before))?;
    let (admitted, left) = (pass.admitted, pass.waiting);
    Ok((pass.running, admitted, left, pass.chunked, pass.is_full))
}
