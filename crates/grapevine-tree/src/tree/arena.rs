//! Nodes, their labels, and where every boundary is: the structure of the tree without its beliefs.
//!
//! A node's label is a run of boundaries, shallow to deep. Because hashes are chained, a boundary's
//! hash names the whole path to it, so one index over all boundaries replaces per-node child maps:
//! finding the deepest known boundary of a prompt never walks from the root, and a node that a peer
//! described without its path can stand under the root until the path is known.
//!
//! **Invariant:** a label's indices ascend, and are all below those of its children's labels. So the
//! parent relation has no cycles whatever peers send.
//! **Invariant:** every mark of every label is in the index exactly once.

use hashbrown::HashTable;

use super::credit::Credits;
use crate::boundary;

/// A boundary as it is stored: the upper 56 bits of its hash and its index in the schedule.
///
/// 56 bits: among a million stored boundaries a lookup of 100 meets a false one once in 700 million
/// requests, and then mispredicts one request.
pub(super) type PackedMark = u64;

pub(super) const fn pack(index: u8, hash: u64) -> PackedMark {
    (hash & !0xff) | index as u64
}

pub(super) const fn index_of(mark: PackedMark) -> u8 {
    mark as u8
}

/// A node's place in the arena; below 2^24, because the index packs it with a boundary's index.
/// There are never more nodes than boundaries, and those are limited.
pub(super) type NodeId = u32;

const _: () = assert!(super::MAX_BOUNDARIES_LIMIT < 1 << 24);

/// No node: the parent of a topmost node, the end of a list.
pub(super) const NONE: NodeId = u32::MAX;

/// What peers have been told of a node's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    Nothing,
    /// The label, but its parent is another one since.
    Label,
    /// Label and parent.
    All,
}

#[derive(Debug)]
pub(super) struct Node {
    pub(super) label: Vec<PackedMark>,
    pub(super) parent: NodeId,
    credits: Credits,
    pub(super) told: Told,
    children: u32,
    /// All children's ids, xored: when one is left, it is that one.
    child_xor: u32,
    newer: NodeId,
    older: NodeId,
}

impl Node {
    /// Deepest boundary of the label.
    pub(super) fn end(&self) -> PackedMark {
        self.label.last().copied().unwrap_or_default()
    }

    fn start(&self) -> PackedMark {
        self.label.first().copied().unwrap_or_default()
    }

    pub(super) fn credits(&self) -> &Credits {
        &self.credits
    }

    pub(super) fn is_leaf(&self) -> bool {
        self.children == 0
    }

    pub(super) fn only_child(&self) -> Option<NodeId> {
        (self.children == 1).then_some(self.child_xor)
    }

    fn position(&self, mark: PackedMark) -> Option<usize> {
        // Dense labels, which are most, need one look.
        let guess = usize::from(index_of(mark).wrapping_sub(index_of(self.start())));
        if self.label.get(guess) == Some(&mark) {
            return Some(guess);
        }
        let at = self.label.binary_search_by_key(&index_of(mark), |&m| index_of(m)).ok()?;
        (self.label.get(at) == Some(&mark)).then_some(at)
    }
}

/// All nodes, in order of use.
#[derive(Debug, Default)]
pub(super) struct Arena {
    nodes: Vec<Node>,
    free: Vec<NodeId>,
    index: HashTable<u32>,
    newest: Option<NodeId>,
    oldest: Option<NodeId>,
    boundaries: usize,
    credits: usize,
    credit_heap: usize,
}

impl Arena {
    /// Memory for `boundaries` in the index at once, so that it never has to rehash while serving.
    pub(super) fn with_capacity(boundaries: usize) -> Self {
        Self { index: HashTable::with_capacity(boundaries), ..Self::default() }
    }

    pub(super) fn node(&self, id: NodeId) -> &Node {
        // Ids come from this arena and are dropped from every link when a node is removed.
        &self.nodes[id as usize]
    }

