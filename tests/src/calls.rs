//! An interpreter of the calls that stretches of a schedule become, for machines without the compiler that they are for. It
//! computes what Apple's documentation says of each method, every result rounded to its type, and refuses whatever the
//! documentation leaves open: a number that does not fit, an index out of range, types that differ.

use frit_gpu::graphs::call::{Binary, Call, Node, Padding, Program, Reduction, Unary, Value};
use frit_ir::dtype::Kind;
use frit_ir::expr::Scalar;
use frit_ir::{DType, Tensor};

/// Elements of a value in order.
type Elements = Vec<Scalar>;

/// The elements of a line in memory.
///
/// # Errors
/// Bytes that are no whole elements.
fn read(dtype: DType, bytes: &[u8]) -> Result<Elements, String> {
    let n = bytes.len() / dtype.info().unit_bytes;
    let t = Tensor::new(dtype, &[n], bytes.to_vec()).map_err(|e| e.to_string())?;
    if dtype.is_float() {
        return Ok(t.to_f64().map_err(|e| e.to_string())?.into_iter().map(Scalar::Float).collect());
    }
    let width = dtype.info().unit_bytes;
    let signed = dtype.info().kind == Kind::Signed;
    let one = |b: &[u8]| {
        let negative = signed && b[width - 1] & 0x80 != 0;
        let mut all = [if negative { 0xff } else { 0 }; 8];
        all[..width].copy_from_slice(b);
        Scalar::Int(i64::from_le_bytes(all))
    };
    Ok(bytes.chunks_exact(width).map(one).collect())
}

/// The bytes of a line in memory.
fn write(dtype: DType, elements: &[Scalar]) -> Result<Vec<u8>, String> {
    if dtype.is_float() {
        let v: Vec<f64> = elements.iter().map(|s| s.to_f64()).collect();
        let t = Tensor::from_f64(dtype, &[v.len()], &v).map_err(|e| e.to_string())?;
        return Ok(t.bytes().to_vec());
    }
    let width = dtype.info().unit_bytes;
    Ok(elements.iter().flat_map(|s| int(*s).to_le_bytes()[..width].to_vec()).collect())
}

fn int(s: Scalar) -> i64 {
    match s {
        Scalar::Int(v) => v,
        Scalar::Float(v) => v as i64,
    }
}

/// Row-major strides.
fn strides(shape: &[usize]) -> Vec<usize> {
    let mut all = vec![1; shape.len()];
    for i in (1..shape.len()).rev() {
        all[i - 1] = all[i] * shape[i];
    }
    all
}

/// The index of element `n`.
fn index(mut n: usize, shape: &[usize]) -> Vec<usize> {
    let mut at = vec![0; shape.len()];
    for (i, extent) in shape.iter().enumerate().rev() {
        (at[i], n) = (n % extent, n / extent);
    }
    at
}

fn place(index: &[usize], strides: &[usize]) -> usize {
    index.iter().zip(strides).map(|(i, s)| i * s).sum()
}

/// Whether `from` broadcasts to `to`, and where in it the element at `at` lies.
fn broadcast(from: &[usize], to: &[usize], at: &[usize]) -> Result<usize, String> {
    let lead = to
        .len()
        .checked_sub(from.len())
        .ok_or_else(|| format!("{from:?} has more dimensions than {to:?}"))?;
    let steps = strides(from);
    let mut n = 0;
    for (i, extent) in from.iter().enumerate() {
        match (*extent, to[lead + i]) {
            (1, _) => {}
            (a, b) if a == b => n += at[lead + i] * steps[i],
            _ => return Err(format!("{from:?} does not broadcast to {to:?}")),
        }
    }
    Ok(n)
}

/// A program with what was computed so far.
struct State<'a> {
    program: &'a Program,
    values: Vec<Elements>,
}

