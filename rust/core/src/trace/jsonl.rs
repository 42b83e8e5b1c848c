//! Rows of JSON, one a line, under any of the field's member names: Mooncake, Qwen-Bailian, LMCache.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::Read;

use super::columns::{
    BlockSizes, ChainAudit, Counter, Reading, Sessions, UnknownKeys, NO_SESSION, OPEN_LOOP,
};
use super::decimal;
use super::json::Cursor;
use super::lines::{Line, LineError, Lines, LONGEST_LINE};
use super::problem::{Problem, Refusal};
use super::source::is_damage;
use super::{Order, ReadError, Settings};

/// Lengths beyond this are taken for damage.
pub const MOST_TOKENS: u64 = i32::MAX as u64;

/// Member names and units of one format; an empty name is a member the format does not have.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    pub time: String,
    pub time_unit_ns: u64,
    pub input: String,
    pub output: String,
    pub ids: String,
    pub session: String,
    pub turn: String,
    pub delay: String,
    pub label: String,
    /// A row's own name and its predecessor's (−1 or null for none): sessions as chains of rows.
    pub chat: String,
    pub parent: String,
    /// Units of the length members in a token (bytes a token, or 1).
    pub per_token: u64,
}

#[derive(Default)]
struct Row<'a> {
    time: Option<i64>,
    time_at: usize,
    input: Option<u64>,
    input_at: usize,
    output: Option<u64>,
    has_ids: bool,
    ids_at: usize,
    session: Option<Cow<'a, str>>,
    turn: Option<i32>,
    delay: Option<i64>,
    label: Option<bool>,
    chat: Option<Cow<'a, str>>,
    parent: Option<Cow<'a, str>>,
    parent_at: usize,
}

#[derive(Default)]
struct State {
    out: Reading,
    sessions: Sessions,
    /// Chat name → (session, turn).
    chats: HashMap<String, (i32, i32)>,
    audit: ChainAudit,
    sizes: BlockSizes,
    unknown: UnknownKeys,
    fewer: Counter,
    without: Counter,
    silent: Counter,
    blank: Counter,
    mark: Counter,
    disorder: Counter,
    orphans: Counter,
    last_time: i64,
    last_time_line: u64,
    rows_with_ids: u64,
}

/// Read every row of `source`; `pulse` is called now and then with the bytes read and may stop the reading.
pub fn read<R: Read>(
    source: R,
    schema: &Schema,
    settings: &Settings,
    mut pulse: impl FnMut(u64) -> bool,
) -> Result<(Reading, R), ReadError> {
    let mut lines = Lines::new(source);
    let mut state = State::default();
    state.out.columns.id_offsets.push(0);
    let mut next_pulse = 1 << 24;
    loop {
        if lines.bytes >= next_pulse {
            next_pulse = lines.bytes + (1 << 24);
            if !pulse(lines.bytes) {
                return Err(ReadError::Stopped);
            }
        }
        let fatal = match lines.next_line() {
            Ok(None) => break,
            Ok(Some(line)) => {
                state.out.lines = line.number;
                state.line(&line, schema, settings)?;
                continue;
            }
            Err(error) => error,
        };
        let problem = line_problem(fatal, state.out.lines + 1)?;
        if !settings.skip {
            return Err(ReadError::Trace(problem));
        }
        state.out.skipped.add(*problem);
        break;
    }
    state.out.bytes = lines.bytes;
    Ok((state.finish(settings), lines.into_source()))
}

fn line_problem(error: LineError, next: u64) -> Result<Refusal, ReadError> {
    Ok(match error {
        LineError::TooLong(line) => Problem::new(line, 0, "json", "line too long")
            .expected(format!("at most {LONGEST_LINE} bytes"))
            .hint("one row a line"),
        LineError::NotText(line) => Problem::new(line, 0, "encoding", "NUL bytes and no line end")
            .expected("JSON text, one row a line"),
        LineError::Read(e) if is_damage(&e) => Problem::new(
            next,
            0,
            "truncated",
            "compressed data end early or are damaged",
        )
        .got(e.to_string()),
        LineError::Read(e) => return Err(ReadError::Io(e)),
    })
}

