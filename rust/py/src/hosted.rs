//! `HostedCache`: a provider's cache of prefixes.

use std::sync::{Mutex, MutexGuard, PoisonError};

use kvsim_core::hosted::cache::{HostedCache, Life, Reach, Unread};
use kvsim_core::hosted::prefixes::NoSuchPrefix;
use pyo3::prelude::*;

use crate::argument::{from_tuples, Arg};
use crate::refusal::refused;

from_tuples! {
    PyLife { start_ns, ready_ns, idle_ns, most_ns }
}

/// The times of a kept prefix, as [`Life`].
pub struct PyLife {
    start_ns: u64,
    ready_ns: u64,
    idle_ns: u64,
    most_ns: u64,
}

impl From<PyLife> for Life {
    fn from(life: PyLife) -> Self {
        Self {
            start_ns: life.start_ns,
            ready_ns: life.ready_ns,
            idle_ns: life.idle_ns,
            most_ns: life.most_ns,
        }
    }
}

/// A provider's cache.
#[pyclass(name = "HostedCache", frozen)]
pub struct PyHostedCache {
    cache: Mutex<HostedCache>,
}

impl PyHostedCache {
    fn cache(&self) -> MutexGuard<'_, HostedCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn found<T>(answer: Result<T, NoSuchPrefix>) -> PyResult<T> {
    answer.map_err(|NoSuchPrefix| refused("no such prefix", "one that extend returned"))
}

#[pymethods]
impl PyHostedCache {
    #[new]
    fn new(look_back: Option<Arg<u32>>, searched: Option<Arg<u32>>) -> Self {
        let (look_back, searched) = (look_back.map(|n| n.0), searched.map(|n| n.0));
        Self {
            cache: Mutex::new(HostedCache::new(Reach {
                look_back,
                searched,
            })),
        }
    }

    fn extend(&self, prefix: Arg<u32>, contents: Arg<Vec<u64>>) -> PyResult<(Vec<u32>, usize)> {
        let extended = found(self.cache().extend(prefix.0, &contents.0))?;
        Ok((extended.prefixes, extended.known))
    }

    fn path(&self, prefix: Arg<u32>) -> PyResult<Vec<u32>> {
        let cache = self.cache();
        found(cache.prefixes.blocks(prefix.0))?;
        let mut path: Vec<u32> = cache.prefixes.path(prefix.0).collect();
        path.reverse();
        Ok(path)
    }

    fn find(
        &self,
        tail: Arg<u32>,
        marks: Arg<Vec<u32>>,
        now_ns: Arg<u64>,
    ) -> PyResult<(Option<u32>, Option<u32>, &'static str)> {
        let answer = found(self.cache().find(tail.0, &marks.0, now_ns.0))?;
        let why = match answer.unread {
            None => "",
            Some((_, Unread::Lapsed)) => "ttl",
            Some((_, Unread::NotReady)) => "concurrent",
            Some((_, Unread::OutOfReach)) => "look-back",
        };
        Ok((answer.read, answer.unread.map(|(prefix, _)| prefix), why))
    }

    fn refresh(&self, prefix: Arg<u32>, now_ns: Arg<u64>) -> PyResult<()> {
        found(self.cache().refresh(prefix.0, now_ns.0))
    }

    fn write(&self, prefixes: Arg<Vec<u32>>, life: Arg<PyLife>) -> PyResult<()> {
        let life = life.0.into();
        let mut cache = self.cache();
        found(prefixes.0.iter().try_for_each(|&at| cache.write(at, life)))
    }

    fn write_path(&self, tail: Arg<u32>, life: Arg<PyLife>) -> PyResult<()> {
        found(self.cache().write_path(tail.0, life.0.into()))
    }
}
