//! `TableWriter`: Parquet, a row group at a time.

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::PathBuf;

use kvsim_core::parquet::{Cells, Field, Kind, TableWriter};
use numpy::PyReadonlyArray1;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;

use crate::argument::tuple_structs;

fn failed(error: &io::Error) -> PyErr {
    match error.raw_os_error() {
        Some(number) => PyOSError::new_err((number, strerror(error))),
        None => PyValueError::new_err(error.to_string()),
    }
}

/// The system's text for an error, without the number that Rust appends.
fn strerror(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

tuple_structs! {
    /// A column of a table.
    pub struct ColumnArg {
        name: String,
        dtype: String,
        meaning: String,
    }
}

/// A table being written to a file.
#[pyclass(name = "TableWriter")]
pub struct PyTableWriter {
    writer: Option<TableWriter<BufWriter<File>>>,
    kinds: Vec<Kind>,
}

impl PyTableWriter {
    fn open(&mut self) -> PyResult<&mut TableWriter<BufWriter<File>>> {
        self.writer
            .as_mut()
            .ok_or_else(|| PyValueError::new_err("the table is finished"))
    }
}

/// The values of a numpy column as 64 bits.
fn numbers(column: &Bound<'_, PyAny>, kind: Kind) -> PyResult<Vec<i64>> {
    fn wide<T: numpy::Element + Copy + Into<i64>>(column: &Bound<'_, PyAny>) -> PyResult<Vec<i64>> {
        let array: PyReadonlyArray1<'_, T> = column.extract()?;
        Ok(array.as_array().iter().map(|&value| value.into()).collect())
    }
    match kind {
        Kind::Bool => {
            let array: PyReadonlyArray1<'_, bool> = column.extract()?;
            Ok(array.as_array().iter().map(|&value| value.into()).collect())
        }
        Kind::U8 => wide::<u8>(column),
        Kind::I16 => wide::<i16>(column),
        Kind::I32 => wide::<i32>(column),
        Kind::I64 => wide::<i64>(column),
        Kind::Text => Err(PyValueError::new_err("texts come as codes and words")),
    }
}

#[pymethods]
impl PyTableWriter {
    #[new]
    fn new(path: PathBuf, columns: Vec<ColumnArg>) -> PyResult<Self> {
        let mut fields = Vec::with_capacity(columns.len());
        for ColumnArg {
            name,
            dtype,
            meaning,
        } in columns
        {
            let kind = Kind::from_name(&dtype)
                .ok_or_else(|| PyValueError::new_err(format!("no such dtype: {dtype}")))?;
            fields.push(Field {
                name,
                kind,
                meaning,
            });
        }
        let kinds = fields.iter().map(|field| field.kind).collect();
        let file = File::create(path).map_err(|error| failed(&error))?;
        let writer = TableWriter::new(BufWriter::new(file), fields).map_err(|e| failed(&e))?;
        Ok(Self {
            writer: Some(writer),
            kinds,
        })
    }

    fn write(&mut self, rows: usize, columns: Vec<Bound<'_, PyAny>>) -> PyResult<()> {
        let kinds = self.kinds.clone();
        let writer = self.open()?;
        writer.begin_group(rows).map_err(|e| failed(&e))?;
        for (column, kind) in columns.iter().zip(kinds) {
            if kind == Kind::Text {
                let (codes, words): (PyReadonlyArray1<'_, i32>, Vec<String>) = column.extract()?;
                let codes: Vec<u32> = codes.as_array().iter().map(|&code| code as u32).collect();
                if codes.iter().any(|&code| code as usize >= words.len()) {
                    return Err(PyValueError::new_err("a code without a word"));
                }
                writer
                    .column(Cells::Texts(&codes, &words))
                    .map_err(|e| failed(&e))?;
            } else {
                let values = numbers(column, kind)?;
                writer
                    .column(Cells::Numbers(&values))
                    .map_err(|e| failed(&e))?;
            }
        }
        Ok(())
    }

    fn close(&mut self) -> PyResult<()> {
        match self.writer.take() {
            Some(writer) => writer.finish().map(drop).map_err(|e| failed(&e)),
            None => Ok(()),
        }
    }
}
