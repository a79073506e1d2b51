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

mod gaps;
mod order;

use smallvec::SmallVec;

use self::gaps::Gaps;
use super::credit::Credits;
use super::index::{Entry, Index};
use super::labels::{Labels, Span};
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

/// Least growth of the nodes' memory: 16 KiB.
const MIN_GROWTH: usize = 256;

/// Nodes on a path, and the deepest index of it in each.
pub(super) type Trace = SmallVec<[(NodeId, usize); 8]>;

/// What peers have been told of a node's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    Nothing,
    /// The label, but its parent is another one since.
    Label,
    /// Label and parent.
    All,
}

/// One cache line, because a walk touches every node on its path.
#[derive(Debug)]
pub(super) struct Node {
    label: Span,
    /// The first and the last boundary's index.
    first: u8,
    last: u8,
    pub(super) told: Told,
    pub(super) parent: NodeId,
    credits: Credits,
    children: u32,
    /// All children's ids, xored: when one is left, it is that one.
    child_xor: u32,
    newer: NodeId,
    older: NodeId,
}

const _: () = assert!(size_of::<Node>() == 64);

impl Node {
    /// Boundaries of the label.
    pub(super) fn len(&self) -> usize {
        self.label.len()
    }

    /// The index of the label's deepest boundary.
    pub(super) fn last(&self) -> u8 {
        self.last
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
}

/// All nodes, in order of use.
#[derive(Debug)]
pub(super) struct Arena {
    nodes: Vec<Node>,
    free: Vec<NodeId>,
    labels: Labels,
    index: Index,
    gaps: Gaps,
    newest: Option<NodeId>,
    oldest: Option<NodeId>,
    boundaries: usize,
    credits: usize,
    credit_heap: usize,
}

impl Arena {
    /// For at most `most` boundaries. Memory for `reserved` is in the index at once, so that most trees
    /// never rehash while serving.
    pub(super) fn new(most: usize, reserved: usize) -> Self {
        Self {
            nodes: Vec::new(),
            free: Vec::new(),
            labels: Labels::default(),
            index: Index::new(most, reserved),
            gaps: Gaps::new(),
            newest: None,
            oldest: None,
            boundaries: 0,
            credits: 0,
            credit_heap: 0,
        }
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

    /// A node's boundaries, shallow to deep.
    pub(super) fn label(&self, id: NodeId) -> &[PackedMark] {
        self.labels.get(self.node(id).label)
    }

    /// Deepest boundary of the label.
    pub(super) fn end(&self, id: NodeId) -> PackedMark {
        self.label(id).last().copied().unwrap_or_default()
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
            + self.labels.heap_bytes()
            + self.index.heap_bytes()
    }

    /// Bytes of prompt that a node stands for beyond its parent.
    pub(super) fn own_bytes(&self, id: NodeId) -> usize {
        let depth = |node: &Node| boundary::depth(usize::from(node.last));
        let node = self.node(id);
        let above = if node.parent == NONE { 0 } else { depth(self.node(node.parent)) };
        depth(node).saturating_sub(above)
    }

    /// Where a boundary is: its node and its place in the label.
    pub(super) fn find(&self, mark: PackedMark) -> Option<(NodeId, usize)> {
        let mut place = 0;
        let found = |entry| self.position(entry, mark).inspect(|&at| place = at).is_some();
        // The closure is called for the entry that is found last.
        let entry = self.index.find(mark, found)?;
        Some((node_of(entry), place))
    }

    /// The nodes that hold boundaries of a path, which has one for every index from 0, shallow to deep,
    /// each with the deepest index that it holds.
    pub(super) fn trace(&self, len: usize, mark: impl Fn(usize) -> PackedMark) -> Trace {
        let (mut at, mut trace) = (0, Trace::new());
        while at < len {
            if let Some((id, place)) = self.find(mark(at)) {
                // Within a label no search is needed.
                let label = self.label(id).iter().skip(place);
                at += label.zip(at..len).take_while(|&(&known, at)| known == mark(at)).count();
                trace.push((id, at - 1));
            } else if let Some(next) = self.gaps.next(at + 1, len) {
                at = next;
            } else {
                break;
            }
        }
        trace
    }

    /// Where `mark` is in an entry's label.
    fn position(&self, entry: Entry, mark: PackedMark) -> Option<usize> {
        let node = self.node(node_of(entry));
        let label = self.labels.get(node.label);
        // Dense labels, which are most, need one look.
        let guess = usize::from(index_of(mark).wrapping_sub(node.first));
        if label.get(guess) == Some(&mark) {
            return Some(guess);
        }
        let at = label.binary_search_by_key(&index_of(mark), |&m| index_of(m)).ok()?;
        (label.get(at) == Some(&mark)).then_some(at)
    }

    /// A new leaf under `parent`.
    pub(super) fn add_leaf(&mut self, parent: NodeId, label: &[PackedMark]) -> NodeId {
        self.make_room(label.len());
        let label = self.labels.store(label);
        let id = self.add_node(parent, label);
        self.enter_index(id, 0..label.len());
        id
    }

    /// A new node with a label that is not in the index under its name.
    fn add_node(&mut self, parent: NodeId, label: Span) -> NodeId {
        let node = Node {
            label,
            first: 0,
            last: 0,
            told: Told::Nothing,
            parent: NONE,
            credits: Credits::default(),
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
                if self.nodes.len() == self.nodes.capacity() {
                    // By an eighth, not to the double: memory that is never used is the larger cost.
                    self.nodes.reserve_exact((self.nodes.len() / 8).max(MIN_GROWTH));
                }
                self.nodes.push(node);
                (self.nodes.len() - 1) as NodeId
            }
        };
        self.set_label(id, label);
        self.count_gaps(id, true);
        self.link_newest(id);
        self.set_parent(id, parent);
        id
    }

