//! Values in a doubly linked list: any of them moves in constant time and keeps its number.

use crate::convert::fit;

/// Sentinel node at both ends of the list.
pub const ENDS: u32 = 0;

#[derive(Debug, Clone, Copy)]
struct Node<T> {
    value: T,
    previous: u32,
    next: u32,
}

/// Numbered values, some of them in order. One that is not is linked to itself.
#[derive(Debug)]
pub struct Links<T> {
    nodes: Vec<Node<T>>,
    spare: Vec<u32>,
}

impl<T: Copy + Default> Default for Links<T> {
    /// An empty list.
    fn default() -> Self {
        let ends = Node {
            value: T::default(),
            previous: ENDS,
            next: ENDS,
        };
        Self {
            nodes: vec![ends],
            spare: Vec::new(),
        }
    }
}

impl<T: Copy> Links<T> {
    /// Adds a value outside the order; returns its number.
    pub fn add(&mut self, value: T) -> u32 {
        let node = self.spare.pop().unwrap_or(fit::<u32>(self.nodes.len()));
        let alone = Node {
            value,
            previous: node,
            next: node,
        };
        match self.nodes.get_mut(node as usize) {
            Some(spare) => *spare = alone,
            None => self.nodes.push(alone),
        }
        node
    }

    /// Moves a value before another one, or before [`ENDS`].
    pub fn move_before(&mut self, node: u32, next: u32) {
        self.unlink(node);
        let previous = self.nodes[next as usize].previous;
        self.nodes[node as usize].previous = previous;
        self.nodes[node as usize].next = next;
        self.nodes[previous as usize].next = node;
        self.nodes[next as usize].previous = node;
    }

    fn unlink(&mut self, node: u32) {
        let Node { previous, next, .. } = self.nodes[node as usize];
        self.nodes[previous as usize].next = next;
        self.nodes[next as usize].previous = previous;
    }

    /// Removes a value.
    pub fn remove(&mut self, node: u32) {
        self.unlink(node);
        self.spare.push(node);
    }

    /// Returns the value of a number.
    pub fn value(&self, node: u32) -> T {
        self.nodes[node as usize].value
    }

    /// Replaces a value.
    pub fn set(&mut self, node: u32, value: T) {
        self.nodes[node as usize].value = value;
    }

    /// Returns the number after another one, the first after [`ENDS`].
    pub fn next(&self, node: u32) -> u32 {
        self.nodes[node as usize].next
    }

    /// Returns numbers in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.walk(|node| node.next)
    }

    /// Returns numbers, the last first.
    pub fn iter_back(&self) -> impl Iterator<Item = u32> + '_ {
        self.walk(|node| node.previous)
    }

    fn walk(&self, step: fn(&Node<T>) -> u32) -> impl Iterator<Item = u32> + '_ {
        let first = step(&self.nodes[ENDS as usize]);
        let after = move |&node: &u32| Some(step(&self.nodes[node as usize]));
        std::iter::successors(Some(first), after)
            .take_while(|&node| node != ENDS)
            .fuse()
    }
}
