//! Building graphs in Rust: [`Builder`] names the ops, fills in their attributes and refuses a wrong call at once.

mod model;

use std::sync::Arc;

use frit_ir::dim::Dim;
use frit_ir::expr::scalar::Gives;
use frit_ir::expr::{ExprError, Ref, compute_type};
use frit_ir::graph::{GraphError, Shape, Type, ValueId};
use frit_ir::op::OpError;
use frit_ir::symbols::SymbolError;
use frit_ir::{Attr, Attrs, DType, Expr, Graph, Registry, ScalarOp, Tensor};

pub use model::{Attention, Rotary};

/// What every call of the builder gives: the value, or why the op refused (the message names types and shapes).
pub type Built = Result<ValueId, GraphError>;

/// A graph under construction, with the ops in scope.
pub struct Builder {
    graph: Graph,
    registry: Registry,
}

/// How [`Builder::reduce`] combines values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduce {
    /// Σ x.
    Sum,
    /// Σ x / n.
    Mean,
    /// The largest, NaN handed on.
    Max,
    /// The smallest, NaN handed on.
    Min,
    /// Π x.
    Prod,
    /// Whether any is true.
    Any,
    /// Whether all are true.
    All,
}

impl Reduce {
    /// Its name in the attribute `op`.
    pub fn name(self) -> &'static str {
        match self {
            Reduce::Sum => "sum",
            Reduce::Mean => "mean",
            Reduce::Max => "max",
            Reduce::Min => "min",
            Reduce::Prod => "prod",
            Reduce::Any => "any",
            Reduce::All => "all",
        }
    }
}

fn refuse(op: &str, source: impl Into<OpError>) -> GraphError {
    GraphError::Infer { op: op.into(), source: source.into() }
}

impl Builder {
    /// An empty graph called `name`, with the ops of this crate.
    pub fn new(name: &str) -> Builder {
        Builder::with_registry(name, crate::registry())
    }

    /// An empty graph called `name`, with the ops of `registry`.
    pub fn with_registry(name: &str, registry: Registry) -> Builder {
        Builder { graph: Graph::new(name), registry }
    }

    /// The graph so far.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The finished graph.
    pub fn finish(self) -> Graph {
        self.graph
    }

    /// The type of `v`.
    ///
    /// # Errors
    /// `v` is no value of this graph.
    pub fn ty(&self, v: ValueId) -> Result<&Type, GraphError> {
        self.graph.values().get(v.0 as usize).map(|v| &v.ty).ok_or(GraphError::Value(v.0))
    }

    /// The extents of `v`.
    ///
    /// # Errors
    /// As [`Builder::ty`].
    pub fn shape(&self, v: ValueId) -> Result<Shape, GraphError> {
        Ok(self.ty(v)?.shape.clone())
    }

    /// Declares a symbol with its inclusive range.
    ///
    /// # Errors
    /// An empty or negative range; declared before with another.
    pub fn symbol(&mut self, name: &str, min: i64, max: i64) -> Result<Dim, SymbolError> {
        self.graph.symbols.declare(name, min, max)
    }

    /// Promises that `expr` is at most `max`; checked when sizes are bound.
    pub fn bound(&mut self, expr: Dim, max: i64) {
        self.graph.symbols.bound(expr, max);
    }

    /// An input that the host gives at each run.
    ///
    /// # Errors
    /// The name is taken.
    pub fn input(
        &mut self,
        name: &str,
        dtype: DType,
        dims: impl IntoIterator<Item = impl Into<Dim>>,
    ) -> Built {
        self.graph.input(name, Type::new(dtype, dims))
    }

    /// A weight, given once by name.
    ///
    /// # Errors
    /// The name is taken.
    pub fn param(
        &mut self,
        name: &str,
        dtype: DType,
        dims: impl IntoIterator<Item = impl Into<Dim>>,
    ) -> Built {
        self.graph.param(name, Type::new(dtype, dims))
    }

    /// A state, zero at the start of a session.
    ///
    /// # Errors
    /// The name is taken.
    pub fn state(
        &mut self,
        name: &str,
        dtype: DType,
        dims: impl IntoIterator<Item = impl Into<Dim>>,
    ) -> Built {
        self.graph.state(name, Type::new(dtype, dims))
    }

    /// A constant.
    ///
    /// # Errors
    /// The name is taken.
    pub fn constant(&mut self, name: &str, t: Tensor) -> Built {
        self.graph.constant(name, t)
    }

    /// Declares `v` as the output `name`.
    ///
    /// # Errors
    /// The name is taken.
    pub fn output(&mut self, name: &str, v: ValueId) -> Result<(), GraphError> {
        self.graph.output(name, v)
    }

