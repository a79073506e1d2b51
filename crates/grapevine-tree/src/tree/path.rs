//! Making a path exist: the one operation that changes the tree's structure on insert.
//!
//! Own requests bring every boundary of a path. Peers bring a few of them. Both end as a chain of
//! nodes from the top to one whose label ends where the path ends: labels split where paths part,
//! gaps fill when somebody brings what was missing, and nodes that a peer described without their
//! path find their parent.

use super::arena::{Arena, NONE, NodeId, PackedMark, index_of};

/// The path contradicts what is known: two boundaries at one depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Contradiction;

/// Completes a sparse path with every boundary that is known to lie on it. `path` ascends. Gives how many of
/// the first ones in `out` may be known.
pub(super) fn close(
    arena: &Arena,
    path: &[PackedMark],
    out: &mut Vec<PackedMark>,
) -> Result<usize, Contradiction> {
    out.clear();
    let mut deepest = None;
    // From the deepest on: the nodes above it hold most of the others, which then need no search.
    for &mark in path.iter().rev() {
        if out.contains(&mark) {
            continue;
        }
        out.push(mark);
        let Some((mut id, at)) = arena.find(mark) else { continue };
        deepest.get_or_insert(index_of(mark));
        out.extend(arena.label(id).iter().take(at).rev());
        while let parent = arena.node(id).parent
            && parent != NONE
        {
            out.extend(arena.label(parent).iter().rev());
            id = parent;
        }
    }
    out.reverse();
    if !ascends(out) {
        // Some lie between known ones, or on known paths of their own.
        out.sort_unstable_by_key(|&mark| (index_of(mark), mark));
        out.dedup();
    }
    let reach = deepest.map_or(0, |deepest| out.partition_point(|&mark| index_of(mark) <= deepest));
    ascends(out).then_some(reach).ok_or(Contradiction)
}

fn ascends(path: &[PackedMark]) -> bool {
    path.is_sorted_by(|a, b| index_of(*a) < index_of(*b))
}

/// Makes `path` (ascending, not empty), of which only the first `reach` boundaries may be known, a chain
/// of nodes. Gives the node that ends where it ends.
/// `moved` is told of every node that found its parent, and which it had before, when its credits are
/// not yet its ancestors'.
pub(super) fn insert(
    arena: &mut Arena,
    path: &[PackedMark],
    reach: usize,
    moved: &mut impl FnMut(&mut Arena, NodeId, NodeId),
) -> Option<NodeId> {
    let mut walk = Walk { arena, node: NONE, at: 0 };
    let mut gap = 0;
    for (i, &mark) in path.iter().enumerate().take(reach) {
        if gap == i && walk.goes_on(mark) {
            gap = i + 1;
        } else if let Some(place) = walk.arena.find(mark) {
            walk.enter(place, path.get(gap..i)?, moved);
            gap = i + 1;
        }
    }
    walk.finish(path.get(gap..)?)
}

/// How far the path is known: up to entry `at` of `node`'s label.
struct Walk<'a> {
    arena: &'a mut Arena,
    node: NodeId,
    at: usize,
}

impl Walk<'_> {
    /// Takes the next step within the label, where no search is needed. False when it has another
    /// boundary there, or ends.
    fn goes_on(&mut self, mark: PackedMark) -> bool {
        let goes_on = self.node != NONE && self.arena.label(self.node).get(self.at + 1) == Some(&mark);
        self.at += usize::from(goes_on);
        goes_on
    }

    /// The path goes on at a known boundary; `missing` are those before it that nobody knew.
    fn enter(
        &mut self,
        (node, mut at): (NodeId, usize),
        missing: &[PackedMark],
        moved: &mut impl FnMut(&mut Arena, NodeId, NodeId),
    ) {
        if node == self.node && at == self.at + 1 {
            self.arena.fill(node, at, missing);
            self.at = at + missing.len();
            return;
        }
        if self.leave() && node == self.lower() {
            // The label was split under us: the node we enter is its lower part.
            at -= self.at + 1;
        }
        if at > 0 {
            // Its head is not on this path: a peer erred, or hashes collided. Part them.
            self.arena.split(node, at);
        }
        let before = self.arena.node(node).parent;
        if before != self.node {
            self.arena.set_parent(node, self.node);
            moved(self.arena, node, before);
        }
        self.arena.fill(node, 0, missing);
        self.node = node;
        self.at = missing.len();
    }

    /// Makes the current node end here. True if it had to be split.
    fn leave(&mut self) -> bool {
        if self.node == NONE || self.at + 1 == self.arena.node(self.node).len() {
            return false;
        }
        self.node = self.arena.split(self.node, self.at + 1);
        true
    }

    /// The lower part of the node that [`Self::leave`] has just split.
    fn lower(&self) -> NodeId {
        self.arena.node(self.node).only_child().unwrap_or(NONE)
    }

    fn finish(mut self, rest: &[PackedMark]) -> Option<NodeId> {
        self.leave();
        if rest.is_empty() {
            return (self.node != NONE).then_some(self.node);
        }
        Some(self.arena.add_leaf(self.node, rest))
    }
}
