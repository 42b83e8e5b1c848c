//! Leases of an engine's store: each belongs to one request, from its look-up until its blocks are released.

use crate::convert::fit;
use crate::store::{Answer, LeaseBlocks, LeaseId, Slots, StoreError};

/// State of a request in an engine's store.
#[derive(Debug, Clone, Copy, Default)]
pub struct EngineLease {
    /// Request of the lease.
    pub request: u32,
    /// Leading blocks found at the look-up; they are held once the first reservation is made.
    pub hits: u32,
    /// True if the first reservation was made.
    pub admitted: bool,
}

/// Active leases, at most one per request.
#[derive(Debug)]
pub struct EngineLeases {
    given: Slots<EngineLease>,
    /// For each request, true if it has a lease.
    taken: Vec<bool>,
}

impl EngineLeases {
    /// No leases, for a trace of `requests` requests.
    pub fn new(requests: u32) -> Self {
        Self {
            given: Slots::default(),
            taken: vec![false; requests as usize],
        }
    }

    /// Grows the table for requests below `requests`.
    pub fn know_requests(&mut self, requests: u32) {
        self.taken.resize(requests as usize, false);
    }

    /// Returns the number of requests of the trace.
    pub fn requests(&self) -> u32 {
        fit::<u32>(self.taken.len())
    }

    /// Refuses a request beyond the trace.
    pub fn known_request(&self, request: u32) -> Answer<()> {
        if request < self.requests() {
            return Ok(());
        }
        Err(StoreError::NoSuchRequest(self.requests()))
    }

    /// Gives a request a lease on its first `hits` blocks; `found` returns how many of `hits` blocks are found.
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

    /// Returns a lease; refuses an unknown or ended one.
    pub fn get(&self, lease: LeaseId) -> Answer<EngineLease> {
        let found = self.given.get(lease).copied();
        found.ok_or(StoreError::NoSuchLease)
    }

    /// Returns a lease whose first reservation was made.
    pub fn admitted(&self, lease: LeaseId) -> Answer<EngineLease> {
        let found = self.get(lease)?;
        if found.admitted {
            return Ok(found);
        }
        Err(StoreError::NotReserved)
    }

    /// Refuses an invalid reservation: a first reservation comes alone, and the blocks found must still be
    /// there. Returns the lease of a first reservation, else None.
    pub fn asked(
        &self,
        wanted: &[LeaseBlocks],
        found: impl Fn(u32, u32) -> u32,
    ) -> Answer<Option<EngineLease>> {
        if let [asked] = wanted {
            let lease = self.get(asked.lease)?;
            if lease.admitted {
                return Ok(None);
            }
            if found(lease.request, lease.hits) < lease.hits {
                return Err(StoreError::NotFound);
            }
            return Ok(Some(lease));
        }
        for asked in wanted {
            self.admitted(asked.lease)?;
        }
        Ok(None)
    }

    /// Returns the depth of a lease: its hit, and what its request has once it is admitted.
    pub fn depth(&self, lease: LeaseId, of: impl Fn(u32) -> u32) -> Answer<u32> {
        let lease = self.get(lease)?;
        Ok(if lease.admitted {
            of(lease.request)
        } else {
            lease.hits
        })
    }

    /// Returns the request of a lease that is known to be valid.
    pub fn request(&self, lease: LeaseId) -> u32 {
        self.given[lease].request
    }

    /// Records that the first reservation of a lease was made.
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
