//! What the classes of engines' stores have alike; each adds how it is made.

/// Writes the methods of a class over an engine's store, behind its own.
macro_rules! engine_store {
    ($class:ident { $($own:tt)* }) => {
        #[pymethods]
        impl $class {
            $($own)*

            fn peek(&self, request: Whole, limit: Whole) -> PyResult<(u32, u32)> {
                answered(MachineStore::peek(&self.0, request.u32(), limit.u32()))
            }

            fn acquire(&mut self, request: Whole, depth: Whole) -> PyResult<u64> {
                answered(self.0.acquire(request.u32(), depth.u32()))
            }

            fn abandon(&mut self, lease: Whole) -> PyResult<()> {
                answered(self.0.abandon(lease.u64()))
            }

            fn reserve(
                &mut self,
                lease: Whole,
                blocks: Whole,
                now_ns: Whole,
            ) -> PyResult<Option<Vec<u64>>> {
                let wanted = [(lease.u64(), blocks.u64())];
                answered(self.0.reserve(&wanted, now_ns.u64())).map(room_to_py)
            }

            fn reserve_many(
                &mut self,
                wanted: Vec<(Whole, Whole)>,
                now_ns: Whole,
            ) -> PyResult<Option<Vec<u64>>> {
                let wanted: Vec<(u64, u64)> =
                    wanted.iter().map(|w| (w.0.u64(), w.1.u64())).collect();
                answered(self.0.reserve(&wanted, now_ns.u64())).map(room_to_py)
            }

            /// `ready`, when the blocks were computed, is not kept.
            #[pyo3(signature = (lease, to, ready=None))]
            fn commit(
                &mut self,
                lease: Whole,
                to: Whole,
                ready: Option<(Whole, Whole)>,
            ) -> PyResult<()> {
                let ready = ready.map_or(Times::default(), times);
                if ready.first_layer_ns > ready.ready_ns {
                    return answered(Err(StoreError::LastLayerFirst));
                }
                answered(self.0.commit(lease.u64(), to.u32(), ready))
            }

            fn depth(&self, lease: Whole) -> PyResult<u32> {
                answered(self.0.depth(lease.u64()))
            }

            fn release(&mut self, lease: Whole, now_ns: Whole) -> PyResult<()> {
                let (store, now_ns) = (&mut self.0, now_ns.u64());
                answered(kvsim_core::store::contract::BlockStore::release(store, lease.u64(), now_ns))
            }

            fn room<'py>(&self, py: Python<'py>, tier: Whole) -> PyResult<Bound<'py, PyAny>> {
                let t = answered(MachineStore::room(&self.0, tier.index()))?;
                named::room(py, (t.free, t.active, t.cached, t.in_flight, t.evictable))
            }

            fn losses<'py>(&self, py: Python<'py>, tier: Whole) -> PyResult<Bound<'py, PyAny>> {
                let t = answered(self.0.losses(tier.index()))?;
                named::losses(py, (t.evicted, t.overflowed, t.orphaned))
            }

            fn note(&mut self, kind: Whole, now_ns: Whole, subject: Whole, value: Whole) {
                let (now_ns, subject) = (now_ns.u64(), subject.u64());
                self.0.records.note(kind.u8(), now_ns, subject, value.u64());
            }

            fn log_evictions(&mut self) {
                self.0.records.log_evictions();
            }

            fn take_evictions(&mut self) -> Vec<(u64, usize, u64)> {
                self.0.records.take_evictions()
            }

            #[getter]
            fn digest(&self) -> u64 {
                self.0.records.digest()
            }

            #[getter]
            fn merged_blocks(&self) -> u64 {
                MachineStore::merged_blocks(&self.0)
            }

            fn check(&self) -> PyResult<()> {
                self.0.check().map_err(PyRuntimeError::new_err)
            }
        }
    };
}

pub(crate) use engine_store;
