use super::*;
use frit_ir::expr::Scalar;
use frit_ir::{DType, Expr, ScalarOp, Tensor};

const GUARD: usize = 64;

/// Bytes with guards on both sides.
struct Guarded(Vec<u8>);

impl Guarded {
    fn new(bytes: usize) -> Guarded {
        Guarded(vec![0xA5; bytes + 2 * GUARD])
    }

    fn ptr(&mut self) -> *mut u8 {
        self.0[GUARD..].as_mut_ptr()
    }

    fn bytes(&self) -> &[u8] {
        let n = self.0.len();
        assert!(self.0[..GUARD].iter().chain(&self.0[n - GUARD..]).all(|b| *b == 0xA5), "guard overwritten");
        &self.0[GUARD..n - GUARD]
    }
}

fn scalars(d: DType, t: &Tensor) -> Vec<Scalar> {
    match d.is_float() {
        true => t.to_f64().unwrap().into_iter().map(Scalar::Float).collect(),
        false => t.to_i64().unwrap().into_iter().map(Scalar::Int).collect(),
    }
}

/// Values that differ from one another, with the awkward ones of the type among them.
fn values(d: DType, n: usize, seed: usize) -> Tensor {
    let special =
        [0.0, -0.0, 1.0, -1.0, 0.5, 127.0, -128.0, 3.0, 2.5, -2.5, 300.0, 1e9, -1e9, 88.0, -104.0, 1e20];
    let odd = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e-40];
    let v: Vec<f64> = (0..n)
        .map(|i| {
            let k = i * 7 + seed * 13;
            match (k % 5, d) {
                (_, DType::Bool) => ((k / 3) % 2) as f64,
                (0, _) => special[(k / 5) % special.len()],
                (1, d) if d.is_float() && k.is_multiple_of(3) => odd[(k / 15) % odd.len()],
                _ => ((k * 37 % 401) as f64 - 200.0) * 0.13,
            }
        })
        .collect();
    Tensor::from_f64(d, &[n], &v).unwrap()
}

/// Runs `e` on dense operands in every instruction set and compares with its evaluation point by point.
fn check(e: &Expr, n: usize, ulp: f64) {
    let tensors: Vec<Tensor> = e.inputs.iter().enumerate().map(|(i, d)| values(*d, n, i)).collect();
    let points: Vec<Vec<Scalar>> = e.inputs.iter().zip(&tensors).map(|(d, t)| scalars(*d, t)).collect();
    for isa in Isa::ALL.into_iter().filter(|i| i.is_available()) {
        let p = Program::new(e, isa).unwrap();
        let src: Vec<Src> =
            tensors.iter().map(|t| Src { ptr: t.bytes().as_ptr(), row_stride: 0, stride: 1 }).collect();
        let mut out: Vec<Guarded> =
            e.outputs.iter().map(|o| Guarded::new(n * o.dtype.size().unwrap())).collect();
        let dst: Vec<Dst> =
            out.iter_mut().map(|g| Dst { ptr: g.ptr(), row_stride: n as isize, stride: 1 }).collect();
        // SAFETY: operands hold n elements each.
        unsafe { p.run_rows(1, n, &src, &dst) };
        for (k, (o, g)) in e.outputs.iter().zip(&out).enumerate() {
            let got = scalars(o.dtype, &Tensor::new(o.dtype, &[n], g.bytes().to_vec()).unwrap());
            for i in 0..n {
                let x: Vec<Scalar> = points.iter().map(|p| p[i]).collect();
                let want = e.eval(&x)[k];
                assert!(close(got[i], want, ulp), "{isa:?} {e} at {x:?}: got {:?}, want {want:?}", got[i]);
            }
        }
    }
}

fn close(got: Scalar, want: Scalar, ulp: f64) -> bool {
    match (got, want) {
        (Scalar::Float(a), Scalar::Float(b)) => {
            // The table's gelu_tanh is right to about 1e-14 only.
            a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= ulp * (1.2e-7 * b.abs() + 1e-14)
        }
        (a, b) => a == b,
    }
}

const COMPUTE: [DType; 13] = [
    DType::F64,
    DType::F32,
    DType::F16,
    DType::BF16,
    DType::I64,
    DType::I32,
    DType::I16,
    DType::I8,
    DType::U64,
    DType::U32,
    DType::U16,
    DType::U8,
    DType::Bool,
];

#[test]
fn every_op_on_every_type_agrees_with_the_table() {
    for op in ScalarOp::all().filter(|op| !matches!(op, ScalarOp::Const | ScalarOp::Cast)) {
        for d in COMPUTE.into_iter().filter(|d| op.info().domain.holds(compute_type(*d))) {
            let mut inputs = vec![d; op.info().arity];
            if op == ScalarOp::Where {
                inputs[0] = DType::Bool;
            }
            let out = if op.info().gives == frit_ir::expr::scalar::Gives::Bool {
                DType::Bool
            } else {
                compute_type(d)
            };
            check(&Expr::single(op, &inputs, out), 301, 4.0);
        }
    }
}

#[test]
fn casts_between_all_types() {
    for from in COMPUTE {
        for to in COMPUTE {
            let mut e = Expr::new(&[from]);
            let v = e.cast(0, to);
            e.output(v, compute_type(to));
            e.output(v, to);
            check(&e, 67, 0.0);
        }
    }
}

