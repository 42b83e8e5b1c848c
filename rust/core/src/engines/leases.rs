//! The leases of an engine's store: each is one request's, from its look-up until its blocks are let go.

use crate::store::{Answer, LeaseId, Slots, StoreError};

/// What a request has in an engine's store.
#[derive(Debug, Clone, Copy, Default)]
pub struct EngineLease {
    /// Whose it is.
    pub request: u32,
    /// Leading blocks found at its look-up; they are held once its room is reserved.
    pub hits: u32,
    /// Whether its first room has been reserved.
    pub admitted: bool,
}

/// The leases given out, one a request at a time.
#[derive(Debug)]
pub struct EngineLeases {
    given: Slots<EngineLease>,
    /// Whether a request has one.
    taken: Vec<bool>,
}

impl EngineLeases {
    /// No leases, for a trace of so many requests.
    pub fn new(requests: u32) -> Self {
        Self {
            given: Slots::default(),
            taken: vec![false; requests as usize],
        }
    }

    /// Makes room for requests below `requests`.
    pub fn know_requests(&mut self, requests: u32) {
        self.taken.resize(requests as usize, false);
    }

    /// How many requests the trace has.
    pub fn requests(&self) -> u32 {
        self.taken.len() as u32
    }

    /// Refuses a request beyond the trace.
    pub fn known_request(&self, request: u32) -> Answer<()> {
        if request < self.requests() {
            return Ok(());
        }
        Err(StoreError::NoSuchRequest(self.requests()))
    }

    /// Gives a request a lease on its first `hits` blocks; `found` says how much of so many is there.
    pub fn give(
        &mut self,
        request: u32,
        hits: u32,
        found: impl Fn(u32, u32) -> u32,
    ) -> Answer<LeaseId> {
        self.known_request(request)?;
        if self.taken[request as usize] {
            return Err(StoreError::LeasedAlready);
        }
        if found(request, hits) < hits {
            return Err(StoreError::NotFound);
        }
        self.taken[request as usize] = true;
        Ok(self.given.insert(EngineLease {
            request,
            hits,
            admitted: false,
        }))
    }

    /// A lease; refuses what is none, or none any more.
    pub fn get(&self, lease: LeaseId) -> Answer<EngineLease> {
        let found = self.given.get(lease).copied();
        found.ok_or(StoreError::NoSuchLease)
    }

    /// A lease whose first room was reserved.
    pub fn admitted(&self, lease: LeaseId) -> Answer<EngineLease> {
        let found = self.get(lease)?;
        if found.admitted {
            return Ok(found);
        }
        Err(StoreError::NotReserved)
    }

    /// Refuses a reservation that cannot be: a first one comes alone, and what it found must still be there.
    /// The lease of a first one, else None.
    pub fn asked(
        &self,
        wanted: &[(LeaseId, u64)],
        found: impl Fn(u32, u32) -> u32,
    ) -> Answer<Option<EngineLease>> {
        if let [(lease, _)] = *wanted {
            let lease = self.get(lease)?;
            if lease.admitted {
                return Ok(None);
            }
            if found(lease.request, lease.hits) < lease.hits {
                return Err(StoreError::NotFound);
            }
            return Ok(Some(lease));
        }
        for &(lease, _) in wanted {
            self.admitted(lease)?;
        }
        Ok(None)
    }

    /// The request of a lease that is known to be good.
    pub fn request(&self, lease: LeaseId) -> u32 {
        self.given[lease].request
    }

    /// Notes that the first room of a lease is reserved.
    pub fn admit(&mut self, lease: LeaseId) {
        self.given[lease].admitted = true;
    }

    /// Ends a lease.
    pub fn end(&mut self, lease: LeaseId) -> Answer<EngineLease> {
        let ended = self.given.remove(lease).ok_or(StoreError::NoSuchLease)?;
        self.taken[ended.request as usize] = false;
        Ok(ended)
    }

    /// Ends a lease that has reserved nothing.
    pub fn abandon(&mut self, lease: LeaseId) -> Answer<()> {
        if self.get(lease)?.admitted {
            return Err(StoreError::Reserved);
        }
        self.end(lease).map(|_| ())
    }
}
