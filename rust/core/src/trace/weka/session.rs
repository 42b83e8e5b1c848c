//! Sessions one by one: each row becomes an entry of the columns; a refused session leaves no trace.

use std::borrow::Cow;

use super::super::audit::{ChainAudit, UnknownKeys};
use super::super::columns::{
    push_rare, silent_rows, ColumnRow, Counter, Reading, Sessions, NOT_GIVEN, OPEN_LOOP,
};
use super::super::json::field::{integer, name};
use super::super::json::Cursor;
use super::super::lines::{Line, Rows};
use super::super::problem::Refusal;
use super::super::Settings;
use super::ranges::LocalIds;
use super::turns::{self, before, ended, Turn};

/// Members without influence on the cache or on times.
const IGNORED: [&str; 6] = [
    "models",
    "tool_tokens",
    "system_tokens",
    "model",
    "stop",
    "type",
];

/// The sessions read so far.
#[derive(Default)]
pub struct WekaRows {
    /// The rows so far.
    pub out: Reading,
    /// The sessions by name.
    pub sessions: Sessions,
    audit: ChainAudit,
    unknown: UnknownKeys,
    silent: Counter,
    fewer: Counter,
    /// True if a row has no ids.
    unnamed: bool,
    /// Number in the trace of each element of the current session.
    written: Vec<Option<i32>>,
    local: LocalIds,
    /// True if refused sessions are skipped.
    skip: bool,
}

impl WekaRows {
    /// No session yet.
    pub fn new(settings: &Settings) -> Self {
        let mut rows = WekaRows::default();
        rows.out.columns.id_offsets.push(0);
        rows.out.block_size = settings.block_size;
        rows.skip = settings.skip;
        rows
    }

    fn session(&mut self, c: &mut Cursor) -> Result<(), Refusal> {
        let mut id: Option<Cow<str>> = None;
        let mut block_size = None;
        let mut turns = Vec::new();
        let mut seen_rows = false;
        if !c.take(b'{') {
            return Err(c.unexpected("a session such as {\"session\": …, \"rows\": […]}"));
        }
        c.distinct_members(|c, key| {
            let at = c.at;
            match key {
                "session" => id = name(c, key)?,
                "block_size" => block_size = Some((at, integer(c, key, 1, 1 << 20)?)),
                "rows" => {
                    seen_rows = true;
                    turns::turns(c, &mut turns, |c, key| self.other(c, key))?;
                }
                _ => self.other(c, key)?,
            }
            Ok(())
        })?;
        c.end()?;
        let missing = |what: &str| {
            c.problem(0, "missing-key", format!("{what} is missing"))
                .got(c.excerpt_row())
        };
        let id = id.ok_or_else(|| missing("session"))?;
        let (size_at, size) = block_size.ok_or_else(|| missing("block_size"))?;
        if !seen_rows {
            return Err(missing("rows"));
        }
        if self.out.block_size == 0 {
            self.out.block_size = size;
        }
        if size != self.out.block_size {
            return Err(c
                .problem(size_at, "block-size", "another block size than the trace's")
                .got(size.to_string())
                .expected(self.out.block_size.to_string()));
        }
        if self.sessions.get(&id).is_some() {
            return Err(c.problem(0, "session", "session named twice").got(id));
        }
        for turn in &turns {
            self.append(c, &id, turn, &turns)?;
        }
        Ok(())
    }

    fn other(&mut self, c: &mut Cursor, key: &str) -> Result<(), Refusal> {
        if !IGNORED.contains(&key) {
            self.unknown.note(c.line, std::iter::once(key));
        }
        c.skip_value()?;
        Ok(())
    }

