//! The graph: an SSA list of nodes with typed values, named inputs, parameters, states and outputs.
//!
//! Nodes stand in an order in which every value is defined before it is used. Passes build a new graph from an old one;
//! a graph is never edited in the middle.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::DType;
use crate::attr::Attrs;
use crate::dim::Dim;
use crate::op::{InferCtx, OpError, Registry};
use crate::symbols::{DimGuard, Symbols};
use crate::tensor::Tensor;

/// Extents, outermost first.
pub type Shape = SmallVec<[Dim; 4]>;

/// Element type and extents of a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Type {
    /// Element type.
    pub dtype: DType,
    /// Extents, outermost first.
    pub shape: Shape,
}

impl Type {
    /// The type `dtype[dims…]`.
    pub fn new(dtype: DType, dims: impl IntoIterator<Item = impl Into<Dim>>) -> Type {
        Type { dtype, shape: dims.into_iter().map(Into::into).collect() }
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Number of elements.
    pub fn elements(&self) -> Dim {
        self.shape.iter().cloned().product()
    }

    /// Bytes of a dense value.
    pub fn bytes(&self) -> Dim {
        let i = self.dtype.info();
        let n = self.elements();
        if i.unit_elements == 1 {
            n * Dim::from(i.unit_bytes)
        } else {
            n.ceil_div(&Dim::from(i.unit_elements)) * Dim::from(i.unit_bytes)
        }
    }
}

/// Prints as `f32[T, 64]`.
impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[", self.dtype)?;
        for (i, d) in self.shape.iter().enumerate() {
            write!(f, "{}{d}", if i > 0 { ", " } else { "" })?;
        }
        f.write_str("]")
    }
}

/// A value of the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub u32);

impl ValueId {
    /// Stands for an optional operand that is not given.
    pub const NONE: ValueId = ValueId(u32::MAX);

    /// Whether this is [`ValueId::NONE`].
    pub fn is_none(self) -> bool {
        self == ValueId::NONE
    }
}

/// A node of the graph: its position in [`Graph::nodes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// Given by the host at each run.
    Input,
    /// A weight, given once by name.
    Param,
    /// The first version of a state; zero at the start of a session.
    State,
    /// A constant.
    Const(Tensor),
    /// Output `1` of node `0`.
    Node(NodeId, u32),
}

/// A value: stable name, type and source.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// Unique name, without the `%` of the text format.
    pub name: Arc<str>,
    /// Type.
    pub ty: Type,
    /// Source.
    pub source: Source,
}

/// A node.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Name of the op in the registry.
    pub op: Arc<str>,
    /// Attributes.
    pub attrs: Attrs,
    /// Operands; [`ValueId::NONE`] for an optional one left out.
    pub inputs: SmallVec<[ValueId; 4]>,
    /// Results.
    pub outputs: SmallVec<[ValueId; 1]>,
}

impl Node {
    /// The operands that are given.
    pub fn operands(&self) -> impl Iterator<Item = ValueId> + '_ {
        self.inputs.iter().copied().filter(|v| !v.is_none())
    }
}

/// A state: its first version and the version that the next run starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// Version read at the start of a run.
    pub first: ValueId,
    /// Version left at its end.
    pub last: ValueId,
}

/// A graph. See the module's page.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Graph {
    /// Name, for messages.
    pub name: String,
    /// Symbols in scope.
    pub symbols: Symbols,
    /// What must hold of the sizes bound at a run, beyond the ranges.
    pub guards: Vec<DimGuard>,
    values: Vec<Value>,
    nodes: Vec<Node>,
    states: Vec<State>,
    outputs: Vec<(String, ValueId)>,
    names: HashMap<Arc<str>, ValueId>,
}

/// Why a graph could not be built.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum GraphError {
    /// A name is taken.
    #[error("the name `{0}` is used twice; names of values, inputs and outputs are unique")]
    Name(String),
    /// A value of another graph or none.
    #[error("value {0} does not exist in this graph")]
    Value(u32),
    /// No such op.
    #[error("there is no op `{0}`")]
    Op(String),
    /// The op refused its operands or attributes.
    #[error("`{op}`: {source}")]
    Infer {
        /// The op.
        op: String,
        /// Why.
        source: OpError,
    },
    /// A state's next version has another type.
    #[error("state `{0}` has type {1}, its next version has {2}")]
    State(String, String, String),
    /// A state is named that is not one.
    #[error("`{0}` is not a state of this graph")]
    NotState(String),
}

