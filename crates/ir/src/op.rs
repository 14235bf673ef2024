//! The contract of an op: everything that the compiler knows of it, as one plain struct of functions and facts.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use crate::DType;
use crate::attr::{AttrError, Attrs};
use crate::dim::Dim;
use crate::expr::{Expr, ExprError};
use crate::graph::{Graph, GraphError, Node, Shape, Type, ValueId};
use crate::symbols::{DimGuard, Proof, Relation, Symbols};
use crate::tensor::{Tensor, TensorError};

/// Why an op refused its operands or attributes.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum OpError {
    /// An attribute.
    #[error(transparent)]
    Attr(#[from] AttrError),
    /// A scalar expression.
    #[error(transparent)]
    Expr(#[from] ExprError),
    /// A tensor (reference evaluation).
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// Extents that do not fit; says which, and what would be right.
    #[error("{0}")]
    Shape(String),
    /// An element type that the op does not take; says which are right.
    #[error("{0}")]
    DType(String),
    /// Wrong number of operands.
    #[error("takes {want} operands, got {got}")]
    Operands {
        /// What would be right.
        want: String,
        /// What was given.
        got: usize,
    },
    /// A value outside what the op takes.
    #[error("{0}")]
    Value(String),
    /// The graph refused a node of an expansion.
    #[error("{0}")]
    Graph(Box<GraphError>),
}

impl From<GraphError> for OpError {
    fn from(e: GraphError) -> OpError {
        OpError::Graph(Box::new(e))
    }
}

/// What `infer` sees: attributes and operand types. It proves what it can and records guards for the rest.
pub struct InferCtx<'a> {
    /// Attributes.
    pub attrs: &'a Attrs,
    /// Operand types; `None` for an optional operand left out.
    pub inputs: &'a [Option<&'a Type>],
    /// Symbols in scope.
    pub symbols: &'a Symbols,
    guards: Vec<DimGuard>,
}

impl<'a> InferCtx<'a> {
    /// A context over these operands.
    pub fn new(attrs: &'a Attrs, inputs: &'a [Option<&'a Type>], symbols: &'a Symbols) -> InferCtx<'a> {
        InferCtx { attrs, inputs, symbols, guards: Vec::new() }
    }

