//! WEKA agentic sessions: one session a line, its rows with think times, sub-agents, and ranges of local ids.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::Read;

use super::audit::{ChainAudit, UnknownKeys};
use super::columns::{push_rare, Counter, Reading, Sessions, OPEN_LOOP};
use super::intern::{Names, NONE};
use super::json::Cursor;
use super::jsonl::line_problem;
use super::jsonl::values::{integer, name, time, MOST_TOKENS};
use super::lines::{Line, Lines};
use super::problem::Refusal;
use super::{ReadError, Settings};

const NS_PER_S: u64 = 1_000_000_000;
/// Local ids below this are numbered by a table, others by a map.
const TABLE: u64 = 1 << 22;
/// Members that say nothing about what is cached or when.
const IGNORED: [&str; 6] = [
    "models",
    "tool_tokens",
    "system_tokens",
    "model",
    "stop",
    "type",
];

/// One element of `rows`.
#[derive(Default)]
struct Turn<'a> {
    at: usize,
    path: Cow<'a, str>,
    t: Option<i64>,
    input: Option<u64>,
    output: Option<u64>,
    api: Option<i64>,
    think: Option<i64>,
    hash: Option<Cow<'a, str>>,
    hash_at: usize,
    /// A sub-agent's name and the time at which it was sent out.
    agent: Option<(Cow<'a, str>, i64)>,
}

/// Read every session. A sub-agent's rows are a session of their own that starts at its launch; within a
/// session each row but the first waits its think time behind the row before it.
pub fn read<R: Read>(
    source: R,
    settings: &Settings,
    mut pulse: impl FnMut(u64) -> bool,
) -> Result<(Reading, R), ReadError> {
    let mut lines = Lines::new(source);
    let mut file = File::default();
    file.out.columns.id_offsets.push(0);
    file.out.block_size = settings.block_size;
    let mut number = 0;
    loop {
        if !pulse(lines.bytes) {
            return Err(ReadError::Stopped);
        }
        let problem = match lines.next_line() {
            Ok(None) => break,
            Ok(Some(line)) => {
                number = line.number;
                match file.line(&line) {
                    Ok(()) => continue,
                    Err(problem) => problem,
                }
            }
            Err(error) => {
                let problem = line_problem(error, number + 1)?;
                if !settings.skip {
                    return Err(ReadError::Trace(problem));
                }
                file.out.skipped.add(*problem);
                break;
            }
        };
        if !settings.skip {
            return Err(ReadError::Trace(problem));
        }
        file.out.skipped.add(*problem);
    }
    let mut reading = file.finish();
    reading.lines = number;
    reading.bytes = lines.bytes;
    Ok((reading, lines.into_source()))
}

#[derive(Default)]
struct File {
    out: Reading,
    sessions: Sessions,
    files_sessions: u64,
    audit: ChainAudit,
    unknown: UnknownKeys,
    silent: Counter,
    fewer: Counter,
    /// Where the elements of the session being read went.
    written: Vec<Option<i32>>,
    table: Vec<u32>,
    far: HashMap<u64, u32>,
}