impl Graph {
    /// An empty graph.
    pub fn new(name: &str) -> Graph {
        Graph { name: name.into(), ..Graph::default() }
    }

    /// Every value, by number.
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// Every node, in order.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Every state.
    pub fn states(&self) -> &[State] {
        &self.states
    }

    /// Names and values of the outputs.
    pub fn outputs(&self) -> &[(String, ValueId)] {
        &self.outputs
    }

    /// The value numbered `v`, which must be of this graph.
    pub fn value(&self, v: ValueId) -> &Value {
        &self.values[v.0 as usize]
    }

    /// The type of `v`, which must be of this graph.
    pub fn ty(&self, v: ValueId) -> &Type {
        &self.value(v).ty
    }

    /// The value called `name`.
    pub fn find(&self, name: &str) -> Option<ValueId> {
        self.names.get(name).copied()
    }

    /// The node that makes `v`, unless `v` is an input, parameter, state or constant.
    pub fn producer(&self, v: ValueId) -> Option<(&Node, u32)> {
        match self.value(v).source {
            Source::Node(n, i) => Some((&self.nodes[n.0 as usize], i)),
            _ => None,
        }
    }

    /// Values of one source kind, e.g. `graph.sourced(|s| matches!(s, Source::Input))`.
    pub fn sourced(&self, f: impl Fn(&Source) -> bool) -> impl Iterator<Item = ValueId> {
        (0..self.values.len() as u32).map(ValueId).filter(move |v| f(&self.value(*v).source))
    }

    fn add_value(&mut self, name: &str, ty: Type, source: Source) -> Result<ValueId, GraphError> {
        let name: Arc<str> = name.into();
        let id = ValueId(self.values.len() as u32);
        if self.names.contains_key(&name) {
            return Err(GraphError::Name(name.to_string()));
        }
        self.names.insert(name.clone(), id);
        self.values.push(Value { name, ty, source });
        Ok(id)
    }

    /// Adds an input that the host gives at each run.
    ///
    /// # Errors
    /// The name is taken.
    pub fn input(&mut self, name: &str, ty: Type) -> Result<ValueId, GraphError> {
        self.add_value(name, ty, Source::Input)
    }

    /// Adds a parameter (weight), given once by name.
    ///
    /// # Errors
    /// The name is taken.
    pub fn param(&mut self, name: &str, ty: Type) -> Result<ValueId, GraphError> {
        self.add_value(name, ty, Source::Param)
    }

    /// Adds a state, zero at the start of a session. Without [`Graph::update`] it never changes.
    ///
    /// # Errors
    /// The name is taken.
    pub fn state(&mut self, name: &str, ty: Type) -> Result<ValueId, GraphError> {
        let v = self.add_value(name, ty, Source::State)?;
        self.states.push(State { first: v, last: v });
        Ok(v)
    }

    /// Adds a constant.
    ///
    /// # Errors
    /// The name is taken.
    pub fn constant(&mut self, name: &str, t: Tensor) -> Result<ValueId, GraphError> {
        let ty = Type::new(t.dtype(), t.shape().iter().copied());
        self.add_value(name, ty, Source::Const(t))
    }

    /// Declares that the next run finds `last` in the state whose first version is `first`.
    ///
    /// # Errors
    /// `first` is no state; the types differ.
    pub fn update(&mut self, first: ValueId, last: ValueId) -> Result<(), GraphError> {
        self.check(last)?;
        self.check(first)?;
        let (name, ty) = (self.value(first).name.to_string(), self.ty(first).clone());
        if ty != *self.ty(last) {
            return Err(GraphError::State(name, ty.to_string(), self.ty(last).to_string()));
        }
        match self.states.iter_mut().find(|s| s.first == first) {
            Some(s) => s.last = last,
            None => return Err(GraphError::NotState(name)),
        }
        Ok(())
    }

    /// Declares `v` as the output `name`.
    ///
    /// # Errors
    /// The name is taken by another output; no such value.
    pub fn output(&mut self, name: &str, v: ValueId) -> Result<(), GraphError> {
        self.check(v)?;
        if self.outputs.iter().any(|(n, _)| n == name) {
            return Err(GraphError::Name(name.into()));
        }
        self.outputs.push((name.into(), v));
        Ok(())
    }

    fn check(&self, v: ValueId) -> Result<(), GraphError> {
        if (v.0 as usize) < self.values.len() { Ok(()) } else { Err(GraphError::Value(v.0)) }
    }

