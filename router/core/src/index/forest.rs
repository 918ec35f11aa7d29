//! The trees of one alphabet: their shape, and how a prompt is followed through it.
//!
//! Each scope has a root. A path is compressed: a node has no only child with the same owners and stamps unless both
//! together are long, or a credit has just made it so, and the next one that passes joins them. What can be asked of the
//! forest does not depend on where its edges are cut; only its size does.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use super::arena::Arena;
use super::edge::Stretch;
use super::holdings::Tenant;
use super::matches::HEAD_PART;
use super::memory::btree;
use super::node::{Node, NodeId, Owner, Owners};
use super::symbol::{Run, Symbol};
use crate::ids::ScopeId;

/// What a lookup finds of one owner.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    pub(super) tenant: Tenant,
    /// Characters matched.
    pub(super) chars: u64,
    /// The epoch in which it was last credited with them.
    pub(super) credited: u64,
    /// The epoch in which it was last credited with their head.
    pub(super) head_credited: u64,
}

pub(super) type Rows = SmallVec<[Row; 8]>;

#[derive(Debug)]
pub(super) struct Forest<S: Symbol> {
    pub(super) arena: Arena<S>,
    pub(super) roots: BTreeMap<ScopeId, NodeId>,
    /// Heap held by the nodes besides their places: the sum of their footprints.
    pub(super) held_bytes: usize,
}

impl<S: Symbol> Default for Forest<S> {
    fn default() -> Self {
        Self { arena: Arena::default(), roots: BTreeMap::new(), held_bytes: 0 }
    }
}

/// How far a run of symbols can be followed from the root of a scope.
#[derive(Debug, Default)]
pub(super) struct Path {
    /// Nodes whose edges agree in full, from the top, without the root.
    pub(super) nodes: SmallVec<[NodeId; 16]>,
    /// Symbols on those edges.
    pub(super) matched: usize,
    /// The next node, and on how many symbols (some, not all) of its edge the run agrees.
    pub(super) inside: Option<(NodeId, usize)>,
}

/// What of a run lies below its path.
#[derive(Debug)]
pub(super) struct Rest<'a, S: Symbol> {
    pub(super) run: S::Run<'a>,
    /// Characters in it.
    pub(super) chars: u64,
}

impl<'a, S: Symbol> Rest<'a, S> {
    pub(super) fn of(run: S::Run<'a>, path: &Path) -> Self {
        let run = run.after(path.matched);
        Self { run, chars: S::chars(run) }
    }
}

/// The symbol by which a child is found.
fn first_of<S: Symbol>(edge: &S::Edge) -> S {
    edge.run().first().expect("only a root has an empty edge")
}

/// Two edges are joined if they have no more than this together: evicting many small leaves must not move a long edge
/// for each of them.
const MOST_FUSED_BYTES: usize = 16 << 10;

impl<S: Symbol> Forest<S> {
    /// Nodes without the roots.
    pub(super) fn node_count(&self) -> usize {
        self.arena.len() - self.roots.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.arena.bytes() + self.held_bytes + btree(self.roots.len(), size_of::<(ScopeId, NodeId)>())
    }

    fn child(&self, parent: NodeId, rest: S::Run<'_>) -> Option<NodeId> {
        self.arena.node(parent).children.get(&rest.first()?).copied()
    }

    pub(super) fn walk(&self, scope: ScopeId, run: S::Run<'_>) -> Path {
        let mut path = Path::default();
        let Some(&root) = self.roots.get(&scope) else { return path };
        let (mut at, mut rest) = (root, run);
        while let Some(child) = self.child(at, rest) {
            let edge = self.arena.node(child).edge.run();
            let same = S::common_prefix(edge, rest);
            if same < edge.len() {
                path.inside = Some((child, same));
                break;
            }
            path.nodes.push(child);
            path.matched += same;
            rest = rest.after(same);
            at = child;
        }
        path
    }

    /// Characters of `run` matched for each owner, in order of tenant.
    pub(super) fn lookup(&self, scope: ScopeId, run: S::Run<'_>) -> Rows {
        let mut rows = Rows::new();
        let Some(&root) = self.roots.get(&scope) else { return rows };
        let (mut at, mut chars, mut rest) = (root, 0, run);
        // Each node that was come by, with the characters up to its end.
        let mut path: SmallVec<[(NodeId, u64); 16]> = SmallVec::new();
        while let Some(child) = self.child(at, rest) {
            let node = self.arena.node(child);
            let edge = node.edge.run();
            let same = S::common_prefix(edge, rest);
            // Owners only get fewer on the way down: those who end at `at` are noted when their number falls.
            let above = &self.arena.node(at).owners;
            if above.as_slice().len() > node.owners.as_slice().len() {
                note(&mut rows, above, chars);
            }
            at = child;
            if same < edge.len() {
                chars += S::chars(edge.until(same));
                path.push((at, chars));
                break;
            }
            chars += u64::from(node.chars);
            path.push((at, chars));
            rest = rest.after(same);
        }
        note(&mut rows, &self.arena.node(at).owners, chars);
        for row in &mut rows {
            let head = row.chars.div_ceil(HEAD_PART);
            let end = path.get(path.partition_point(|(_, chars)| *chars < head));
            let owner = end.and_then(|(node, _)| self.arena.node(*node).owners.get(row.tenant));
            row.head_credited = owner.map_or(0, |owner| owner.stamp.epoch());
        }
        rows
    }

