//! Admission of prefixes to the global prefix store (seed 000, 3.4). A prefix may be shared once it is long
//! enough and has been seen often enough.
//!
//! Every prompt counts once for each of its prefixes of whole blocks, at its first admission and after its
//! own look-up. The key of a block names the block and all before it, so it is the hash of the prefix that
//! ends there.

use crate::ids::BlockRange;
use crate::key_map::KeyMap;
use crate::keys::BlockKeys;

/// Conditions for sharing a prefix, and the size limit of the global prefix store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixViewConfig {
    /// The shortest prefix admitted; `None`: one block.
    pub min_tokens: Option<u64>,
    /// Number of prompts that must have begun with it.
    pub min_seen: u64,
    /// Size limit of the store; `None`: that of the tier alone.
    pub max_tokens: Option<u64>,
}

impl Default for PrefixViewConfig {
    fn default() -> Self {
        Self {
            min_tokens: None,
            min_seen: 1,
            max_tokens: None,
        }
    }
}

/// Decides up to which length a prefix is shared. Cost: a look-up per block, if prefixes are counted.
#[derive(Debug, Default)]
pub struct PrefixAdmission {
    config: PrefixViewConfig,
    shortest_blocks: u64,
    /// Number of prompts that began with a prefix, by the key of its last block.
    seen: KeyMap<u64, u64>,
}

impl PrefixAdmission {
    /// Creates an admission that has seen no prompt.
    pub fn new(config: PrefixViewConfig, block_size_tokens: u64) -> Self {
        let shortest_tokens = config.min_tokens.unwrap_or(1);
        Self {
            config,
            shortest_blocks: shortest_tokens.div_ceil(block_size_tokens.max(1)),
            seen: KeyMap::default(),
        }
    }

    /// Returns the shortest prefix that can be admitted, in blocks.
    pub fn shortest_blocks(&self) -> u64 {
        self.shortest_blocks
    }

    /// Counts the prefixes of a prompt of `blocks` whole blocks.
    pub fn observe(&mut self, keys: &BlockKeys, request: u32, blocks: u32) {
        if self.config.min_seen > 1 {
            let seen = &mut self.seen;
            keys.each_back(request, BlockRange::new(0, blocks), |key| {
                *seen.entry(key).or_default() += 1;
            });
        }
    }

    /// Returns true if the prefix that ends with a block was seen often enough to be shared.
    pub fn is_admitted(&self, key: u64) -> bool {
        let seen = || self.seen.get(&key).copied().unwrap_or(0);
        self.config.min_seen <= 1 || seen() >= self.config.min_seen
    }

    /// Returns the longest admitted prefix among the first `blocks` of a request, in blocks; 0 if there is
    /// none.
    ///
    /// A prefix is seen at least as often as any longer one, so the admitted ones lead.
    pub fn admitted_blocks(&self, keys: &BlockKeys, request: u32, blocks: u32) -> u32 {
        let mut leading = blocks;
        if self.config.min_seen > 1 {
            let refused = |&block: &u32| !self.is_admitted(keys.key(request, block));
            leading = (0..blocks).find(refused).unwrap_or(blocks);
        }
        if u64::from(leading) >= self.shortest_blocks {
            leading
        } else {
            0
        }
    }
}
