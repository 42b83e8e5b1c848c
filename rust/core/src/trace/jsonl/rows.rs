//! Rows one by one: checks of the whole row, its entry in the columns, and the treatment of bad rows.

use std::borrow::Cow;
use std::sync::Arc;

use super::super::columns::{push_rare, ColumnRow, Reading, NOT_GIVEN, NO_SESSION, OPEN_LOOP};
use super::super::json::Cursor;
use super::super::lines::{Line, Rows};
use super::super::problem::Refusal;
use super::super::sampler::Sampler;
use super::super::{Order, Settings};
use super::destination::Destination;
use super::remarks::Remarks;
use super::row::Row;
use super::session_turns::SessionTurns;
use super::Schema;

mod refusals;
use refusals::{given_twice, not_an_object};

pub mod batch;

/// The rows read so far.
pub struct JsonRows {
    schema: Schema,
    settings: Settings,
    pub out: Reading,
    slots: SessionTurns,
    remarks: Remarks,
    last_time: i64,
    last_time_line: u64,
    /// Rows read, bad rows included, and the column index of each good row; `after` counts these rows.
    ordinal: u64,
    went: Vec<i32>,
    /// True if no row so far has a session, a pause or a predecessor, and all rows have ids.
    alone: bool,
    /// True if a row of a session has no ids.
    unnamed_turn: bool,
    pub sampler: Option<Sampler>,
}

impl JsonRows {
    pub fn new(schema: Schema, settings: Settings) -> Self {
        let mut out = Reading::default();
        out.columns.id_offsets.push(0);
        Self {
            schema,
            settings,
            out,
            slots: SessionTurns::default(),
            remarks: Remarks::default(),
            last_time: 0,
            last_time_line: 0,
            ordinal: 0,
            went: Vec::new(),
            alone: true,
            unnamed_turn: false,
            sampler: settings.sample.map(Sampler::new),
        }
    }

