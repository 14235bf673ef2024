//! An editable form of a graph for the length of one pass. Nodes are added and values replaced in place; what nothing
//! reads any more disappears at once; [`Work::finish`] builds the new graph in an order that follows the old one.

use std::sync::Arc;

use frit_ir::graph::{GraphError, Node, NodeId, Source, State, Type, Value, ValueId};
use frit_ir::op::InferCtx;
use frit_ir::symbols::{DimGuard, Symbols};
use frit_ir::{Attrs, Graph, Registry, Tensor};
use smallvec::SmallVec;

/// A node of a [`Work`], by position; it stays valid while the node lives.
pub(crate) type At = u32;

struct Slot {
    node: Node,
    /// Where the node stands among the nodes of the old graph.
    key: u32,
    live: bool,
}

/// See the module's page.
pub(crate) struct Work<'a> {
    pub registry: &'a Registry,
    pub symbols: Symbols,
    name: String,
    guards: Vec<DimGuard>,
    values: Vec<Value>,
    slots: Vec<Slot>,
    users: Vec<SmallVec<[At; 2]>>,
    /// Uses as an output or as the last version of a state.
    kept: Vec<u32>,
    states: Vec<State>,
    outputs: Vec<(String, ValueId)>,
    /// Number of values of the old graph; younger ones have no name of their own yet.
    old: usize,
    renamed: Vec<bool>,
}