impl State {
    fn line(&mut self, line: &Line, schema: &Schema, settings: &Settings) -> Result<(), ReadError> {
        let mut text = line.text;
        if line.number == 1 && text.starts_with(b"\xef\xbb\xbf") {
            text = &text[3..];
            self.mark.hit(1, String::new);
        }
        if text.iter().all(|c| matches!(c, b' ' | b'\t' | b'\r')) {
            self.blank.hit(line.number, String::new);
            return Ok(());
        }
        let names = self.out.ids.len();
        let references = self.out.columns.block_ids.len();
        let mut cursor = Cursor::new(text, line.number, line.cut);
        let Err(problem) = self.row(&mut cursor, schema, settings) else {
            return Ok(());
        };
        if !settings.skip {
            return Err(ReadError::Trace(problem));
        }
        self.out.ids.roll_back(names);
        self.out.columns.block_ids.truncate(references);
        self.out.skipped.add(*problem);
        Ok(())
    }

    fn row<'a>(
        &mut self,
        c: &mut Cursor<'a>,
        schema: &Schema,
        settings: &Settings,
    ) -> Result<(), Refusal> {
        let mut unknown: Vec<(Cow<'a, str>, usize, usize)> = Vec::new();
        let mut row = Row::default();
        if !c.take(b'{') {
            return Err(not_an_object(c));
        }
        let mut seen = 0u32;
        if !c.take(b'}') {
            loop {
                c.skip_space();
                let from = c.at;
                let key = c.key()?;
                let known = self.member(&key, c, schema, &mut row)?;
                match known {
                    Some(bit) if seen & bit != 0 => {
                        return Err(c
                            .problem(from, "duplicate-key", "member given twice")
                            .got(key))
                    }
                    Some(bit) => seen |= bit,
                    None => {
                        c.skip_value()?;
                        unknown.push((key, from, c.at));
                    }
                }
                if c.take(b'}') {
                    break;
                }
                if !c.take(b',') {
                    return Err(c.unexpected("a comma or }"));
                }
            }
        }
        c.end()?;
        if unknown.len() > 1 {
            let mut sorted: Vec<&(Cow<str>, usize, usize)> = unknown.iter().collect();
            sorted.sort_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
            if let Some(pair) = sorted.windows(2).find(|w| w[0].0 == w[1].0) {
                let twice = c.problem(pair[1].1, "duplicate-key", "member given twice");
                return Err(twice.got(pair[1].0.as_ref()));
            }
        }
        self.accept(c, &row, schema, settings)?;
        if !unknown.is_empty() {
            self.unknown
                .note(c.line, unknown.iter().map(|(k, _, _)| k.as_ref()));
        }
        if settings.keep_unknown {
            let text = |&(_, from, to): &(Cow<str>, usize, usize)| {
                String::from_utf8_lossy(&c.text[from..to]).into_owned()
            };
            let members: Vec<String> = unknown.iter().map(text).collect();
            self.out.columns.extra.push(members.join(","));
        }
        Ok(())
    }

    /// Read the value of a known member; None for an unknown one, its value not read.
    #[inline]
    fn member<'a>(
        &mut self,
        key: &str,
        c: &mut Cursor<'a>,
        schema: &Schema,
        row: &mut Row<'a>,
    ) -> Result<Option<u32>, Refusal> {
        Ok(Some(if key.is_empty() {
            return Ok(None);
        } else if key == schema.ids {
            row.ids_at = c.at;
            row.has_ids = self.block_ids(c)?;
            1
        } else if key == schema.time {
            row.time_at = c.at;
            row.time = Some(time(c, key, schema.time_unit_ns)?);
            2
        } else if key == schema.input {
            row.input_at = c.at;
            row.input = Some(length(c, key, schema.per_token)?);
            4
        } else if key == schema.output {
            row.output = Some(integer(c, key, 0, MOST_TOKENS)?.div_ceil(schema.per_token));
            8
        } else if key == schema.session {
            row.session = name(c, key)?;
            16
        } else if key == schema.turn {
            row.turn = Some(integer(c, key, 0, MOST_TOKENS)? as i32);
            32
        } else if key == schema.delay {
            row.delay = optional(c, |c| time(c, key, schema.time_unit_ns))?;
            64
        } else if key == schema.label {
            row.label = Some(truth(c, key)?);
            128
        } else if key == schema.chat {
            row.chat = name(c, key)?;
            256
        } else if key == schema.parent {
            row.parent_at = c.at;
            row.parent = name(c, key)?.filter(|p| p != "-1");
            512
        } else {
            return Ok(None);
        }))
    }

    /// The array of ids, interned as they are read; false for null.
    fn block_ids(&mut self, c: &mut Cursor) -> Result<bool, Refusal> {
        if c.peek() != b'[' {
            if c.excerpt(c.at) == "null" {
                c.skip_value()?;
                return Ok(false);
            }
            if c.at >= c.text.len() {
                return Err(c.unexpected("an array of block ids"));
            }
            let wrong = c.problem(c.at, "id", "block ids are not an array");
            return Err(wrong
                .got(c.excerpt(c.at))
                .expected("an array such as [0, 1, 2]"));
        }
        c.at += 1;
        if c.take(b']') {
            return Ok(true);
        }
        let ids = &mut self.out.ids;
        let references = &mut self.out.columns.block_ids;
        loop {
            c.skip_space();
            let from = c.at;
            let mut value = 0u64;
            let mut digit = c.peek().wrapping_sub(b'0');
            while digit < 10 && c.at < from + 19 {
                value = value * 10 + u64::from(digit);
                c.at += 1;
                digit = c.peek().wrapping_sub(b'0');
            }
            let plain = c.at > from && (c.at == from + 1 || c.text[from] != b'0');
            let dense = if plain && matches!(c.peek(), b',' | b']' | b' ') {
                ids.number(value)
            } else {
                c.at = from;
                odd_id(c, ids)?
            };
            match dense {
                Some(dense) => references.push(dense),
                None => return Err(mixed_ids(c, from, ids.is_empty())),
            }
            if c.take(b',') {
                continue;
            }
            if c.take(b']') {
                return Ok(true);
            }
            return Err(c.unexpected("a comma or ] in the array of block ids"));
        }
    }

    /// Check a parsed row as a whole and append it.
    fn accept(
        &mut self,
        c: &Cursor,
        row: &Row,
        schema: &Schema,
        settings: &Settings,
    ) -> Result<(), Refusal> {
        let missing = |key: &str| {
            c.problem(0, "missing-key", format!("{key} is missing"))
                .got(c.excerpt_row())
                .expected(format!(
                    "a row with {}, {} and {}",
                    schema.time, schema.input, schema.output
                ))
        };
        let input = row.input.ok_or_else(|| missing(&schema.input))?;
        let output = row.output.ok_or_else(|| missing(&schema.output))?;
        let (session, turn) = self.place(c, row)?;
        let time = match (row.time, row.delay) {
            (Some(time), _) => time,
            (None, Some(_)) if turn > 0 => self.last_time,
            _ => return Err(missing(&schema.time)),
        };
        let think = if turn > 0 {
            row.delay.unwrap_or(OPEN_LOOP)
        } else {
            OPEN_LOOP
        };
        let first = *self.out.columns.id_offsets.last().unwrap_or(&0) as usize;
        self.check_ids(c, row, first, input, settings)?;
        if think == OPEN_LOOP {
            self.check_order(c, row, time, settings)?;
        }
        let columns = &mut self.out.columns;
        let ids = &columns.block_ids[first..];
        let line = c.line;
        self.audit
            .note(&mut self.out.ids, ids, line, input, settings.block_size);
        let count = ids.len() as u64;
        if count == 0 {
            self.without.hit(line, String::new);
        } else {
            self.rows_with_ids += 1;
            self.sizes.note(input, count);
            if count < input / settings.block_size {
                self.fewer
                    .hit(line, || format!("{count} ids for {input} tokens"));
            }
        }
        if output == 0 {
            self.silent.hit(line, String::new);
        }
        columns.arrival_ns.push(time);
        columns.input_tokens.push(input as i64);
        columns.output_tokens.push(output as i64);
        columns.id_offsets.push(columns.block_ids.len() as i64);
        columns.session.push(session);
        columns.turn.push(turn);
        columns.think_ns.push(think);
        columns
            .is_conversational_turn
            .push(row.label.unwrap_or(turn > 0));
        Ok(())
    }

    /// The session and turn of a row, by its session's name or by the chain of chats.
    fn place(&mut self, c: &Cursor, row: &Row) -> Result<(i32, i32), Refusal> {
        if let Some(chat) = &row.chat {
            return self.place_in_chain(c, row, chat);
        }
        let Some(name) = &row.session else {
            return Ok((NO_SESSION, row.turn.unwrap_or(0)));
        };
        let session = self.sessions.number(name);
        let turn = row.turn.unwrap_or(self.sessions.turns[session as usize]);
        self.sessions.turns[session as usize] = turn.saturating_add(1);
        Ok((session, turn))
    }

    fn place_in_chain(&mut self, c: &Cursor, row: &Row, chat: &str) -> Result<(i32, i32), Refusal> {
        let wrong = |what: &str| c.problem(row.parent_at, "session", what).got(chat);
        if self.chats.contains_key(chat) {
            return Err(wrong("chat named twice"));
        }
        let place = match row.parent.as_deref() {
            Some(parent) if parent == chat => return Err(wrong("chat is its own parent")),
            Some(parent) => match self.chats.get(parent) {
                Some(&(session, turn)) => Some((session, turn + 1)),
                None => {
                    self.orphans
                        .hit(c.line, || parent.chars().take(40).collect());
                    None
                }
            },
            None => None,
        };
        let place = place.unwrap_or_else(|| (self.sessions.number(chat), 0));
        self.chats.insert(chat.to_owned(), place);
        Ok(place)
    }

    fn check_ids(
        &self,
        c: &Cursor,
        row: &Row,
        first: usize,
        input: u64,
        s: &Settings,
    ) -> Result<(), Refusal> {
        let ids = &self.out.columns.block_ids[first..];
        let count = ids.len() as u64;
        let most = input.div_ceil(s.block_size);
        if count > most {
            let mut sizes = self.sizes;
            sizes.note(input, count);
            let hint = sizes.only().map_or(String::new(), |b| {
                format!("these ids fit blocks of {b} tokens (--block-size {b}, or trace.block_size: {b})")
            });
            return Err(c
                .problem(
                    row.ids_at,
                    "ids-too-many",
                    "too many block ids for the prompt",
                )
                .got(format!("{count} ids for {input} tokens"))
                .expected(format!("at most {most} ids of {} tokens", s.block_size))
                .hint(hint));
        }
        if let Some(at) = ChainAudit::repeated(&self.out.ids, ids) {
            let twice = c.problem(
                row.ids_at,
                "repeated-id",
                "a block id stands twice in one row",
            );
            return Err(twice
                .got(format!(
                    "id {} again at position {at}",
                    self.out.ids.name(ids[at])
                ))
                .expected("ids that name a block and all before it"));
        }
        Ok(())
    }

    fn check_order(
        &mut self,
        c: &Cursor,
        row: &Row,
        time: i64,
        settings: &Settings,
    ) -> Result<(), Refusal> {
        if time < self.last_time {
            if settings.order == Order::Error {
                return Err(c
                    .problem(row.time_at, "time-order", "time goes back")
                    .got(format!("{} ns", time))
                    .expected(format!(
                        "at least {} ns, as at line {}",
                        self.last_time, self.last_time_line
                    ))
                    .hint("--time-order sort puts rows in order, --time-order keep leaves them"));
            }
            self.out.unordered = true;
            self.disorder.hit(c.line, String::new);
        }
        self.last_time = self.last_time.max(time);
        self.last_time_line = c.line;
        Ok(())
    }

    fn finish(self, settings: &Settings) -> Reading {
        let mut out = self.out;
        let found = &mut out.findings;
        let rows = out.columns.arrival_ns.len() as u64;
        let fits = self
            .sizes
            .only()
            .filter(|&b| b != settings.block_size && self.rows_with_ids > 0);
        let hint = fits.map_or(String::new(), |b| {
            format!("; every row fits blocks of {b} tokens")
        });
        let size = settings.block_size;
        self.fewer.into(
            "fewer-ids",
            |c| {
                format!(
                    "{} rows name fewer blocks than their prompts hold at {size} tokens an id (first {}); the rest is \
                     private{hint}",
                    c.count, c.example
                )
            },
            found,
        );
        let without = |c: &Counter| {
            format!(
                "{} of {rows} rows name no block; their prompts are private",
                c.count
            )
        };
        self.without.into("no-ids", without, found);
        let silent = |c: &Counter| {
            format!(
                "{} rows have no output token: they end with their prefill",
                c.count
            )
        };
        self.silent.into("no-output", silent, found);
        self.audit.findings(found);
        let verb = if settings.order == Order::Sort {
            "sorted"
        } else {
            "kept as they are"
        };
        self.disorder.into(
            "time-order",
            |c| format!("{} rows arrive before the row above them; {verb}", c.count),
            found,
        );
        self.orphans.into(
            "missing-parent",
            |c| format!("{} rows follow a chat that is not in the trace (first {}); each starts a session", c.count, c.example),
            found,
        );
        self.unknown.findings(found);
        self.blank
            .into("blank-line", |c| format!("{} blank lines", c.count), found);
        let mark =
            |_: &Counter| "the file starts with a byte order mark, which is skipped".to_owned();
        self.mark.into("byte-order-mark", mark, found);
        out.columns.session_names = self.sessions.names;
        out
    }
}