    fn row<'a>(&mut self, c: &mut Cursor<'a>) -> Result<(), Refusal> {
        let mut unknown: Vec<(Cow<'a, [u8]>, usize, usize)> = Vec::new();
        let mut row = Row::default();
        if !c.take(b'{') {
            return Err(not_an_object(c));
        }
        let mut seen = 0u32;
        self.sampler.iter_mut().for_each(Sampler::start_row);
        c.members(|c, key, from| {
            let into = Destination {
                ids: &mut self.out.ids,
                references: &mut self.out.columns.block_ids,
                sampler: self.sampler.as_mut(),
                ordinal: self.ordinal,
            };
            match row.member(&key, c, &self.schema, into)? {
                Some(bit) if seen & bit != 0 => return Err(given_twice(c, from)),
                Some(bit) => seen |= bit,
                None => {
                    c.skip_value()?;
                    unknown.push((key, from, c.at));
                }
            }
            Ok(())
        })?;
        c.end()?;
        if unknown.len() > 1 {
            let mut sorted: Vec<&(Cow<[u8]>, usize, usize)> = unknown.iter().collect();
            sorted.sort_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
            if let Some(pair) = sorted.windows(2).find(|w| w[0].0 == w[1].0) {
                return Err(given_twice(c, pair[1].1));
            }
        }
        self.accept(c, &row)?;
        if !unknown.is_empty() {
            let names: Vec<Cow<str>> = unknown
                .iter()
                .map(|(name, _, _)| String::from_utf8_lossy(name))
                .collect();
            self.remarks
                .unknown
                .note(c.line, names.iter().map(AsRef::as_ref));
        }
        if self.settings.keep_unknown {
            let text = |&(_, from, to): &(Cow<[u8]>, usize, usize)| {
                String::from_utf8_lossy(&c.text[from..to]).into_owned()
            };
            let members: Vec<String> = unknown.iter().map(text).collect();
            self.out.columns.extra.push(members.join(","));
        }
        Ok(())
    }

    /// Reads a row; a refused one leaves no trace.
    fn settled(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let names = self.out.ids.len();
        let references = self.out.columns.block_ids.len();
        let row = self.out.columns.len() as i32;
        let result = read(self);
        self.ordinal += 1;
        if self.settings.skip {
            self.went.push(if result.is_ok() { row } else { NOT_GIVEN });
        }
        if result.is_err() {
            self.out.ids.roll_back(names);
            self.out.columns.block_ids.truncate(references);
        }
        result
    }

    /// Checks a parsed row as a whole and appends it.
    fn accept(&mut self, c: &Cursor, row: &Row) -> Result<(), Refusal> {
        let s = &self.schema;
        let missing = |key: &str| {
            c.problem(0, "missing-key", format!("{key} is missing"))
                .got(c.excerpt_row())
                .expected(format!(
                    "a row with {}, {} and {}",
                    s.times.time, s.tokens.input, s.tokens.output
                ))
        };
        let input = row.tokens.input.ok_or_else(|| missing(&s.tokens.input))?;
        let output = row.tokens.output.ok_or_else(|| missing(&s.tokens.output))?;
        let slot = self.slots.find(c, row)?;
        let time = match (row.times.time, row.times.delay) {
            (Some(time), _) => time,
            (None, Some(_)) => self.last_time.max(0),
            _ => return Err(missing(&s.times.time)),
        };
        // A first turn with its own time arrives at that time, whatever its delay.
        let follows = row.times.time.is_none() || slot.turn > 0 || row.after.is_some();
        let think = row.times.delay.filter(|_| follows).unwrap_or(OPEN_LOOP);
        if row.new_input_only != self.out.new_input_only && !self.out.columns.is_empty() {
            let mixed = c.problem(
                0,
                "structure",
                "rows of whole prompts and of new input in one trace",
            );
            return Err(mixed.expected(format!("the same {} in every row", s.structure)));
        }
        let first = *self.out.columns.id_offsets.last().unwrap_or(&0) as usize;
        let named = row.tokens.named.unwrap_or(0).max(input);
        self.check_count(c, row, first, named)?;
        let early = think == OPEN_LOOP && time < self.last_time;
        if early && self.settings.order == Order::Error {
            return Err(self.time_went_back(c, row, time));
        }
        let block_size = self.settings.block_size;
        let ids = self.audited_ids(c, row, first, named)?;
        self.remarks.note(c.line, ids, named, output, block_size);
        if early {
            self.out.unordered = true;
            self.remarks.disorder.hit(c.line, String::new);
        }
        if slot.orphan {
            let parent = row.conversation.parent.as_deref().unwrap_or_default();
            let shown = || parent.chars().take(40).collect();
            self.remarks.orphans.hit(c.line, shown);
        }
        let (session, turn) = self.slots.settle(row, &slot);
        let reported = row.after.is_some() || row.tokens.history.is_some() || row.new_input_only;
        let reported = reported || row.tokens.named.is_some() || row.times.abort.is_some();
        self.alone &= session == NO_SESSION && think == OPEN_LOOP && ids > 0 && !reported;
        self.unnamed_turn |= session != NO_SESSION && ids == 0;
        if think == OPEN_LOOP && !early {
            self.last_time = time;
            self.last_time_line = c.line;
        }
        self.out.new_input_only |= row.new_input_only;
        let entry = ColumnRow {
            arrival_ns: time,
            think_ns: think,
            input_tokens: input as i64,
            output_tokens: output as i64,
            session,
            turn,
            is_conversational_turn: row.conversation.label.unwrap_or(turn > 0),
        };
        self.push(row, entry);
        Ok(())
    }

    /// Appends an accepted row: its entry, and its rare values.
    fn push(&mut self, row: &Row, entry: ColumnRow) {
        self.sampler.iter_mut().for_each(Sampler::end_row);
        let columns = &mut self.out.columns;
        let rows = columns.len();
        push_rare(&mut columns.rare.after, rows, row.after, NOT_GIVEN);
        push_rare(
            &mut columns.rare.history_tokens,
            rows,
            row.tokens.history,
            NOT_GIVEN,
        );
        push_rare(&mut columns.rare.priority, rows, row.priority, 0);
        let named = row.tokens.named.map(|tokens| tokens as i64);
        push_rare(&mut columns.rare.named_tokens, rows, named, 0);
        push_rare(
            &mut columns.rare.abort_after_ns,
            rows,
            row.times.abort,
            NOT_GIVEN,
        );
        columns.push(entry);
    }

    /// The number of ids of a row, from `first` on; refuses an id that occurs twice.
    fn audited_ids(
        &mut self,
        c: &Cursor,
        row: &Row,
        first: usize,
        named: u64,
    ) -> Result<u64, Refusal> {
        if let Some(sampler) = &self.sampler {
            return Ok(u64::from(sampler.ids()));
        }
        let ids = &self.out.columns.block_ids[first..];
        let size = self.settings.block_size;
        let audit = &mut self.remarks.audit;
        if let Err(at) = audit.note(&mut self.out.ids, ids, c.line, named, size) {
            let name = self.out.ids.name(ids[at]);
            let what = "a block id stands twice in one row";
            return Err(c
                .problem(row.at.ids, "repeated-id", what)
                .got(format!("id {name} again at position {at}"))
                .expected("ids that name a block and all before it"));
        }
        Ok(ids.len() as u64)
    }

    fn check_count(&self, c: &Cursor, row: &Row, first: usize, input: u64) -> Result<(), Refusal> {
        let size = self.settings.block_size;
        let count = match &self.sampler {
            Some(sampler) => u64::from(sampler.ids()),
            None => (self.out.columns.block_ids.len() - first) as u64,
        };
        let most = input.div_ceil(size);
        if count <= most {
            return Ok(());
        }
        let mut sizes = self.remarks.sizes;
        sizes.note(input, count);
        let hint = sizes.only().map_or(String::new(), |b| {
            format!(
                "these ids fit blocks of {b} tokens: trace.block_size: {b} in a scenario, \
                 --trace-block-size {b} for other verbs"
            )
        });
        let many = c.problem(
            row.at.ids,
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
        c.problem(row.at.time, "time-order", "time goes back")
            .got(format!("{time} ns"))
            .expected(format!(
                "at least {} ns, as at line {}",
                self.last_time, self.last_time_line
            ))
            .hint("--time-order sort puts the rows in order, --time-order keep leaves them")
    }

    /// True if no row so far has a session, a pause or a predecessor, and all rows have ids.
    pub fn alone(&self) -> bool {
        self.alone
    }

    /// The first reason why the rows so far cannot be replayed one by one.
    pub fn needs_whole(&self) -> Option<&'static str> {
        if self.remarks.audit.is_broken() {
            Some("block ids that form no prefix tree")
        } else if self.out.new_input_only {
            Some("rows with the new input only")
        } else if self.unnamed_turn {
            Some("a row of a session without block ids")
        } else {
            None
        }
    }

    pub fn session_names(&self) -> &[Arc<str>] {
        &self.slots.sessions.names
    }

    /// Returns all rows with every finding.
    pub fn finish(self) -> Reading {
        let mut out = self.out;
        if self.settings.skip {
            let went =
                |row: &mut i32| *row = self.went.get(*row as usize).copied().unwrap_or(NOT_GIVEN);
            out.columns.rare.after.iter_mut().for_each(went);
        }
        let rows = out.taken + out.columns.len() as u64;
        self.remarks
            .findings(&self.settings, rows, &mut out.findings);
        out.columns.session_names = self.slots.sessions.names;
        out
    }
}

impl Rows for JsonRows {
    fn line(&mut self, line: &Line) -> Result<(), Refusal> {
        let mut text = line.text;
        if line.number == 1 && text.starts_with(b"\xef\xbb\xbf") {
            text = &text[3..];
            self.remarks.mark.hit(1, String::new);
        }
        if text.iter().all(|c| matches!(c, b' ' | b'\t' | b'\r')) {
            self.remarks.blank.hit(line.number, String::new);
            return Ok(());
        }
        let mut cursor = Cursor::new(text, line.number, line.cut);
        self.settled(|rows| rows.row(&mut cursor))
    }

    fn refuse(&mut self, problem: Refusal) -> Result<(), Refusal> {
        if !self.settings.skip {
            return Err(problem);
        }
        self.out.skipped.add(*problem);
        Ok(())
    }

    fn waiting(&self) -> usize {
        self.out.columns.len()
    }
}
