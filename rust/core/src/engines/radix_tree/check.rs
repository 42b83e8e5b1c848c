//! The invariants of the tree (design: I2, I3), recomputed from scratch.

use std::collections::BTreeSet;

use super::host_tier::HostLock;
use super::{RadixTree, TreeCounts, ROOT};
use crate::convert::fit;
use crate::store::Violation;

impl RadixTree {
    /// Checks links, locks against the nodes that are `held`, tiers, counts and orders. The first violation is
    /// the error. Cost: linear in nodes, and in the depth of each holder.
    pub fn check(&self, held: impl Iterator<Item = u32>) -> Result<(), Violation> {
        let mut live = vec![true; self.nodes.len()];
        for &at in &self.spare {
            if at == ROOT || !std::mem::replace(&mut live[at as usize], false) {
                return Err(format!("node {at} is released twice"));
            }
        }
        let nodes: Vec<u32> = (1..fit::<u32>(self.nodes.len()))
            .filter(|&at| live[at as usize])
            .collect();
        self.check_links(&nodes, &live)?;
        self.check_locks(&nodes, &live, held)?;
        self.check_tiers(&nodes)
    }

    fn check_links(&self, nodes: &[u32], live: &[bool]) -> Result<(), Violation> {
        let mut children = vec![(0u32, 0u32); self.nodes.len()];
        for &at in nodes {
            let node = &self.nodes[at as usize];
            let parent = &self.nodes[node.parent as usize];
            let end = parent.start + parent.pages;
            let shares = || {
                self.keys
                    .common(parent.request, node.request, parent.start, end)
            };
            let is_next = live[node.parent as usize] && end == node.start;
            let follows = is_next && (node.parent == ROOT || shares() == parent.pages);
            let key = (node.parent, self.keys.key(node.request, node.start));
            if !follows || node.pages == 0 || self.child.get(&key) != Some(&at) {
                return Err(format!("node {at} does not follow its parent"));
            }
            if node.on_device && !parent.on_device {
                return Err(format!("I4: node {at} is on the device, its parent is not"));
            }
            children[node.parent as usize].0 += 1;
            children[node.parent as usize].1 += u32::from(node.on_device);
        }
        for &at in nodes.iter().chain([&ROOT]) {
            let node = &self.nodes[at as usize];
            if (node.children, node.device_children) != children[at as usize] {
                return Err(format!("node {at} counts its children wrongly"));
            }
        }
        Ok(())
    }

    fn check_locks(
        &self,
        nodes: &[u32],
        live: &[bool],
        held: impl Iterator<Item = u32>,
    ) -> Result<(), Violation> {
        let mut locks = vec![0u32; self.nodes.len()];
        for mut at in held {
            if live.get(at as usize) != Some(&true) {
                return Err(format!("I3: a request holds node {at}, which was deleted"));
            }
            while at != ROOT {
                locks[at as usize] += 1;
                at = self.nodes[at as usize].parent;
            }
        }
        let wrong = |&&at: &&u32| self.nodes[at as usize].locks != locks[at as usize];
        match nodes.iter().find(wrong) {
            Some(at) => Err(format!("I3: node {at} does not have one lock per holder")),
            None => Ok(()),
        }
    }

    /// Checks the host locks against the nodes whose host copies are needed.
    pub fn check_host_locks(&self, kept: impl Iterator<Item = HostLock>) -> Result<(), Violation> {
        let mut locks = vec![0u32; self.nodes.len()];
        for HostLock {
            node: mut at,
            mut pages,
        } in kept
        {
            while pages > 0 && at != ROOT {
                locks[at as usize] += 1;
                pages = pages.saturating_sub(self.nodes[at as usize].pages);
                at = self.nodes[at as usize].parent;
            }
        }
        for (at, (node, counted)) in self.nodes.iter().zip(locks).enumerate() {
            if node.host_locks != counted {
                return Err(format!("I3: node {at} counts other host locks than it has"));
            }
            if counted > 0 && !node.on_host {
                return Err(format!(
                    "I3: the host's copy of node {at} went while it was needed"
                ));
            }
        }
        Ok(())
    }

    fn check_tiers(&self, nodes: &[u32]) -> Result<(), Violation> {
        let mut counts = TreeCounts {
            evicted_pages: self.counts.evicted_pages,
            evicted_leaves: self.counts.evicted_leaves,
            ..TreeCounts::default()
        };
        let (mut device, mut host) = (BTreeSet::new(), BTreeSet::new());
        for &at in nodes {
            let node = &self.nodes[at as usize];
            let pages = u64::from(node.pages);
            if node.on_device {
                counts.device_nodes += 1;
                counts.device_pages += pages;
                counts.evictable_pages += if node.locks == 0 { pages } else { 0 };
            }
            if node.on_host {
                counts.host_nodes += 1;
                counts.host_pages += pages;
                counts.idle_host_pages += if node.locks == 0 { pages } else { 0 };
                counts.duplicate_pages += if node.on_device { pages } else { 0 };
            }
            if !node.on_device && !node.on_host {
                return Err(format!("node {at} is on no tier"));
            }
            if self.is_device_leaf(at) {
                device.insert(self.rank(at));
            }
            if self.is_host_leaf(at) {
                host.insert(self.rank(at));
            }
        }
        if counts != self.counts {
            return Err(format!("I2: {:?} counted, {counts:?} there", self.counts));
        }
        if device != self.device_leaves || host != self.host_leaves {
            return Err("a leaf is missing from its order, or not one".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Insertion, LeafStrategy, RadixTree, TreeRules, ROOT};
    use crate::keys::BlockKeys;

    /// Two requests with two of four pages in common, the first one's path locked.
    fn tree() -> (RadixTree, u32) {
        let keys = BlockKeys::of_rows(1, &[[0, 1, 2, 3], [0, 1, 4, 5]]);
        let mut tree = RadixTree::new(keys, TreeRules::Classic, LeafStrategy::Lru, 1, None);
        let how = Insertion {
            counted_pages: 0,
            protected_pages: 0,
            priority: 1,
        };
        tree.insert(0, 4, how);
        tree.insert(1, 4, how);
        let found = tree.match_prefix(0, 4);
        tree.lock(found.node);
        (tree, found.node)
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
        assert!(said(|t, _| t.counts.evictable_pages += 1).starts_with("I2"));
        assert!(said(|t, _| t.counts.device_pages -= 1).starts_with("I2"));
        assert!(said(|t, node| t.nodes[node].pages += 1).starts_with("I2"));
        assert!(said(|t, _| t.counts.device_nodes += 1).starts_with("I2"));
    }

    #[test]
    fn wrong_links() {
        assert!(said(|t, node| t.nodes[node].parent = ROOT).contains("follow its parent"));
        assert!(said(|t, node| t.nodes[node].request = 1).contains("follow its parent"));
        assert!(said(|t, _| t.nodes[ROOT as usize].children += 1).contains("children"));
        assert!(said(|t, _| t.device_leaves.clear()).contains("leaf is missing"));
    }
}