/// Runs a program on the bytes of its feeds and constants, and gives those of its results.
///
/// # Errors
/// A line that says which call asks for what is not documented, or does not fit its arguments.
pub fn run(program: &Program, feeds: &[Vec<u8>], constants: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, String> {
    let mut s = State { program, values: Vec::with_capacity(program.nodes.len()) };
    for (i, n) in program.nodes.iter().enumerate() {
        let bad = |why: String| format!("call {i}, {n:?}: {why}");
        if Program::arguments(&n.call).iter().any(|v| *v >= i) {
            return Err(bad("an argument comes later".into()));
        }
        let v = s.call(n, feeds, constants).map_err(bad)?;
        if v.len() != n.shape.iter().product::<usize>() || v.is_empty() {
            return Err(bad(format!("it gives {} elements", v.len())));
        }
        s.values.push(v);
    }
    let result = |v: &Value| {
        let n = &program.nodes[*v];
        match n.call {
            Call::Placeholder(_) | Call::Constant(_) => Err("a result that no call computes".into()),
            _ if n.shape.len() != 1 => Err("a result that is no line".into()),
            _ => write(n.dtype, &s.values[*v]),
        }
    };
    program.results.iter().map(result).collect()
}

impl State<'_> {
    fn node(&self, v: Value) -> &Node {
        &self.program.nodes[v]
    }

    /// `n.shape` elements, each by its index.
    fn each(n: &Node, f: impl Fn(&[usize]) -> Result<Scalar, String>) -> Result<Elements, String> {
        (0..n.shape.iter().product()).map(|i| f(&index(i, &n.shape))).collect()
    }

    /// The element of `v` that stands at `at` of a value of `shape` to which it broadcasts.
    fn spread(&self, v: Value, shape: &[usize], at: &[usize]) -> Result<Scalar, String> {
        Ok(self.values[v][broadcast(&self.node(v).shape, shape, at)?])
    }

    /// Refuses arguments that are not all of type `d`.
    fn typed(&self, d: DType, all: &[Value]) -> Result<(), String> {
        let other = all.iter().map(|v| self.node(*v).dtype).find(|t| *t != d);
        other.map_or(Ok(()), |t| Err(format!("an argument of {t} where {d} is wanted")))
    }

    fn call(&self, n: &Node, feeds: &[Vec<u8>], constants: &[Vec<u8>]) -> Result<Elements, String> {
        match &n.call {
            Call::Placeholder(i) => read(n.dtype, feeds.get(*i).ok_or("there is no such feed")?),
            Call::Constant(i) => read(n.dtype, constants.get(*i).ok_or("there is no such constant")?),
            Call::Scalar(v) => {
                let s = if n.dtype.is_float() { Scalar::Float(*v) } else { Scalar::Int(*v as i64) };
                Ok(vec![s.cast(n.dtype, n.dtype)])
            }
            Call::Unary(op, x) => self.unary(n, *op, *x),
            Call::Binary(op, a, b) => self.binary(n, *op, *a, *b),
            Call::Select(when, yes, no) => {
                self.typed(DType::Bool, &[*when])?;
                self.typed(n.dtype, &[*yes, *no])?;
                Self::each(n, |at| {
                    let holds = int(self.spread(*when, &n.shape, at)?) != 0;
                    self.spread(if holds { *yes } else { *no }, &n.shape, at)
                })
            }
            Call::Cast(x) => self.cast(n, *x),
            Call::Coordinate(axis) => Self::each(n, |at| Ok(Scalar::Int(at[*axis] as i64))),
            Call::Reduce(how, x, axes) => self.reduce(n, *how, *x, axes),
            Call::SoftMax(x, axis) => self.softmax(n, *x, *axis),
            Call::MatrixMultiplication(a, b) => self.multiply(n, *a, *b),
            Call::Gather(table, indices, axis) => self.gather(n, *table, *indices, *axis),
            moves => self.moved(n, moves),
        }
    }

    fn unary(&self, n: &Node, op: Unary, x: Value) -> Result<Elements, String> {
        self.typed(n.dtype, &[x])?;
        let f: fn(f64) -> f64 = match op {
            Unary::Identity => return Ok(self.values[x].clone()),
            Unary::Not => |v| f64::from(v == 0.0),
            Unary::Exponent => f64::exp,
            Unary::Logarithm => f64::ln,
            Unary::SquareRoot => f64::sqrt,
            Unary::Absolute => f64::abs,
            Unary::Negative => |v| -v,
            Unary::Sin => f64::sin,
            Unary::Cos => f64::cos,
            Unary::Tan => f64::tan,
            Unary::Atan => f64::atan,
            Unary::Tanh => f64::tanh,
            Unary::Erf => |v| scalar(frit_ir::ScalarOp::Erf, v),
            Unary::Sigmoid => |v| scalar(frit_ir::ScalarOp::Sigmoid, v),
            Unary::Rint => f64::round_ties_even,
            Unary::Floor => f64::floor,
            Unary::Ceil => f64::ceil,
        };
        let wanted = if op == Unary::Not { DType::Bool } else { DType::F32 };
        self.typed(wanted, &[x])?;
        Ok(self.values[x].iter().map(|v| Scalar::Float(f(v.to_f64())).cast(n.dtype, n.dtype)).collect())
    }

    fn binary(&self, n: &Node, op: Binary, a: Value, b: Value) -> Result<Elements, String> {
        use Binary as B;
        let of = self.node(a).dtype;
        self.typed(of, &[b])?;
        let truth = matches!(op, B::And | B::Or | B::Xor);
        let compares = matches!(
            op,
            B::Equal
                | B::NotEqual
                | B::LessThan
                | B::LessThanOrEqual
                | B::GreaterThan
                | B::GreaterThanOrEqual
        );
        if truth != (of == DType::Bool) && !(compares && of == DType::Bool) {
            return Err(format!("{op:?} of {of}"));
        }
        let sums = matches!(op, B::Addition | B::Subtraction | B::Multiplication);
        if !of.is_float() && !truth && !compares && !sums {
            return Err(format!("{op:?} of {of} is not stated"));
        }
        Self::each(n, |at| {
            let (x, y) = (self.spread(a, &n.shape, at)?, self.spread(b, &n.shape, at)?);
            match (x, y) {
                (Scalar::Int(x), Scalar::Int(y)) => whole(op, x, y, of),
                _ => Ok(Scalar::Float(real(op, x.to_f64(), y.to_f64())).cast(DType::F64, n.dtype)),
            }
        })
    }

    fn cast(&self, n: &Node, x: Value) -> Result<Elements, String> {
        let (from, to) = (self.node(x).dtype, n.dtype);
        let one = |v: &Scalar| {
            let cast = v.cast(from, to);
            let same = from.is_float() && to.is_float()
                || cast.to_f64() == v.to_f64()
                || !from.is_float() && to == DType::F32;
            match same && (!from.is_float() || to.is_float()) {
                true => Ok(cast),
                false => Err(format!("a cast of {v:?} from {from} to {to} is not stated")),
            }
        };
        self.values[x].iter().map(one).collect()
    }

    fn reduce(&self, n: &Node, how: Reduction, x: Value, axes: &[usize]) -> Result<Elements, String> {
        let of = self.node(x);
        let truth = matches!(how, Reduction::And | Reduction::Or);
        if truth != (of.dtype == DType::Bool) || !truth && of.dtype != DType::F32 {
            return Err(format!("a reduction of {}", of.dtype));
        }
        let (f, start): (fn(f64, f64) -> f64, f64) = match how {
            Reduction::Sum => (|a, b| a + b, 0.0),
            Reduction::Product => (|a, b| a * b, 1.0),
            Reduction::Maximum => (|a, b| real(Binary::Maximum, a, b), f64::NEG_INFINITY),
            Reduction::Minimum => (|a, b| real(Binary::Minimum, a, b), f64::INFINITY),
            Reduction::And => (f64::min, 1.0),
            Reduction::Or => (f64::max, 0.0),
        };
        let mut out = vec![start; n.shape.iter().product()];
        let steps = strides(&n.shape);
        for (i, v) in self.values[x].iter().enumerate() {
            let mut at = index(i, &of.shape);
            axes.iter().for_each(|a| at[*a] = 0);
            let o = &mut out[place(&at, &steps)];
            // Sums are f32's, in order.
            *o = f64::from(f(*o, v.to_f64()) as f32);
        }
        let kept = |v: f64| if truth { Scalar::Int(v as i64) } else { Scalar::Float(v) };
        Ok(out.into_iter().map(kept).collect())
    }

    fn softmax(&self, n: &Node, x: Value, axis: usize) -> Result<Elements, String> {
        self.typed(DType::F32, &[x])?;
        let (steps, extent) = (strides(&n.shape), n.shape[axis]);
        let v: Vec<f64> = self.values[x].iter().map(|s| s.to_f64()).collect();
        Self::each(n, |at| {
            let base = place(at, &steps) - at[axis] * steps[axis];
            let row = (0..extent).map(|i| v[base + i * steps[axis]]);
            let top = row.clone().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = row.map(|v| (v - top).exp()).sum();
            let e = (v[place(at, &steps)] - top).exp();
            Ok(Scalar::Float(e / sum).cast(DType::F64, n.dtype))
        })
    }

    fn multiply(&self, n: &Node, a: Value, b: Value) -> Result<Elements, String> {
        self.typed(DType::F32, &[a, b])?;
        let (x, y, rank) = (self.node(a), self.node(b), n.shape.len());
        if x.shape.len() != rank || y.shape.len() != rank || rank < 2 {
            return Err("operands of different ranks".into());
        }
        let (k, columns) = (x.shape[rank - 1], y.shape[rank - 1]);
        if y.shape[rank - 2] != k || n.shape[rank - 2..] != [x.shape[rank - 2], columns] {
            return Err(format!("{:?} and {:?} do not multiply", x.shape, y.shape));
        }
        let batch = &n.shape[..rank - 2];
        Self::each(n, |at| {
            let matrix = |v: &Node| broadcast(&v.shape[..rank - 2], batch, &at[..rank - 2]);
            let (row, column) =
                (matrix(x)? * x.shape[rank - 2] + at[rank - 2], matrix(y)? * k * columns + at[rank - 1]);
            let (left, right) = (&self.values[a][row * k..], &self.values[b][column..]);
            let terms = (0..k).map(|i| left[i].to_f64() * right[i * columns].to_f64());
            Ok(Scalar::Float(f64::from(terms.fold(0.0f32, |sum, t| (f64::from(sum) + t) as f32))))
        })
    }

    fn gather(&self, n: &Node, table: Value, indices: Value, axis: usize) -> Result<Elements, String> {
        self.typed(DType::I32, &[indices])?;
        let (of, at_of) = (self.node(table), self.node(indices));
        let (steps, picks, rank) = (strides(&of.shape), strides(&at_of.shape), at_of.shape.len());
        Self::each(n, |at| {
            let row = int(self.values[indices][place(&at[axis..axis + rank], &picks)]);
            let row = usize::try_from(row).ok().filter(|r| *r < of.shape[axis]);
            let row = row.ok_or("an index out of range")?;
            let from: Vec<usize> =
                at[..axis].iter().chain([&row]).chain(&at[axis + rank..]).copied().collect();
            Ok(self.values[table][place(&from, &steps)])
        })
    }

    /// Calls that only move elements.
    fn moved(&self, n: &Node, call: &Call) -> Result<Elements, String> {
        let first = Program::arguments(call)[0];
        let (of, x) = (self.node(first), &self.values[first]);
        self.typed(n.dtype, &Program::arguments(call))?;
        let steps = strides(&of.shape);
        let from = |map: &dyn Fn(usize, usize) -> usize| {
            Self::each(n, |at| {
                let there: Vec<usize> = at.iter().enumerate().map(|(d, i)| map(d, *i)).collect();
                let inside = there.iter().zip(&of.shape).all(|(i, n)| i < n);
                let v = x.get(place(&there, &steps)).filter(|_| inside);
                v.copied().ok_or_else(|| "it leaves its argument".to_string())
            })
        };
        match call {
            Call::Reshape(_) => Ok(x.clone()),
            Call::Broadcast(_) => Self::each(n, |at| self.spread(first, &n.shape, at)),
            Call::Slice(_, starts) => from(&|d, i| starts[d] + i),
            Call::Reverse(_, axes) => from(&|d, i| if axes.contains(&d) { of.shape[d] - 1 - i } else { i }),
            Call::Transpose(_, p) => Self::each(n, |at| {
                let there: usize = p.iter().enumerate().map(|(i, from)| at[i] * steps[*from]).sum();
                Ok(x[there])
            }),
            Call::Concat(all, axis) => Self::each(n, |at| {
                let mut there = at.to_vec();
                for v in all {
                    let shape = &self.node(*v).shape;
                    if there[*axis] < shape[*axis] {
                        return Ok(self.values[*v][place(&there, &strides(shape))]);
                    }
                    there[*axis] -= shape[*axis];
                }
                Err("it joins fewer elements".into())
            }),
            Call::Pad(_, before, _, padding) => Self::each(n, |at| {
                let mut there = Vec::new();
                for (d, i) in at.iter().enumerate() {
                    let (i, end) = (*i as i64 - before[d] as i64, of.shape[d] as i64 - 1);
                    there.push(match padding {
                        _ if (0..=end).contains(&i) => i,
                        Padding::Constant(v) => return Ok(Scalar::Float(*v).cast(DType::F64, n.dtype)),
                        Padding::Reflect => {
                            if i < 0 {
                                -i
                            } else {
                                2 * end - i
                            }
                        }
                        Padding::ClampToEdge => i.clamp(0, end),
                    } as usize);
                }
                Ok(x[place(&there, &steps)])
            }),
            other => Err(format!("{other:?} moves nothing")),
        }
    }
}

