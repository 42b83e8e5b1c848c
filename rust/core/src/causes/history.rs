//! Paths that the requests of a timed run have shown so far: the tree of their ids, and its use by machine.

use std::collections::HashMap;

/// Node above all ids.
pub(super) const ROOT: u32 = u32::MAX;

/// Node of an id under the first parent that showed it. Ids chained over their prefix have no other parent.
#[derive(Debug, Clone, Copy)]
struct FirstUse {
    parent: u32,
    slot: u32,
}

/// Tree of all paths of ids. A node is a number, in order of first sight.
#[derive(Debug)]
pub(super) struct Paths {
    first: Vec<FirstUse>,
    /// Nodes of ids under other parents, for traces whose ids are not chained.
    others: HashMap<(u32, u32), u32>,
    slots: u32,
}

impl Paths {
    fn new(ids: &[u32]) -> Self {
        let none = FirstUse {
            parent: ROOT,
            slot: ROOT,
        };
        let distinct = ids.iter().max().map_or(0, |&id| id as usize + 1);
        Self {
            first: vec![none; distinct],
            others: HashMap::new(),
            slots: 0,
        }
    }

    /// Appends the nodes of consecutive `ids` below the node `before`.
    pub(super) fn follow(&mut self, ids: &[u32], mut before: u32, path: &mut Vec<u32>) {
        for &id in ids {
            let first = &mut self.first[id as usize];
            let next = self.slots;
            let slot = if first.slot == ROOT {
                *first = FirstUse {
                    parent: before,
                    slot: next,
                };
                next
            } else if first.parent == before {
                first.slot
            } else {
                *self.others.entry((before, id)).or_insert(next)
            };
            self.slots += u32::from(slot == next);
            path.push(slot);
            before = slot;
        }
    }
}

/// Time at which a node was ready on a machine, and its last use by a request there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Use {
    pub(super) ready_ns: i64,
    pub(super) used_ns: i64,
}

const UNUSED: Use = Use {
    ready_ns: i64::MAX,
    used_ns: i64::MIN,
};

/// Nodes per page.
const PAGE: usize = 256;

/// Uses of nodes, machine by machine, in pages of neighboring nodes.
#[derive(Debug, Default)]
pub(super) struct Machines {
    pages: Vec<Vec<Option<Box<[Use; PAGE]>>>>,
}

impl Machines {
    pub(super) fn use_of(&self, machine: usize, slot: u32) -> Option<&Use> {
        let page = self.pages.get(machine)?.get(slot as usize / PAGE)?;
        let here = &page.as_ref()?[slot as usize % PAGE];
        (here.ready_ns < i64::MAX).then_some(here)
    }

    fn enter(&mut self, machine: usize, slot: u32, ready_ns: i64, used_ns: i64) {
        if self.pages.len() <= machine {
            self.pages.resize_with(machine + 1, Vec::new);
        }
        let pages = &mut self.pages[machine];
        let number = slot as usize / PAGE;
        if pages.len() <= number {
            pages.resize_with(number + 1, || None);
        }
        let page = pages[number].get_or_insert_with(|| Box::new([UNUSED; PAGE]));
        let here = &mut page[slot as usize % PAGE];
        here.ready_ns = here.ready_ns.min(ready_ns);
        here.used_ns = here.used_ns.max(used_ns);
    }
}

/// Paths shown by the requests admitted so far.
#[derive(Debug)]
pub(super) struct History {
    pub(super) paths: Paths,
    pub(super) machines: Machines,
    /// For each node, true if a machine has shown it, and true if a request continued from it.
    shown: Vec<bool>,
    continued: Vec<bool>,
}

impl History {
    pub(super) fn new(ids: &[u32]) -> Self {
        Self {
            paths: Paths::new(ids),
            machines: Machines::default(),
            shown: Vec::new(),
            continued: Vec::new(),
        }
    }

    pub(super) fn was_shown(&self, slot: u32) -> bool {
        self.shown.get(slot as usize) == Some(&true)
    }

    pub(super) fn continued(&self, slot: u32) -> bool {
        self.continued.get(slot as usize) == Some(&true)
    }

    /// Records a path that a request computes or reuses on a machine.
    pub(super) fn show(&mut self, machine: usize, path: &[u32], ready_ns: i64, used_ns: i64) {
        let slots = self.paths.slots as usize;
        self.shown.resize(slots, false);
        self.continued.resize(slots, false);
        for &slot in path {
            self.machines.enter(machine, slot, ready_ns, used_ns);
            self.shown[slot as usize] = true;
        }
        for &slot in path.split_last().map_or(path, |(_, before)| before) {
            self.continued[slot as usize] = true;
        }
    }
}