fn not_an_object(c: &Cursor) -> Refusal {
    let rest = &c.text[c.at.min(c.text.len())..];
    if rest.first() == Some(&b'[') {
        return c
            .problem(c.at, "json", "a JSON array where rows should be")
            .got(c.excerpt(c.at))
            .expected("one object a line")
            .hint("jq -c '.[]' FILE writes it so");
    }
    let text = |b: &u8| b.is_ascii_graphic() && !matches!(b, b'"' | b'{' | b'[');
    if rest.iter().take(2).all(text) && rest.contains(&b',') && !rest.contains(&b'{') {
        return c
            .problem(c.at, "json", "a line of CSV where a JSON object should be")
            .got(c.excerpt(c.at))
            .hint("--trace-format names the format");
    }
    c.unexpected("a row such as {\"timestamp\": 0, …}")
}

/// An id that is not a plain run of digits.
#[cold]
fn odd_id(c: &mut Cursor, ids: &mut super::intern::IdTable) -> Result<Option<u32>, Refusal> {
    let from = c.at;
    let wrong = |c: &Cursor, what: &str| {
        Err(c
            .problem(from, "id", what)
            .got(c.excerpt(from))
            .expected("an integer from 0 to 2⁶⁴−1, or a string"))
    };
    match c.peek() {
        b'"' => {
            let text = c.string()?;
            if text.is_empty() {
                return wrong(c, "empty block id");
            }
            Ok(ids.text(&text))
        }
        b'-' | b'0'..=b'9' => {
            let text = c.number()?;
            match std::str::from_utf8(text)
                .ok()
                .and_then(|t| t.parse::<u64>().ok())
            {
                Some(value) => Ok(ids.number(value)),
                None if text[0] == b'-' => wrong(c, "negative block id"),
                None if text.iter().all(u8::is_ascii_digit) => wrong(c, "block id beyond 64 bits"),
                None => wrong(c, "block id that is no integer"),
            }
        }
        _ if c.at >= c.text.len() => Err(c.unexpected("a block id")),
        _ => wrong(c, "not a block id"),
    }
}

