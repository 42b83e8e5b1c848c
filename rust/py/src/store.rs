//! `Store`: the block store of one machine.

use kvsim_core::store::{Residency, Store, TierConfig, Times, Touch};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::keys::PyKeys;
use crate::named;
use crate::order::{order, raised, Failure, OrderChoice};
use crate::refusal::{answered, Whole};
use crate::store_values::{orders_to_py, parts_to_py, room_to_py, times, PyOrder, PyPart};

/// The block store of one machine.
#[pyclass(name = "Store")]
pub struct PyStore(pub Store, pub Failure);

/// Blocks up to the first number, each with these copies: (tier, move writing it, first layer ready, whole ready,
/// last access), times in ns.
type PyResidencies = (u32, Vec<(usize, u64, u64, u64, u64)>);

/// Room claimed, and the moves that must end before it is free.
type PyClaim = (u64, Vec<u64>);

#[pymethods]
impl PyStore {
    /// `orders`: by tier, None for recency; none given means recency on all. `touch`: what makes blocks recent.
    /// `eviction_batch_blocks`: how many are evicted at once at least.
    #[new]
    #[pyo3(signature = (keys, capacities_blocks, write_back, orders=None, touch="release", eviction_batch_blocks=1))]
    fn new(
        keys: &PyKeys,
        capacities_blocks: Vec<Option<u64>>,
        write_back: Vec<bool>,
        orders: Option<Vec<Option<OrderChoice<'_>>>>,
        touch: &str,
        eviction_batch_blocks: u64,
    ) -> PyResult<Self> {
        if capacities_blocks.is_empty() || capacities_blocks.len() != write_back.len() {
            return Err(PyValueError::new_err(
                "a tier or more, each with its write policy",
            ));
        }
        let tiers: Vec<TierConfig> = capacities_blocks
            .into_iter()
            .zip(write_back)
            .map(|(capacity_blocks, write_back)| TierConfig {
                capacity_blocks,
                write_back,
            })
            .collect();
        let touch = match touch {
            "release" => Touch::Release,
            "admission" => Touch::Admission,
            _ => return Err(PyValueError::new_err("touch is release or admission")),
        };
        let failure = Failure::default();
        let orders = orders
            .unwrap_or_default()
            .into_iter()
            .map(|choice| choice.map(|choice| order(choice, &failure)).transpose())
            .collect::<PyResult<Vec<_>>>()?;
        let store = Store::new(keys.0.clone(), &tiers)
            .with_touch(touch)
            .with_eviction_batch(eviction_batch_blocks)
            .with_orders(orders);
        Ok(Self(store, failure))
    }

    fn peek(&self, request: Whole, limit: Whole) -> PyResult<(u32, u32)> {
        answered(self.0.known_request(request.u32()))?;
        Ok(self.0.peek(request.u32(), limit.u32()))
    }

    fn uses(&self, request: Whole, limit: Whole) -> PyResult<Vec<(u32, u32, u64)>> {
        answered(self.0.known_request(request.u32()))?;
        Ok(self.0.uses(request.u32(), limit.u32()))
    }

    fn match_prefix(&self, request: Whole, limit: Whole) -> PyResult<Vec<PyPart>> {
        answered(self.0.known_request(request.u32()))?;
        Ok(parts_to_py(self.0.match_prefix(request.u32(), limit.u32())))
    }

    fn acquire(&mut self, request: Whole, depth: Whole) -> PyResult<u64> {
        answered(self.0.acquire(request.u32(), depth.u32()))
    }

    fn reserve(
        &mut self,
        lease: Whole,
        blocks: Whole,
        now_ns: Whole,
    ) -> PyResult<Option<Vec<u64>>> {
        let wanted = [(lease.u64(), blocks.u64())];
        let room = self.0.reserve(&wanted, now_ns.u64());
        raised(&self.1, room).and_then(answered).map(room_to_py)
    }

    fn reserve_many(
        &mut self,
        wanted: Vec<(Whole, Whole)>,
        now_ns: Whole,
    ) -> PyResult<Option<Vec<u64>>> {
        let wanted: Vec<(u64, u64)> = wanted.iter().map(|w| (w.0.u64(), w.1.u64())).collect();
        let room = self.0.reserve(&wanted, now_ns.u64());
        raised(&self.1, room).and_then(answered).map(room_to_py)
    }

    fn load(&mut self, lease: Whole, to: Whole, after: Vec<Whole>) -> PyResult<u64> {
        let after: Vec<u64> = after.into_iter().map(Whole::u64).collect();
        answered(self.0.load(lease.u64(), to.u32(), &after))
    }

    fn join(&mut self, lease: Whole, to: Whole) -> PyResult<()> {
        answered(self.0.join(lease.u64(), to.u32()))
    }

