//! `TokenStore`: a machine's cache as a count of unique tokens.

use kvsim_core::store::contract::MachineStore;
use kvsim_core::store::{StoreError, Times};
use kvsim_core::token_store::{Prompts, TokenStore};
use kvsim_core::views::{PrefixAdmission, Sessions};
use numpy::PyReadonlyArray1;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::engine_store::engine_store;
use crate::keys::PyKeys;
use crate::named;
use crate::refusal::{answered, refused, Whole};
use crate::store_values::{room_to_py, times};
use crate::views::{PrefixViewRules, SessionViewRules};

/// Unique tokens on one GPU: shared prefixes, what sessions keep, and what running requests added.
#[pyclass(name = "TokenStore", module = "kvcache_sim._core")]
pub struct PyTokenStore(pub TokenStore);

engine_store!(PyTokenStore {
    /// `prompts`, by request: the number of its session (negative: none), tokens of its prompt, and those that a window
    /// left of its history (negative: not told).
    #[new]
    fn new(
        keys: &PyKeys,
        prompts: (
            PyReadonlyArray1<'_, i64>,
            PyReadonlyArray1<'_, i64>,
            PyReadonlyArray1<'_, i64>,
        ),
        block_size_tokens: Whole,
        capacity_tokens: Option<Whole>,
        session_view: SessionViewRules,
        prefix_view: PrefixViewRules,
    ) -> PyResult<Self> {
        let input_tokens = prompts.1.as_slice()?.iter().map(|&n| u64::try_from(n));
        let prompts = Prompts {
            sessions: prompts.0.as_slice()?.to_vec(),
            input_tokens: input_tokens
                .collect::<Result<_, _>>()
                .map_err(|_| refused("a prompt of fewer than no tokens", "0 tokens or more"))?,
            history_tokens: prompts.2.as_slice()?.to_vec(),
        };
        let block = block_size_tokens.u64();
        answered(TokenStore::new(
            keys.0.clone(),
            prompts,
            (block, capacity_tokens.map(Whole::u64)),
            Sessions::new(session_view.max_sessions, session_view.ttl_ns),
            PrefixAdmission::new(prefix_view.config(), block),
        ))
        .map(Self)
    }

    fn find(&mut self, request: Whole, limit: Whole, now_ns: Whole) -> PyResult<u32> {
        answered(self.0.known_request(request.u32()))?;
        Ok(self.0.find(request.u32(), limit.u32(), now_ns.u64()))
    }

    fn uses(&self, request: Whole, limit: Whole) -> PyResult<Vec<(u32, u32, u64)>> {
        answered(self.0.known_request(request.u32()))?;
        Ok(self.0.uses(request.u32(), limit.u32()))
    }

    fn session_tokens(&mut self, session: i64, now_ns: Whole) -> Option<u64> {
        self.0.session_tokens(session, now_ns.u64())
    }

    fn observe(&mut self, request: Whole, prompt_tokens: Whole) -> PyResult<()> {
        answered(self.0.known_request(request.u32()))?;
        self.0.observe(request.u32(), prompt_tokens.u64());
        Ok(())
    }

    fn complete_turn(
        &mut self,
        request: Whole,
        session: i64,
        tokens: Whole,
        now_ns: Whole,
    ) -> PyResult<()> {
        answered(self.0.known_request(request.u32()))?;
        let (request, now_ns) = (request.u32(), now_ns.u64());
        self.0.complete_turn(request, session, tokens.u64(), now_ns);
        Ok(())
    }

    /// Unique tokens in memory.
    #[getter]
    fn used(&self) -> u64 {
        self.0.used()
    }
});

/// Adds the class of this room.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyTokenStore>()
}