#[cold]
fn mixed_ids(c: &Cursor, from: usize, full: bool) -> Refusal {
    if full {
        return c.problem(from, "id", "more than 2³²−1 distinct block ids");
    }
    c.problem(from, "id", "block ids of two kinds in one trace")
        .got(c.excerpt(from))
        .expected("integers only, or strings only")
}

/// A length in tokens.
#[inline]
fn length(c: &mut Cursor, key: &str, per_token: u64) -> Result<u64, Refusal> {
    let value = integer(c, key, 1, MOST_TOKENS)?;
    Ok(if per_token > 1 {
        (value / per_token).max(1)
    } else {
        value
    })
}

#[inline]
fn integer(c: &mut Cursor, key: &str, least: u64, most: u64) -> Result<u64, Refusal> {
    let from = c.at;
    let mut value = 0u64;
    while c.peek().is_ascii_digit() && c.at < from + 18 {
        value = value * 10 + u64::from(c.peek() - b'0');
        c.at += 1;
    }
    let plain = c.at > from && (c.at == from + 1 || c.text[from] != b'0');
    if plain && matches!(c.peek(), b',' | b'}' | b' ') && (least..=most).contains(&value) {
        return Ok(value);
    }
    c.at = from;
    odd_integer(c, key, least, most)
}