#[test]
fn outputs_round_and_several_outputs_share_steps() {
    let mut e = Expr::new(&[DType::F16, DType::F32, DType::Bool]);
    let half = e.constant(DType::F32, 0.5);
    let a = e.push(ScalarOp::Mul, &[0, half]);
    let b = e.push(ScalarOp::Add, &[a, 1]);
    let unused = e.push(ScalarOp::Sub, &[a, 1]);
    let _ = unused;
    let c = e.push(ScalarOp::Where, &[2, a, b]);
    let f = e.push(ScalarOp::Not, &[2]);
    e.output(b, DType::BF16);
    e.output(c, DType::F32);
    e.output(c, DType::F16);
    e.output(f, DType::Bool);
    e.output(1, DType::F32);
    e.output(half, DType::F32);
    check(&e, 1000, 0.0);
    check(&e, 1, 0.0);
}

#[test]
fn many_live_values_make_small_tiles_and_too_many_an_error() {
    let sum = |n: usize| {
        let mut e = Expr::new(&[DType::F32]);
        let all: Vec<Ref> = (0..n)
            .map(|i| {
                let k = e.constant(DType::F32, i as f64);
                e.push(ScalarOp::Mul, &[0, k])
            })
            .collect();
        let total = all.into_iter().reduce(|a, b| e.push(ScalarOp::Add, &[a, b])).unwrap();
        e.output(total, DType::F32);
        e
    };
    check(&sum(60), 300, 0.0);
    check(&sum(1500), 20, 0.0);
    assert_eq!(Program::new(&sum(3000), Isa::Portable).err(), Some(ProgramError::Values(6002)));
}

#[test]
fn rows_columns_broadcasts_and_strides() {
    // x [5, cols] in rows of 300, bias over columns, one value a row, every third element of z, to f32 and f16.
    let mut e = Expr::new(&[DType::F32, DType::F16, DType::F32, DType::I32, DType::F32]);
    let z = e.cast(3, DType::F32);
    let v = [0, 1, 2, z, 4].into_iter().reduce(|a, b| e.push(ScalarOp::Add, &[a, b])).unwrap();
    e.output(v, DType::F32);
    e.output(v, DType::F16);
    let x: Vec<f32> = (0..1500).map(|i| (i % 97) as f32).collect();
    let bias: Vec<half::f16> = (0..300).map(|i| half::f16::from_f32(i as f32)).collect();
    let rows: Vec<f32> = (0..5).map(|i| 1000.0 * i as f32).collect();
    let z: Vec<i32> = (0..4500).collect();
    let one = [0.25f32];
    for cols in [1, 3, 31, 255, 256, 299] {
        for isa in Isa::ALL.into_iter().filter(|i| i.is_available()) {
            let p = Program::new(&e, isa).unwrap();
            let src = [
                Src { ptr: x.as_ptr().cast(), row_stride: 300, stride: 1 },
                Src { ptr: bias.as_ptr().cast(), row_stride: 0, stride: 1 },
                Src { ptr: rows.as_ptr().cast(), row_stride: 1, stride: 0 },
                Src { ptr: z.as_ptr().cast(), row_stride: 900, stride: 3 },
                Src { ptr: one.as_ptr().cast(), row_stride: 0, stride: 0 },
            ];
            let (mut a, mut b) = (Guarded::new(5 * cols * 4), Guarded::new(5 * cols * 4));
            let dst = [
                Dst { ptr: a.ptr(), row_stride: cols as isize, stride: 1 },
                Dst { ptr: b.ptr(), row_stride: 2 * cols as isize, stride: 2 },
            ];
            // SAFETY: the operands hold what the strides reach.
            unsafe { p.run_rows(5, cols, &src, &dst) };
            let a: &[f32] = bytemuck::cast_slice(a.bytes());
            let b: &[half::f16] = bytemuck::cast_slice(b.bytes());
            for r in 0..5 {
                for c in 0..cols {
                    let want = x[r * 300 + c] + c as f32 + rows[r] + z[r * 900 + 3 * c] as f32 + 0.25;
                    assert_eq!(a[r * cols + c], want, "{isa:?} {cols}: {r},{c}");
                    assert_eq!(b[2 * (r * cols + c)], half::f16::from_f32(want));
                }
            }
        }
    }
}

#[test]
fn in_place() {
    let e = Expr::single(ScalarOp::Silu, &[DType::F32], DType::F32);
    let x: Vec<f32> = (0..1000).map(|i| i as f32 * 0.01 - 5.0).collect();
    let mut y = x.clone();
    let p = Program::new(&e, Isa::detect()).unwrap();
    let ptr: *mut u8 = y.as_mut_ptr().cast();
    // SAFETY: one buffer of a thousand.
    unsafe {
        p.run_rows(
            1,
            1000,
            &[Src { ptr, row_stride: 0, stride: 1 }],
            &[Dst { ptr, row_stride: 0, stride: 1 }],
        );
    }
    assert!(x.iter().zip(&y).all(|(x, y)| crate::math::silu(*x).to_bits() == y.to_bits()));
}