    #[pyo3(signature = (request, part, to_tier, ready, now_ns))]
    fn stage(
        &mut self,
        request: Whole,
        part: (Whole, Whole),
        to_tier: Whole,
        ready: Option<Whole>,
        now_ns: Whole,
    ) -> PyResult<Option<u64>> {
        let staged = self.0.stage(
            request.u32(),
            (part.0.u32(), part.1.u32()),
            to_tier.index(),
            ready.map(Whole::u64),
            now_ns.u64(),
        );
        raised(&self.1, staged).and_then(answered)
    }

    fn protect(&mut self, request: Whole, end: Whole, tier: Whole) -> PyResult<u64> {
        answered(self.0.protect(request.u32(), end.u32(), tier.index()))
    }

    fn unprotect(&mut self, tier: Whole, hold: Whole) -> PyResult<()> {
        answered(self.0.unprotect(tier.index(), hold.u64()))
    }

    fn abandon(&mut self, lease: Whole) -> PyResult<()> {
        answered(self.0.abandon(lease.u64()))
    }

    fn write_through(
        &mut self,
        lease: Whole,
        start: Whole,
        end: Whole,
        now_ns: Whole,
    ) -> PyResult<Option<u64>> {
        let (start, end) = (start.u32(), end.u32());
        let sent = self.0.write_through(lease.u64(), start, end, now_ns.u64());
        raised(&self.1, sent).and_then(answered)
    }

    fn write_selected(
        &mut self,
        lease: Whole,
        tier: Whole,
        uses: Whole,
        now_ns: Whole,
    ) -> PyResult<Option<u64>> {
        let (tier, uses) = (tier.index(), uses.u32());
        let sent = self.0.write_selected(lease.u64(), tier, uses, now_ns.u64());
        raised(&self.1, sent).and_then(answered)
    }

