//! One row: its members, its checks as a whole, its place in the columns.

use std::borrow::Cow;
use std::collections::HashMap;

use super::super::audit::{BlockSizes, ChainAudit, UnknownKeys};
use super::super::columns::{
    push_rare, Counter, Reading, Sessions, NOT_TOLD, NO_SESSION, OPEN_LOOP,
};
use super::super::json::Cursor;
use super::super::lines::Line;
use super::super::problem::Refusal;
use super::super::{Order, Settings};
use super::values::{block_ids, integer, length, name, optional, time, truth, MOST_TOKENS};
use super::Schema;

#[derive(Default)]
struct Row<'a> {
    time: Option<i64>,
    time_at: usize,
    input: Option<u64>,
    output: Option<u64>,
    ids_at: usize,
    session: Option<Cow<'a, str>>,
    turn: Option<i32>,
    delay: Option<i64>,
    label: Option<bool>,
    after: Option<i32>,
    history: Option<i64>,
    new_input_only: bool,
    chat: Option<Cow<'a, str>>,
    chat_at: usize,
    parent: Option<Cow<'a, str>>,
}

/// Where a row stands: its session (None: one that starts here), and its turn.
struct Place {
    session: Option<i32>,
    turn: i32,
    orphan: bool,
}

/// The rows read so far.
pub struct Rows<'s> {
    schema: &'s Schema,
    settings: Settings,
    out: Reading,
    sessions: Sessions,
    /// Chat name → (session, turn).
    chats: HashMap<String, (i32, i32)>,
    audit: ChainAudit,
    sizes: BlockSizes,
    unknown: UnknownKeys,
    counters: Counters,
    last_time: i64,
    last_time_line: u64,
    /// Rows seen, bad ones included, and where each good one went: what `after` counts in.
    ordinal: u64,
    went: Vec<i32>,
}

#[derive(Default)]
struct Counters {
    fewer: Counter,
    without: Counter,
    silent: Counter,
    blank: Counter,
    mark: Counter,
    disorder: Counter,
    orphans: Counter,
}

impl<'s> Rows<'s> {
    pub fn new(schema: &'s Schema, settings: Settings) -> Self {
        let mut out = Reading::default();
        out.columns.id_offsets.push(0);
        Rows {
            schema,
            settings,
            out,
            sessions: Sessions::default(),
            chats: HashMap::new(),
            audit: ChainAudit::default(),
            sizes: BlockSizes::default(),
            unknown: UnknownKeys::default(),
            counters: Counters::default(),
            last_time: 0,
            last_time_line: 0,
            ordinal: 0,
            went: Vec::new(),
        }
    }

    /// Read one line, or count it as skipped.
    pub fn line(&mut self, line: &Line) -> Result<(), Refusal> {
        let mut text = line.text;
        if line.number == 1 && text.starts_with(b"\xef\xbb\xbf") {
            text = &text[3..];
            self.counters.mark.hit(1, String::new);
        }
        if text.iter().all(|c| matches!(c, b' ' | b'\t' | b'\r')) {
            self.counters.blank.hit(line.number, String::new);
            return Ok(());
        }
        let names = self.out.ids.len();
        let references = self.out.columns.block_ids.len();
        let mut cursor = Cursor::new(text, line.number, line.cut);
        let row = self.out.columns.arrival_ns.len() as i32;
        let result = self.row(&mut cursor);
        self.ordinal += 1;
        if self.settings.skip {
            self.went.push(if result.is_ok() { row } else { NOT_TOLD });
        }
        let Err(problem) = result else {
            return Ok(());
        };
        self.out.ids.roll_back(names);
        self.out.columns.block_ids.truncate(references);
        self.refuse(problem)
    }

    /// Hand a problem on, or count it where bad rows are skipped.
    pub fn refuse(&mut self, problem: Refusal) -> Result<(), Refusal> {
        if !self.settings.skip {
            return Err(problem);
        }
        self.out.skipped.add(*problem);
        Ok(())
    }

