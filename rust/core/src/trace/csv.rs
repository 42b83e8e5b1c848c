//! Rows of comma-separated values with a header: lengths and arrivals, no block ids.

use std::io::Read;

use super::columns::{
    blank_lines, disordered_rows, silent_rows, ColumnRow, Counter, Reading, Sessions, NO_SESSION,
    OPEN_LOOP,
};
use super::datetime;
use super::decimal;
use super::json::field::MOST_TOKENS;
use super::lines::{Line, Reader, Rows};
use super::problem::{Problem, Refusal};
use super::{Order, ReadError, Settings};

/// The formats of arrival times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeForm {
    /// A decimal number of this many nanoseconds.
    Number {
        /// Nanoseconds per unit.
        unit_ns: u64,
    },
    /// Date and time of day; the first of the trace becomes 0.
    Date,
}

/// Column names of one format; an empty name is a column the format does not have.
#[derive(Clone, Debug)]
pub struct CsvSchema {
    /// Column of the arrival.
    pub time: String,
    /// Format of the arrival.
    pub form: TimeForm,
    /// Column of the input tokens.
    pub input: String,
    /// Column of the output tokens.
    pub output: String,
    /// Column of the session.
    pub session: String,
}

struct SessionTurns {
    time: usize,
    input: usize,
    output: usize,
    session: Option<usize>,
    columns: usize,
}

/// Reads every row; the first line names the columns.
pub fn read<R: Read>(
    source: R,
    schema: &CsvSchema,
    settings: &Settings,
    pulse: impl FnMut(u64) -> bool,
) -> Result<(Reading, R), ReadError> {
    let mut reader = Reader::new(source);
    let mut rows = CsvRows::new(schema, *settings);
    reader.read(&mut rows, usize::MAX, pulse)?;
    Ok(reader.finish(rows.finish()))
}

struct CsvRows<'s> {
    schema: &'s CsvSchema,
    settings: Settings,
    slots: Option<SessionTurns>,
    out: Reading,
    sessions: Sessions,
    silent: Counter,
    blank: Counter,
    disorder: Counter,
    last_time: i64,
    last_line: u64,
    /// True if the header was refused; then no row can be read.
    headless: bool,
}

impl<'s> CsvRows<'s> {
    fn new(schema: &'s CsvSchema, settings: Settings) -> Self {
        let mut out = Reading::default();
        out.columns.id_offsets.push(0);
        Self {
            schema,
            settings,
            slots: None,
            out,
            sessions: Sessions::default(),
            silent: Counter::default(),
            blank: Counter::default(),
            disorder: Counter::default(),
            last_time: i64::MIN,
            last_line: 0,
            headless: false,
        }
    }

    fn read_line(&mut self, line: &Line) -> Result<(), Refusal> {
        let n = line.number;
        let text = decoded(line)?;
        if text.trim().is_empty() {
            self.blank.hit(n, String::new);
            return Ok(());
        }
        let Some(slots) = &self.slots else {
            self.slots = Some(self.header(text, n)?);
            return Ok(());
        };
        let fields = fields(text, n)?;
        if fields.len() != slots.columns {
            let what = if line.cut && fields.len() < slots.columns {
                "unterminated row (file may be truncated)"
            } else {
                "wrong number of columns"
            };
            return Err(Problem::new(n, 0, "csv", what)
                .got(format!("{} columns", fields.len()))
                .expected(format!("{} as in the header", slots.columns)));
        }
        let time = self.time(&fields[slots.time], n)?;
        let input = tokens(&fields[slots.input], &self.schema.input, 1, n)?;
        let output = tokens(&fields[slots.output], &self.schema.output, 0, n)?;
        let session = slots
            .session
            .map(|at| fields[at].text.trim())
            .filter(|s| !s.is_empty());
        let at = &fields[slots.time];
        if time < self.last_time && self.settings.order == Order::Error {
            return Err(Problem::new(n, at.col(), "time-order", "time goes back")
                .got(at.text)
                .expected(format!("a time no earlier than at line {}", self.last_line))
                .hint("--time-order sort puts the rows in order, --time-order keep leaves them"));
        }
        if time < self.last_time {
            self.out.unordered = true;
            self.disorder.hit(n, String::new);
        } else {
            self.last_time = time;
            self.last_line = n;
        }
        if output == 0 {
            self.silent.hit(n, String::new);
        }
        let (session, turn) = session.map_or((NO_SESSION, 0), |name| {
            let session = self.sessions.number(name);
            let turn = self.sessions.turns[session as usize];
            self.sessions.turns[session as usize] += 1;
            (session, turn)
        });
        self.out.columns.push(ColumnRow {
            arrival_ns: time,
            think_ns: OPEN_LOOP,
            input_tokens: input,
            output_tokens: output,
            session,
            turn,
            is_conversational_turn: turn > 0,
        });
        Ok(())
    }

    fn header(&self, text: &str, line: u64) -> Result<SessionTurns, Refusal> {
        let names: Vec<&str> = fields(text, line)?.iter().map(|f| f.text.trim()).collect();
        let find = |name: &str| names.iter().position(|n| !name.is_empty() && *n == name);
        let need = |name: &str| {
            find(name).ok_or_else(|| {
                Problem::new(line, 1, "csv", format!("column {name} is missing"))
                    .got(text.chars().take(80).collect::<String>())
                    .expected(format!(
                        "a header with {}, {} and {}",
                        self.schema.time, self.schema.input, self.schema.output
                    ))
            })
        };
        Ok(SessionTurns {
            time: need(&self.schema.time)?,
            input: need(&self.schema.input)?,
            output: need(&self.schema.output)?,
            session: find(&self.schema.session),
            columns: names.len(),
        })
    }

