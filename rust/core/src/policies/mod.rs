//! Eviction policies, one small file each; this page is the registry.
//!
//! | name | paper | kind |
//! |---|---|---|
//! | `lru` | Mattson et al. 1970 | leaf, object |
//! | `fifo` | Belady 1966 | leaf, object |
//! | `lfu` | Robinson and Devarakonda 1990 (counts kept while cached) | leaf |
//! | `gdsf` | Cherkasova 1998 | leaf |
//! | `pgdsf` | RAGCache, Jin et al. 2024 | leaf |
//! | `length_aware` | Mooncake, Qin et al. 2025 | leaf |
//! | `ttl` | Jung et al. 2003 | leaf |
//! | `priority` | TensorRT-LLM, KvCacheRetentionConfig | leaf |
//! | `sieve` | Zhang et al. 2024 | object |
//! | `clock` | Corbató 1968 | object |
//! | `arc` | Megiddo and Modha 2003 | object |
//! | `s3fifo` | Yang et al. 2023 | object |
//! | `slru` | Karedla et al. 1994 | object |
//!
//! A *leaf* policy is a key of a leaf plus hooks: any store that keeps its candidate leaves ordered by key
//! can use it. An *object* policy keeps queues of single blocks and names its victim itself; `ranked` turns
//! a leaf policy into one. `order` makes either kind the eviction order of a tier whose blocks come and go
//! for reasons of its own.
pub mod arc;
pub mod clock;
pub mod fifo;
pub mod gdsf;
pub mod leaf;
pub mod length_aware;
pub mod lfu;
pub mod lru;
pub mod object;
pub mod order;
pub mod pgdsf;
pub mod priority;
pub mod queues;
pub mod ranked;
pub mod s3fifo;
pub mod sieve;
pub mod slru;
pub mod ttl;

use leaf::LeafPolicy;
use object::ObjectPolicy;
use ranked::Ranked;

/// Settings that some policies take; each reads its own.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicySettings {
    /// `ttl`: a block unused for this long is gone.
    pub ttl_ns: i64,
    /// `priority`: what each range of a prompt's blocks is worth, and for how long.
    pub ranges: Vec<priority::Range>,
    /// `pgdsf`: blocks before a token at which attending to them costs as much as all else.
    pub attention_blocks: f64,
}

/// Return the leaf policy of a name.
pub fn leaf(name: &str, settings: &PolicySettings) -> Option<Box<dyn LeafPolicy>> {
    Some(match name {
        "lru" => Box::new(lru::Lru),
        "fifo" => Box::new(fifo::Fifo),
        "lfu" => Box::new(lfu::Lfu),
        "gdsf" => Box::new(gdsf::Gdsf::default()),
        "pgdsf" => Box::new(pgdsf::Pgdsf::new(settings.attention_blocks)),
        "length-aware" => Box::new(length_aware::LengthAware),
        "ttl" => Box::new(ttl::Ttl {
            ttl_ns: settings.ttl_ns,
        }),
        "priority" => Box::new(priority::Priority::new(&settings.ranges)),
        _ => return None,
    })
}

/// Return the object policy of a name, for `capacity` blocks out of `universe` distinct ones.
pub fn object(
    name: &str,
    settings: &PolicySettings,
    capacity: usize,
    universe: usize,
) -> Option<Box<dyn ObjectPolicy>> {
    Some(match name {
        "lru" => Box::new(lru::LruQueue::new(universe)),
        "fifo" => Box::new(fifo::FifoQueue::new(universe)),
        "sieve" => Box::new(sieve::Sieve::new(universe)),
        "clock" => Box::new(clock::Clock::new(universe)),
        "arc" => Box::new(arc::Arc::new(capacity, universe)),
        "s3fifo" => Box::new(s3fifo::S3Fifo::new(capacity, universe)),
        "slru" => Box::new(slru::Slru::new(capacity, universe)),
        _ => Box::new(Ranked::new(leaf(name, settings)?, universe)),
    })
}
