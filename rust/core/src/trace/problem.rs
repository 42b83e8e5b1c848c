//! Problems of a trace: position, kind, and text for people.

/// One refusal: `line:col: what; got; expected; hint`. Lines and columns (characters) count from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Line of the problem.
    pub line: u64,
    /// Column; 0 for the whole line.
    pub col: u64,
    /// Short stable name under which problems are counted.
    pub kind: &'static str,
    /// The problem.
    pub what: String,
    /// The value found.
    pub got: String,
    /// The value expected.
    pub expected: String,
    /// The remedy.
    pub hint: String,
}

/// Boxed, so that a `Result` of the hot path stays one word wide.
pub type Refusal = Box<Problem>;

impl Problem {
    /// A problem at a position, its other parts empty.
    #[cold]
    pub fn new(line: u64, col: u64, kind: &'static str, what: impl Into<String>) -> Refusal {
        Box::new(Problem {
            line,
            col,
            kind,
            what: what.into(),
            got: String::new(),
            expected: String::new(),
            hint: String::new(),
        })
    }

    /// Sets the value found.
    pub fn got(mut self: Box<Self>, got: impl Into<String>) -> Refusal {
        self.got = got.into();
        self
    }

    /// Sets the value expected.
    pub fn expected(mut self: Box<Self>, expected: impl Into<String>) -> Refusal {
        self.expected = expected.into();
        self
    }

    /// Sets the remedy.
    pub fn hint(mut self: Box<Self>, hint: impl Into<String>) -> Refusal {
        self.hint = hint.into();
        self
    }
}

/// A counted remark that does not stop the reading, with its first occurrence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Short stable name under which remarks are counted.
    pub kind: &'static str,
    /// Number of occurrences.
    pub count: u64,
    /// Line of the first occurrence.
    pub line: u64,
    /// The remark in words.
    pub text: String,
}

/// Number of problems that are kept with their position; all are counted.
pub const KEPT_PROBLEMS: usize = 20;

/// The rows that were skipped: counted by kind, the first problems kept whole.
#[derive(Debug, Default)]
pub struct Skipped {
    /// The first problems, at most [`KEPT_PROBLEMS`].
    pub kept: Vec<Problem>,
    /// Kind and count, in order of first appearance.
    pub counts: Vec<(&'static str, u64)>,
}

impl Skipped {
    /// Counts a problem, and keeps it while fewer than [`KEPT_PROBLEMS`] are kept.
    pub fn add(&mut self, problem: Problem) {
        match self.counts.iter_mut().find(|(k, _)| *k == problem.kind) {
            Some((_, n)) => *n += 1,
            None => self.counts.push((problem.kind, 1)),
        }
        if self.kept.len() < KEPT_PROBLEMS {
            self.kept.push(problem);
        }
    }
}
