//! Outcome of a request's look-up, under the five names of an event log (the rules of `spec/lookups.py`).

/// The type of an event; the discriminants stand in rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Outcome {
    /// Its session is known, and its blocks are cached.
    ConversationalHit = 0,
    /// Blocks that other requests computed are cached.
    CrossRequestHit = 1,
    /// No block is cached.
    MissFull = 2,
    /// In addition to a hit: no token is left to prefill.
    FullHitNoPrefillNeeded = 3,
    /// Precedes the others: its session is known, and the prompt does not continue it.
    ConversationalMissUnexpectedPrompt = 4,
}

/// One event of a look-up: its type, the cached length and the tokens left to prefill.
pub type OutcomeEvent = (Outcome, u64, u64);

/// Outcome of a first admission, and its events in the order in which they are decided.
///
/// `continues`: the prompt continues its session ([`Arrival::continues`](super::Arrival::continues)); `None` if no turn
/// of the session is known.
///
/// ```
/// use kvsim_core::machine::outcome::{decide, Outcome::*};
/// assert_eq!(decide(40, None, 0), (MissFull, vec![(MissFull, 0, 40)]));
/// assert_eq!(decide(80, Some(true), 48), (ConversationalHit, vec![(ConversationalHit, 48, 32)]));
/// // The prompt does not continue its session, so the session is not used; blocks are shared all the same.
/// let (found, events) = decide(60, Some(false), 48);
/// assert_eq!(found, CrossRequestHit);
/// assert_eq!(events[0], (ConversationalMissUnexpectedPrompt, 0, 60));
/// assert_eq!(decide(48, None, 48).1[1], (FullHitNoPrefillNeeded, 48, 0));
/// ```
pub fn decide(
    prompt_tokens: u64,
    continues: Option<bool>,
    run_tokens: u64,
) -> (Outcome, Vec<OutcomeEvent>) {
    let left = prompt_tokens - run_tokens;
    let mut events = Vec::with_capacity(1);
    if continues == Some(false) {
        events.push((
            Outcome::ConversationalMissUnexpectedPrompt,
            0,
            prompt_tokens,
        ));
    }
    let found = match (run_tokens, continues) {
        (0, _) => Outcome::MissFull,
        (_, Some(true)) => Outcome::ConversationalHit,
        _ => Outcome::CrossRequestHit,
    };
    events.push((found, run_tokens, left));
    if run_tokens > 0 && left == 0 {
        events.push((Outcome::FullHitNoPrefillNeeded, run_tokens, left));
    }
    (found, events)
}