    /// Makes the path end at a node: splits the edge it ends in.
    pub(super) fn cut(&mut self, path: &mut Path) {
        if let Some((node, at)) = path.inside.take() {
            path.nodes.push(self.split(node, at));
            path.matched += at;
        }
    }

    /// Parts the edge of `lower` after `at` symbols; returns the new node above it. `lower` keeps its id and its
    /// tail of the edge, so that whatever refers to it as a leaf stays true.
    pub(super) fn split(&mut self, lower: NodeId, at: usize) -> NodeId {
        let node = self.arena.node(lower);
        let (parent, owners) = (node.parent, node.owners.above());
        let upper_chars = S::chars_before(node.edge.run(), u64::from(node.chars), at);
        let (upper_edge, next) = self.edit(lower, |node| {
            node.chars -= upper_chars as u32;
            (node.edge.split_head(at), first_of::<S>(&node.edge))
        });
        let first = first_of::<S>(&upper_edge);
        let mut upper = Node::new(parent, upper_edge, upper_chars, owners);
        upper.children.insert(next, lower);
        let upper = self.add(upper);
        self.edit(parent, |node| node.children.insert(first, upper));
        self.arena.node_mut(lower).parent = upper;
        upper
    }

    /// Joins a node with its only child if nothing tells them apart and little has to be moved for it. The child keeps
    /// its id.
    pub(super) fn fuse(&mut self, upper: NodeId) {
        let node = self.arena.node(upper);
        let Some(lower) = node.only_child() else { return };
        let below = self.arena.node(lower);
        if node.parent == NodeId::NONE
            || !node.owners.same_as(&below.owners)
            || !below.edge.takes_gladly(&node.edge, MOST_FUSED_BYTES)
        {
            return;
        }
        let upper = self.take(upper);
        let first = first_of::<S>(&upper.edge);
        self.edit(lower, |node| {
            node.edge.prepend(upper.edge);
            node.chars += upper.chars;
            node.parent = upper.parent;
        });
        self.edit(upper.parent, |node| node.children.insert(first, lower));
    }

    /// A new node with the edge `rest` and no owners yet, as a child of the last node of `path`.
    pub(super) fn hang(&mut self, scope: ScopeId, path: &Path, rest: &Rest<'_, S>) -> NodeId {
        let parent = path.nodes.last().copied().unwrap_or_else(|| self.root(scope));
        let edge = S::Edge::of(rest.run);
        let first = first_of::<S>(&edge);
        let child = self.add(Node::new(parent, edge, rest.chars, Owners::default()));
        self.edit(parent, |node| node.children.insert(first, child));
        child
    }

    /// Takes a childless node out of the tree. The last one takes roots and arena with it.
    pub(super) fn unhang(&mut self, id: NodeId) {
        let node = self.take(id);
        self.edit(node.parent, |parent| parent.children.remove(&first_of::<S>(&node.edge)));
        if self.node_count() == 0 {
            *self = Self::default();
        }
    }

    fn root(&mut self, scope: ScopeId) -> NodeId {
        *self.roots.entry(scope).or_insert_with(|| self.arena.insert(Node::bare(NodeId::NONE)))
    }

    fn add(&mut self, node: Node<S>) -> NodeId {
        self.held_bytes += node.footprint();
        self.arena.insert(node)
    }

    fn take(&mut self, id: NodeId) -> Node<S> {
        let node = self.arena.remove(id);
        self.held_bytes -= node.footprint();
        node
    }

    /// Changes a node and books what that does to its footprint.
    pub(super) fn edit<R>(&mut self, id: NodeId, change: impl FnOnce(&mut Node<S>) -> R) -> R {
        let node = self.arena.node_mut(id);
        let before = node.footprint();
        let result = change(node);
        self.held_bytes = self.held_bytes - before + node.footprint();
        result
    }
}

/// Notes `chars` for each of the `owners`; all who are noted already stay, and both are in order of tenant.
fn note(rows: &mut Rows, owners: &Owners, chars: u64) {
    if rows.is_empty() {
        rows.extend(owners.as_slice().iter().map(|owner| row(owner, chars)));
        return;
    }
    let mut owners = owners.as_slice().iter().peekable();
    for known in rows.iter_mut() {
        if let Some(owner) = owners.next_if(|owner| owner.tenant == known.tenant) {
            *known = row(owner, chars);
        }
    }
}

/// A row whose head is not looked at yet.
fn row(owner: &Owner, chars: u64) -> Row {
    Row { tenant: owner.tenant, chars, credited: owner.stamp.epoch(), head_credited: 0 }
}