    /// The type of operand `i`, which must be given.
    ///
    /// # Errors
    /// It is not given.
    pub fn ty(&self, i: usize) -> Result<&'a Type, OpError> {
        self.inputs
            .get(i)
            .copied()
            .flatten()
            .ok_or(OpError::Operands { want: format!("operand {i}"), got: self.inputs.len() })
    }

    /// The type of the optional operand `i`.
    pub fn optional(&self, i: usize) -> Option<&'a Type> {
        self.inputs.get(i).copied().flatten()
    }

    /// Requires between `min` and `max` operands.
    ///
    /// # Errors
    /// Another number.
    pub fn arity(&self, min: usize, max: usize) -> Result<(), OpError> {
        let n = self.inputs.len();
        if (min..=max).contains(&n) {
            return Ok(());
        }
        let want = if min == max { min.to_string() } else { format!("{min} to {max}") };
        Err(OpError::Operands { want, got: n })
    }

    /// Requires `a == b`: proved now, or recorded as a guard.
    ///
    /// # Errors
    /// It holds for no sizes in range; `what` says which extents these are.
    pub fn require_equal(&mut self, a: &Dim, b: &Dim, what: &str) -> Result<(), OpError> {
        self.require(self.symbols.equal(a, b), a, Relation::Equal, b, what)
    }

    /// Requires `a <= b`: proved now, or recorded as a guard.
    ///
    /// # Errors
    /// It holds for no sizes in range.
    pub fn require_at_most(&mut self, a: &Dim, b: &Dim, what: &str) -> Result<(), OpError> {
        self.require(self.symbols.at_most(a, b), a, Relation::AtMost, b, what)
    }

    fn require(&mut self, p: Proof, a: &Dim, relation: Relation, b: &Dim, what: &str) -> Result<(), OpError> {
        let sign = if relation == Relation::Equal { "=" } else { "<=" };
        match p {
            Proof::Yes => Ok(()),
            Proof::No => Err(OpError::Shape(format!("{what}: {a} {sign} {b} must hold"))),
            Proof::Unknown => {
                self.guards.push(DimGuard { left: a.clone(), relation, right: b.clone(), why: what.into() });
                Ok(())
            }
        }
    }

    /// The common shape of `shapes` by NumPy broadcasting. A symbol counts as 1 only if its range is 1..=1; two extents that
    /// can neither be proved equal nor different become a guard.
    ///
    /// # Errors
    /// Extents that differ and are not 1; the message names the shapes.
    pub fn broadcast(&mut self, shapes: &[&Shape]) -> Result<Shape, OpError> {
        let rank = shapes.iter().map(|s| s.len()).max().unwrap_or(0);
        let mut out: Shape = std::iter::repeat_n(Dim::from(1i64), rank).collect();
        let print =
            |s: &Shape| format!("[{}]", s.iter().map(|d| d.to_string()).collect::<Vec<_>>().join(", "));
        for s in shapes {
            for (i, d) in s.iter().enumerate() {
                let at = rank - s.len() + i;
                if self.symbols.equal(d, &Dim::from(1i64)) == Proof::Yes {
                    continue;
                }
                if self.symbols.equal(&out[at], &Dim::from(1i64)) == Proof::Yes {
                    out[at] = d.clone();
                    continue;
                }
                let all = shapes.iter().map(|s| print(s)).collect::<Vec<_>>().join(" and ");
                let (a, b) = (out[at].clone(), d.clone());
                self.require_equal(&a, &b, &format!("shapes {all} do not broadcast: dimension {at}"))?;
            }
        }
        Ok(out)
    }

    /// The guards recorded.
    pub fn into_guards(self) -> Vec<DimGuard> {
        self.guards
    }
}

/// What `reference` sees: attributes, dense operands, and the types that `infer` gave (all extents constant).
pub struct RefCtx<'a> {
    /// Attributes. Dimensions in them are constant here.
    pub attrs: &'a Attrs,
    /// Operands; `None` for an optional one left out.
    pub inputs: &'a [Option<&'a Tensor>],
    /// Result types.
    pub outputs: &'a [Type],
}

impl<'a> RefCtx<'a> {
    /// Operand `i`, which must be given.
    ///
    /// # Errors
    /// It is not given.
    pub fn input(&self, i: usize) -> Result<&'a Tensor, OpError> {
        self.inputs
            .get(i)
            .copied()
            .flatten()
            .ok_or(OpError::Operands { want: format!("operand {i}"), got: self.inputs.len() })
    }

    /// The optional operand `i`.
    pub fn optional(&self, i: usize) -> Option<&'a Tensor> {
        self.inputs.get(i).copied().flatten()
    }

    /// Extents of result `i`.
    ///
    /// # Errors
    /// An extent is not constant.
    pub fn shape(&self, i: usize) -> Result<Vec<usize>, OpError> {
        let one = |d: &Dim| d.as_const().and_then(|v| usize::try_from(v).ok());
        let dims: Option<Vec<usize>> = self.outputs[i].shape.iter().map(one).collect();
        dims.ok_or_else(|| OpError::Shape(format!("result {} has symbolic extents", self.outputs[i])))
    }

    /// Result `i` from f64 values, rounded to its type.
    ///
    /// # Errors
    /// A wrong count.
    pub fn result(&self, i: usize, values: &[f64]) -> Result<Tensor, OpError> {
        Ok(Tensor::from_f64(self.outputs[i].dtype, &self.shape(i)?, values)?)
    }
}

