//! Arriving requests from Python.

use kvsim_core::machine::Arrival;

use crate::argument::tuple_structs;

tuple_structs! {
    /// Tokens of an arriving request.
    pub struct TokensArg {
        prompt: u64,
        output: u64,
        /// Prompt tokens that are expected to be computed.
        expected_prefill: u64,
        /// Prompt tokens of earlier turns; −1: not stated.
        history: i64,
    }

    /// Session of an arriving request.
    pub struct SessionArg {
        number: i64,
        turn: i64,
        is_conversational_turn: bool,
        priority: i64,
    }
}

/// A request that arrives at a replica.
pub fn arrival(request: u32, tokens: &TokensArg, session: &SessionArg) -> Arrival {
    Arrival {
        request,
        prompt_tokens: tokens.prompt,
        output_tokens: tokens.output,
        expected_prefill_tokens: tokens.expected_prefill,
        session: session.number,
        turn: session.turn,
        is_conversational_turn: session.is_conversational_turn,
        priority: session.priority,
        history_tokens: u64::try_from(tokens.history).ok(),
    }
}