    fn write_on(&mut self, r#move: Whole, now_ns: Whole) -> PyResult<Option<u64>> {
        let sent = self.0.write_on(r#move.u64(), now_ns.u64());
        raised(&self.1, sent).and_then(answered)
    }

    fn touch(&mut self, request: Whole, end: Whole) -> PyResult<()> {
        let touched = self.0.touch(request.u32(), end.u32());
        raised(&self.1, touched).and_then(answered)
    }

    fn discard(&mut self, request: Whole, start: Whole, end: Whole) -> PyResult<()> {
        let (start, end) = (start.u32(), end.u32());
        let discarded = self.0.discard(request.u32(), start, end);
        raised(&self.1, discarded).and_then(answered)
    }

    fn match_below(&self, request: Whole, start: Whole, limit: Whole) -> PyResult<Vec<PyPart>> {
        answered(self.0.known_request(request.u32()))?;
        let (start, limit) = (start.u32(), limit.u32());
        Ok(parts_to_py(self.0.match_below(request.u32(), start, limit)))
    }

    fn copies(&self, request: Whole, limit: Whole) -> PyResult<Vec<(u32, Vec<u64>)>> {
        answered(self.0.known_request(request.u32()))?;
        Ok(self.0.copies(request.u32(), limit.u32()))
    }

    fn residency(&self, request: Whole, limit: Whole) -> PyResult<Vec<PyResidencies>> {
        answered(self.0.known_request(request.u32()))?;
        let runs = self.0.residency(request.u32(), limit.u32()).into_iter();
        let told = |r: Residency| {
            let Times {
                first_layer_ns,
                ready_ns,
            } = r.times;
            (r.tier, r.by, first_layer_ns, ready_ns, r.last_access_ns)
        };
        let runs = runs.map(|(end, copies)| (end, copies.into_iter().map(told).collect()));
        Ok(runs.collect())
    }

    fn set_times(&mut self, r#move: Whole, first_layer_ns: Whole, ready_ns: Whole) -> PyResult<()> {
        let arrival = times((first_layer_ns, ready_ns));
        answered(self.0.set_times(r#move.u64(), arrival))
    }

    fn take_keys(&mut self, keys: &PyKeys) {
        self.0.take_keys(keys.0.clone());
    }

    fn moved_keys(&self, r#move: Whole) -> PyResult<Vec<u64>> {
        answered(self.0.moved_keys(r#move.u64()))
    }

    fn moved_paths(&self, r#move: Whole) -> PyResult<Vec<(u32, u32)>> {
        answered(self.0.moved_paths(r#move.u64()))
    }

    fn claim(&mut self, tier: Whole, blocks: Whole, now_ns: Whole) -> PyResult<Option<PyClaim>> {
        let claimed = self.0.claim(tier.index(), blocks.u64(), now_ns.u64());
        raised(&self.1, claimed).and_then(answered)
    }

    fn give_back(&mut self, claim: Whole) -> PyResult<()> {
        answered(self.0.give_back(claim.u64()))
    }

    fn place(
        &mut self,
        claim: Whole,
        request: Whole,
        part: (Whole, Whole),
        source: Option<Whole>,
    ) -> PyResult<bool> {
        let part = (part.0.u32(), part.1.u32());
        let source = source.map(Whole::index);
        let placed = self.0.place(claim.u64(), request.u32(), part, source);
        raised(&self.1, placed).and_then(answered)
    }

    fn remove(&mut self, request: Whole, part: (Whole, Whole), tier: Whole) -> PyResult<u32> {
        let part = (part.0.u32(), part.1.u32());
        let removed = self.0.remove(request.u32(), part, tier.index());
        raised(&self.1, removed).and_then(answered)
    }

    fn lend(&mut self, request: Whole, end: Whole, tier: Whole) -> PyResult<u64> {
        answered(self.0.lend(request.u32(), end.u32(), tier.index()))
    }

    fn receive(
        &mut self,
        request: Whole,
        part: (Whole, Whole),
        now_ns: Whole,
    ) -> PyResult<Option<u64>> {
        let part = (part.0.u32(), part.1.u32());
        let landed = self.0.receive(request.u32(), part, now_ns.u64());
        raised(&self.1, landed).and_then(answered)
    }

    #[pyo3(signature = (lease, to, ready=None))]
    fn commit(&mut self, lease: Whole, to: Whole, ready: Option<(Whole, Whole)>) -> PyResult<()> {
        let ready = ready.map_or_else(|| Times::at(self.0.now_ns()), times);
        let committed = self.0.commit(lease.u64(), to.u32(), ready);
        raised(&self.1, committed).and_then(answered)
    }

    fn depth(&self, lease: Whole) -> PyResult<u32> {
        answered(self.0.lease(lease.u64())).map(|lease| lease.depth)
    }

    fn release(&mut self, lease: Whole, now_ns: Whole) -> PyResult<()> {
        let released = self.0.release(lease.u64(), now_ns.u64());
        raised(&self.1, released).and_then(answered)
    }

    fn expire(&mut self, now_ns: Whole) -> PyResult<()> {
        self.0.expire(now_ns.u64());
        raised(&self.1, ())
    }

    fn take_orders(&mut self) -> Vec<PyOrder> {
        orders_to_py(self.0.take_orders())
    }

    fn finish_move(&mut self, r#move: Whole) -> PyResult<()> {
        let ended = self.0.finish_move(r#move.u64());
        raised(&self.1, ended).and_then(answered)
    }

    fn drop_copy(&mut self, request: Whole, start: Whole, end: Whole, tier: Whole) -> PyResult<()> {
        let (start, end, tier) = (start.u32(), end.u32(), tier.index());
        let dropped = self.0.drop_copy(request.u32(), start, end, tier);
        raised(&self.1, dropped).and_then(answered)
    }

    /// (free, active, cached, in flight, evictable) blocks of a tier.
    fn room<'py>(&self, py: Python<'py>, tier: Whole) -> PyResult<Bound<'py, PyAny>> {
        answered(self.0.known_tier(tier.index()))?;
        let t = self.0.tier(tier.index());
        named::room(py, (t.free, t.active, t.cached, t.in_flight, t.evictable))
    }

    /// (evictions, overflowed, orphaned) blocks of a tier.
    fn losses<'py>(&self, py: Python<'py>, tier: Whole) -> PyResult<Bound<'py, PyAny>> {
        answered(self.0.known_tier(tier.index()))?;
        let t = self.0.tier(tier.index());
        named::losses(py, (t.evictions, t.overflowed, t.orphaned))
    }

    /// Blocks of a tier that are on a faster one too.
    fn duplicates(&self, tier: Whole) -> PyResult<u64> {
        answered(self.0.known_tier(tier.index()))?;
        Ok(self.0.duplicates(tier.index()))
    }

    #[getter]
    fn merged_blocks(&self) -> u64 {
        self.0.merged_blocks
    }

    #[getter]
    fn runs(&self) -> usize {
        self.0.runs()
    }

    #[getter]
    fn digest(&self) -> u64 {
        self.0.records.digest()
    }

    fn note(&mut self, kind: Whole, now_ns: Whole, subject: Whole, value: Whole) {
        let (now_ns, subject) = (now_ns.u64(), subject.u64());
        self.0.records.note(kind.u8(), now_ns, subject, value.u64());
    }

    fn log_changes(&mut self) {
        self.0.records.log_changes();
    }

    fn take_changes(&mut self) -> Vec<(usize, bool, u64)> {
        self.0.records.take_changes()
    }

    fn clear(&mut self) -> bool {
        self.0.clear()
    }

    fn log_evictions(&mut self) {
        self.0.records.log_evictions();
    }

    fn take_evictions(&mut self) -> Vec<(u64, usize, u64)> {
        self.0.records.take_evictions()
    }

    fn check(&self) -> PyResult<()> {
        self.0.check().map_err(PyRuntimeError::new_err)
    }
}

/// Adds the classes of this room.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyStore>()
}