#[cold]
fn odd_integer(c: &mut Cursor, key: &str, least: u64, most: u64) -> Result<u64, Refusal> {
    let from = c.at;
    if c.at >= c.text.len() {
        return Err(c.unexpected("an integer"));
    }
    let expected = format!("an integer from {least} to {most}");
    let number = matches!(c.peek(), b'-' | b'0'..=b'9');
    if number {
        let text = c.number()?;
        let value = std::str::from_utf8(text)
            .ok()
            .and_then(|t| t.parse::<u64>().ok());
        if let Some(value) = value.filter(|v| (least..=most).contains(v)) {
            return Ok(value);
        }
    }
    let got = c.excerpt(from);
    let what = if number {
        let least_said = if least == 1 { "≥ 1" } else { "≥ 0" };
        format!("{key} must be an integer {least_said}")
    } else {
        format!("{key} is no number")
    };
    let hint = if got.starts_with('"') {
        "write it without quotes"
    } else {
        ""
    };
    Err(c
        .problem(from, "length", what)
        .got(got)
        .expected(expected)
        .hint(hint))
}

/// A time of `unit` nanoseconds, decimal text scaled exactly.
#[inline]
fn time(c: &mut Cursor, key: &str, unit: u64) -> Result<i64, Refusal> {
    let from = c.at;
    let wrong = |c: &Cursor, what: &str| {
        let got = c.excerpt(from);
        let hint = if got.starts_with('"') {
            "write it without quotes"
        } else {
            ""
        };
        c.problem(from, "time", format!("{key} {what}"))
            .got(got)
            .expected("a finite number ≥ 0")
            .hint(hint)
    };
    if c.at < c.text.len() && !matches!(c.peek(), b'-' | b'0'..=b'9') {
        return Err(wrong(c, "is no number"));
    }
    let text = c.number()?;
    let value = decimal::scaled(text, unit).ok_or_else(|| wrong(c, "is out of range"))?;
    if value < 0 {
        return Err(wrong(c, "is negative"));
    }
    Ok(value)
}

