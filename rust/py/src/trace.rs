//! Trace sources and the columns read from them.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::thread;
use std::time::Duration;

use kvsim_core::trace::columns::{Columns, Reading};
use kvsim_core::trace::csv::{self, CsvSchema, TimeForm};
use kvsim_core::trace::intern::Names;
use kvsim_core::trace::jsonl::{self, ConversationMembers, Schema, TimeMembers, TokenMembers};
use kvsim_core::trace::problem::Problem;
use kvsim_core::trace::sampler::Sample;
use kvsim_core::trace::source::{is_damage, Source};
use kvsim_core::trace::{weka, Order, ReadError, Settings};
use numpy::PyArray1;
use pyo3::exceptions::{PyKeyboardInterrupt, PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyInt, PyList};

use crate::named::{set_arrays, set_entries};

pyo3::create_exception!(
    _core,
    TraceProblem,
    PyValueError,
    "A refused trace: line, col, kind, what, got, expected, hint."
);

type ProblemParts = (u64, u64, &'static str, String, String, String, String);

fn parts(p: &Problem) -> ProblemParts {
    (
        p.line,
        p.col,
        p.kind,
        p.what.clone(),
        p.got.clone(),
        p.expected.clone(),
        p.hint.clone(),
    )
}

fn io_error(error: &std::io::Error) -> PyErr {
    if is_damage(error) {
        let what = "compressed data end early or are damaged".to_owned();
        return TraceProblem::new_err((0u64, 0u64, "truncated", what, error.to_string(), "", ""));
    }
    PyOSError::new_err((error.raw_os_error(), error.to_string()))
}

/// A trace's bytes, opened once: inspected, then read, then identified by their SHA-256.
#[pyclass(module = "kvcache_sim._core")]
pub struct TraceSource {
    pub source: Option<Source>,
}

/// A source or reader, or a refusal if it was given away.
pub fn open<T>(kept: Option<T>) -> PyResult<T> {
    kept.ok_or_else(|| PyValueError::new_err("the trace has been read"))
}

/// Opens a trace; a named pipe, which waits for its writer, in a thread of its own, so that a signal ends the wait.
fn opened(py: Python<'_>, path: &str) -> PyResult<io::Result<Source>> {
    if !fs::metadata(path).is_ok_and(|file| file.file_type().is_fifo()) {
        return Ok(py.detach(|| Source::open(path)));
    }
    let path = path.to_owned();
    let waiting = thread::spawn(move || Source::open(&path));
    while !waiting.is_finished() {
        py.detach(|| thread::sleep(Duration::from_millis(10)));
        py.check_signals()?;
    }
    waiting.join().map_err(|_| PyOSError::new_err("the pipe"))
}

#[pymethods]
impl TraceSource {
    #[new]
    fn new(py: Python<'_>, path: &str) -> PyResult<Self> {
        let source = opened(py, path)?.map_err(|e| io_error(&e))?;
        Ok(TraceSource {
            source: Some(source),
        })
    }

    /// The first `n` decompressed bytes, not consumed.
    fn head<'py>(&mut self, py: Python<'py>, n: usize) -> PyResult<Bound<'py, PyBytes>> {
        let source = open(self.source.as_mut())?;
        let head = py.detach(|| source.head(n));
        Ok(PyBytes::new(py, head))
    }

    /// The next at most `n` decompressed bytes; empty at the end.
    fn read<'py>(&mut self, py: Python<'py>, n: usize) -> PyResult<Bound<'py, PyBytes>> {
        let source = open(self.source.as_mut())?;
        let mut buffer = vec![0; n];
        let mut filled = 0;
        while filled < n {
            let rest = &mut buffer[filled..];
            match py.detach(|| source.read(rest)).map_err(|e| io_error(&e))? {
                0 => break,
                got => filled += got,
            }
        }
        Ok(PyBytes::new(py, &buffer[..filled]))
    }

    /// Computes no SHA-256.
    fn without_digest(&mut self) -> PyResult<()> {
        open(self.source.as_mut())?.without_digest();
        Ok(())
    }

    /// SHA-256 of the stored bytes in hex; reads the rest of the file.
    fn sha256(&mut self, py: Python<'_>) -> PyResult<String> {
        let source = open(self.source.as_mut())?;
        py.detach(|| source.finish()).map_err(|e| io_error(&e))
    }

    /// Read rows of JSON, one a line; see `_core.pyi`.
    fn read_jsonl<'py>(
        &mut self,
        py: Python<'py>,
        schema: &Bound<'py, PyDict>,
        settings: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let schema = schema_from(schema)?;
        let settings = settings_from(settings)?;
        self.read_with(py, |source| {
            jsonl::read(source, &schema, &settings, |_| signals_are_quiet())
        })
    }

    /// Read comma-separated rows below a header; see `_core.pyi`.
    fn read_csv<'py>(
        &mut self,
        py: Python<'py>,
        schema: &Bound<'py, PyDict>,
        settings: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let unit_ns: u64 = get(schema, "time_unit_ns")?;
        let schema = CsvSchema {
            time: get(schema, "time")?,
            form: if unit_ns == 0 {
                TimeForm::Date
            } else {
                TimeForm::Number { unit_ns }
            },
            input: get(schema, "input")?,
            output: get(schema, "output")?,
            session: get(schema, "session")?,
        };
        let settings = settings_from(settings)?;
        self.read_with(py, |source| {
            csv::read(source, &schema, &settings, |_| signals_are_quiet())
        })
    }

    /// Read WEKA sessions, one a line; see `_core.pyi`.
    fn read_weka<'py>(
        &mut self,
        py: Python<'py>,
        settings: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let settings = settings_from(settings)?;
        self.read_with(py, |source| {
            weka::read(source, &settings, |_| signals_are_quiet())
        })
    }
}

