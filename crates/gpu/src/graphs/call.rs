//! Calls to the vendor's graph compiler as data: each variant stands for a method of MPSGraph, a [`Program`] for a graph
//! built of them. Shapes are known when a program is built, so whoever carries one out infers nothing.
//!
//! A call means what Apple's documentation says of its method and no more: where that leaves something open (what becomes of
//! a number that does not fit an integer, of an index out of range), lowering must not depend on it.

use frit_ir::DType;

/// Number of a value: the call that makes it.
pub type Value = usize;

/// Elementwise calls of one argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unary {
    /// `identityWithTensor:name:`.
    Identity,
    /// `exponentWithTensor:name:`.
    Exponent,
    /// `logarithmWithTensor:name:`, natural.
    Logarithm,
    /// `squareRootWithTensor:name:`.
    SquareRoot,
    /// `absoluteWithTensor:name:`.
    Absolute,
    /// `negativeWithTensor:name:`.
    Negative,
    /// `sinWithTensor:name:`.
    Sin,
    /// `cosWithTensor:name:`.
    Cos,
    /// `tanWithTensor:name:`.
    Tan,
    /// `atanWithTensor:name:`.
    Atan,
    /// `tanhWithTensor:name:`.
    Tanh,
    /// `erfWithTensor:name:`.
    Erf,
    /// `sigmoidWithTensor:name:`.
    Sigmoid,
    /// `rintWithTensor:name:`, halves to even.
    Rint,
    /// `floorWithTensor:name:`.
    Floor,
    /// `ceilWithTensor:name:`.
    Ceil,
    /// `notWithTensor:name:`, of bool.
    Not,
}

/// Elementwise calls of two arguments, which broadcast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binary {
    /// `additionWithPrimaryTensor:secondaryTensor:name:`; the others likewise.
    Addition,
    /// `subtraction…`.
    Subtraction,
    /// `multiplication…`.
    Multiplication,
    /// `division…`.
    Division,
    /// `maximumWithNaNPropagation…`.
    Maximum,
    /// `minimumWithNaNPropagation…`.
    Minimum,
    /// `equal…`, gives bool.
    Equal,
    /// `notEqual…`, gives bool.
    NotEqual,
    /// `lessThan…`, gives bool.
    LessThan,
    /// `lessThanOrEqualTo…`, gives bool.
    LessThanOrEqual,
    /// `greaterThan…`, gives bool.
    GreaterThan,
    /// `greaterThanOrEqualTo…`, gives bool.
    GreaterThanOrEqual,
    /// `logicalAND…`, of bool.
    And,
    /// `logicalOR…`, of bool.
    Or,
    /// `logicalXOR…`, of bool.
    Xor,
}

impl Binary {
    fn compares(self) -> bool {
        use Binary::{Equal, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual, NotEqual};
        matches!(self, Equal | NotEqual | LessThan | LessThanOrEqual | GreaterThan | GreaterThanOrEqual)
    }
}

/// Reductions over axes, which stay with an extent of 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// `reductionSumWithTensor:axes:name:`.
    Sum,
    /// `reductionProductWithTensor:axes:name:`.
    Product,
    /// `reductionMaximumPropagateNaNWithTensor:axes:name:`.
    Maximum,
    /// `reductionMinimumPropagateNaNWithTensor:axes:name:`.
    Minimum,
    /// `reductionAndWithTensor:axes:name:`, of bool.
    And,
    /// `reductionOrWithTensor:axes:name:`, of bool.
    Or,
}

/// How `padTensor` fills.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Padding {
    /// `MPSGraphPaddingModeConstant`.
    Constant(f64),
    /// `MPSGraphPaddingModeReflect`, without the edge.
    Reflect,
    /// `MPSGraphPaddingModeClampToEdge`.
    ClampToEdge,
}

