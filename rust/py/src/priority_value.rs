//! The value that a priority function returned, ordered as Python orders it.

use std::cmp::Ordering;

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyTuple};

use crate::failure::{locked, Failure};

/// An integer or a float.
#[derive(Debug, Clone, Copy)]
enum Number {
    Int(i64),
    Float(f64),
}

/// A number or a tuple of numbers, compared here; any other value is compared by Python.
enum Kind {
    One(Number),
    Many(Vec<Number>),
    Object(Py<PyAny>),
}

/// The value of a block. An exception of a comparison in Python is stored in `failure`.
pub struct Value {
    kind: Kind,
    failure: Failure,
}

impl Value {
    /// Takes the return value of a function.
    pub fn new(returned: &Bound<'_, PyAny>, failure: &Failure) -> Self {
        let kind = match number(returned) {
            Some(one) => Kind::One(one),
            None => match many(returned) {
                Some(numbers) => Kind::Many(numbers),
                None => Kind::Object(returned.clone().unbind()),
            },
        };
        let failure = failure.clone();
        Self { kind, failure }
    }

    /// Compares as `heapq` compares tuples that begin with the values: equality first, then `<`.
    pub fn compare(&self, other: &Self) -> Ordering {
        match (&self.kind, &other.kind) {
            (Kind::One(a), Kind::One(b)) => compare_numbers(*a, *b),
            (Kind::Many(a), Kind::Many(b)) => compare_tuples(a, b),
            _ => self.compare_objects(other),
        }
    }

    fn compare_objects(&self, other: &Self) -> Ordering {
        let answer = Python::attach(|py| -> PyResult<Ordering> {
            let (a, b) = (self.object(py)?, other.object(py)?);
            Ok(if a.is(&b) || a.eq(&b)? {
                Ordering::Equal
            } else if a.lt(&b)? {
                Ordering::Less
            } else {
                Ordering::Greater
            })
        });
        answer.unwrap_or_else(|error| {
            locked(&self.failure).get_or_insert(error);
            Ordering::Equal
        })
    }

    fn object<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match &self.kind {
            Kind::One(one) => one.object(py),
            Kind::Many(numbers) => {
                let items: PyResult<Vec<_>> = numbers.iter().map(|n| n.object(py)).collect();
                Ok(PyTuple::new(py, items?)?.into_any())
            }
            Kind::Object(object) => Ok(object.bind(py).clone()),
        }
    }
}

impl Number {
    fn object<'py>(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(match self {
            Self::Int(int) => int.into_pyobject(py)?.into_any(),
            Self::Float(float) => float.into_pyobject(py)?.into_any(),
        })
    }
}

fn number(returned: &Bound<'_, PyAny>) -> Option<Number> {
    if returned.is_exact_instance_of::<PyInt>() || returned.is_exact_instance_of::<PyBool>() {
        return returned.extract().ok().map(Number::Int);
    }
    let float = returned.cast_exact::<PyFloat>().ok()?;
    Some(Number::Float(float.value()))
}

fn many(returned: &Bound<'_, PyAny>) -> Option<Vec<Number>> {
    let tuple = returned.cast_exact::<PyTuple>().ok()?;
    tuple.iter().map(|item| number(&item)).collect()
}

fn compare_tuples(a: &[Number], b: &[Number]) -> Ordering {
    let mut unequal = a.iter().zip(b).map(|(a, b)| compare_numbers(*a, *b));
    let first = unequal.find(|order| order.is_ne());
    first.unwrap_or_else(|| a.len().cmp(&b.len()))
}

fn compare_numbers(a: Number, b: Number) -> Ordering {
    match (a, b) {
        (Number::Int(a), Number::Int(b)) => a.cmp(&b),
        (Number::Float(a), Number::Float(b)) => a.partial_cmp(&b).unwrap_or(Ordering::Equal),
        (Number::Int(a), Number::Float(b)) => compare_exactly(a, b),
        (Number::Float(a), Number::Int(b)) => compare_exactly(b, a).reverse(),
    }
}

/// Compares without rounding the integer, as Python does.
fn compare_exactly(int: i64, float: f64) -> Ordering {
    const END: f64 = 9_223_372_036_854_775_808.0;
    if float >= END {
        Ordering::Less
    } else if float < -END {
        Ordering::Greater
    } else if float.is_nan() {
        Ordering::Equal
    } else {
        let below = float.floor();
        int.cmp(&(below as i64)).then(below.total_cmp(&float))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_and_fractions_compare_without_rounding() {
        let cases = [
            (3, 3.0, Ordering::Equal),
            (3, 3.5, Ordering::Less),
            (4, 3.5, Ordering::Greater),
            (-3, -3.5, Ordering::Greater),
            (-4, -3.5, Ordering::Less),
            (i64::MAX, 9.3e18, Ordering::Less),
            (i64::MIN, -9.3e18, Ordering::Greater),
            (i64::MAX, i64::MAX as f64, Ordering::Less),
            ((1 << 53) + 1, (1i64 << 53) as f64, Ordering::Greater),
            (0, f64::INFINITY, Ordering::Less),
        ];
        for (int, float, order) in cases {
            assert_eq!(compare_exactly(int, float), order, "{int} {float}");
        }
    }
}