impl TraceSource {
    /// Read the whole source without the GIL; it stays open for its digest.
    fn read_with<'py>(
        &mut self,
        py: Python<'py>,
        reader: impl FnOnce(Source) -> Result<(Reading, Source), ReadError> + Send,
    ) -> PyResult<Bound<'py, PyDict>> {
        let source = open(self.source.take())?;
        let (reading, source) = py
            .detach(|| reader(source))
            .map_err(|e| read_error(py, e))?;
        self.source = Some(source);
        columns(py, reading)
    }
}

pub fn signals_are_quiet() -> bool {
    Python::attach(|py| match py.check_signals() {
        Ok(()) => true,
        Err(error) => {
            error.restore(py);
            false
        }
    })
}

pub fn read_error(py: Python<'_>, error: ReadError) -> PyErr {
    match error {
        ReadError::Trace(problem) => TraceProblem::new_err(parts(&problem)),
        ReadError::Io(error) => io_error(&error),
        ReadError::Stopped => PyErr::take(py).unwrap_or_else(|| PyKeyboardInterrupt::new_err(())),
    }
}

pub fn get<'py, T: for<'a> FromPyObject<'a, 'py>>(
    dict: &Bound<'py, PyDict>,
    key: &str,
) -> PyResult<T> {
    let value = dict
        .get_item(key)?
        .ok_or_else(|| PyValueError::new_err(format!("no {key}")))?;
    value.extract().map_err(Into::into)
}

/// A struct whose fields are the entries of the same names.
macro_rules! from_entries {
    ($dict:ident, $kind:ident { $($field:ident),* }) => {
        $kind { $($field: get($dict, stringify!($field))?),* }
    };
}

pub fn schema_from(dict: &Bound<'_, PyDict>) -> PyResult<Schema> {
    Ok(Schema {
        times: from_entries!(
            dict,
            TimeMembers {
                time,
                time_unit_ns,
                delay,
                abort
            }
        ),
        tokens: from_entries!(
            dict,
            TokenMembers {
                input,
                output,
                history,
                named,
                per_token
            }
        ),
        conversation: from_entries!(
            dict,
            ConversationMembers {
                session,
                turn,
                label,
                chat,
                parent
            }
        ),
        ids: get(dict, "ids")?,
        after: get(dict, "after")?,
        priority: get(dict, "priority")?,
        structure: get(dict, "structure")?,
    })
}

pub fn settings_from(dict: &Bound<'_, PyDict>) -> PyResult<Settings> {
    let order: String = get(dict, "order")?;
    let sample: Option<(f64, u64)> = match dict.get_item("sample")? {
        Some(sample) => sample.extract()?,
        None => None,
    };
    Ok(Settings {
        sample: sample.map(|(rate, seed)| Sample { rate, seed }),
        block_size: get(dict, "block_size")?,
        skip: get(dict, "skip")?,
        order: match order.as_str() {
            "error" => Order::Error,
            "sort" => Order::Sort,
            _ => Order::Keep,
        },
        keep_unknown: get(dict, "keep_unknown")?,
    })
}

/// Rows as numpy arrays (moved, not copied).
pub fn row_columns(py: Python<'_>, out: &Bound<'_, PyDict>, c: Columns) -> PyResult<()> {
    set_arrays!(out, c =>
        arrival_ns, input_tokens, output_tokens, id_offsets, block_ids, session, turn, think_ns, is_conversational_turn
    );
    set_arrays!(out, c.rare => after, history_tokens, priority, named_tokens, abort_after_ns);
    out.set_item(
        "session_names",
        PyList::new(py, c.session_names.iter().map(|n| &**n))?,
    )?;
    out.set_item("extra", PyList::new(py, c.extra)?)
}

/// The columns as numpy arrays (moved, not copied), the names, and the reader's findings.
pub fn columns(py: Python<'_>, reading: Reading) -> PyResult<Bound<'_, PyDict>> {
    let out = PyDict::new(py);
    row_columns(py, &out, reading.columns)?;
    match reading.ids.names {
        Names::Numbers(names) => {
            out.set_item("id_names", PyArray1::from_vec(py, names.into_ids()))?;
        }
        Names::Texts(names) if reading.ids.of_integers => {
            let integer = py.get_type::<PyInt>();
            let names: PyResult<Vec<_>> = names.iter().map(|n| integer.call1((&**n,))).collect();
            out.set_item("id_names", PyList::new(py, names?)?)?
        }
        Names::Texts(names) => {
            out.set_item("id_names", PyList::new(py, names.iter().map(|n| &**n))?)?
        }
    }
    out.set_item(
        "problems",
        PyList::new(py, reading.skipped.kept.iter().map(parts))?,
    )?;
    out.set_item("problem_counts", PyList::new(py, reading.skipped.counts)?)?;
    let findings = reading
        .findings
        .into_iter()
        .map(|f| (f.kind, f.count, f.line, f.text));
    out.set_item("findings", PyList::new(py, findings.collect::<Vec<_>>())?)?;
    set_entries!(out, reading => new_input_only, lines, bytes, unordered, block_size);
    Ok(out)
}