/// One call. Shape and type of its result stand in its [`Node`].
#[derive(Clone, Debug, PartialEq)]
pub enum Call {
    /// `placeholderWithShape:dataType:name:`: feed of this number, a line of elements.
    Placeholder(usize),
    /// `constantWithData:shape:dataType:`: constant of this number, a line of elements.
    Constant(usize),
    /// `constantWithScalar:shape:dataType:` of one element.
    Scalar(f64),
    /// An elementwise call.
    Unary(Unary, Value),
    /// An elementwise call.
    Binary(Binary, Value, Value),
    /// `selectWithPredicateTensor:truePredicateTensor:falsePredicateTensor:name:`.
    Select(Value, Value, Value),
    /// `castTensor:toType:name:`.
    Cast(Value),
    /// `reshapeTensor:withShape:name:`.
    Reshape(Value),
    /// `transposeTensor:permutation:name:`: dimension `i` of the result is dimension `permutation[i]`.
    Transpose(Value, Vec<usize>),
    /// `sliceTensor:starts:ends:strides:name:` with strides of 1.
    Slice(Value, Vec<usize>),
    /// `broadcastTensor:toShape:name:`.
    Broadcast(Value),
    /// `concatTensors:dimension:name:`.
    Concat(Vec<Value>, usize),
    /// `reverseTensor:axes:name:`.
    Reverse(Value, Vec<usize>),
    /// `padTensor:withPaddingMode:leftPadding:rightPadding:constantValue:name:`: elements before and after.
    Pad(Value, Vec<usize>, Vec<usize>, Padding),
    /// A reduction over these axes.
    Reduce(Reduction, Value, Vec<usize>),
    /// `softMaxWithTensor:axis:name:`.
    SoftMax(Value, usize),
    /// `matrixMultiplicationWithPrimaryTensor:secondaryTensor:name:` of operands of one rank.
    MatrixMultiplication(Value, Value),
    /// `gatherWithUpdatesTensor:indicesTensor:axis:batchDimensions:name:` without batch dimensions, indices i32 and in range.
    Gather(Value, Value, usize),
    /// `coordinateAlongAxis:withShape:name:`, i32.
    Coordinate(usize),
}

/// A call with the type and shape of its result.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The call.
    pub call: Call,
    /// Element type.
    pub dtype: DType,
    /// Extents, outermost first, none of them 0.
    pub shape: Vec<usize>,
}

/// A line of elements in memory that is handed to a program or taken from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// Element type.
    pub dtype: DType,
    /// Number of elements.
    pub elements: usize,
    /// Of a feed: how many at its begin the program does not look at; they are there to align the rest.
    pub skip: usize,
}

impl Line {
    /// Bytes at its begin that the program does not look at.
    pub fn skipped(&self) -> u64 {
        (self.skip * self.dtype.info().unit_bytes) as u64
    }

    /// Bytes of it.
    pub fn bytes(&self) -> u64 {
        (self.elements * self.dtype.info().unit_bytes) as u64
    }
}

/// A graph: calls in order, each reading earlier ones.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program {
    /// The calls.
    pub nodes: Vec<Node>,
    /// What placeholders stand for.
    pub feeds: Vec<Line>,
    /// What constants stand for.
    pub constants: Vec<Line>,
    /// Its results, lines each.
    pub results: Vec<Value>,
}

/// The shape to which `a` and `b` broadcast.
fn broadcast(a: &[usize], b: &[usize]) -> Vec<usize> {
    let rank = a.len().max(b.len());
    let at = |s: &[usize], i: usize| (i + s.len()).checked_sub(rank).map_or(1, |i| s[i]);
    (0..rank).map(|i| at(a, i).max(at(b, i))).collect()
}

impl Program {
    /// Appends a call; `shape` and `dtype` are those of its result.
    pub fn push(&mut self, call: Call, dtype: DType, shape: &[usize]) -> Value {
        self.nodes.push(Node { call, dtype, shape: shape.to_vec() });
        self.nodes.len() - 1
    }

    /// Type of a value.
    pub fn dtype(&self, v: Value) -> DType {
        self.nodes[v].dtype
    }

    /// Extents of a value.
    pub fn shape(&self, v: Value) -> &[usize] {
        &self.nodes[v].shape
    }

    /// Number of elements of a value.
    pub fn elements(&self, v: Value) -> usize {
        self.shape(v).iter().product()
    }

    /// One element, as a shape of one dimension, which broadcasts to any.
    pub fn scalar(&mut self, value: f64, dtype: DType) -> Value {
        self.push(Call::Scalar(value), dtype, &[1])
    }

    /// An elementwise call.
    pub fn unary(&mut self, op: Unary, x: Value) -> Value {
        let (dtype, shape) = (self.dtype(x), self.shape(x).to_vec());
        self.push(Call::Unary(op, x), dtype, &shape)
    }

    /// An elementwise call; both arguments have one type.
    pub fn binary(&mut self, op: Binary, a: Value, b: Value) -> Value {
        let dtype = if op.compares() { DType::Bool } else { self.dtype(a) };
        let shape = broadcast(self.shape(a), self.shape(b));
        self.push(Call::Binary(op, a, b), dtype, &shape)
    }

    /// An elementwise call with a number.
    pub fn with(&mut self, op: Binary, x: Value, number: f64) -> Value {
        let number = self.scalar(number, self.dtype(x));
        self.binary(op, x, number)
    }

    /// `yes` where `when` holds, else `no`; both have one type.
    pub fn select(&mut self, when: Value, yes: Value, no: Value) -> Value {
        let shape = broadcast(self.shape(when), &broadcast(self.shape(yes), self.shape(no)));
        self.push(Call::Select(when, yes, no), self.dtype(yes), &shape)
    }

