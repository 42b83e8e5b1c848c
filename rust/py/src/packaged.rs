//! `toml_values` and `Sha256`: packaged tables and digests without the standard library's modules, whose import and work are a tenth
//! of a run of one request.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use pyo3::IntoPyObjectExt;
use sha2::{Digest, Sha256};
use toml::de::{DeTable, DeValue};

/// Returns a TOML document as `tomllib.loads` does, its keys in their order.
#[pyfunction]
pub fn toml_values<'py>(py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyDict>> {
    let parsed = DeTable::parse(text).map_err(|error| PyValueError::new_err(error.to_string()))?;
    table(py, parsed.get_ref())
}

fn table<'py>(py: Python<'py>, values: &DeTable<'_>) -> PyResult<Bound<'py, PyDict>> {
    let mut members: Vec<_> = values.iter().collect();
    members.sort_by_key(|(key, _)| key.span().start);
    let made = PyDict::new(py);
    for (key, member) in members {
        made.set_item(key.get_ref().as_ref(), value(py, member.get_ref())?)?;
    }
    Ok(made)
}

fn value<'py>(py: Python<'py>, given: &DeValue<'_>) -> PyResult<Bound<'py, PyAny>> {
    let refused = |what: String| PyValueError::new_err(what);
    match given {
        DeValue::String(text) => text.as_ref().into_bound_py_any(py),
        DeValue::Integer(digits) => i64::from_str_radix(digits.as_str(), digits.radix())
            .map_err(|error| refused(error.to_string()))?
            .into_bound_py_any(py),
        DeValue::Float(digits) => digits
            .as_str()
            .parse::<f64>()
            .map_err(|error| refused(error.to_string()))?
            .into_bound_py_any(py),
        DeValue::Boolean(flag) => flag.into_bound_py_any(py),
        DeValue::Datetime(time) => Err(refused(format!("a date that is no text: {time}"))),
        DeValue::Array(values) => {
            let made = values.iter().map(|each| value(py, each.get_ref()));
            PyList::new(py, made.collect::<PyResult<Vec<_>>>()?)?.into_bound_py_any(py)
        }
        DeValue::Table(values) => table(py, values)?.into_bound_py_any(py),
    }
}

/// SHA-256 of bytes that are added one after another.
#[pyclass(name = "Sha256")]
#[derive(Default)]
pub struct PySha256(Sha256);

#[pymethods]
impl PySha256 {
    #[new]
    #[pyo3(signature = (data = None))]
    fn new(data: Option<&[u8]>) -> Self {
        Self(Sha256::new_with_prefix(data.unwrap_or_default()))
    }

    fn update(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    fn digest<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.clone().finalize())
    }

    fn hexdigest(&self) -> String {
        format!("{:x}", self.0.clone().finalize())
    }
}