/// What `cost` and `lower` see.
pub struct NodeCtx<'a> {
    /// Attributes.
    pub attrs: &'a Attrs,
    /// Operand types; `None` for an optional one left out.
    pub inputs: &'a [Option<&'a Type>],
    /// Result types.
    pub outputs: &'a [Type],
}

/// Work of a node: floating-point operations and bytes moved if nothing is cached.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    /// Operations.
    pub flops: Dim,
    /// Bytes read and written.
    pub bytes: Dim,
}

/// The value of a named parameter of a kernel row.
#[derive(Clone, Debug, PartialEq)]
pub enum ParamValue {
    /// An integer, possibly depending on the sizes of the run.
    Dim(Dim),
    /// A real number.
    Float(f64),
}

/// What `lower` gives: the values that kernel rows ask for by name, and the scalar expressions of the step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lowered {
    /// Parameter values by name.
    pub params: Vec<(&'static str, ParamValue)>,
    /// Expressions, in the order the kernel reads them.
    pub exprs: Vec<Arc<Expr>>,
}

impl Lowered {
    /// With an integer parameter.
    pub fn int(mut self, name: &'static str, v: impl Into<Dim>) -> Lowered {
        self.params.push((name, ParamValue::Dim(v.into())));
        self
    }

    /// With a real parameter.
    pub fn float(mut self, name: &'static str, v: f64) -> Lowered {
        self.params.push((name, ParamValue::Float(v)));
        self
    }
}

/// A window onto a buffer: element offset, extents and strides in elements.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    /// Offset of the first element.
    pub offset: Dim,
    /// Extents, outermost first.
    pub dims: Shape,
    /// Strides in elements.
    pub strides: Shape,
}

impl View {
    /// The dense row-major view of `dims`.
    pub fn dense(dims: &[Dim]) -> View {
        let mut strides: Shape = dims.iter().map(|_| Dim::from(1i64)).collect();
        for i in (1..dims.len()).rev() {
            strides[i - 1] = strides[i].clone() * dims[i].clone();
        }
        View { offset: Dim::from(0i64), dims: dims.into(), strides }
    }
}

/// How an operand of a case lies in memory; the harness makes it so by views.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Dense.
    Dense,
    /// Last stride 1, rows further apart than their length.
    Rows,
    /// The last two dimensions swapped in memory and every second element skipped.
    Strided,
}

/// What an operand of a case is to the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// An input.
    Input,
    /// A weight (may be packed).
    Param,
    /// A state.
    State,
}

/// An operand of a case.
#[derive(Clone, Debug, PartialEq)]
pub struct CaseInput {
    /// Its value.
    pub tensor: Tensor,
    /// How it lies in memory.
    pub layout: Layout,
    /// What it is.
    pub role: Role,
}

impl CaseInput {
    /// A dense input.
    pub fn new(tensor: Tensor) -> CaseInput {
        CaseInput { tensor, layout: Layout::Dense, role: Role::Input }
    }

    /// In this layout.
    pub fn layout(self, layout: Layout) -> CaseInput {
        CaseInput { layout, ..self }
    }

    /// In this role.
    pub fn role(self, role: Role) -> CaseInput {
        CaseInput { role, ..self }
    }
}

/// Bound on |got − want|: `abs + rel·|want|`. NaN and infinities must match exactly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Absolute part.
    pub abs: f64,
    /// Relative part.
    pub rel: f64,
}

impl Tolerance {
    /// Bitwise equality of finite values.
    pub const EXACT: Tolerance = Tolerance { abs: 0.0, rel: 0.0 };
}

/// One input that every device must get right.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Unique within the op.
    pub name: String,
    /// Attributes.
    pub attrs: Attrs,
    /// Operands; `None` for an optional one left out.
    pub inputs: Vec<Option<CaseInput>>,
    /// How far a device may be from the reference.
    pub tolerance: Tolerance,
    /// Results that must come out, where they are known without the reference (flattened, one list a result).
    pub expect: Option<Vec<Vec<f64>>>,
}

