//! Conversion of Python values to core types, without structs of the binding in between.

use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;

use crate::refusal::out_of_range;

/// A value converted from Python: numbers, lists and pairs of them, and structs attribute by attribute.
///
/// Requests, blocks, tiers, counts, handles and times are at least 0; a number too large for its core type becomes the
/// type's largest number, which names nothing.
#[derive(Clone, Copy, Default)]
pub struct Arg<T>(pub T);

/// Types that can be read from Python.
pub trait FromPython: Sized {
    /// Reads a value; StoreError for a number beyond 64 bits, or below 0 if negative numbers have no meaning.
    fn read(given: Borrowed<'_, '_, PyAny>) -> PyResult<Self>;
}

impl<'py, T: FromPython> FromPyObject<'_, 'py> for Arg<T> {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        T::read(given).map(Self)
    }
}

macro_rules! saturating {
    ($($number:ty),*) => {$(
        impl FromPython for $number {
            fn read(given: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
                u64::read(given).map(|wide| Self::try_from(wide).unwrap_or(Self::MAX))
            }
        }
    )*};
}

saturating!(u8, u32, usize);

impl FromPython for u64 {
    fn read(given: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let py = given.py();
        given.extract().map_err(|error: PyErr| {
            if error.is_instance_of::<PyOverflowError>(py) {
                out_of_range(py)
            } else {
                error
            }
        })
    }
}

impl<A: FromPython, B: FromPython> FromPython for (A, B) {
    fn read(given: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let (a, b): (Arg<A>, Arg<B>) = given.extract()?;
        Ok((a.0, b.0))
    }
}

impl<T: FromPython> FromPython for Vec<T> {
    fn read(given: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let items: Vec<Arg<T>> = given.extract()?;
        Ok(items.into_iter().map(|item| item.0).collect())
    }
}

impl<T: FromPython> FromPython for Option<T> {
    fn read(given: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        if given.is_none() {
            return Ok(None);
        }
        T::read(given).map(Some)
    }
}

macro_rules! as_it_is {
    ($($kind:ty),*) => {$(
        impl FromPython for $kind {
            fn read(given: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
                given.extract()
            }
        }
    )*};
}

as_it_is!(bool, i64, f64);

/// Reads structs of the core from the attributes of the same names, or from the names after `=`.
macro_rules! from_attributes {
    ($($kind:ident { $($field:ident $(= $name:ident)?),* $(, ..$rest:ident)? })*) => {$(
        impl $crate::argument::FromPython for $kind {
            fn read(given: pyo3::Borrowed<'_, '_, pyo3::PyAny>) -> pyo3::PyResult<Self> {
                Ok(Self {
                    $($field: $crate::argument::attribute!(given, $field $($name)?),)*
                    $(..$rest::default())?
                })
            }
        }
    )*};
}

/// Reads an enum of the core from the name of its variant.
macro_rules! from_names {
    ($($kind:ident: $what:literal)*) => {$(
        impl $crate::argument::FromPython for $kind {
            fn read(given: pyo3::Borrowed<'_, '_, pyo3::PyAny>) -> pyo3::PyResult<Self> {
                let named = Self::from_name(&given.extract::<String>()?);
                named.ok_or_else(|| {
                    pyo3::exceptions::PyValueError::new_err(concat!("no ", $what, " of the core"))
                })
            }
        }
    )*};
}

/// Reads structs from tuples with a value for each field, in this order, as [`Arg`] reads the values.
macro_rules! from_tuples {
    ($($kind:ident { $($field:ident),* })*) => {$(
        impl $crate::argument::FromPython for $kind {
            fn read(given: pyo3::Borrowed<'_, '_, pyo3::PyAny>) -> pyo3::PyResult<Self> {
                let ($($crate::argument::Arg($field),)*) = given.extract()?;
                Ok(Self { $($field),* })
            }
        }
    )*};
}

/// Defines structs that Python passes as tuples with a value for each field, in this order.
macro_rules! tuple_structs {
    ($($(#[$about:meta])* pub struct $kind:ident $(<$life:lifetime>)? {
        $($(#[$about_field:meta])* $field:ident: $type:ty,)*
    })*) => {$(
        $(#[$about])*
        pub struct $kind $(<$life>)? {
            $($(#[$about_field])* pub $field: $type,)*
        }

        impl<'py> pyo3::FromPyObject<'_, 'py> for $kind $(<$life>)? {
            type Error = pyo3::PyErr;

            fn extract(given: pyo3::Borrowed<'_, 'py, pyo3::PyAny>) -> pyo3::PyResult<Self> {
                let ($($field,)*): ($($type,)*) = given.extract()?;
                Ok(Self { $($field),* })
            }
        }
    )*};
}

/// The value of an attribute.
macro_rules! attribute {
    ($given:ident, $field:ident $name:ident) => {
        $crate::argument::attribute!($given, $name)
    };
    ($given:ident, $name:ident) => {
        $given
            .getattr(stringify!($name))?
            .extract::<$crate::argument::Arg<_>>()?
            .0
    };
}

pub(crate) use {attribute, from_attributes, from_names, from_tuples, tuple_structs};
