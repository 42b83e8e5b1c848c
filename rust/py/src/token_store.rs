//! `TokenStore`: a machine's cache as a count of unique tokens.

use kvsim_core::token_store::{Prompts, TokenStore};
use kvsim_core::views::{PrefixAdmission, PrefixViewConfig, Sessions};
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;

use crate::keys::PyKeys;
use crate::machine_store::{own_store, AnyStore, PyMachineStore};
use crate::refusal::{answered, refused};
use crate::told::Told;
use crate::views::SessionViewRules;

/// Unique tokens on one GPU: shared prefixes, what sessions keep, and what running requests added.
#[pyclass(name = "TokenStore", module = "kvcache_sim._core", extends = PyMachineStore)]
pub struct PyTokenStore;

own_store!(PyTokenStore, Tokens(TokenStore));

/// A column of integers, one for each request.
type Column<'py> = PyReadonlyArray1<'py, i64>;

#[pymethods]
impl PyTokenStore {
    /// `prompts`, by request: the number of its session (negative: none), tokens of its prompt, and those that a window
    /// left of its history (negative: not told).
    #[new]
    fn new(
        keys: &PyKeys,
        prompts: (Column<'_>, Column<'_>, Column<'_>),
        block_size_tokens: Told<u64>,
        capacity_tokens: Option<Told<u64>>,
        session_view: SessionViewRules,
        prefix_view: Told<PrefixViewConfig>,
    ) -> PyResult<(Self, PyMachineStore)> {
        let input_tokens = prompts.1.as_slice()?.iter().map(|&n| u64::try_from(n));
        let prompts = Prompts {
            sessions: prompts.0.as_slice()?.to_vec(),
            input_tokens: input_tokens
                .collect::<Result<_, _>>()
                .map_err(|_| refused("a prompt of fewer than no tokens", "0 tokens or more"))?,
            history_tokens: prompts.2.as_slice()?.to_vec(),
        };
        let block = block_size_tokens.0;
        let made = TokenStore::new(
            keys.0.clone(),
            prompts,
            (block, capacity_tokens.map(|tokens| tokens.0)),
            Sessions::new(session_view.max_sessions, session_view.ttl_ns),
            PrefixAdmission::new(prefix_view.0, block),
        );
        let store = AnyStore::Tokens(answered(made)?);
        Ok((Self, PyMachineStore::new(store)))
    }

    fn find(
        slf: PyRefMut<'_, Self>,
        request: Told<u32>,
        limit: Told<u32>,
        now_ns: Told<u64>,
    ) -> PyResult<u32> {
        Self::call(slf, |store| {
            store.known_request(request.0)?;
            Ok(store.find(request.0, limit.0, now_ns.0))
        })
    }

    fn uses(
        slf: PyRefMut<'_, Self>,
        request: Told<u32>,
        limit: Told<u32>,
    ) -> PyResult<Vec<(u32, u32, u64)>> {
        Self::call(slf, |store| {
            store.known_request(request.0)?;
            Ok(store.uses(request.0, limit.0))
        })
    }

    fn session_tokens(
        slf: PyRefMut<'_, Self>,
        session: i64,
        now_ns: Told<u64>,
    ) -> PyResult<Option<u64>> {
        Self::call(slf, |store| Ok(store.session_tokens(session, now_ns.0)))
    }

    fn observe(
        slf: PyRefMut<'_, Self>,
        request: Told<u32>,
        prompt_tokens: Told<u64>,
    ) -> PyResult<()> {
        Self::call(slf, |store| {
            store.known_request(request.0)?;
            store.observe(request.0, prompt_tokens.0);
            Ok(())
        })
    }

    fn complete_turn(
        slf: PyRefMut<'_, Self>,
        request: Told<u32>,
        session: i64,
        tokens: Told<u64>,
        now_ns: Told<u64>,
    ) -> PyResult<()> {
        Self::call(slf, |store| {
            store.known_request(request.0)?;
            store.complete_turn(request.0, session, tokens.0, now_ns.0);
            Ok(())
        })
    }

    /// Unique tokens in memory.
    #[getter]
    fn used(slf: PyRefMut<'_, Self>) -> PyResult<u64> {
        Self::call(slf, |store| Ok(store.used()))
    }
}

/// Adds the class of this room.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyTokenStore>()
}
