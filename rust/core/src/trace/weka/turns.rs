//! The elements of a session's `rows`, as written.

use std::borrow::Cow;

use super::super::json::field::{integer, name, optional, time, MOST_TOKENS};
use super::super::json::Cursor;
use super::super::problem::Refusal;

const NS_PER_S: u64 = 1_000_000_000;

/// One element of `rows`.
#[derive(Default)]
pub struct Turn<'a> {
    pub at: usize,
    pub path: Cow<'a, str>,
    pub t: Option<i64>,
    pub input: Option<u64>,
    pub output: Option<u64>,
    pub api: Option<i64>,
    pub think: Option<i64>,
    pub hash: Option<Cow<'a, str>>,
    pub hash_at: usize,
    /// A sub-agent's name and launch time.
    pub agent: Option<(Cow<'a, str>, i64)>,
}

/// The previous row on the same path, with its index.
pub fn before<'t, 'a>(turn: &Turn, all: &'t [Turn<'a>]) -> Option<(usize, &'t Turn<'a>)> {
    let above = all.iter().enumerate().take_while(|(_, o)| o.at < turn.at);
    above
        .filter(|(_, o)| o.path == turn.path && o.agent.is_none())
        .last()
}

/// End of a row's answer, by the file's own times.
pub fn ended(turn: &Turn) -> i64 {
    turn.t.unwrap_or(0).saturating_add(turn.api.unwrap_or(0))
}

/// Reads the array of rows; `other` reads the members that no row needs.
pub fn turns<'a>(
    c: &mut Cursor<'a>,
    out: &mut Vec<Turn<'a>>,
    mut other: impl FnMut(&mut Cursor<'a>, &str) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    if !c.take(b'[') {
        return Err(c.unexpected("an array of rows"));
    }
    if c.take(b']') {
        return Ok(());
    }
    loop {
        c.skip_space();
        let mut turn = Turn {
            at: c.at,
            ..Turn::default()
        };
        if !c.take(b'{') {
            return Err(c.unexpected("a row such as {\"t\": 0.0, …}"));
        }
        c.distinct_members(|c, key| {
            let seconds = |c: &mut Cursor<'a>| optional(c, |c| time(c, key, NS_PER_S));
            match key {
                "t" => turn.t = seconds(c)?,
                "path" => turn.path = name(c, key)?.unwrap_or_default(),
                "in" => turn.input = Some(integer(c, key, 1, MOST_TOKENS)?),
                "out" => turn.output = Some(integer(c, key, 0, MOST_TOKENS)?),
                "api" => turn.api = seconds(c)?,
                "think" => turn.think = seconds(c)?,
                "hash" => {
                    turn.hash_at = c.at;
                    turn.hash = Some(c.string()?);
                }
                "meta" => turn.agent = agent(c)?,
                _ => other(c, key)?,
            }
            Ok(())
        })?;
        out.push(turn);
        if c.take(b']') {
            return Ok(());
        }
        if !c.take(b',') {
            return Err(c.unexpected("a comma or ] behind a row"));
        }
    }
}

/// The name and launch time of a sub-agent.
fn agent<'a>(c: &mut Cursor<'a>) -> Result<Option<(Cow<'a, str>, i64)>, Refusal> {
    let from = c.at;
    if !c.take(b'{') {
        return Err(c.unexpected("a sub-agent's members"));
    }
    let mut id = None;
    let mut at = None;
    c.distinct_members(|c, key| {
        match key {
            "agent_id" => id = name(c, key)?,
            "t" => at = optional(c, |c| time(c, key, NS_PER_S))?,
            _ => {
                c.skip_value()?;
            }
        }
        Ok(())
    })?;
    match (id, at) {
        (Some(id), Some(at)) => Ok(Some((id, at))),
        _ => Err(c.problem(from, "missing-key", "agent_id or t is missing in meta")),
    }
}