impl File {
    fn line(&mut self, line: &Line) -> Result<(), Refusal> {
        let text = line.text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line.text);
        if text.iter().all(u8::is_ascii_whitespace) {
            return Ok(());
        }
        let mut c = Cursor::new(text, line.number, line.cut);
        let (rows, names) = (self.out.columns.arrival_ns.len(), self.out.ids.len());
        let sessions = self.sessions.names.len();
        let result = self.session(&mut c);
        self.table.iter_mut().for_each(|slot| *slot = NONE);
        self.far.clear();
        self.written.clear();
        self.files_sessions += 1;
        if result.is_err() {
            let columns = &mut self.out.columns;
            columns.arrival_ns.truncate(rows);
            columns.input_tokens.truncate(rows);
            columns.output_tokens.truncate(rows);
            columns.id_offsets.truncate(rows + 1);
            columns
                .block_ids
                .truncate(columns.id_offsets[rows] as usize);
            columns.session.truncate(rows);
            columns.turn.truncate(rows);
            columns.think_ns.truncate(rows);
            columns.is_conversational_turn.truncate(rows);
            columns.after.truncate(rows);
            self.out.ids.roll_back(names);
            self.sessions.roll_back(sessions);
        }
        result
    }

    fn session(&mut self, c: &mut Cursor) -> Result<(), Refusal> {
        let mut id: Option<Cow<str>> = None;
        let mut block_size = None;
        let mut turns = Vec::new();
        let mut seen_rows = false;
        if !c.take(b'{') {
            return Err(c.unexpected("a session such as {\"session\": …, \"rows\": […]}"));
        }
        members(c, |c, key, at| {
            match key {
                "session" => id = name(c, key)?,
                "block_size" => block_size = Some((at, integer(c, key, 1, 1 << 20)?)),
                "rows" => {
                    seen_rows = true;
                    self.rows(c, &mut turns)?;
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

    fn rows<'a>(&mut self, c: &mut Cursor<'a>, out: &mut Vec<Turn<'a>>) -> Result<(), Refusal> {
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
            members(c, |c, key, _| {
                let seconds = |c: &mut Cursor<'a>| seconds(c, key);
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
                    _ => self.other(c, key)?,
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

    fn append(&mut self, c: &Cursor, id: &str, turn: &Turn, all: &[Turn]) -> Result<(), Refusal> {
        if turn.agent.is_some() {
            self.written.push(None);
            return Ok(()); // a launch, not a request: its rows stand under their own path
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
        let launch = if agent.is_empty() {
            None
        } else {
            let sent = all
                .iter()
                .find(|o| o.agent.as_ref().is_some_and(|(name, _)| name == agent));
            Some(sent.ok_or_else(|| {
                c.problem(
                    turn.at,
                    "session",
                    "a row of a sub-agent that was never sent out",
                )
                .got(turn.path.as_ref())
                .expected("a row of type subagent with its agent_id")
            })?)
        };
        let from = self.out.columns.block_ids.len();
        self.expand(c, turn, input)?;
        let size = self.out.block_size;
        let ids = &self.out.columns.block_ids[from..];
        self.audit
            .note(&mut self.out.ids, ids, c.line, input, size)
            .map_err(|at| {
                c.problem(
                    turn.hash_at,
                    "repeated-id",
                    "a block id stands twice in one row",
                )
                .got(format!("at position {at}"))
            })?;
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
        // A sub-agent waits for the row of its parent that sent it out, as long as the file's times say.
        let sender = launch.filter(|_| number == 0).and_then(|launch| {
            let at = before(launch, all).map(|(at, _)| at)?;
            Some((self.written[at]?, (launched_at - ended(&all[at])).max(0)))
        });
        let think = match sender {
            Some((_, gap)) => gap.saturating_add(t),
            None if number == 0 => OPEN_LOOP,
            None => turn
                .think
                .unwrap_or_else(|| before(turn, all).map_or(t, |(_, o)| (t - ended(o)).max(0))),
        };
        let row = self.out.columns.arrival_ns.len();
        self.written.push(Some(row as i32));
        let columns = &mut self.out.columns;
        push_rare(&mut columns.after, row, sender.map(|(row, _)| row));
        columns.arrival_ns.push(launched_at.saturating_add(t));
        columns.input_tokens.push(input as i64);
        columns.output_tokens.push(output as i64);
        columns.id_offsets.push(columns.block_ids.len() as i64);
        columns.session.push(session);
        columns.turn.push(number);
        columns.think_ns.push(think);
        columns.is_conversational_turn.push(number > 0);
        Ok(())
    }

    /// Append the ids of a row's ranges, such as `1-347,353-364`.
    fn expand(&mut self, c: &Cursor, turn: &Turn, input: u64) -> Result<(), Refusal> {
        let size = self.out.block_size;
        let most = input.div_ceil(size);
        let text = turn.hash.as_deref().unwrap_or_default();
        let mut count = 0u64;
        for range in text.split(',').filter(|r| !r.is_empty()) {
            let (low, high) = range.split_once('-').unwrap_or((range, range));
            let parsed = low
                .parse::<u32>()
                .ok()
                .zip(high.parse::<u32>().ok())
                .filter(|(l, h)| l <= h);
            let Some((low, high)) = parsed else {
                return Err(c
                    .problem(turn.hash_at, "id", "not a range of block ids")
                    .got(range.chars().take(40).collect::<String>())
                    .expected("ranges such as 1-347,353-364"));
            };
            count += u64::from(high - low) + 1;
            if count > most {
                return Err(c
                    .problem(
                        turn.hash_at,
                        "ids-too-many",
                        "too many block ids for the prompt",
                    )
                    .got(format!("{count} ids or more for {input} tokens"))
                    .expected(format!("at most {most} ids of {size} tokens")));
            }
            for local in low..=high {
                let dense = self.number(u64::from(local)).ok_or_else(|| {
                    c.problem(turn.hash_at, "id", "more than 2³²−1 distinct block ids")
                })?;
                self.out.columns.block_ids.push(dense);
            }
        }
        Ok(())
    }

    /// The dense number of an id of the session being read; its name is session × 2³² + id.
    fn number(&mut self, local: u64) -> Option<u32> {
        let next = u32::try_from(self.out.ids.len())
            .ok()
            .filter(|&n| n != NONE)?;
        let slot = if local < TABLE {
            let at = local as usize;
            if at >= self.table.len() {
                self.table.resize((at + 1).next_power_of_two(), NONE);
            }
            &mut self.table[at]
        } else {
            self.far.entry(local).or_insert(NONE)
        };
        if *slot != NONE {
            return Some(*slot);
        }
        *slot = next;
        if let Names::Numbers(names) = &mut self.out.ids.names {
            names.push((self.files_sessions << 32) | local);
        }
        Some(next)
    }

    fn finish(self) -> Reading {
        let mut out = self.out;
        let found = &mut out.findings;
        let fewer =
            |c: &Counter| format!("{} rows name fewer blocks than their prompts hold", c.count);
        self.fewer.into("fewer-ids", fewer, found);
        let silent = |c: &Counter| {
            format!(
                "{} rows have no output token: they end with their prefill",
                c.count
            )
        };
        self.silent.into("no-output", silent, found);
        self.audit.findings(found);
        self.unknown.findings(found);
        out.columns.session_names = self.sessions.names;
        out
    }
}

/// The row before an element on the same path, with its place.
fn before<'t, 'a>(turn: &Turn, all: &'t [Turn<'a>]) -> Option<(usize, &'t Turn<'a>)> {
    let above = all.iter().enumerate().take_while(|(_, o)| o.at < turn.at);
    above
        .filter(|(_, o)| o.path == turn.path && o.agent.is_none())
        .last()
}

/// When a row's answer was there, by the file's own times.
fn ended(turn: &Turn) -> i64 {
    turn.t.unwrap_or(0).saturating_add(turn.api.unwrap_or(0))
}

fn seconds(c: &mut Cursor, key: &str) -> Result<Option<i64>, Refusal> {
    if c.peek() == b'n' {
        c.skip_value()?;
        return Ok(None);
    }
    time(c, key, NS_PER_S).map(Some)
}

/// The name and launch time of a sub-agent.
fn agent<'a>(c: &mut Cursor<'a>) -> Result<Option<(Cow<'a, str>, i64)>, Refusal> {
    let from = c.at;
    if !c.take(b'{') {
        return Err(c.unexpected("a sub-agent's members"));
    }
    let mut id = None;
    let mut at = None;
    members(c, |c, key, _| {
        match key {
            "agent_id" => id = name(c, key)?,
            "t" => at = seconds(c, key)?,
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

/// Walk the members of an object whose brace was taken, refusing a name given twice.
fn members<'a>(
    c: &mut Cursor<'a>,
    mut member: impl FnMut(&mut Cursor<'a>, &str, usize) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let mut seen: Vec<Cow<'a, str>> = Vec::new();
    if c.take(b'}') {
        return Ok(());
    }
    loop {
        c.skip_space();
        let from = c.at;
        let key = c.key()?;
        if seen.len() > 1000 {
            return Err(c.problem(from, "json", "more than 1000 members in an object"));
        }
        if seen.contains(&key) {
            return Err(c
                .problem(from, "duplicate-key", "member given twice")
                .got(key));
        }
        let at = c.at;
        member(c, &key, at)?;
        seen.push(key);
        if c.take(b'}') {
            return Ok(());
        }
        if !c.take(b',') {
            return Err(c.unexpected("a comma or }"));
        }
    }
}
