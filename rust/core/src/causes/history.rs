//! What the requests of a timed run have shown so far: the tree of their ids, and the use of each by machine.

use std::collections::HashMap;

/// Place before all ids.
pub(super) const ROOT: u32 = u32::MAX;

/// The place of an id under the first parent that showed it: ids chained over their prefix have no other.
#[derive(Debug, Clone, Copy)]
struct FirstPlace {
    parent: u32,
    place: u32,
}

/// The tree of all paths of ids; a place is a number, in order of its first sight.
#[derive(Debug)]
pub(super) struct Paths {
    first: Vec<FirstPlace>,
    /// Places of ids under other parents, for traces whose ids are not chained.
    others: HashMap<(u32, u32), u32>,
    places: u32,
}

impl Paths {
    fn new(ids: &[u32]) -> Self {
        let none = FirstPlace {
            parent: ROOT,
            place: ROOT,
        };
        let distinct = ids.iter().max().map_or(0, |&id| id as usize + 1);
        Self {
            first: vec![none; distinct],
            others: HashMap::new(),
            places: 0,
        }
    }

    /// Appends the places of `ids`, which follow each other from the place `before` on.
    pub(super) fn follow(&mut self, ids: &[u32], mut before: u32, path: &mut Vec<u32>) {
        for &id in ids {
            let first = &mut self.first[id as usize];
            let next = self.places;
            let place = if first.place == ROOT {
                *first = FirstPlace {
                    parent: before,
                    place: next,
                };
                next
            } else if first.parent == before {
                first.place
            } else {
                *self.others.entry((before, id)).or_insert(next)
            };
            self.places += u32::from(place == next);
            path.push(place);
            before = place;
        }
    }
}

/// When a place was ready on a machine, and when a request there last used it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Use {
    pub(super) ready_ns: i64,
    pub(super) used_ns: i64,
}

const UNUSED: Use = Use {
    ready_ns: i64::MAX,
    used_ns: i64::MIN,
};

/// Places a page.
const PAGE: usize = 256;

/// The uses of places, machine by machine, in pages of neighbouring places.
#[derive(Debug, Default)]
pub(super) struct Machines {
    pages: Vec<Vec<Option<Box<[Use; PAGE]>>>>,
}

impl Machines {
    pub(super) fn use_of(&self, machine: usize, place: u32) -> Option<&Use> {
        let page = self.pages.get(machine)?.get(place as usize / PAGE)?;
        let here = &page.as_ref()?[place as usize % PAGE];
        (here.ready_ns < i64::MAX).then_some(here)
    }

    fn enter(&mut self, machine: usize, place: u32, ready_ns: i64, used_ns: i64) {
        if self.pages.len() <= machine {
            self.pages.resize_with(machine + 1, Vec::new);
        }
        let pages = &mut self.pages[machine];
        let number = place as usize / PAGE;
        if pages.len() <= number {
            pages.resize_with(number + 1, || None);
        }
        let page = pages[number].get_or_insert_with(|| Box::new([UNUSED; PAGE]));
        let here = &mut page[place as usize % PAGE];
        here.ready_ns = here.ready_ns.min(ready_ns);
        here.used_ns = here.used_ns.max(used_ns);
    }
}

/// What the requests admitted so far have shown.
#[derive(Debug)]
pub(super) struct History {
    pub(super) paths: Paths,
    pub(super) machines: Machines,
    /// By place: whether any machine has shown it, and whether some request went on from it.
    shown: Vec<bool>,
    went_on: Vec<bool>,
}

impl History {
    pub(super) fn new(ids: &[u32]) -> Self {
        Self {
            paths: Paths::new(ids),
            machines: Machines::default(),
            shown: Vec::new(),
            went_on: Vec::new(),
        }
    }

    pub(super) fn was_shown(&self, place: u32) -> bool {
        self.shown.get(place as usize) == Some(&true)
    }

    pub(super) fn went_on(&self, place: u32) -> bool {
        self.went_on.get(place as usize) == Some(&true)
    }

    /// Enters a path that a request computes or reuses on a machine.
    pub(super) fn show(&mut self, machine: usize, path: &[u32], ready_ns: i64, used_ns: i64) {
        let places = self.paths.places as usize;
        self.shown.resize(places, false);
        self.went_on.resize(places, false);
        for &place in path {
            self.machines.enter(machine, place, ready_ns, used_ns);
            self.shown[place as usize] = true;
        }
        for &place in path.split_last().map_or(path, |(_, before)| before) {
            self.went_on[place as usize] = true;
        }
    }
}