    /// `x` in another type; `x` itself if it has it.
    pub fn cast(&mut self, x: Value, to: DType) -> Value {
        let shape = self.shape(x).to_vec();
        if self.dtype(x) == to { x } else { self.push(Call::Cast(x), to, &shape) }
    }

    /// `x` with other extents of as many elements; `x` itself if it has them.
    pub fn reshape(&mut self, x: Value, shape: &[usize]) -> Value {
        let dtype = self.dtype(x);
        if self.shape(x) == shape { x } else { self.push(Call::Reshape(x), dtype, shape) }
    }

    /// `x` as a line.
    pub fn flat(&mut self, x: Value) -> Value {
        self.reshape(x, &[self.elements(x)])
    }

    /// Dimension `i` of the result is dimension `permutation[i]`; `x` itself if that is the same.
    pub fn transpose(&mut self, x: Value, permutation: &[usize]) -> Value {
        if permutation.iter().enumerate().all(|(i, p)| i == *p) {
            return x;
        }
        let shape: Vec<usize> = permutation.iter().map(|p| self.shape(x)[*p]).collect();
        self.push(Call::Transpose(x, permutation.to_vec()), self.dtype(x), &shape)
    }

    /// `x` with its last two dimensions exchanged.
    pub fn turned(&mut self, x: Value) -> Value {
        let rank = self.shape(x).len();
        let mut all: Vec<usize> = (0..rank).collect();
        all.swap(rank - 2, rank - 1);
        self.transpose(x, &all)
    }

    /// `shape` elements from `starts` on; `x` itself if that is all of it.
    pub fn slice(&mut self, x: Value, starts: &[usize], shape: &[usize]) -> Value {
        let dtype = self.dtype(x);
        if self.shape(x) == shape { x } else { self.push(Call::Slice(x, starts.to_vec()), dtype, shape) }
    }

    /// `x` repeated to `shape`; `x` itself if it has it.
    pub fn broadcast(&mut self, x: Value, shape: &[usize]) -> Value {
        let dtype = self.dtype(x);
        if self.shape(x) == shape { x } else { self.push(Call::Broadcast(x), dtype, shape) }
    }

    /// Values of one type and rank, one behind the other along `axis`.
    pub fn concat(&mut self, all: &[Value], axis: usize) -> Value {
        let mut shape = self.shape(all[0]).to_vec();
        shape[axis] = all.iter().map(|v| self.shape(*v)[axis]).sum();
        self.push(Call::Concat(all.to_vec(), axis), self.dtype(all[0]), &shape)
    }

    /// A reduction; the axes stay with an extent of 1.
    pub fn reduce(&mut self, how: Reduction, x: Value, axes: &[usize]) -> Value {
        let mut shape = self.shape(x).to_vec();
        axes.iter().for_each(|a| shape[*a] = 1);
        self.push(Call::Reduce(how, x, axes.to_vec()), self.dtype(x), &shape)
    }

    /// Products of matrices of one type and rank, batch dimensions broadcast.
    pub fn multiply(&mut self, a: Value, b: Value) -> Value {
        let rank = self.shape(a).len();
        let mut shape = broadcast(&self.shape(a)[..rank - 2], &self.shape(b)[..rank - 2]);
        shape.extend([self.shape(a)[rank - 2], self.shape(b)[rank - 1]]);
        self.push(Call::MatrixMultiplication(a, b), self.dtype(a), &shape)
    }

    /// i32 coordinates along `axis` of `shape`.
    pub fn coordinate(&mut self, axis: usize, shape: &[usize]) -> Value {
        self.push(Call::Coordinate(axis), DType::I32, shape)
    }

    /// What its results are.
    pub fn result_lines(&self) -> Vec<Line> {
        self.results
            .iter()
            .map(|v| Line { dtype: self.dtype(*v), elements: self.elements(*v), skip: 0 })
            .collect()
    }

    /// The values that a call reads.
    pub fn arguments(call: &Call) -> Vec<Value> {
        match call {
            Call::Placeholder(_) | Call::Constant(_) | Call::Scalar(_) | Call::Coordinate(_) => vec![],
            Call::Unary(_, x)
            | Call::Cast(x)
            | Call::Reshape(x)
            | Call::Transpose(x, _)
            | Call::Slice(x, _)
            | Call::Broadcast(x)
            | Call::Reverse(x, _)
            | Call::Pad(x, ..)
            | Call::Reduce(_, x, _)
            | Call::SoftMax(x, _) => vec![*x],
            Call::Binary(_, a, b) | Call::MatrixMultiplication(a, b) | Call::Gather(a, b, _) => vec![*a, *b],
            Call::Select(a, b, c) => vec![*a, *b, *c],
            Call::Concat(all, _) => all.clone(),
        }
    }
}