    fn count_gaps(&mut self, id: NodeId, add: bool) {
        let node = &self.nodes[id as usize];
        let above = self.nodes.get(node.parent as usize).map(Node::last);
        self.gaps.count(self.labels.get(node.label), above, add);
    }

    fn set_label(&mut self, id: NodeId, label: Span) {
        let marks = self.labels.get(label);
        let ends = (marks.first().map_or(0, |&m| index_of(m)), marks.last().map_or(0, |&m| index_of(m)));
        let node = self.node_mut(id);
        node.label = label;
        (node.first, node.last) = ends;
    }

    /// Before labels of together `marks` boundaries are stored.
    fn make_room(&mut self, marks: usize) {
        if self.labels.is_scattered(marks) {
            self.labels.compact(self.nodes.iter_mut().map(|node| &mut node.label));
        }
    }

    /// Splits a node's label before `at` (0 < at < len): gives the new upper node, which takes over
    /// the label's head and a copy of the credits; the lower part keeps the id and the children.
    pub(super) fn split(&mut self, id: NodeId, at: usize) -> NodeId {
        let lower = self.node(id);
        let (head, tail) = lower.label.split(at);
        let (parent, credits, told) = (lower.parent, lower.credits.untold(), lower.told);
        self.count_gaps(id, false);
        self.set_label(id, tail);
        self.count_gaps(id, true);
        let upper = self.add_node(parent, head);
        self.rename(id, upper, head);
        self.edit_credits(upper, |c| *c = credits);
        // That it stands between its parent and the lower part is news.
        self.node_mut(upper).told = if told == Told::All { Told::Label } else { told };
        self.set_parent(id, upper);
        upper
    }

    /// Puts `marks`, which lie between the label's entries `at - 1` and `at`, into a label.
    pub(super) fn fill(&mut self, id: NodeId, at: usize, marks: &[PackedMark]) {
        if marks.is_empty() {
            return;
        }
        self.make_room(self.node(id).label.len() + marks.len());
        let old = self.node(id).label;
        let (before, after) = old.split(at);
        let label = self.labels.join(before, marks, after);
        self.count_gaps(id, false);
        self.labels.release(old);
        self.set_label(id, label);
        self.count_gaps(id, true);
        self.enter_index(id, at..at + marks.len());
    }

    pub(super) fn set_parent(&mut self, id: NodeId, parent: NodeId) {
        let last = |nodes: &[Node], id: NodeId| nodes.get(id as usize).map(Node::last);
        let node = self.node(id);
        let first = self.labels.get(node.label).get(..1).unwrap_or_default();
        self.gaps.count(first, last(&self.nodes, node.parent), false);
        self.gaps.count(first, last(&self.nodes, parent), true);
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
        self.leave_index(id);
        self.remove_bare(id)
    }

    /// Removes a node without children that the index does not name. Gives its parent.
    fn remove_bare(&mut self, id: NodeId) -> NodeId {
        let parent = self.node(id).parent;
        self.set_parent(id, NONE);
        self.unlink(id);
        self.edit_credits(id, |c| *c = Credits::default());
        self.count_gaps(id, false);
        let label = std::mem::take(&mut self.node_mut(id).label);
        self.labels.release(label);
        self.free.push(id);
        parent
    }

    /// Merges a node into its only child, which keeps its id, credits and children.
    pub(super) fn merge_into_child(&mut self, id: NodeId, child: NodeId) {
        self.make_room(self.node(id).label.len() + self.node(child).label.len());
        let parent = self.node(id).parent;
        self.set_parent(child, parent);
        let (upper, lower) = (self.node(id).label, self.node(child).label);
        self.rename(id, child, upper);
        let label = self.labels.join(upper, &[], lower);
        self.remove_bare(id);
        self.count_gaps(child, false);
        self.labels.release(lower);
        self.set_label(child, label);
        self.count_gaps(child, true);
    }

    fn enter_index(&mut self, id: NodeId, range: std::ops::Range<usize>) {
        let (nodes, labels) = (&self.nodes, &self.labels);
        let mark_of = |entry: Entry| {
            let node = &nodes[node_of(entry) as usize];
            let label = labels.get(node.label);
            let at = label.binary_search_by_key(&(entry as u8), |&m| index_of(m));
            at.ok().and_then(|at| label.get(at)).copied().unwrap_or_default()
        };
        self.boundaries += range.len();
        for &mark in &labels.get(nodes[id as usize].label)[range] {
            self.index.insert(mark, entry_of(id, mark), mark_of);
        }
    }

    fn leave_index(&mut self, id: NodeId) {
        let label = self.labels.get(self.nodes[id as usize].label);
        self.boundaries -= label.len();
        for &mark in label {
            self.index.replace(mark, entry_of(id, mark), None);
        }
    }

    /// Says of marks that one node had that another has them.
    fn rename(&mut self, from: NodeId, to: NodeId, marks: Span) {
        for &mark in self.labels.get(marks) {
            self.index.replace(mark, entry_of(from, mark), Some(entry_of(to, mark)));
        }
    }
}

fn entry_of(id: NodeId, mark: PackedMark) -> Entry {
    id << 8 | u32::from(index_of(mark))
}

fn node_of(entry: Entry) -> NodeId {
    entry >> 8
}

mod check;