    fn time(&self, field: &Field, line: u64) -> Result<i64, Refusal> {
        let text = field.text.trim();
        let wrong = |expected: &str| {
            Problem::new(
                line,
                field.col(),
                "time",
                format!("{} is no time", self.schema.time),
            )
            .got(text.chars().take(40).collect::<String>())
            .expected(expected)
        };
        match self.schema.form {
            TimeForm::Date => datetime::nanoseconds(text)
                .ok_or_else(|| wrong("a date such as 2023-11-16 18:15:46.6805900")),
            TimeForm::Number { unit_ns } => decimal::scaled(text.as_bytes(), unit_ns)
                .filter(|&t| t >= 0)
                .ok_or_else(|| wrong("a finite number ≥ 0")),
        }
    }

    fn finish(self) -> Reading {
        let mut out = self.out;
        let arrivals = &mut out.columns.arrival_ns;
        if self.schema.form == TimeForm::Date {
            let first = arrivals.iter().copied().min().unwrap_or(0);
            arrivals.iter_mut().for_each(|t| *t -= first);
        }
        let found = &mut out.findings;
        self.silent.into("no-output", silent_rows, found);
        let disordered = disordered_rows(self.settings.order);
        self.disorder.into("time-order", disordered, found);
        self.blank.into("blank-line", blank_lines, found);
        out.columns.session_names = self.sessions.names;
        out
    }
}

impl Rows for CsvRows<'_> {
    fn line(&mut self, line: &Line) -> Result<(), Refusal> {
        let read = self.read_line(line);
        self.headless = read.is_err() && self.slots.is_none();
        read
    }

    fn refuse(&mut self, problem: Refusal) -> Result<(), Refusal> {
        if !self.settings.skip || self.headless {
            return Err(problem);
        }
        self.out.skipped.add(*problem);
        Ok(())
    }

    fn waiting(&self) -> usize {
        self.out.columns.len()
    }
}

struct Field<'a> {
    text: &'a str,
    line: &'a str,
    at: usize,
}

impl Field<'_> {
    /// The column at which the field begins, from 1.
    fn col(&self) -> u64 {
        self.line[..self.at].chars().count() as u64 + 1
    }
}

/// The fields of a line; quotes may surround a field, and doubled quotes inside stay as they are.
fn fields(line: &str, number: u64) -> Result<Vec<Field<'_>>, Refusal> {
    let mut out = Vec::with_capacity(8);
    let mut from = 0;
    loop {
        let rest = &line[from..];
        let field = |text| Field {
            text,
            line,
            at: from,
        };
        let (text, next) = if let Some(inner) = rest.strip_prefix('"') {
            let mut end = 0;
            loop {
                let Some(at) = inner[end..].find('"') else {
                    return Err(Problem::new(
                        number,
                        field("").col(),
                        "csv",
                        "unterminated quote",
                    ));
                };
                end += at;
                if !inner[end + 1..].starts_with('"') {
                    break;
                }
                end += 2;
            }
            (&inner[..end], from + end + 2)
        } else {
            let len = rest.find(',').unwrap_or(rest.len());
            (&rest[..len], from + len)
        };
        out.push(field(text));
        if next >= line.len() {
            return Ok(out);
        }
        if !line[next..].starts_with(',') {
            return Err(Problem::new(
                number,
                field("").col(),
                "csv",
                "text behind a closing quote",
            ));
        }
        from = next + 1;
    }
}

/// The text of a line, without a byte-order mark and a line end.
fn decoded<'a>(line: &'a Line) -> Result<&'a str, Refusal> {
    let text = std::str::from_utf8(line.text).map_err(|e| {
        let col = String::from_utf8_lossy(&line.text[..e.valid_up_to()])
            .chars()
            .count() as u64
            + 1;
        Problem::new(line.number, col, "encoding", "not UTF-8")
            .got(format!("byte 0x{:02x}", line.text[e.valid_up_to()]))
    })?;
    Ok(text.trim_start_matches('\u{feff}').trim_end_matches('\r'))
}

/// A count of tokens; `374.0`, as data frames write it, is 374.
fn tokens(field: &Field, name: &str, least: i64, line: u64) -> Result<i64, Refusal> {
    let text = field.text.trim();
    let whole = match text.split_once('.') {
        Some((whole, zeros)) if zeros.bytes().all(|b| b == b'0') => whole,
        _ => text,
    };
    let plain = !whole.is_empty() && whole.bytes().all(|b| b.is_ascii_digit());
    let value = plain.then(|| whole.parse::<i64>().ok()).flatten();
    value
        .filter(|v| (least..=MOST_TOKENS as i64).contains(v))
        .ok_or_else(|| {
            let said = if least == 1 { "≥ 1" } else { "≥ 0" };
            Problem::new(
                line,
                field.col(),
                "length",
                format!("{name} must be an integer {said}"),
            )
            .got(text.chars().take(40).collect::<String>())
            .expected(format!("an integer from {least} to {MOST_TOKENS}"))
        })
}

#[cfg(test)]
mod tests {
    use super::fields;

    #[test]
    fn quoted_fields_hold_commas() {
        let texts = |line: &str| -> Vec<String> {
            fields(line, 1)
                .unwrap()
                .iter()
                .map(|f| f.text.to_owned())
                .collect()
        };
        assert_eq!(texts("a,\"b,c\",d"), ["a", "b,c", "d"]);
        assert_eq!(texts("a,,"), ["a", "", ""]);
        assert!(fields("\"a", 1).is_err());
    }
}