    /// A name that is free: `hint` itself, or with a number behind it.
    pub fn fresh_name(&self, hint: &str) -> String {
        if !self.names.contains_key(hint) {
            return hint.into();
        }
        let name = |n: usize| format!("{hint}.{n}");
        let taken = |n: usize| self.names.contains_key(name(n).as_str());
        // Doubling finds a number that is free, halving the first free one behind the numbers in use: few looks even where
        // one hint is used thousands of times, and no counter that two equal graphs could differ in.
        let (mut used, mut free) = (0, 1);
        while taken(free) {
            (used, free) = (free, free * 2);
        }
        while free - used > 1 {
            let middle = used + (free - used) / 2;
            *(if taken(middle) { &mut used } else { &mut free }) = middle;
        }
        name(free)
    }

    /// Appends a node and gives its results. `names` are hints for the results (a number is appended where taken); an empty
    /// list names them after the op.
    ///
    /// # Errors
    /// An unknown op, a value of another graph, operands or attributes that the op refuses.
    pub fn push(
        &mut self,
        registry: &Registry,
        op: &str,
        attrs: Attrs,
        inputs: &[ValueId],
        names: &[&str],
    ) -> Result<SmallVec<[ValueId; 1]>, GraphError> {
        let def = registry.get(op).ok_or_else(|| GraphError::Op(op.into()))?;
        for v in inputs.iter().filter(|v| !v.is_none()) {
            self.check(*v)?;
        }
        let (infer, guards) = {
            let types: SmallVec<[Option<&Type>; 4]> =
                inputs.iter().map(|v| (!v.is_none()).then(|| self.ty(*v))).collect();
            let mut ctx = InferCtx::new(&attrs, &types, &self.symbols);
            let infer =
                (def.infer)(&mut ctx).map_err(|source| GraphError::Infer { op: op.into(), source })?;
            (infer, ctx.into_guards())
        };
        for g in guards {
            if !self.guards.contains(&g) {
                self.guards.push(g);
            }
        }
        self.push_typed(op.into(), attrs, inputs, infer, names)
    }

    /// Appends a node whose result types are known, as [`Graph::push`] would: how a pass copies a node that it leaves as it
    /// was. The verifier finds types that are not what the op infers.
    ///
    /// # Errors
    /// A value of another graph.
    pub fn push_typed(
        &mut self,
        op: Arc<str>,
        attrs: Attrs,
        inputs: &[ValueId],
        types: Vec<Type>,
        names: &[&str],
    ) -> Result<SmallVec<[ValueId; 1]>, GraphError> {
        for v in inputs.iter().filter(|v| !v.is_none()) {
            self.check(*v)?;
        }
        let id = NodeId(self.nodes.len() as u32);
        let mut outputs = SmallVec::new();
        for (i, ty) in types.into_iter().enumerate() {
            let name = self.fresh_name(names.get(i).copied().unwrap_or(&op));
            outputs.push(self.add_value(&name, ty, Source::Node(id, i as u32))?);
        }
        self.nodes.push(Node { op, attrs, inputs: inputs.into(), outputs: outputs.clone() });
        Ok(outputs)
    }

    /// How many nodes read each value (outputs and state updates count as one each).
    pub fn use_counts(&self) -> Vec<u32> {
        let mut n = vec![0; self.values.len()];
        let reads = self.nodes.iter().flat_map(|x| x.operands());
        let kept = self.outputs.iter().map(|(_, v)| *v).chain(self.states.iter().map(|s| s.last));
        for v in reads.chain(kept) {
            n[v.0 as usize] += 1;
        }
        n
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_hints_are_numbered_from_one() {
        let mut g = Graph::new("g");
        let ty = Type::new(crate::DType::F32, [1i64]);
        // Names that a file gave stay apart from those that are made.
        g.input("x.7", ty.clone()).unwrap();
        g.input("x.5000", ty.clone()).unwrap();
        for _ in 0..10_000 {
            g.push_typed("x".into(), Attrs::new(), &[], vec![ty.clone()], &[]).unwrap();
        }
        assert_eq!(g.names.len(), 10_002);
        let longest = g.names.keys().map(|n| n.len()).max();
        assert_eq!(longest, Some("x.10001".len()), "numbers follow one another");
        let first: Vec<&str> = g.values[2..7].iter().map(|v| &*v.name).collect();
        assert_eq!(first, ["x", "x.1", "x.2", "x.3", "x.4"]);
    }
}
