//! Prompts as paths of content blocks: equal prefixes are one node.

use crate::key_map::KeyMap;

/// A handle of no prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoSuchPrefix;

/// The prefixes that end with each added block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extended {
    /// One for each block, shortest first.
    pub prefixes: Vec<u32>,
    /// So many of them, the first ones, were known before.
    pub known: usize,
}

#[derive(Debug, Clone, Copy)]
struct Node {
    parent: u32,
    blocks: u32,
}

/// All prefixes of all prompts; prefix 0 is the empty one.
#[derive(Debug)]
pub struct Prefixes {
    nodes: Vec<Node>,
    children: KeyMap<(u32, u64), u32>,
}

impl Default for Prefixes {
    fn default() -> Self {
        let empty = Node {
            parent: 0,
            blocks: 0,
        };
        Self {
            nodes: vec![empty],
            children: KeyMap::default(),
        }
    }
}

impl Prefixes {
    /// Adds blocks, named by their content, to a prefix.
    pub fn extend(&mut self, from: u32, contents: &[u64]) -> Result<Extended, NoSuchPrefix> {
        let first = self.blocks(from)? + 1;
        let (mut tail, mut known) = (from, 0);
        let mut prefixes = Vec::with_capacity(contents.len());
        for (&content, blocks) in contents.iter().zip(first..) {
            let new = u32::try_from(self.nodes.len()).map_err(|_| NoSuchPrefix)?;
            let child = *self.children.entry((tail, content)).or_insert(new);
            if child == new {
                self.nodes.push(Node {
                    parent: tail,
                    blocks,
                });
            } else {
                known += 1;
            }
            tail = child;
            prefixes.push(tail);
        }
        Ok(Extended { prefixes, known })
    }

    /// The number of blocks of a prefix.
    pub fn blocks(&self, prefix: u32) -> Result<u32, NoSuchPrefix> {
        let node = self.nodes.get(prefix as usize).ok_or(NoSuchPrefix)?;
        Ok(node.blocks)
    }

    /// A prefix and those within it, longest first, without the empty one.
    pub fn path(&self, prefix: u32) -> impl Iterator<Item = u32> + '_ {
        let up = |&at: &u32| self.nodes.get(at as usize).map(|node| node.parent);
        std::iter::successors(Some(prefix), up).take_while(|&at| at != 0)
    }
}