    fn append(&mut self, c: &Cursor, id: &str, turn: &Turn, all: &[Turn]) -> Result<(), Refusal> {
        if turn.agent.is_some() {
            self.written.push(None);
            return Ok(()); // a launch, not a request: its rows have their own path
        }
        let missing = |what: &str| {
            c.problem(
                turn.at,
                "missing-key",
                format!("{what} is missing in a row"),
            )
        };
        let t = turn.t.ok_or_else(|| missing("t"))?;
        let input = turn.input.ok_or_else(|| missing("in"))?;
        let output = turn.output.ok_or_else(|| missing("out"))?;
        let agent = turn.path.trim_matches('/');
        let launch = launch_of(c, turn, agent, all)?;
        let from = self.out.columns.block_ids.len();
        self.local.expand(c, turn, input, &mut self.out)?;
        let size = self.out.block_size;
        let ids = &self.out.columns.block_ids[from..];
        let noted = self.audit.note(&mut self.out.ids, ids, c.line, input, size);
        noted.map_err(|at| {
            let what = "a block id stands twice in one row";
            c.problem(turn.hash_at, "repeated-id", what)
                .got(format!("at position {at}"))
        })?;
        self.unnamed |= ids.is_empty();
        if (ids.len() as u64) < input / size {
            self.fewer.hit(c.line, String::new);
        }
        if output == 0 {
            self.silent.hit(c.line, String::new);
        }
        let session = if agent.is_empty() {
            self.sessions.number(id)
        } else {
            self.sessions.number(&format!("{id}/{agent}"))
        };
        let number = self.sessions.turns[session as usize];
        self.sessions.turns[session as usize] += 1;
        let launched_at = launch
            .and_then(|l| l.agent.as_ref())
            .map_or(0, |(_, at)| *at);
        // A sub-agent waits for the row of its parent that launched it, if that stands above.
        let sender = launch.filter(|_| number == 0).and_then(|launch| {
            let at = before(launch, all).map(|(at, _)| at)?;
            let above = (*self.written.get(at)?)?;
            Some((above, (launched_at - ended(&all[at])).max(0)))
        });
        let think = match sender {
            Some((_, gap)) => gap.saturating_add(t),
            None if number == 0 => OPEN_LOOP,
            None => turn
                .think
                .unwrap_or_else(|| before(turn, all).map_or(t, |(_, o)| (t - ended(o)).max(0))),
        };
        let row = self.out.columns.len();
        self.written
            .push(Some((self.out.taken as usize + row) as i32));
        let after = sender.map(|(row, _)| row);
        let columns = &mut self.out.columns;
        push_rare(&mut columns.rare.after, row, after, NOT_GIVEN);
        columns.push(ColumnRow {
            arrival_ns: launched_at.saturating_add(t),
            think_ns: think,
            input_tokens: input as i64,
            output_tokens: output as i64,
            session,
            turn: number,
            is_conversational_turn: number > 0,
        });
        Ok(())
    }

    /// The first reason why the rows so far cannot be replayed one by one.
    pub fn needs_whole(&self) -> Option<&'static str> {
        if self.audit.is_broken() {
            Some("block ids that form no prefix tree")
        } else {
            self.unnamed
                .then_some("a row of a session without block ids")
        }
    }

    /// Returns all rows with every finding.
    pub fn finish(self) -> Reading {
        let mut out = self.out;
        let found = &mut out.findings;
        let fewer =
            |c: &Counter| format!("{} rows name fewer blocks than their prompts hold", c.count);
        self.fewer.into("fewer-ids", fewer, found);
        self.silent.into("no-output", silent_rows, found);
        self.audit.findings(found);
        self.unknown.findings(found);
        out.columns.session_names = self.sessions.names;
        out
    }
}

impl Rows for WekaRows {
    /// Reads one line, a session.
    fn line(&mut self, line: &Line) -> Result<(), Refusal> {
        let text = line.text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line.text);
        if text.iter().all(u8::is_ascii_whitespace) {
            return Ok(());
        }
        let mut c = Cursor::new(text, line.number, line.cut);
        let (rows, names) = (self.out.columns.len(), self.out.ids.len());
        let sessions = self.sessions.names.len();
        let result = self.session(&mut c);
        self.local.next_session();
        self.written.clear();
        if result.is_err() {
            self.out.columns.truncate(rows);
            self.out.ids.roll_back(names);
            self.sessions.roll_back(sessions);
        }
        result
    }

    fn refuse(&mut self, problem: Refusal) -> Result<(), Refusal> {
        if !self.skip {
            return Err(problem);
        }
        self.out.skipped.add(*problem);
        Ok(())
    }

    fn waiting(&self) -> usize {
        self.out.columns.len()
    }
}

/// The row that launched a turn's sub-agent; `None` for a turn of the session itself.
fn launch_of<'a>(
    c: &Cursor,
    turn: &Turn,
    agent: &str,
    all: &'a [Turn<'a>],
) -> Result<Option<&'a Turn<'a>>, Refusal> {
    if agent.is_empty() {
        return Ok(None);
    }
    let sends = |other: &&Turn| other.agent.as_ref().is_some_and(|(name, _)| name == agent);
    let Some(sent) = all.iter().find(sends) else {
        let what = "a row of a sub-agent that was never sent out";
        return Err(c
            .problem(turn.at, "session", what)
            .got(turn.path.as_ref())
            .expected("a row of type subagent with its agent_id"));
    };
    Ok(Some(sent))
}
