//! The order in which nodes were used: a list through all of them.

use super::{Arena, NONE, NodeId};

impl Arena {
    /// Makes a node the most recently used.
    pub(in crate::tree) fn touch(&mut self, id: NodeId) {
        if self.newest != Some(id) {
            self.unlink(id);
            self.link_newest(id);
        }
    }

    pub(super) fn link_newest(&mut self, id: NodeId) {
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

    pub(super) fn unlink(&mut self, id: NodeId) {
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
}