/// Builds the expansion of a fused op: (graph, registry, node, its operands in that graph) to its results.
pub type Expand = fn(&mut Graph, &Registry, &Node, &[ValueId]) -> Result<Vec<ValueId>, OpError>;

/// Builds the gradients of the operands: (graph, registry, node, gradients of the results) to a gradient for each operand.
pub type Vjp = fn(&mut Graph, &Registry, &Node, &[Option<ValueId>]) -> Result<Vec<Option<ValueId>>, OpError>;

/// What an op computes, given (flattened) as its values, for the reference interpreter.
pub type Reference = fn(&RefCtx) -> Result<Vec<Tensor>, OpError>;

/// Everything the compiler knows of an op. A new op is a file with one of these and a line in the op list.
#[derive(Clone)]
pub struct OpDef {
    /// Name in graphs and text.
    pub name: &'static str,
    /// One line for the documentation.
    pub summary: &'static str,
    /// Result types, with symbolic extents.
    pub infer: fn(&mut InferCtx) -> Result<Vec<Type>, OpError>,
    /// The specification: plain loops. `None` for a fused op, which its expansion specifies.
    pub reference: Option<Reference>,
    /// For a fused op: the same in core ops.
    pub expand: Option<Expand>,
    /// Gradients, where there are any.
    pub vjp: Option<Vjp>,
    /// Work.
    pub cost: fn(&NodeCtx) -> Cost,
    /// Parameter values for kernel rows.
    pub lower: fn(&NodeCtx) -> Result<Lowered, OpError>,
    /// For an op that only looks at its operand 0 in another way: the view of its result, or `None` where strides cannot
    /// express it (a copy is made then).
    pub view: Option<fn(&NodeCtx, &View) -> Option<View>>,
    /// The operands that results overwrite in place (state writes): result i operand `updates[i]`.
    pub updates: &'static [usize],
    /// Inputs that every device must get right.
    pub cases: fn() -> Vec<Case>,
}

/// Why a registry refused an op.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    /// Another op has its name.
    #[error("there is an op `{0}` in the registry already")]
    Duplicate(&'static str),
    /// Its name is none.
    #[error("an op's name is words of letters, digits and `_` with dots between them; `{0}` is not")]
    Name(&'static str),
}

/// The ops in scope, by name. It is open: a user's crate adds its own.
#[derive(Clone, Default)]
pub struct Registry {
    ops: HashMap<&'static str, OpDef>,
    order: Vec<&'static str>,
}

impl Registry {
    /// An empty registry.
    pub fn new() -> Registry {
        Registry::default()
    }

    /// Adds an op.
    ///
    /// # Errors
    /// A name that another op has, or that is none.
    pub fn add(&mut self, def: OpDef) -> Result<(), RegistryError> {
        let name = def.name;
        let word = |w: &str| {
            w.starts_with(|c: char| c.is_ascii_alphabetic())
                && w.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        if !name.split('.').all(word) {
            return Err(RegistryError::Name(name));
        }
        if self.ops.contains_key(name) {
            return Err(RegistryError::Duplicate(name));
        }
        self.order.push(name);
        self.ops.insert(name, def);
        Ok(())
    }

    /// The op called `name`.
    pub fn get(&self, name: &str) -> Option<&OpDef> {
        self.ops.get(name)
    }

    /// Every op, in the order of addition.
    pub fn iter(&self) -> impl Iterator<Item = &OpDef> {
        self.order.iter().filter_map(|n| self.ops.get(n))
    }
}

/// The names of the ops.
impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.order).finish()
    }
}

/// Names the element types in a message: `f32, f16 or bf16`.
pub fn list_dtypes(all: &[DType]) -> String {
    all.iter().map(|d| d.name()).collect::<Vec<_>>().join(", ")
}
