//! `TokenStore`: a machine's cache as a count of unique tokens.

use kvsim_core::token_store::{Prompts, TokenStore};
use kvsim_core::views::{PrefixStore, PrefixViewConfig, Sessions};
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;

use crate::argument::{tuple_structs, Arg};
use crate::keys::PyKeys;
use crate::machine_store::{own_store, store_calls, AnyStore, PyMachineStore};
use crate::refusal::{answered, refused};
use crate::views::SessionViewRules;

/// Unique tokens on one GPU: shared prefixes, tokens kept by sessions, and tokens added by running requests.
#[pyclass(name = "TokenStore", module = "kvcache_sim._core", extends = PyMachineStore)]
pub struct PyTokenStore;

own_store!(PyTokenStore, Tokens(TokenStore));

tuple_structs! {
    /// By request, its prompt.
    pub struct PromptColumns<'py> {
        /// Session number; negative: none.
        sessions: PyReadonlyArray1<'py, i64>,
        input_tokens: PyReadonlyArray1<'py, i64>,
        /// History tokens left by the context window; negative: unknown.
        history_tokens: PyReadonlyArray1<'py, i64>,
    }
}

store_calls! {
    PyTokenStore {
        #[new]
        fn new(
            keys: &PyKeys,
            prompts: PromptColumns<'_>,
            block_size_tokens: Arg<u64>,
            capacity_tokens: Option<Arg<u64>>,
            session_view: SessionViewRules,
            prefix_view: Arg<PrefixViewConfig>,
        ) -> PyResult<(Self, PyMachineStore)> {
            let input_tokens = prompts.input_tokens.as_slice()?.iter().map(|&n| u64::try_from(n));
            let prompts = Prompts {
                sessions: prompts.sessions.as_slice()?.to_vec(),
                input_tokens: input_tokens
                    .collect::<Result<_, _>>()
                    .map_err(|_| refused("a prompt of fewer than no tokens", "0 tokens or more"))?,
                history_tokens: prompts.history_tokens.as_slice()?.to_vec(),
            };
            let block = block_size_tokens.0;
            let made = TokenStore::new(
                keys.0.clone(),
                prompts,
                block,
                capacity_tokens.map(|tokens| tokens.0),
                Sessions::new(session_view.max_sessions, session_view.ttl_ns),
                PrefixStore::new(prefix_view.0, block),
            );
            let store = AnyStore::Tokens(answered(made)?);
            Ok((Self, PyMachineStore::new(store)))
        }
    }
    of fn find(request: u32, limit: u32, now_ns: u64) -> u32;
    of fn uses(request: u32, limit: u32) -> Vec<(u32, u32, u64)>;
    plain fn session_tokens(session: i64, now_ns: u64) -> Option<u64>;
    of fn observe(request: u32, prompt_tokens: u64) -> ();
    of fn complete_turn(request: u32, session: i64, tokens: u64, now_ns: u64) -> ();
    /// Unique tokens in memory.
    #[getter]
    plain fn used() -> u64;
}
