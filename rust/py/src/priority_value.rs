//! What a priority function returned, in the order that Python has for it.

use std::cmp::Ordering;

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyTuple};

use crate::order::{locked, Failure};

/// Whole numbers up to this one are 64-bit floats too.
const LARGEST_EXACT: i64 = 1 << 53;

/// A number, or a tuple of numbers, is compared here; anything else by Python.
enum Numbers {
    One(f64),
    Many(Vec<f64>),
    Other,
}

/// The value of a block. What a comparison by Python raises is found in `failure`.
pub struct Value {
    numbers: Numbers,
    returned: Py<PyAny>,
    failure: Failure,
}

impl Value {
    /// Takes what a function returned.
    pub fn new(returned: &Bound<'_, PyAny>, failure: &Failure) -> Self {
        let numbers = match number(returned) {
            Some(one) => Numbers::One(one),
            None => many(returned).map_or(Numbers::Other, Numbers::Many),
        };
        Self {
            numbers,
            returned: returned.clone().unbind(),
            failure: failure.clone(),
        }
    }

    /// Compares as `heapq` compares tuples that begin with the values: equal ones first, then `<`.
    pub fn compare(&self, other: &Self) -> Ordering {
        let order = match (&self.numbers, &other.numbers) {
            (Numbers::One(a), Numbers::One(b)) => a.partial_cmp(b),
            (Numbers::Many(a), Numbers::Many(b)) => a.partial_cmp(b),
            _ => return self.compare_objects(other),
        };
        order.unwrap_or(Ordering::Equal)
    }

    fn compare_objects(&self, other: &Self) -> Ordering {
        let answer = Python::attach(|py| -> PyResult<Ordering> {
            let (a, b) = (self.returned.bind(py), other.returned.bind(py));
            Ok(if a.is(b) || a.eq(b)? {
                Ordering::Equal
            } else if a.lt(b)? {
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
}

/// A number that 64 bits hold exactly.
fn number(returned: &Bound<'_, PyAny>) -> Option<f64> {
    if returned.is_exact_instance_of::<PyInt>() || returned.is_exact_instance_of::<PyBool>() {
        let int = returned.extract::<i64>().ok()?;
        return (-LARGEST_EXACT..=LARGEST_EXACT)
            .contains(&int)
            .then_some(int as f64);
    }
    let float = returned.cast_exact::<PyFloat>().ok()?;
    Some(float.value())
}

fn many(returned: &Bound<'_, PyAny>) -> Option<Vec<f64>> {
    let tuple = returned.cast_exact::<PyTuple>().ok()?;
    tuple.iter().map(|item| number(&item)).collect()
}