    pub(super) fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id as usize]
    }

    /// The node at `id` if it is in use; for ids that may be stale.
    pub(super) fn live(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id as usize).filter(|n| !n.label.is_empty())
    }

    /// Changes a node's credits, and the totals with them.
    pub(super) fn edit_credits<R>(&mut self, id: NodeId, edit: impl FnOnce(&mut Credits) -> R) -> R {
        let credits = &mut self.nodes[id as usize].credits;
        let (count, heap) = (credits.len(), credits.heap_bytes());
        let result = edit(credits);
        self.credits = self.credits + credits.len() - count;
        self.credit_heap = self.credit_heap + credits.heap_bytes() - heap;
        result
    }

    /// Credits of all nodes.
    pub(super) fn credits(&self) -> usize {
        self.credits
    }

    pub(super) fn boundaries(&self) -> usize {
        self.boundaries
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len() - self.free.len()
    }

    /// Slots of nodes, used or not: what a cursor over all of them runs to.
    pub(super) fn slots(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn oldest(&self) -> Option<NodeId> {
        self.oldest
    }

    /// Heap bytes of nodes, labels, credits and index.
    pub(super) fn heap_bytes(&self) -> usize {
        self.nodes.capacity() * size_of::<Node>()
            + self.free.capacity() * size_of::<NodeId>()
            + self.credit_heap
            + self.boundaries * size_of::<PackedMark>()
            + self.index.capacity() * 8 / 7 * (size_of::<u32>() + 1)
    }

    /// Bytes of prompt that a node stands for beyond its parent.
    pub(super) fn own_bytes(&self, id: NodeId) -> usize {
        let depth = |node: &Node| boundary::depth(usize::from(index_of(node.end())));
        let node = self.node(id);
        let above = if node.parent == NONE { 0 } else { depth(self.node(node.parent)) };
        depth(node).saturating_sub(above)
    }

    /// Where a boundary is: its node and its place in the label.
    pub(super) fn find(&self, mark: PackedMark) -> Option<(NodeId, usize)> {
        let mut place = 0;
        let entry = self.index.find(hash(mark), |&entry| {
            entry as u8 == index_of(mark)
                && self.node(entry >> 8).position(mark).inspect(|&at| place = at).is_some()
        })?;
        Some((entry >> 8, place))
    }

    /// A new leaf under `parent`.
    pub(super) fn add_leaf(&mut self, parent: NodeId, label: Vec<PackedMark>) -> NodeId {
        let node = Node {
            label,
            parent: NONE,
            credits: Credits::default(),
            told: Told::Nothing,
            children: 0,
            child_xor: 0,
            newer: NONE,
            older: NONE,
        };
        let id = match self.free.pop() {
            Some(id) => {
                *self.node_mut(id) = node;
                id
            }
            None => {
                self.nodes.push(node);
                (self.nodes.len() - 1) as NodeId
            }
        };
        self.link_newest(id);
        self.set_parent(id, parent);
        self.enter_index(id, 0..self.node(id).label.len());
        id
    }

    /// Splits a node's label before `at` (0 < at < len): gives the new upper node, which takes over
    /// the label's head and a copy of the credits; the lower part keeps the id and the children.
    pub(super) fn split(&mut self, id: NodeId, at: usize) -> NodeId {
        let lower = self.node_mut(id);
        let tail = lower.label.split_off(at);
        let head = std::mem::replace(&mut lower.label, tail);
        let (parent, credits, told) = (lower.parent, lower.credits.untold(), lower.told);
        self.leave_index(&head);
        let upper = self.add_leaf(parent, head);
        self.edit_credits(upper, |c| *c = credits);
        // That it stands between its parent and the lower part is news.
        self.node_mut(upper).told = if told == Told::All { Told::Label } else { told };
        self.set_parent(id, upper);
        upper
    }

    /// Puts `marks`, which lie between the label's entries `at - 1` and `at`, into a label.
    pub(super) fn fill(&mut self, id: NodeId, at: usize, marks: &[PackedMark]) {
        let label = &mut self.node_mut(id).label;
        label.splice(at..at, marks.iter().copied());
        self.enter_index(id, at..at + marks.len());
    }

    pub(super) fn set_parent(&mut self, id: NodeId, parent: NodeId) {
        let node = self.node_mut(id);
        let old = std::mem::replace(&mut node.parent, parent);
        if node.told == Told::All {
            node.told = Told::Label;
        }
        self.count_child(old, id, false);
        self.count_child(parent, id, true);
    }

    fn count_child(&mut self, parent: NodeId, child: NodeId, add: bool) {
        if parent != NONE {
            let node = self.node_mut(parent);
            node.children = if add { node.children + 1 } else { node.children - 1 };
            node.child_xor ^= child;
        }
    }

    /// Removes a leaf. Gives its parent.
    pub(super) fn remove_leaf(&mut self, id: NodeId) -> NodeId {
        let parent = self.node(id).parent;
        self.set_parent(id, NONE);
        self.unlink(id);
        self.edit_credits(id, |c| *c = Credits::default());
        let label = std::mem::take(&mut self.node_mut(id).label);
        self.leave_index(&label);
        self.free.push(id);
        parent
    }

    /// Merges a node into its only child, which keeps its id, credits and children.
    pub(super) fn merge_into_child(&mut self, id: NodeId, child: NodeId) {
        let parent = self.node(id).parent;
        self.set_parent(child, parent);
        let mut label = self.node(id).label.clone();
        self.remove_leaf(id);
        let added = label.len();
        let lower = self.node_mut(child);
        label.append(&mut lower.label);
        lower.label = label;
        self.enter_index(child, 0..added);
    }

    /// Makes a node the most recently used.
    pub(super) fn touch(&mut self, id: NodeId) {
        if self.newest != Some(id) {
            self.unlink(id);
            self.link_newest(id);
        }
    }

    fn link_newest(&mut self, id: NodeId) {
        let older = self.newest.replace(id).unwrap_or(NONE);
        let node = self.node_mut(id);
        node.older = older;
        node.newer = NONE;
        if older == NONE {
            self.oldest = Some(id);
        } else {
            self.node_mut(older).newer = id;
        }
    }

    fn unlink(&mut self, id: NodeId) {
        let (newer, older) = (self.node(id).newer, self.node(id).older);
        match newer {
            NONE => self.newest = (older != NONE).then_some(older),
            _ => self.node_mut(newer).older = older,
        }
        match older {
            NONE => self.oldest = (newer != NONE).then_some(newer),
            _ => self.node_mut(older).newer = newer,
        }
    }

    fn enter_index(&mut self, id: NodeId, range: std::ops::Range<usize>) {
        let nodes = &self.nodes;
        self.boundaries += range.len();
        for &mark in &nodes[id as usize].label[range] {
            let rehash = |&entry: &u32| {
                let label = &nodes[(entry >> 8) as usize].label;
                let at = label.binary_search_by_key(&(entry as u8), |&m| index_of(m));
                hash(at.ok().and_then(|at| label.get(at)).copied().unwrap_or_default())
            };
            self.index.insert_unique(hash(mark), id << 8 | u32::from(index_of(mark)), rehash);
        }
    }

    /// Takes marks out of the index, whoever holds them: call it when the label is already gone.
    fn leave_index(&mut self, label: &[PackedMark]) {
        self.boundaries -= label.len();
        for &mark in label {
            let nodes = &self.nodes;
            // No label holds the mark any more, so its entry is the one that points at nothing.
            let orphan = |entry: &u32| {
                *entry as u8 == index_of(mark) && {
                    let label = &nodes[(*entry >> 8) as usize].label;
                    let at = label.binary_search_by_key(&index_of(mark), |&m| index_of(m));
                    at.is_err()
                }
            };
            if let Ok(entry) = self.index.find_entry(hash(mark), orphan) {
                entry.remove();
            }
        }
    }

    /// Checks every invariant; for tests.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let mut children = vec![(0, 0); self.nodes.len()];
        let (mut used, mut boundaries) = (0, 0);
        for (id, node) in (0..).zip(&self.nodes) {
            if node.label.is_empty() {
                assert!(self.free.contains(&id));
                continue;
            }
            used += 1;
            boundaries += node.label.len();
            assert!(node.label.is_sorted_by(|a, b| index_of(*a) < index_of(*b)));
            for (at, &mark) in node.label.iter().enumerate() {
                assert_eq!(self.find(mark), Some((id, at)));
            }
            if node.parent != NONE {
                assert!(index_of(self.node(node.parent).end()) < index_of(node.start()));
                children[node.parent as usize].0 += 1;
                children[node.parent as usize].1 ^= id;
            }
        }
        assert_eq!((used, boundaries, boundaries), (self.len(), self.boundaries, self.index.len()));
        for (node, (count, xor)) in self.nodes.iter().zip(children) {
            assert_eq!((node.children, node.child_xor), (count, xor));
        }
        assert_eq!(self.credits, self.nodes.iter().map(|n| n.credits.len()).sum::<usize>());
        assert_eq!(self.credit_heap, self.nodes.iter().map(|n| n.credits.heap_bytes()).sum::<usize>());
        let mut listed = 0;
        let mut at = self.oldest;
        while let Some(id) = at {
            listed += 1;
            at = (self.node(id).newer != NONE).then_some(self.node(id).newer);
        }
        assert_eq!(listed, used, "every node is in the list of use");
    }
}

/// Spreads a mark over the hash table. Its lower 8 bits are an index, not random.
fn hash(mark: PackedMark) -> u64 {
    (mark >> 8).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
