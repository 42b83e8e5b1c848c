//! The destination of a row's block ids.

use super::super::intern::IdTable;
use super::super::sampler::Sampler;

/// The destination of a row's block ids, and the number of rows above it.
pub struct Destination<'o> {
    pub ids: &'o mut IdTable,
    pub references: &'o mut Vec<u32>,
    pub sampler: Option<&'o mut Sampler>,
    pub ordinal: u64,
}

impl Destination<'_> {
    /// Numbers ids, or takes those of the sample; fails with the index of one that gets no number.
    #[inline]
    pub fn take(&mut self, values: &[u64]) -> Result<(), usize> {
        match &mut self.sampler {
            Some(sampler) => sampler.take(values, self.ids, self.references),
            None => self.ids.numbers(values, self.references),
        }
    }
}