    /// Declares that the next run finds `last` in the state `first`.
    ///
    /// # Errors
    /// `first` is no state; the types differ.
    pub fn update(&mut self, first: ValueId, last: ValueId) -> Result<(), GraphError> {
        self.graph.update(first, last)
    }

    /// A node of any op in scope, and its results.
    ///
    /// # Errors
    /// An unknown op; operands or attributes that it refuses.
    pub fn push(&mut self, op: &str, attrs: Attrs, inputs: &[ValueId]) -> Result<Vec<ValueId>, GraphError> {
        Ok(self.graph.push(&self.registry, op, attrs, inputs, &[])?.to_vec())
    }

    /// A node of an op with one result.
    ///
    /// # Errors
    /// As [`Builder::push`].
    pub fn node(&mut self, op: &str, attrs: Attrs, inputs: &[ValueId]) -> Built {
        let all = self.push(op, attrs, inputs)?;
        match all.as_slice() {
            [one] => Ok(*one),
            _ => Err(refuse(op, OpError::Value(format!("has {} results here, not one", all.len())))),
        }
    }

    // Elementwise.

    /// A scalar expression over operands that broadcast; one value per output.
    ///
    /// # Errors
    /// The expression is not well formed, or reads other types; shapes that do not broadcast.
    pub fn expr(&mut self, e: Expr, inputs: &[ValueId]) -> Result<Vec<ValueId>, GraphError> {
        self.push("expr", Attrs::new().with("expr", Arc::new(e)), inputs)
    }

    /// The expression that `body` writes over `inputs`, stored as `dtype`. `body` gets the number of each input and gives
    /// that of the result.
    ///
    /// # Errors
    /// As [`Builder::expr`].
    pub fn map(
        &mut self,
        inputs: &[ValueId],
        dtype: DType,
        body: impl FnOnce(&mut Expr, &[Ref]) -> Ref,
    ) -> Built {
        let types = inputs.iter().map(|v| Ok(self.ty(*v)?.dtype)).collect::<Result<Vec<_>, GraphError>>()?;
        let refs: Vec<Ref> = (0..inputs.len()).map(|i| Ref::try_from(i).unwrap_or(Ref::MAX)).collect();
        if refs.last() == Some(&Ref::MAX) {
            return Err(refuse("expr", ExprError::Size));
        }
        let mut e = Expr::new(&types);
        let v = body(&mut e, &refs);
        e.output(v, dtype);
        self.node("expr", Attrs::new().with("expr", Arc::new(e)), inputs)
    }

    /// `op` on `inputs`, stored in their type (bool for comparisons).
    ///
    /// # Errors
    /// As [`Builder::expr`].
    pub fn scalar(&mut self, op: ScalarOp, inputs: &[ValueId]) -> Built {
        let last = *inputs.last().ok_or_else(|| {
            refuse("expr", OpError::Operands { want: op.info().arity.max(1).to_string(), got: 0 })
        })?;
        let own = self.ty(last)?.dtype;
        // An expression may mix f32 with f16; what the result is stored as must then be said, with `map`.
        for v in inputs.iter().skip(usize::from(op == ScalarOp::Where)) {
            let other = self.ty(*v)?.dtype;
            if other != own {
                return Err(refuse("expr", ExprError::Mixed(op.name(), other, own)));
            }
        }
        let dtype = if op.info().gives == Gives::Bool { DType::Bool } else { own };
        self.map(inputs, dtype, |e, r| e.push(op, r))
    }

    /// `op` of one operand.
    ///
    /// # Errors
    /// As [`Builder::expr`].
    pub fn unary(&mut self, op: ScalarOp, x: ValueId) -> Built {
        self.scalar(op, &[x])
    }

    /// `op` of two operands of one type.
    ///
    /// # Errors
    /// As [`Builder::expr`].
    pub fn binary(&mut self, op: ScalarOp, a: ValueId, b: ValueId) -> Built {
        self.scalar(op, &[a, b])
    }

    /// `op(x, value)` with a constant of x's type.
    ///
    /// # Errors
    /// As [`Builder::expr`].
    pub fn with_number(&mut self, op: ScalarOp, x: ValueId, value: f64) -> Built {
        let own = self.ty(x)?.dtype;
        let dtype = if op.info().gives == Gives::Bool { DType::Bool } else { own };
        self.map(&[x], dtype, |e, r| {
            let c = e.constant(compute_type(own), value);
            e.push(op, &[r[0], c])
        })
    }

    /// a + b.
    ///
    /// # Errors
    /// As [`Builder::expr`].
    pub fn add(&mut self, a: ValueId, b: ValueId) -> Built {
        self.binary(ScalarOp::Add, a, b)
    }

