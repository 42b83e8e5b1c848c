//! The invariants of a radix tree (design: I2, I3), recomputed from scratch.

use super::{RadixTree, ROOT};
use crate::store::Violation;

impl RadixTree {
    /// Checks everything, the locks against the nodes that are `held`; the first violation is the error.
    ///
    /// Cost: linear in nodes, and in the depth of each holder.
    pub fn check(&self, held: impl Iterator<Item = u32>) -> Result<(), Violation> {
        let live = self.check_spare()?;
        self.check_links(&live)?;
        self.check_locks(&live, held)?;
        self.check_sizes(&live)
    }

    /// Which nodes are in use, by number.
    fn check_spare(&self) -> Result<Vec<bool>, Violation> {
        let mut live = vec![true; self.nodes.len()];
        for &at in &self.spare {
            if at == ROOT || !std::mem::replace(&mut live[at as usize], false) {
                return Err(format!("node {at} is given back twice"));
            }
        }
        Ok(live)
    }

    fn of<'a>(&self, live: &'a [bool]) -> impl Iterator<Item = u32> + 'a {
        (0..self.nodes.len() as u32).filter(|&at| at != ROOT && live[at as usize])
    }

    /// Each node follows its parent, is found by its key there, and is counted.
    fn check_links(&self, live: &[bool]) -> Result<(), Violation> {
        let mut children = vec![0u32; self.nodes.len()];
        for at in self.of(live) {
            let node = &self.nodes[at as usize];
            if node.pages == 0 {
                return Err(format!("node {at} is empty"));
            }
            let parent = &self.nodes[node.parent as usize];
            let end = parent.start + parent.pages;
            let shares = || {
                self.keys
                    .common(parent.request, node.request, parent.start, end)
            };
            let follows = end == node.start && shares() == parent.pages;
            if !live[node.parent as usize] || !follows {
                return Err(format!("node {at} does not follow its parent"));
            }
            let key = (node.parent, self.keys.key(node.request, node.start));
            if self.child.get(&key) != Some(&at) {
                return Err(format!("node {at} is not found by its key"));
            }
            children[node.parent as usize] += 1;
        }
        for at in self.of(live).chain([ROOT]) {
            let (counted, found) = (self.nodes[at as usize].children, children[at as usize]);
            if counted != found {
                return Err(format!("node {at} counts {counted} children, has {found}"));
            }
        }
        let nodes = self.of(live).count();
        if nodes != self.child.len() || nodes as u64 != self.counts.nodes {
            return Err(format!(
                "the tree has {nodes} nodes, finds {} and counts {}",
                self.child.len(),
                self.counts.nodes
            ));
        }
        Ok(())
    }

    /// A node has a lock for each holder at or below it.
    fn check_locks(&self, live: &[bool], held: impl Iterator<Item = u32>) -> Result<(), Violation> {
        let mut locks = vec![0u32; self.nodes.len()];
        for mut at in held {
            if !live.get(at as usize).is_some_and(|&live| live) {
                return Err(format!("I3: a request holds node {at}, which is gone"));
            }
            while at != ROOT {
                locks[at as usize] += 1;
                at = self.nodes[at as usize].parent;
            }
        }
        for at in self.of(live) {
            let (counted, found) = (self.nodes[at as usize].locks, locks[at as usize]);
            if counted != found {
                return Err(format!(
                    "I3: node {at} has {counted} locks, {found} holders"
                ));
            }
        }
        Ok(())
    }

    /// Pages in the tree and those that may be evicted, and the leaves that wait for it.
    fn check_sizes(&self, live: &[bool]) -> Result<(), Violation> {
        let pages = |at: u32| u64::from(self.nodes[at as usize].pages);
        let all: u64 = self.of(live).map(pages).sum();
        let unlocked = |at: &u32| self.nodes[*at as usize].locks == 0;
        let evictable: u64 = self.of(live).filter(unlocked).map(pages).sum();
        if (all, evictable) != (self.counts.pages, self.evictable_pages) {
            return Err(format!(
                "I2: the tree has {all} pages and can evict {evictable}, counted {} and {}",
                self.counts.pages, self.evictable_pages
            ));
        }
        let candidates = || self.of(live).filter(|&at| self.is_candidate(at));
        let listed = candidates().all(|at| self.leaves.contains(&self.rank(at)));
        if !listed || candidates().count() != self.leaves.len() {
            return Err("I3: the leaves without a lock are wrongly listed for eviction".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::{LeafOrder, RadixTree, ROOT};
    use crate::keys::{BlockKeys, NO_REQUEST};

    /// Two requests that share two of four pages, the first one's path locked.
    fn tree() -> (RadixTree, u32) {
        let ids = vec![0, 1, 2, 3, 0, 1, 4, 5];
        let keys = BlockKeys::new(vec![0, 4, 8], ids, 1, vec![4, 4], vec![NO_REQUEST; 2]).unwrap();
        let mut tree = RadixTree::new(Arc::new(keys), LeafOrder::Lru);
        tree.insert(0, 4, 0);
        tree.insert(1, 4, 0);
        let (node, _) = tree.match_prefix(0, 4);
        tree.lock(node);
        (tree, node)
    }

    fn said(corrupt: impl FnOnce(&mut RadixTree, usize)) -> String {
        let (mut tree, node) = tree();
        assert_eq!(tree.check([node].into_iter()), Ok(()));
        corrupt(&mut tree, node as usize);
        tree.check([node].into_iter()).unwrap_err()
    }

    #[test]
    fn a_lock_too_many_or_a_holder_too_few() {
        assert!(said(|t, node| t.nodes[node].locks += 1).starts_with("I3"));
        assert!(said(|t, node| t.nodes[node].locks -= 1).starts_with("I3"));
        let (tree, _) = tree();
        assert!(tree.check(std::iter::empty()).is_err());
        assert!(tree.check([7].into_iter()).is_err());
    }

    #[test]
    fn wrong_sizes() {
        assert!(said(|t, _| t.evictable_pages += 1).starts_with("I2"));
        assert!(said(|t, _| t.counts.pages -= 1).starts_with("I2"));
        assert!(said(|t, node| t.nodes[node].pages += 1).starts_with("I2"));
        assert!(said(|t, _| t.counts.nodes += 1).contains("nodes"));
    }

    #[test]
    fn wrong_links() {
        assert!(said(|t, node| t.nodes[node].parent = ROOT).contains("follow its parent"));
        assert!(said(|t, node| t.nodes[node].request = 1).contains("not found by its key"));
        assert!(said(|t, _| t.nodes[ROOT as usize].children += 1).contains("children"));
        assert!(said(|t, _| t.leaves.clear()).contains("listed"));
    }
}