impl<'a> Work<'a> {
    pub fn new(g: &Graph, registry: &'a Registry) -> Work<'a> {
        let n = g.values().len();
        let mut w = Work {
            registry,
            symbols: g.symbols.clone(),
            name: g.name.clone(),
            guards: g.guards.clone(),
            values: g.values().to_vec(),
            slots: Vec::with_capacity(g.nodes().len()),
            users: vec![SmallVec::new(); n],
            kept: vec![0; n],
            states: g.states().to_vec(),
            outputs: g.outputs().to_vec(),
            old: n,
            renamed: vec![false; n],
        };
        for (i, node) in g.nodes().iter().enumerate() {
            w.slots.push(Slot { node: node.clone(), key: i as u32, live: true });
            w.link(i as At);
        }
        let kept = g.outputs().iter().map(|(_, v)| *v).chain(g.states().iter().map(|s| s.last));
        for v in kept {
            w.kept[v.0 as usize] += 1;
        }
        for i in (0..w.slots.len() as At).rev() {
            w.sweep(i);
        }
        w
    }

    fn link(&mut self, at: At) {
        for v in self.slots[at as usize].node.operands() {
            let users = &mut self.users[v.0 as usize];
            if !users.contains(&at) {
                users.push(at);
            }
        }
    }

    /// Positions of the nodes there are now, in order; nodes added later follow in later calls.
    pub fn nodes(&self) -> Vec<At> {
        let mut all: Vec<At> = (0..self.slots.len() as At).filter(|n| self.is_live(*n)).collect();
        all.sort_by_key(|n| (self.slots[*n as usize].key, *n));
        all
    }

    pub fn is_live(&self, at: At) -> bool {
        self.slots[at as usize].live
    }

    pub fn node(&self, at: At) -> &Node {
        &self.slots[at as usize].node
    }

    /// Place among the nodes: (place in the old graph, age).
    pub fn place(&self, at: At) -> (u32, At) {
        (self.slots[at as usize].key, at)
    }

    pub fn value(&self, v: ValueId) -> &Value {
        &self.values[v.0 as usize]
    }

    pub fn ty(&self, v: ValueId) -> &Type {
        &self.value(v).ty
    }

    /// The node that makes `v` and which of its results it is.
    pub fn producer(&self, v: ValueId) -> Option<(At, u32)> {
        match self.values.get(v.0 as usize)?.source {
            Source::Node(n, i) => Some((n.0, i)),
            _ => None,
        }
    }

    /// The node that makes `v`, if its op is `op`.
    pub fn made_by(&self, v: ValueId, op: &str) -> Option<At> {
        self.producer(v).map(|(n, _)| n).filter(|n| &*self.node(*n).op == op)
    }

    /// The nodes that read `v`, each once.
    pub fn users(&self, v: ValueId) -> &[At] {
        &self.users[v.0 as usize]
    }

    /// Whether `v` is an output or the last version of a state.
    pub fn is_kept(&self, v: ValueId) -> bool {
        self.kept[v.0 as usize] > 0
    }

    /// The node that alone reads `v`, which is neither an output nor kept as state.
    pub fn only_user(&self, v: ValueId) -> Option<At> {
        match self.users(v) {
            [n] if !self.is_kept(v) => Some(*n),
            _ => None,
        }
    }

    /// The tensor of a constant.
    pub fn constant(&self, v: ValueId) -> Option<&Tensor> {
        match &self.values.get(v.0 as usize)?.source {
            Source::Const(t) => Some(t),
            _ => None,
        }
    }

    /// The constants there are now.
    pub fn constants(&self) -> Vec<ValueId> {
        let all = (0..self.values.len() as u32).map(ValueId);
        let used = |v: &ValueId| !self.users(*v).is_empty() || self.is_kept(*v);
        all.filter(|v| self.constant(*v).is_some() && used(v)).collect()
    }

    /// Whether `v` is or views a state version that some node overwrites. A node that reads it must not be moved behind
    /// that write.
    pub fn is_stale(&self, v: ValueId) -> bool {
        let mut v = v;
        loop {
            let writes = |n: &At| {
                let node = self.node(*n);
                let updates = self.registry.get(&node.op).map_or(&[][..], |d| d.updates);
                updates.iter().any(|i| node.inputs.get(*i) == Some(&v))
            };
            if self.users(v).iter().any(writes) {
                return true;
            }
            let Some((n, _)) = self.producer(v) else { return false };
            let node = self.node(n);
            match (self.registry.get(&node.op).and_then(|d| d.view), node.inputs.first()) {
                (Some(_), Some(x)) => v = *x,
                _ => return false,
            }
        }
    }

    /// Whether none of `values` depends on a result of one of `nodes`.
    pub fn independent(&self, values: &[ValueId], nodes: &[At]) -> bool {
        let mut seen = vec![false; self.slots.len()];
        let mut stack: Vec<At> = values.iter().filter_map(|v| self.producer(*v)).map(|(n, _)| n).collect();
        while let Some(n) = stack.pop() {
            if nodes.contains(&n) {
                return false;
            }
            if !std::mem::replace(&mut seen[n as usize], true) {
                stack.extend(self.node(n).operands().filter_map(|v| self.producer(v)).map(|(n, _)| n));
            }
        }
        true
    }

    /// What `infer` gives for such a node.
    pub fn infer(
        &self,
        op: &str,
        attrs: &Attrs,
        inputs: &[ValueId],
    ) -> Result<(Vec<Type>, Vec<DimGuard>), GraphError> {
        let def = self.registry.get(op).ok_or_else(|| GraphError::Op(op.into()))?;
        let types: SmallVec<[Option<&Type>; 4]> =
            inputs.iter().map(|v| (!v.is_none()).then(|| self.ty(*v))).collect();
        let mut ctx = InferCtx::new(attrs, &types, &self.symbols);
        let inferred = (def.infer)(&mut ctx).map_err(|source| GraphError::Infer { op: op.into(), source })?;
        Ok((inferred, ctx.into_guards()))
    }

    /// Adds a node at the place of the node `at`.
    pub fn add(
        &mut self,
        at: At,
        op: &str,
        attrs: Attrs,
        inputs: &[ValueId],
    ) -> Result<SmallVec<[ValueId; 1]>, GraphError> {
        let (types, guards) = self.infer(op, &attrs, inputs)?;
        for g in guards {
            if !self.guards.contains(&g) {
                self.guards.push(g);
            }
        }
        Ok(self.add_typed(at, op, attrs, inputs, types))
    }

    /// Adds a node whose result types are known.
    pub fn add_typed(
        &mut self,
        at: At,
        op: &str,
        attrs: Attrs,
        inputs: &[ValueId],
        types: Vec<Type>,
    ) -> SmallVec<[ValueId; 1]> {
        let id = self.slots.len() as At;
        let mut outputs = SmallVec::new();
        for (i, ty) in types.into_iter().enumerate() {
            outputs.push(self.push_value(op, ty, Source::Node(NodeId(id), i as u32)));
        }
        let key = self.slots[at as usize].key;
        let node = Node { op: op.into(), attrs, inputs: inputs.into(), outputs: outputs.clone() };
        self.slots.push(Slot { node, key, live: true });
        self.link(id);
        outputs
    }

    fn push_value(&mut self, name: &str, ty: Type, source: Source) -> ValueId {
        self.values.push(Value { name: name.into(), ty, source });
        self.users.push(SmallVec::new());
        self.kept.push(0);
        self.renamed.push(false);
        ValueId(self.values.len() as u32 - 1)
    }

    /// Adds a constant.
    pub fn add_constant(&mut self, name: &str, t: Tensor) -> ValueId {
        let ty = Type::new(t.dtype(), t.shape().iter().copied());
        self.push_value(name, ty, Source::Const(t))
    }

    /// Lets everything that reads `old` read `new` instead. A new value takes the name of the first one that it replaces.
    pub fn replace(&mut self, old: ValueId, new: ValueId) {
        let (o, n) = (old.0 as usize, new.0 as usize);
        for at in std::mem::take(&mut self.users[o]) {
            for v in self.slots[at as usize].node.inputs.iter_mut().filter(|v| **v == old) {
                *v = new;
            }
            if !self.users[n].contains(&at) {
                self.users[n].push(at);
            }
        }
        self.kept[n] += std::mem::take(&mut self.kept[o]);
        self.outputs.iter_mut().filter(|(_, v)| *v == old).for_each(|(_, v)| *v = new);
        self.states.iter_mut().filter(|s| s.last == old).for_each(|s| s.last = new);
        if n >= self.old && !std::mem::replace(&mut self.renamed[n], true) {
            self.values[n].name = self.values[o].name.clone();
        }
        if let Some((at, _)) = self.producer(old) {
            self.sweep(at);
        }
    }

    /// Removes the node if nothing reads its results, and then what only it read.
    pub fn sweep(&mut self, at: At) {
        let mut stack = vec![at];
        while let Some(at) = stack.pop() {
            let slot = &self.slots[at as usize];
            let used = |v: &ValueId| !self.users(*v).is_empty() || self.is_kept(*v);
            if !slot.live || slot.node.outputs.is_empty() || slot.node.outputs.iter().any(used) {
                continue;
            }
            self.slots[at as usize].live = false;
            for v in self.slots[at as usize].node.inputs.clone().into_iter().filter(|v| !v.is_none()) {
                self.users[v.0 as usize].retain(|n| *n != at);
                stack.extend(self.producer(v).map(|(n, _)| n));
            }
        }
    }

    /// The graph as it is now: sources first, then the nodes in an order that follows the old one as far as operands allow.
    pub fn finish(self) -> Result<Graph, GraphError> {
        let mut g = Graph::new(&self.name);
        g.symbols = self.symbols.clone();
        g.guards = self.guards.clone();
        let mut map = vec![ValueId::NONE; self.values.len()];
        self.emit_sources(&mut g, &mut map)?;
        let mut done = vec![false; self.slots.len()];
        for at in self.nodes() {
            let mut stack = vec![at];
            while let Some(top) = stack.last().copied() {
                let waits = |v: ValueId| self.producer(v).map(|(n, _)| n).filter(|n| !done[*n as usize]);
                let missing: Vec<At> = match done[top as usize] {
                    true => Vec::new(),
                    false => self.node(top).operands().filter_map(waits).collect(),
                };
                if missing.is_empty() {
                    stack.pop();
                    if !std::mem::replace(&mut done[top as usize], true) {
                        self.emit(&mut g, &mut map, top)?;
                    }
                } else if stack.len() > self.slots.len() {
                    // Only a cycle makes the stack longer than there are nodes.
                    return Err(GraphError::Value(self.node(top).outputs.first().map_or(0, |v| v.0)));
                } else {
                    stack.extend(missing.into_iter().rev());
                }
            }
        }
        for (name, v) in &self.outputs {
            g.output(name, map[v.0 as usize])?;
        }
        for s in &self.states {
            g.update(map[s.first.0 as usize], map[s.last.0 as usize])?;
        }
        Ok(g)
    }

    fn emit_sources(&self, g: &mut Graph, map: &mut [ValueId]) -> Result<(), GraphError> {
        let border = |v: &Value| !matches!(v.source, Source::Node(..) | Source::Const(_));
        for (i, v) in self.values.iter().enumerate().filter(|(_, v)| border(v)) {
            map[i] = match v.source {
                Source::Input => g.input(&v.name, v.ty.clone())?,
                Source::Param => g.param(&v.name, v.ty.clone())?,
                _ => g.state(&v.name, v.ty.clone())?,
            };
        }
        for (i, v) in self.values.iter().enumerate() {
            let used = !self.users[i].is_empty() || self.kept[i] > 0;
            if let (Source::Const(t), true) = (&v.source, used) {
                let name = g.fresh_name(&v.name);
                map[i] = g.constant(&name, t.clone())?;
            }
        }
        Ok(())
    }

    fn emit(&self, g: &mut Graph, map: &mut [ValueId], at: At) -> Result<(), GraphError> {
        let n = self.node(at);
        let inputs: SmallVec<[ValueId; 4]> =
            n.inputs.iter().map(|v| if v.is_none() { *v } else { map[v.0 as usize] }).collect();
        let types: Vec<Type> = n.outputs.iter().map(|v| self.ty(*v).clone()).collect();
        let names: SmallVec<[Arc<str>; 1]> = n.outputs.iter().map(|v| self.value(*v).name.clone()).collect();
        let names: SmallVec<[&str; 1]> = names.iter().map(|n| &**n).collect();
        let out = g.push_typed(n.op.clone(), n.attrs.clone(), &inputs, types, &names)?;
        for (old, new) in n.outputs.iter().zip(out) {
            map[old.0 as usize] = new;
        }
        Ok(())
    }
}
