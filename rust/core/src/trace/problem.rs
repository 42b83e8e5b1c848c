//! What can be wrong with a trace: a place, a kind, and the words for people.

/// One refusal: `line:col: what; got; expected; hint`. Lines and columns (characters) count from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where it is.
    pub line: u64,
    /// 0 where the whole line is meant.
    pub col: u64,
    /// Short stable name under which problems are counted.
    pub kind: &'static str,
    /// What is wrong.
    pub what: String,
    /// What stands there.
    pub got: String,
    /// What should stand there.
    pub expected: String,
    /// What to do about it.
    pub hint: String,
}

/// Boxed, so that a `Result` of the hot path stays one word wide.
pub type Refusal = Box<Problem>;

impl Problem {
    /// A problem at a place, its other parts empty.
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

    /// Says what stands there.
    pub fn got(mut self: Box<Self>, got: impl Into<String>) -> Refusal {
        self.got = got.into();
        self
    }

    /// Says what should stand there.
    pub fn expected(mut self: Box<Self>, expected: impl Into<String>) -> Refusal {
        self.expected = expected.into();
        self
    }

    /// Says what to do about it.
    pub fn hint(mut self: Box<Self>, hint: impl Into<String>) -> Refusal {
        self.hint = hint.into();
        self
    }
}

/// A counted remark that does not stop the reading; the first place stands for all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Short stable name under which remarks are counted.
    pub kind: &'static str,
    /// How often it happened.
    pub count: u64,
    /// The line on which it happened first.
    pub line: u64,
    /// The remark in words.
    pub text: String,
}

/// How many problems are kept with their place; all are counted.
pub const KEPT_PROBLEMS: usize = 20;

/// The rows that were skipped: counted by kind, the first ones kept whole.
#[derive(Debug, Default)]
pub struct Skipped {
    /// The first problems, at most [`KEPT_PROBLEMS`].
    pub kept: Vec<Problem>,
    /// Kind and count, in order of first appearance.
    pub counts: Vec<(&'static str, u64)>,
}

impl Skipped {
    /// Counts a problem, and keeps it while few are kept.
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