    /// a − b.
    ///
    /// # Errors
    /// As [`Builder::expr`].
    pub fn sub(&mut self, a: ValueId, b: ValueId) -> Built {
        self.binary(ScalarOp::Sub, a, b)
    }

    /// a · b, element by element.
    ///
    /// # Errors
    /// As [`Builder::expr`].
    pub fn mul(&mut self, a: ValueId, b: ValueId) -> Built {
        self.binary(ScalarOp::Mul, a, b)
    }

    /// a / b.
    ///
    /// # Errors
    /// As [`Builder::expr`].
    pub fn div(&mut self, a: ValueId, b: ValueId) -> Built {
        self.binary(ScalarOp::Div, a, b)
    }

    /// x · factor.
    ///
    /// # Errors
    /// As [`Builder::expr`].
    pub fn scale(&mut self, x: ValueId, factor: f64) -> Built {
        self.with_number(ScalarOp::Mul, x, factor)
    }

    /// x · sigmoid(x).
    ///
    /// # Errors
    /// As [`Builder::expr`].
    pub fn silu(&mut self, x: ValueId) -> Built {
        self.unary(ScalarOp::Silu, x)
    }

    /// `a` where `condition` (bool) holds, else `b`.
    ///
    /// # Errors
    /// As [`Builder::expr`].
    pub fn select(&mut self, condition: ValueId, a: ValueId, b: ValueId) -> Built {
        self.scalar(ScalarOp::Where, &[condition, a, b])
    }

    /// `x` as `dtype`; `x` itself if it is already.
    ///
    /// # Errors
    /// A storage type on either side.
    pub fn cast(&mut self, x: ValueId, dtype: DType) -> Built {
        if self.ty(x)?.dtype == dtype {
            return Ok(x);
        }
        self.map(&[x], dtype, |e, r| e.cast(r[0], dtype))
    }

    // Views and moves.

    /// `x` under other extents.
    ///
    /// # Errors
    /// Another number of elements.
    pub fn reshape(&mut self, x: ValueId, dims: impl IntoIterator<Item = impl Into<Dim>>) -> Built {
        self.node("reshape", Attrs::new().with("shape", list(dims)), &[x])
    }

    /// `x` with its dimensions in the order `perm`.
    ///
    /// # Errors
    /// `perm` is no permutation of x's dimensions.
    pub fn transpose(&mut self, x: ValueId, perm: &[i64]) -> Built {
        self.node("transpose", Attrs::new().with("perm", perm.to_vec()), &[x])
    }

    /// `x` repeated to the extents `dims`.
    ///
    /// # Errors
    /// Extents that are neither 1 nor equal.
    pub fn broadcast(&mut self, x: ValueId, dims: impl IntoIterator<Item = impl Into<Dim>>) -> Built {
        self.node("broadcast", Attrs::new().with("shape", list(dims)), &[x])
    }

    /// Of each dimension of `x`, `sizes` elements from `starts` on.
    ///
    /// # Errors
    /// A window that leaves `x`; lists of another length than its rank.
    pub fn slice(
        &mut self,
        x: ValueId,
        starts: impl IntoIterator<Item = impl Into<Dim>>,
        sizes: impl IntoIterator<Item = impl Into<Dim>>,
    ) -> Built {
        let steps = vec![1i64; self.ty(x)?.rank()];
        let attrs = Attrs::new().with("starts", list(starts)).with("sizes", list(sizes)).with("steps", steps);
        self.node("slice", attrs, &[x])
    }

    /// `size` elements of dimension `axis` of `x` from `start` on; every other dimension whole.
    ///
    /// # Errors
    /// A window that leaves `x`; no such axis.
    pub fn narrow(&mut self, x: ValueId, axis: usize, start: impl Into<Dim>, size: impl Into<Dim>) -> Built {
        let mut sizes = self.shape(x)?;
        let mut starts = vec![Dim::from(0i64); sizes.len()];
        let rank = sizes.len();
        let (Some(a), Some(b)) = (starts.get_mut(axis), sizes.get_mut(axis)) else {
            let why = format!("axis {axis} of a value of rank {rank}");
            return Err(refuse("slice", OpError::Value(why)));
        };
        (*a, *b) = (start.into(), size.into());
        self.slice(x, starts, sizes)
    }

    /// The operands one after another along `axis`.
    ///
    /// # Errors
    /// Other extents or types differ.
    pub fn concat(&mut self, inputs: &[ValueId], axis: i64) -> Built {
        self.node("concat", Attrs::new().with("axis", axis), inputs)
    }

    /// Slices of `table` along `axis`, chosen by `indices`. A block-format table decodes to f32.
    ///
    /// # Errors
    /// Indices that are not i32 or i64; no such axis.
    pub fn gather(&mut self, table: ValueId, indices: ValueId, axis: i64) -> Built {
        self.node("gather", Attrs::new().with("axis", axis), &[table, indices])
    }

