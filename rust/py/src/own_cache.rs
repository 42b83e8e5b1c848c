//! The cache that an engine's own scheduler serves from, out of whichever store a replica has.

use kvsim_core::engines::group_store::GroupStore;
use kvsim_core::engines::hicache_store::HiCacheStore;
use kvsim_core::engines::pool_store::PoolStore;
use kvsim_core::engines::radix_store::RadixStore;
use kvsim_core::engines::tiered_pool::TieredPool;
use kvsim_core::store::contract::BlockStore;
use kvsim_core::store::Store;
use kvsim_core::token_store::TokenStore;

/// A store that may be an engine's own cache.
pub trait OwnCache: BlockStore {
    /// The same store where it is vLLM's block pool.
    fn as_pool(&mut self) -> Option<&mut PoolStore> {
        None
    }

    /// The same store where it is vLLM's pool of several cache groups.
    fn as_groups(&mut self) -> Option<&mut GroupStore> {
        None
    }

    /// The same store where it is SGLang's tree.
    fn as_radix(&mut self) -> Option<&mut RadixStore> {
        None
    }
}

impl OwnCache for Store {}
impl OwnCache for TieredPool {}
impl OwnCache for HiCacheStore {}
impl OwnCache for TokenStore {}

impl OwnCache for PoolStore {
    fn as_pool(&mut self) -> Option<&mut PoolStore> {
        Some(self)
    }
}

impl OwnCache for GroupStore {
    fn as_groups(&mut self) -> Option<&mut GroupStore> {
        Some(self)
    }
}

impl OwnCache for RadixStore {
    fn as_radix(&mut self) -> Option<&mut RadixStore> {
        Some(self)
    }
}