fn scalar(op: frit_ir::ScalarOp, v: f64) -> f64 {
    (op.info().float)(&[v])
}

fn real(op: Binary, a: f64, b: f64) -> f64 {
    let truth = |t: bool| f64::from(u8::from(t));
    match op {
        Binary::Addition => a + b,
        Binary::Subtraction => a - b,
        Binary::Multiplication => a * b,
        Binary::Division => a / b,
        Binary::Maximum => {
            if a.is_nan() || b.is_nan() {
                f64::NAN
            } else {
                a.max(b)
            }
        }
        Binary::Minimum => {
            if a.is_nan() || b.is_nan() {
                f64::NAN
            } else {
                a.min(b)
            }
        }
        Binary::Equal => truth(a == b),
        Binary::NotEqual => truth(a != b),
        Binary::LessThan => truth(a < b),
        Binary::LessThanOrEqual => truth(a <= b),
        Binary::GreaterThan => truth(a > b),
        Binary::GreaterThanOrEqual => truth(a >= b),
        Binary::And => truth(a != 0.0 && b != 0.0),
        Binary::Or => truth(a != 0.0 || b != 0.0),
        Binary::Xor => truth((a != 0.0) != (b != 0.0)),
    }
}

/// Of integers, exactly; a sum that does not fit is not stated.
fn whole(op: Binary, a: i64, b: i64, d: DType) -> Result<Scalar, String> {
    let sum = match op {
        Binary::Addition => a.checked_add(b),
        Binary::Subtraction => a.checked_sub(b),
        Binary::Multiplication => a.checked_mul(b),
        // Unsigned 64-bit numbers are kept by their bits.
        _ if d == DType::U64 => {
            let (a, b) = (a as u64, b as u64);
            return Ok(Scalar::Int(real(op, f64::from(u8::from(a > b)), f64::from(u8::from(a < b))) as i64));
        }
        _ => {
            let order = match a.cmp(&b) {
                std::cmp::Ordering::Less => (0.0, 1.0),
                std::cmp::Ordering::Equal => (0.0, 0.0),
                std::cmp::Ordering::Greater => (1.0, 0.0),
            };
            let truth = matches!(op, Binary::And | Binary::Or | Binary::Xor);
            let (a, b) = if truth { (a as f64, b as f64) } else { order };
            return Ok(Scalar::Int(real(op, a, b) as i64));
        }
    };
    let fits = sum.map(Scalar::Int).filter(|s| s.cast(d, d) == *s);
    fits.ok_or_else(|| format!("{op:?} of {a} and {b} leaves {d}"))
}