    /// Rows of `table`, chosen by `indices` and given as `dtype`: block formats decode to it, others are cast.
    ///
    /// # Errors
    /// As [`Builder::gather`].
    pub fn embed(&mut self, table: ValueId, indices: ValueId, dtype: DType) -> Built {
        if self.ty(table)?.dtype.is_block() {
            let attrs = Attrs::new().with("axis", 0i64).with("dtype", dtype);
            return self.node("gather", attrs, &[table, indices]);
        }
        let rows = self.gather(table, indices, 0)?;
        self.cast(rows, dtype)
    }

    // Reductions and products.

    /// `x` combined over `axes`; with `keep` they stay as extents of 1.
    ///
    /// # Errors
    /// No such axis; a type that the reduction does not take.
    pub fn reduce(&mut self, how: Reduce, x: ValueId, axes: &[i64], keep: bool) -> Built {
        let attrs = Attrs::new().with("op", how.name()).with("axes", axes.to_vec()).with("keep", keep);
        self.node("reduce", attrs, &[x])
    }

    /// Softmax along `axis`.
    ///
    /// # Errors
    /// No such axis; not a float.
    pub fn softmax(&mut self, x: ValueId, axis: i64) -> Built {
        self.node("softmax", Attrs::new().with("axis", axis).with("log", false), &[x])
    }

    /// Running sums of `x` along `axis`: up to and with each element, with `exclusive` without it, with `reverse` from the end.
    ///
    /// # Errors
    /// No such axis; neither floats nor integers.
    pub fn cumsum(&mut self, x: ValueId, axis: i64, exclusive: bool, reverse: bool) -> Built {
        let attrs = Attrs::new().with("axis", axis).with("exclusive", exclusive).with("reverse", reverse);
        self.node("cumsum", attrs, &[x])
    }

    /// The elements of `x` along `axis` in order, and their indices along it (i32, as [`Builder::gather`] takes them). Equal
    /// elements keep their order, NaN is above every number.
    ///
    /// # Errors
    /// No such axis; a storage type; an axis of more elements than i32 can count.
    pub fn sort(
        &mut self,
        x: ValueId,
        axis: i64,
        descending: bool,
    ) -> Result<(ValueId, ValueId), GraphError> {
        let attrs = Attrs::new().with("axis", axis).with("descending", descending);
        let all = self.push("sort", attrs, &[x])?;
        Ok((all[0], all[1]))
    }

    /// The `k` largest elements of `x` along `axis`, the largest first, or the smallest, the smallest first, and their indices
    /// along it. What comes first of equal elements, and NaN, as in [`Builder::sort`].
    ///
    /// # Errors
    /// As [`Builder::sort`]; `k` is negative or more than there are.
    pub fn top_k(
        &mut self,
        x: ValueId,
        axis: i64,
        k: impl Into<Dim>,
        largest: bool,
    ) -> Result<(ValueId, ValueId), GraphError> {
        let attrs = Attrs::new().with("axis", axis).with("k", k.into()).with("largest", largest);
        let all = self.push("top_k", attrs, &[x])?;
        Ok((all[0], all[1]))
    }

    /// `a [..., M, K]` times `b [..., K, N]`.
    ///
    /// # Errors
    /// Types or inner extents that differ; batch dimensions that do not broadcast.
    pub fn matmul(&mut self, a: ValueId, b: ValueId) -> Built {
        self.node("matmul", Attrs::new(), &[a, b])
    }

    /// A block-format `x` decoded to `dtype`.
    ///
    /// # Errors
    /// `x` is in no block format; `dtype` is not f32, f16 or bf16.
    pub fn dequantize(&mut self, x: ValueId, dtype: DType) -> Built {
        self.node("dequantize", Attrs::new().with("dtype", dtype), &[x])
    }

    /// `x [..., K]` times the transpose of the weight `w [N, K]`, which is a float type or a block format: `[..., N]` in x's
    /// type. `x` has at least two dimensions.
    ///
    /// # Errors
    /// `w` has not rank 2; K differs.
    pub fn linear_weight(&mut self, x: ValueId, w: ValueId) -> Built {
        let (dtype, weight) = (self.ty(x)?.dtype, self.ty(w)?.dtype);
        let w = if weight.is_block() { self.dequantize(w, dtype)? } else { self.cast(w, dtype)? };
        let t = self.transpose(w, &[1, 0])?;
        self.matmul(x, t)
    }
}

fn list(dims: impl IntoIterator<Item = impl Into<Dim>>) -> Vec<Attr> {
    dims.into_iter().map(|d| Attr::from(d.into())).collect()
}
