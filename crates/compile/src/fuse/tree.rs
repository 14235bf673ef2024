//! A value as a tree of scalar operations, looking through `expr` nodes: what patterns that recognize formulas match on.

use frit_ir::DType;
use frit_ir::expr::{Expr, Ref, ScalarOp};
use frit_ir::graph::ValueId;

use crate::work::Work;

/// Largest number of nodes of a tree; a larger value is a leaf.
const MAX_NODES: usize = 128;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Tree {
    /// A value that is not looked into.
    Leaf(ValueId),
    /// A constant.
    Const(f64),
    Op(ScalarOp, Vec<Tree>),
    /// A value rounded to a narrower type.
    Rounded(DType, Box<Tree>),
}

use Tree::{Const, Leaf, Op, Rounded};

impl Tree {
    /// The two arguments of a binary operation.
    pub fn binary(&self, op: ScalarOp) -> Option<(&Tree, &Tree)> {
        match self {
            Op(o, args) if *o == op && args.len() == 2 => Some((&args[0], &args[1])),
            _ => None,
        }
    }

    /// The arguments of a commutative operation in both orders.
    pub fn either(&self, op: ScalarOp) -> impl Iterator<Item = (&Tree, &Tree)> {
        self.binary(op).into_iter().flat_map(|(a, b)| [(a, b), (b, a)])
    }

    /// The argument of a unary operation.
    pub fn unary(&self, op: ScalarOp) -> Option<&Tree> {
        match self {
            Op(o, args) if *o == op && args.len() == 1 => Some(&args[0]),
            _ => None,
        }
    }

    pub fn constant(&self) -> Option<f64> {
        if let Const(v) = self { Some(*v) } else { None }
    }

    pub fn leaf(&self) -> Option<ValueId> {
        if let Leaf(v) = self { Some(*v) } else { None }
    }

    /// Every leaf, with repetitions.
    pub fn leaves(&self, into: &mut Vec<ValueId>) {
        match self {
            Leaf(v) => into.push(*v),
            Const(_) => {}
            Op(_, args) => args.iter().for_each(|a| a.leaves(into)),
            Rounded(_, t) => t.leaves(into),
        }
    }

    /// x of x·x or x².
    pub fn squared(&self) -> Option<&Tree> {
        let product = self.binary(ScalarOp::Mul).filter(|(a, b)| a == b).map(|(a, _)| a);
        product.or_else(|| self.binary(ScalarOp::Pow).filter(|(_, e)| **e == Const(2.0)).map(|(a, _)| a))
    }

    /// x of 1/√x, however it is written.
    pub fn inverse_root(&self) -> Option<&Tree> {
        if let Some(x) = self.unary(ScalarOp::Rsqrt) {
            return Some(x);
        }
        if let Some((one, r)) = self.binary(ScalarOp::Div) {
            return r.root().filter(|_| *one == Const(1.0));
        }
        let (x, e) = self.binary(ScalarOp::Pow)?;
        (*e == Const(-0.5)).then_some(x)
    }

    /// x of √x.
    fn root(&self) -> Option<&Tree> {
        if let Some(x) = self.unary(ScalarOp::Sqrt) {
            return Some(x);
        }
        let (x, e) = self.binary(ScalarOp::Pow)?;
        (*e == Const(0.5)).then_some(x)
    }

    /// (x, y) of x/√y, however it is written.
    pub fn over_root(&self) -> Option<(&Tree, &Tree)> {
        if let Some((x, d)) = self.binary(ScalarOp::Div)
            && let Some(y) = d.root()
        {
            return Some((x, y));
        }
        self.either(ScalarOp::Mul).find_map(|(x, r)| r.inverse_root().map(|y| (x, y)))
    }
}

/// The tree of `v`. Values in `stops`, values that no `expr` node makes and values beyond the size limit are leaves;
/// one-element constants are constants.
pub(super) fn tree(w: &Work, v: ValueId, stops: &[ValueId]) -> Tree {
    let mut budget = MAX_NODES;
    build(w, v, stops, &mut budget).unwrap_or(Leaf(v))
}

fn build(w: &Work, v: ValueId, stops: &[ValueId], budget: &mut usize) -> Option<Tree> {
    *budget = budget.checked_sub(1)?;
    if stops.contains(&v) {
        return Some(Leaf(v));
    }
    if let Some(t) = w.constant(v).filter(|t| t.len() == 1) {
        return Some(t.to_f64().ok().and_then(|v| v.first().copied()).map_or(Leaf(v), Const));
    }
    let Some((n, which)) = w.producer(v) else { return Some(Leaf(v)) };
    let node = w.node(n);
    let Ok(e) = node.attrs.expr("expr") else { return Some(Leaf(v)) };
    if &*node.op != "expr" {
        return Some(Leaf(v));
    }
    let o = e.outputs[which as usize];
    let t = step(w, &e, &node.inputs, o.value, stops, budget)?;
    Some(rounded(e.value_type(o.value), o.dtype, t))
}

/// A conversion from `from` to `to`; one that loses nothing is not seen.
fn rounded(from: DType, to: DType, t: Tree) -> Tree {
    let wide = |d: DType| d == DType::F64 || d == DType::F32;
    let exact = from == to || (from.is_float() && wide(to) && !(from == DType::F64 && to == DType::F32));
    if exact { t } else { Rounded(to, Box::new(t)) }
}

fn step(
    w: &Work,
    e: &Expr,
    inputs: &[ValueId],
    r: Ref,
    stops: &[ValueId],
    budget: &mut usize,
) -> Option<Tree> {
    let Some(i) = (r as usize).checked_sub(e.inputs.len()) else {
        return build(w, inputs[r as usize], stops, budget);
    };
    *budget = budget.checked_sub(1)?;
    let s = &e.steps[i];
    match s.op {
        ScalarOp::Const if s.dtype.is_float() => Some(Const(f64::from_bits(s.imm))),
        ScalarOp::Const => Some(Const(s.imm as i64 as f64)),
        ScalarOp::Cast => {
            let t = step(w, e, inputs, s.args[0], stops, budget)?;
            Some(rounded(e.value_type(s.args[0]), s.dtype, t))
        }
        op => {
            let args = s.args.iter().map(|a| step(w, e, inputs, *a, stops, budget)).collect::<Option<_>>()?;
            Some(Op(op, args))
        }
    }
}
