//! What always holds of an arena.

use super::{Arena, Gaps, NONE, index_of};

impl Arena {
    /// Checks every invariant; panics where one does not hold.
    pub(in crate::tree) fn check(&self) {
        let mut children = vec![(0, 0); self.nodes.len()];
        let (mut used, mut boundaries) = (0, 0);
        for (id, node) in (0..).zip(&self.nodes) {
            if node.label.is_empty() {
                assert!(self.free.contains(&id));
                continue;
            }
            used += 1;
            boundaries += node.label.len();
            let label = self.label(id);
            assert!(label.is_sorted_by(|a, b| index_of(*a) < index_of(*b)));
            assert_eq!((index_of(label[0]), index_of(self.end(id))), (node.first, node.last));
            for (at, &mark) in label.iter().enumerate() {
                assert_eq!(self.find(mark), Some((id, at)));
            }
            if node.parent != NONE {
                assert!(self.node(node.parent).last < node.first);
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
        let mut gaps = Gaps::new();
        for node in &self.nodes {
            let above = (node.parent != NONE).then(|| self.node(node.parent).last);
            gaps.count(self.labels.get(node.label), above, true);
        }
        assert_eq!(self.gaps.counts(), gaps.counts());
        let mut listed = 0;
        let mut at = self.oldest;
        while let Some(id) = at {
            listed += 1;
            at = (self.node(id).newer != NONE).then_some(self.node(id).newer);
        }
        assert_eq!(listed, used, "every node is in the list of use");
    }
}