fn optional<T>(
    c: &mut Cursor,
    value: impl FnOnce(&mut Cursor) -> Result<T, Refusal>,
) -> Result<Option<T>, Refusal> {
    if c.peek() == b'n' {
        c.skip_value()?;
        return Ok(None);
    }
    value(c).map(Some)
}

/// A name: a string, an integer by its digits, or null for none.
fn name<'a>(c: &mut Cursor<'a>, key: &str) -> Result<Option<Cow<'a, str>>, Refusal> {
    let from = c.at;
    match c.peek() {
        b'"' => return Ok(Some(c.string()?)),
        b'n' => {
            c.skip_value()?;
            return Ok(None);
        }
        b'-' | b'0'..=b'9' => {
            let text = c.number()?;
            if let Ok(text) = std::str::from_utf8(text) {
                if text.bytes().all(|b| b == b'-' || b.is_ascii_digit()) {
                    return Ok(Some(Cow::Borrowed(text)));
                }
            }
        }
        _ if c.at >= c.text.len() => return Err(c.unexpected("a name")),
        _ => {}
    }
    Err(c
        .problem(from, "session", format!("{key} is no name"))
        .got(c.excerpt(from))
        .expected("a string or an integer"))
}

fn truth(c: &mut Cursor, key: &str) -> Result<bool, Refusal> {
    let from = c.at;
    match c.skip_value()? {
        b"true" => Ok(true),
        b"false" => Ok(false),
        _ => Err(c
            .problem(from, "json", format!("{key} is no truth value"))
            .got(c.excerpt(from))
            .expected("true or false")),
    }
}