    fn row<'a>(&mut self, c: &mut Cursor<'a>) -> Result<(), Refusal> {
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
                let (known, written) = match c.plain_key() {
                    Some(key) => (self.member(key, c, &mut row)?, None),
                    None => {
                        c.at = from;
                        let key = c.key()?;
                        (self.member(key.as_bytes(), c, &mut row)?, Some(key))
                    }
                };
                match known {
                    Some(bit) if seen & bit != 0 => return Err(given_twice(c, from)),
                    Some(bit) => seen |= bit,
                    None => {
                        let key = match written {
                            Some(key) => key,
                            None => {
                                c.at = from;
                                c.key()?
                            }
                        };
                        c.skip_value()?;
                        unknown.push((key, from, c.at));
                    }
                }
                if c.take(b',') {
                    continue;
                }
                if c.take(b'}') {
                    break;
                }
                return Err(c.unexpected("a comma or }"));
            }
        }
        c.end()?;
        if unknown.len() > 1 {
            let mut sorted: Vec<&(Cow<str>, usize, usize)> = unknown.iter().collect();
            sorted.sort_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
            if let Some(pair) = sorted.windows(2).find(|w| w[0].0 == w[1].0) {
                return Err(given_twice(c, pair[1].1));
            }
        }
        self.accept(c, &row)?;
        if !unknown.is_empty() {
            self.unknown
                .note(c.line, unknown.iter().map(|(k, _, _)| k.as_ref()));
        }
        if self.settings.keep_unknown {
            let text = |&(_, from, to): &(Cow<str>, usize, usize)| {
                String::from_utf8_lossy(&c.text[from..to]).into_owned()
            };
            let members: Vec<String> = unknown.iter().map(text).collect();
            self.out.columns.extra.push(members.join(","));
        }
        Ok(())
    }

    /// Read the value of a known member and return its bit; None for an unknown one, its value not read.
    #[inline]
    fn member<'a>(
        &mut self,
        key: &[u8],
        c: &mut Cursor<'a>,
        row: &mut Row<'a>,
    ) -> Result<Option<u32>, Refusal> {
        let s = self.schema;
        let is = |name: &str| key == name.as_bytes() && !key.is_empty();
        let from = c.at;
        Ok(Some(if is(&s.ids) {
            row.ids_at = from;
            block_ids(c, &mut self.out.ids, &mut self.out.columns.block_ids)?;
            1
        } else if is(&s.time) {
            row.time_at = from;
            row.time = optional(c, |c| time(c, &s.time, s.time_unit_ns))?;
            2
        } else if is(&s.input) {
            row.input = Some(length(c, &s.input, s.per_token)?);
            4
        } else if is(&s.output) {
            row.output = Some(integer(c, &s.output, 0, MOST_TOKENS)?.div_ceil(s.per_token));
            8
        } else if is(&s.session) {
            row.session = name(c, &s.session)?;
            16
        } else if is(&s.turn) {
            row.turn = Some(integer(c, &s.turn, 0, MOST_TOKENS)? as i32);
            32
        } else if is(&s.delay) {
            row.delay = optional(c, |c| time(c, &s.delay, s.time_unit_ns))?;
            64
        } else if is(&s.label) {
            row.label = Some(truth(c, &s.label)?);
            128
        } else if is(&s.after) {
            row.after = Some(self.waits_for(c)?);
            1024
        } else if is(&s.history) {
            row.history = Some(integer(c, &s.history, 0, MOST_TOKENS)? as i64);
            2048
        } else if is(&s.structure) {
            row.new_input_only = structure(c)?;
            4096
        } else if is(&s.chat) {
            row.chat_at = from;
            row.chat = name(c, &s.chat)?;
            256
        } else if is(&s.parent) {
            row.parent = name(c, &s.parent)?.filter(|p| p != "-1");
            512
        } else {
            return Ok(None);
        }))
    }

    /// The row a row waits for: one that stands above it.
    fn waits_for(&self, c: &mut Cursor) -> Result<i32, Refusal> {
        let from = c.at;
        let row = integer(c, &self.schema.after, 0, MOST_TOKENS)?;
        if row >= self.ordinal {
            return Err(c
                .problem(from, "session", "a row that waits for one not above it")
                .got(row.to_string())
                .expected(format!("a row (from 0) before row {}", self.ordinal)));
        }
        Ok(row as i32)
    }

    /// Check a parsed row as a whole and append it.
    fn accept(&mut self, c: &Cursor, row: &Row) -> Result<(), Refusal> {
        let s = self.schema;
        let missing = |key: &str| {
            c.problem(0, "missing-key", format!("{key} is missing"))
                .got(c.excerpt_row())
                .expected(format!(
                    "a row with {}, {} and {}",
                    s.time, s.input, s.output
                ))
        };
        let input = row.input.ok_or_else(|| missing(&s.input))?;
        let output = row.output.ok_or_else(|| missing(&s.output))?;
        let place = self.place(c, row)?;
        let time = match (row.time, row.delay) {
            (Some(time), _) => time,
            (None, Some(_)) => self.last_time.max(0),
            _ => return Err(missing(&s.time)),
        };
        // A first turn with a time of its own arrives then, whatever delay it has.
        let follows = row.time.is_none() || place.turn > 0 || row.after.is_some();
        let think = row.delay.filter(|_| follows).unwrap_or(OPEN_LOOP);
        if row.new_input_only != self.out.new_input_only && !self.out.columns.arrival_ns.is_empty()
        {
            let mixed = c.problem(
                0,
                "structure",
                "rows of whole prompts and of new input in one trace",
            );
            return Err(mixed.expected(format!("the same {} in every row", s.structure)));
        }
        let first = *self.out.columns.id_offsets.last().unwrap_or(&0) as usize;
        self.check_count(c, row, first, input)?;
        let early = think == OPEN_LOOP && time < self.last_time;
        if early && self.settings.order == Order::Error {
            return Err(self.time_went_back(c, row, time));
        }
        let block_size = self.settings.block_size;
        let ids = &self.out.columns.block_ids[first..];
        if let Err(at) = self
            .audit
            .note(&mut self.out.ids, ids, c.line, input, block_size)
        {
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
        self.count(c.line, ids.len() as u64, input, output, early);
        let (session, turn) = self.settle(c.line, row, &place);
        if think == OPEN_LOOP && !early {
            self.last_time = time;
            self.last_time_line = c.line;
        }
        self.out.new_input_only |= row.new_input_only;
        let columns = &mut self.out.columns;
        let rows = columns.arrival_ns.len();
        push_rare(&mut columns.after, rows, row.after);
        push_rare(&mut columns.history_tokens, rows, row.history);
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

    fn count(&mut self, line: u64, ids: u64, input: u64, output: u64, early: bool) {
        let counters = &mut self.counters;
        if ids == 0 {
            counters.without.hit(line, String::new);
        } else {
            self.sizes.note(input, ids);
            if ids < input / self.settings.block_size {
                counters
                    .fewer
                    .hit(line, || format!("{ids} ids for {input} tokens"));
            }
        }
        if output == 0 {
            counters.silent.hit(line, String::new);
        }
        if early {
            self.out.unordered = true;
            counters.disorder.hit(line, String::new);
        }
    }

    /// The session and turn of a row, by its session's name or by the chain of chats; changes nothing.
    fn place(&self, c: &Cursor, row: &Row) -> Result<Place, Refusal> {
        let at = |session: Option<i32>, turn: i32, orphan: bool| {
            Ok(Place {
                session,
                turn,
                orphan,
            })
        };
        let Some(chat) = &row.chat else {
            let session = row.session.as_ref().map(|name| self.sessions.get(name));
            return match session {
                None => at(None, row.turn.unwrap_or(0), false),
                Some(None) => at(None, row.turn.unwrap_or(0), false),
                Some(Some(n)) => at(
                    Some(n),
                    row.turn.unwrap_or(self.sessions.turns[n as usize]),
                    false,
                ),
            };
        };
        let wrong = |what: &str| c.problem(row.chat_at, "session", what).got(chat.as_ref());
        if self.chats.contains_key(chat.as_ref()) {
            return Err(wrong("chat named twice"));
        }
        match row.parent.as_deref() {
            Some(parent) if parent == chat => Err(wrong("chat is its own parent")),
            Some(parent) => match self.chats.get(parent) {
                Some(&(session, turn)) => at(Some(session), turn + 1, false),
                None => at(None, 0, true),
            },
            None => at(None, 0, false),
        }
    }

    /// Give an accepted row its session, starting one where it is new.
    fn settle(&mut self, line: u64, row: &Row, place: &Place) -> (i32, i32) {
        if place.orphan {
            let parent = row.parent.as_deref().unwrap_or_default();
            self.counters
                .orphans
                .hit(line, || parent.chars().take(40).collect());
        }
        let name = row.chat.as_ref().or(row.session.as_ref());
        let session = match (place.session, name) {
            (Some(session), _) => session,
            (None, Some(name)) => self.sessions.number(name),
            (None, None) => return (NO_SESSION, place.turn),
        };
        if let Some(chat) = &row.chat {
            self.chats
                .insert(chat.clone().into_owned(), (session, place.turn));
        } else {
            self.sessions.turns[session as usize] = place.turn.saturating_add(1);
        }
        (session, place.turn)
    }

    fn check_count(&self, c: &Cursor, row: &Row, first: usize, input: u64) -> Result<(), Refusal> {
        let size = self.settings.block_size;
        let count = (self.out.columns.block_ids.len() - first) as u64;
        let most = input.div_ceil(size);
        if count <= most {
            return Ok(());
        }
        let mut sizes = self.sizes;
        sizes.note(input, count);
        let hint = sizes.only().map_or(String::new(), |b| {
            format!(
                "these ids fit blocks of {b} tokens: trace.block_size: {b}, or --block-size {b}"
            )
        });
        let many = c.problem(
            row.ids_at,
            "ids-too-many",
            "too many block ids for the prompt",
        );
        Err(many
            .got(format!("{count} ids for {input} tokens"))
            .expected(format!("at most {most} ids of {size} tokens"))
            .hint(hint))
    }

    #[cold]
    fn time_went_back(&self, c: &Cursor, row: &Row, time: i64) -> Refusal {
        c.problem(row.time_at, "time-order", "time goes back")
            .got(format!("{time} ns"))
            .expected(format!(
                "at least {} ns, as at line {}",
                self.last_time, self.last_time_line
            ))
            .hint("--time-order sort puts the rows in order, --time-order keep leaves them")
    }

    /// Hand over what was read, with every finding.
    pub fn finish(self) -> Reading {
        let mut out = self.out;
        if self.settings.skip {
            let went =
                |row: &mut i32| *row = self.went.get(*row as usize).copied().unwrap_or(NOT_TOLD);
            out.columns.after.iter_mut().for_each(went);
        }
        let found = &mut out.findings;
        let rows = out.columns.arrival_ns.len() as u64;
        let size = self.settings.block_size;
        let fits = self.sizes.only().filter(|&b| b != size);
        let hint = fits.map_or(String::new(), |b| {
            format!("; every row fits blocks of {b} tokens")
        });
        let counters = self.counters;
        let fewer = |c: &Counter| {
            format!(
                "{} rows name fewer blocks than their prompts hold at {size} tokens an id (first {}); the rest is \
                 private{hint}",
                c.count, c.example
            )
        };
        counters.fewer.into("fewer-ids", fewer, found);
        let without = |c: &Counter| {
            format!(
                "{} of {rows} rows name no block; their prompts are private",
                c.count
            )
        };
        counters.without.into("no-ids", without, found);
        let silent = |c: &Counter| {
            format!(
                "{} rows have no output token: they end with their prefill",
                c.count
            )
        };
        counters.silent.into("no-output", silent, found);
        self.audit.findings(found);
        let sorted = self.settings.order == Order::Sort;
        let verb = if sorted { "sorted" } else { "kept as they are" };
        let disorder =
            |c: &Counter| format!("{} rows arrive before a row above them; {verb}", c.count);
        counters.disorder.into("time-order", disorder, found);
        let orphans = |c: &Counter| {
            format!(
                "{} rows follow a chat that is not in the trace (first {}); each starts a session",
                c.count, c.example
            )
        };
        counters.orphans.into("missing-parent", orphans, found);
        self.unknown.findings(found);
        let blank = |c: &Counter| format!("{} blank lines", c.count);
        counters.blank.into("blank-line", blank, found);
        let mark =
            |_: &Counter| "the file starts with a byte order mark, which is skipped".to_owned();
        counters.mark.into("byte-order-mark", mark, found);
        out.columns.session_names = self.sessions.names;
        out
    }
}

/// Whether a row says that it holds the new input of its turn only.
fn structure(c: &mut Cursor) -> Result<bool, Refusal> {
    let from = c.at;
    match c.skip_value()? {
        b"\"new_input_only\"" => Ok(true),
        b"\"full_history_plus_new_input\"" => Ok(false),
        _ => Err(c
            .problem(from, "structure", "unknown prompt structure")
            .got(c.excerpt(from))
            .expected("new_input_only or full_history_plus_new_input")),
    }
}

#[cold]
fn given_twice(c: &Cursor, from: usize) -> Refusal {
    c.problem(from, "duplicate-key", "member given twice")
        .got(c.excerpt(from))
}

#[cold]
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
