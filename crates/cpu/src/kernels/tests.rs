//! Kernels against plain computations in f64: every type and layout class, odd lengths, in place.

use frit_ir::{DType, Expr, ScalarOp};

use super::testing::{Array, Call, Random, assert_close, dense, each, rel};
use super::*;

const F32S: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

#[test]
fn expr_of_strided_and_repeated_operands() {
    let d = DType::F32;
    for dims in [vec![], vec![7], vec![700], vec![33, 5], vec![3, 259], vec![2, 9, 4, 3], vec![0, 4]] {
        let mut e = Expr::new(&[d, DType::BF16, DType::I32]);
        let c = e.cast(2, d);
        let m = e.push(ScalarOp::Mul, &[0, 1]);
        let v = e.push(ScalarOp::Sub, &[m, c]);
        e.output(v, d);
        e.output(m, DType::F16);
        // The first turned around, the second repeated over all but the last dimension, the third one value.
        let turned: Vec<i64> =
            dense(&dims.iter().rev().copied().collect::<Vec<_>>()).into_iter().rev().collect();
        let mut row = vec![0; dims.len()];
        if let Some(l) = row.last_mut() {
            *l = 2;
        }
        let n: usize = dims.iter().product::<i64>() as usize;
        let x = Array::random_strided(d, &dims, &turned, 1);
        let last = *dims.last().unwrap_or(&1);
        let one_row = Array::random_strided(DType::BF16, &[last], &[2], 2).values();
        let repeated: Vec<f64> = (0..n).map(|i| one_row[i % last as usize]).collect();
        let y = Array::strided(DType::BF16, &dims, &row, &repeated);
        let z = Array::strided(DType::I32, &dims, &vec![0; dims.len()], &vec![3.0; n]);
        let want: Vec<f64> = x.values().iter().zip(&repeated).map(|(x, y)| x * y).collect();
        let outs = vec![Array::room(d, &dims), Array::room(DType::F16, &dims)];
        let mut call = Call::new(&expr::ROWS[0], vec![x, y, z], outs);
        call.exprs = vec![e];
        let got = call.run();
        let less: Vec<f64> = want.iter().map(|v| v - 3.0).collect();
        assert_close(&got[0].values(), &less, 1e-6, 1e-6, "x·y − z");
        assert_close(&got[1].values(), &want, 1e-7, 1e-3, "x·y");
    }
}

#[test]
fn expr_in_place() {
    let e = Expr::single(ScalarOp::Add, &[DType::F32; 2], DType::F32);
    let (x, y) = (Array::random(DType::F32, &[1003], 1), Array::random(DType::F32, &[1003], 2));
    let want: Vec<f64> = x.values().iter().zip(y.values()).map(|(a, b)| a + b).collect();
    let mut call = Call::new(&expr::ROWS[0], vec![x, y], vec![Array::room(DType::F32, &[1003])]);
    (call.exprs, call.in_place) = (vec![e], Some(1));
    assert_close(&call.run()[0].values(), &want, 0.0, 1e-7, "x + y");
}

#[test]
fn copies_of_views() {
    for (dims, strides) in [
        (vec![], vec![]),
        (vec![5, 7], vec![1, 5]),
        (vec![40, 33], vec![1, 40]),
        (vec![3, 4, 5], vec![100, 5, 1]),
        (vec![2, 3, 17, 2], vec![1, 2, 12, 6]),
        (vec![1, 9000], vec![0, 1]),
        (vec![4, 6], vec![0, 2]),
        (vec![0, 3], vec![3, 1]),
    ] {
        for d in [DType::F64, DType::F32, DType::BF16, DType::U8] {
            let n = dims.iter().product::<i64>() as usize;
            // Repeated elements must agree: values by address.
            let mut values = Vec::new();
            each(&dims, |i| {
                values.push((i.iter().zip(&strides).map(|(i, s)| i * s).sum::<i64>() % 120) as f64);
            });
            assert_eq!(values.len(), n);
            let x = Array::strided(d, &dims, &strides, &values);
            let got = Call::new(&copy::ROWS[0], vec![x], vec![Array::room(d, &dims)]).run();
            assert_close(&got[0].values(), &values, 0.0, 0.0, "copy");
        }
    }
}

/// Random blocks of `rows` rows of `units` blocks, and their values.
fn blocks(d: DType, rows: usize, units: usize) -> (Vec<u8>, Vec<f32>) {
    let k = units * d.info().unit_elements;
    let mut r = Random(d as u64);
    let values: Vec<f32> = (0..rows * k).map(|_| r.unit() as f32).collect();
    let bytes = frit_ir::block::quantize(d, &values).unwrap();
    let mut decoded = vec![0.0; rows * k];
    frit_ir::block::dequantize(d, &bytes, &mut decoded).unwrap();
    (bytes, decoded)
}

#[test]
fn block_rows_are_copied_decoded_and_gathered() {
    for d in row::BLOCKS.iter().copied() {
        let (units, rows) = (3, 5);
        let k = (units * d.info().unit_elements) as i64;
        let (bytes, values) = blocks(d, rows, units);
        let dims = [rows as i64, k];
        let x = Array::bytes_of(d, &dims, &bytes);
        let got = Call::new(&copy::ROWS[1], vec![x.clone()], vec![Array::room(d, &dims)]).run();
        assert_eq!(got[0].data(), bytes);
        for to in F32S {
            let got = Call::new(&dequantize::ROWS[0], vec![x.clone()], vec![Array::room(to, &dims)]).run();
            let want =
                Array::of(to, &dims, &values.iter().map(|v| f64::from(*v)).collect::<Vec<_>>()).values();
            assert_close(&got[0].values(), &want, 0.0, 0.0, d.name());
            let ids = [4, -1, 0, 5, 2];
            let index = Array::of(DType::I32, &[5], &ids.map(f64::from));
            let out = Array::room(to, &[5, k]);
            let got = Call::new(&gather::ROWS[1], vec![x.clone(), index], vec![out]).run();
            let row = |i: i32| match i {
                0..5 => want[i as usize * k as usize..][..k as usize].to_vec(),
                _ => vec![0.0; k as usize],
            };
            assert_close(&got[0].values(), &ids.map(row).concat(), 0.0, 0.0, d.name());
        }
    }
}

#[test]
fn concat_flip_and_gather_move_elements() {
    for d in [DType::F64, DType::F16, DType::I32, DType::Bool] {
        // Two turned inputs along the middle axis.
        let (a, b) = (
            Array::random_strided(d, &[2, 3, 4], &[1, 8, 2], 1),
            Array::random_strided(d, &[2, 2, 4], &[1, 8, 2], 2),
        );
        let (x, y) = (a.values(), b.values());
        let want = [&x[..12], &y[..8], &x[12..], &y[8..]].concat();
        let got = Call::new(&concat::ROWS[0], vec![a.clone(), b], vec![Array::room(d, &[2, 5, 4])]);
        assert_close(&got.params([1.0]).run()[0].values(), &want, 0.0, 0.0, "concat");

        let got = Call::new(&flip::ROWS[0], vec![a.clone()], vec![Array::room(d, &[2, 3, 4])]);
        let mut want = Vec::new();
        each(&[2, 3, 4], |i| want.push(x[((1 - i[0]) * 12 + i[1] * 4 + 3 - i[2]) as usize]));
        assert_close(&got.params([5.0]).run()[0].values(), &want, 0.0, 0.0, "flip");

        let index = Array::strided(DType::I64, &[2, 2], &[1, 3], &[2.0, -1.0, 0.0, 3.0]);
        let got = Call::new(&gather::ROWS[0], vec![a, index], vec![Array::room(d, &[2, 2, 2, 4])]);
        let mut want = Vec::new();
        each(&[2, 2, 2, 4], |i| {
            let row = [[2, -1], [0, 3]][i[1] as usize][i[2] as usize];
            want.push(if (0..3).contains(&row) { x[(i[0] * 12 + row * 4 + i[3]) as usize] } else { 0.0 });
        });
        assert_close(&got.params([1.0]).run()[0].values(), &want, 0.0, 0.0, "gather");
    }
}

#[test]
fn pad_in_every_mode() {
    for d in [DType::F32, DType::BF16, DType::I64, DType::U8, DType::Bool] {
        let x = Array::random_strided(d, &[2, 3, 4], &[1, 8, 2], 1);
        let values = x.values();
        let dims = [2 + 1, 3 + 2 + 1, 4 + 3];
        for mode in 0..3 {
            let out = Array::room(d, &dims);
            let params = [1.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, f64::from(mode), 1.0];
            let got = Call::new(&pad::ROWS[0], vec![x.clone()], vec![out]).params(params).run();
            let mut want = Vec::new();
            each(&dims, |i| {
                let place = [(i[0] - 1, 2), (i[1] - 2, 3), (i[2], 4)].map(|(i, n)| match mode {
                    0 => (0..n).contains(&i).then_some(i),
                    1 => Some((i + 2 * (n - 1)) % (2 * (n - 1)))
                        .map(|i| if i < n { i } else { 2 * (n - 1) - i }),
                    _ => Some(i.clamp(0, n - 1)),
                });
                want.push(match place {
                    [Some(a), Some(b), Some(c)] => values[(a * 12 + b * 4 + c) as usize],
                    _ => 1.0,
                });
            });
            assert_close(&got[0].values(), &want, 0.0, 0.0, "pad");
        }
    }
    let scalar = Call::new(
        &pad::ROWS[0],
        vec![Array::of(DType::F32, &[], &[4.0])],
        vec![Array::room(DType::F32, &[])],
    );
    assert_eq!(scalar.params([0.0; 10]).run()[0].values(), [4.0]);
}

fn reduce_want(op: usize, v: &[f64]) -> f64 {
    let nan = v.iter().any(|v| v.is_nan());
    match op {
        0 => v.iter().sum(),
        1 => v.iter().sum::<f64>() / v.len() as f64,
        2 | 3 if nan => f64::NAN,
        2 => v.iter().fold(f64::NEG_INFINITY, |a, b| a.max(*b)),
        3 => v.iter().fold(f64::INFINITY, |a, b| a.min(*b)),
        4 => v.iter().product(),
        5 => f64::from(v.iter().any(|v| *v != 0.0)),
        _ => f64::from(v.iter().all(|v| *v != 0.0)),
    }
}

#[test]
fn reduce_over_any_axes() {
    let shapes: [(&[i64], &[i64]); 6] = [
        (&[3, 5, 7], &[35, 7, 1]),
        (&[3, 5, 7], &[1, 3, 15]),
        (&[2, 600], &[600, 1]),
        (&[600, 2], &[2, 1]),
        (&[3, 0, 2], &[0, 2, 1]),
        (&[], &[]),
    ];
    for (dims, strides) in shapes {
        for axes in 0..1 << dims.len() {
            for d in [DType::F32, DType::F16, DType::F64, DType::I8, DType::U64, DType::I64, DType::Bool] {
                let ops: &[usize] = match d {
                    DType::Bool => &[5, 6],
                    d if d.is_float() => &[0, 1, 2, 3, 4],
                    _ => &[0, 2, 3],
                };
                for op in ops {
                    check_reduce(dims, strides, axes, d, *op);
                }
            }
        }
    }
}

fn check_reduce(dims: &[i64], strides: &[i64], axes: i64, d: DType, op: usize) {
    let reduced = |i: usize| axes >> i & 1 == 1;
    let n: i64 = dims.iter().product();
    let mut r = Random(n as u64);
    let values: Vec<f64> = (0..n)
        .map(|i| match d {
            DType::Bool => (r.next() % 2) as f64,
            DType::I8 => (r.next() % 3) as f64 - 1.0,
            DType::U64 | DType::I64 => (r.next() % 1000) as f64,
            _ if op == 2 && i == n / 2 => f64::NAN,
            _ => r.unit() * if op == 4 { 0.1 } else { 1.0 } + if op == 4 { 1.0 } else { 0.0 },
        })
        .collect();
    let x = Array::strided(d, dims, strides, &values);
    let values = x.values();
    let kept: Vec<i64> = (0..dims.len()).filter(|i| !reduced(*i)).map(|i| dims[i]).collect();
    let mut groups = vec![Vec::new(); kept.iter().product::<i64>() as usize];
    let mut at = 0;
    let places = dense(&kept);
    each(dims, |index| {
        let own = index.iter().enumerate().filter(|(i, _)| !reduced(*i)).map(|(_, v)| v);
        groups[own.zip(&places).map(|(i, s)| i * s).sum::<i64>() as usize].push(values[at]);
        at += 1;
    });
    let mut want: Vec<f64> = groups.iter().map(|g| reduce_want(op, g)).collect();
    match (d, op) {
        // Sums wrap; extrema of nothing are the ends of the type.
        (DType::I8, 0) => want.iter_mut().for_each(|v| *v = f64::from(*v as i64 as i8)),
        (d, _) if !d.is_float() => want = Array::of(d, &kept, &want).values(),
        _ => {}
    }
    let got = Call::new(&reduce::ROWS[0], vec![x], vec![Array::room(d, &kept)]);
    let got = got.params([op as f64, axes as f64]).run()[0].values();
    assert_close(&got, &want, rel(d) * 30.0, rel(d) * 8.0, &format!("op {op} of {d}{dims:?} over {axes:b}"));
}

#[test]
fn softmax_along_any_axis() {
    for (dims, strides) in
        [(vec![3, 5, 7], vec![70, 14, 1]), (vec![2, 300], vec![300, 1]), (vec![257, 3], vec![4, 1])]
    {
        for axis in 0..dims.len() {
            for d in [DType::F32, DType::F16, DType::BF16, DType::F64] {
                let x = Array::random_strided(d, &dims, &strides, 9);
                let (v, s) = (x.values(), dense(&dims));
                for log in [0, 1] {
                    let mut want = Vec::new();
                    each(&dims, |i| {
                        let at = |k: i64| {
                            let own = i.iter().zip(&s).map(|(i, s)| i * s).sum::<i64>();
                            v[(own + (k - i[axis]) * s[axis]) as usize]
                        };
                        let sum: f64 = (0..dims[axis]).map(|k| at(k).exp()).sum();
                        want.push(if log == 1 { at(i[axis]) - sum.ln() } else { at(i[axis]).exp() / sum });
                    });
                    let got = Call::new(&softmax::ROWS[0], vec![x.clone()], vec![Array::room(d, &dims)]);
                    let got = got.params([axis as f64, f64::from(log)]).run()[0].values();
                    assert_close(&got, &want, 1e-7, rel(d), "softmax");
                }
            }
        }
    }
    let closed = [f64::NEG_INFINITY, 1.0, f64::NEG_INFINITY, f64::NEG_INFINITY];
    let call = Call::new(
        &softmax::ROWS[0],
        vec![Array::of(DType::F32, &[2, 2], &closed)],
        vec![Array::room(DType::F32, &[2, 2])],
    );
    assert_close(
        &call.params([1.0, 0.0]).run()[0].values(),
        &[0.0, 1.0, f64::NAN, f64::NAN],
        0.0,
        0.0,
        "closed",
    );
}

fn norm_row(x: &[f64], w: Option<&[f64]>, b: Option<&[f64]>, [eps, plus_one, rms]: [f64; 3]) -> Vec<f64> {
    let n = x.len() as f64;
    let mean = if rms == 1.0 { 0.0 } else { x.iter().sum::<f64>() / n };
    let scale = 1.0 / (x.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / n + eps).sqrt();
    let weight = |i: usize| w.map_or(1.0, |w| w[i] + plus_one);
    x.iter().enumerate().map(|(i, v)| (v - mean) * scale * weight(i) + b.map_or(0.0, |b| b[i])).collect()
}

#[test]
fn norms_of_every_kind() {
    for (k, d_len) in [1i64, 15, 16, 17, 64, 100, 576].into_iter().enumerate() {
        for d in F32S {
            let w_type = F32S[k % 3];
            let x = Array::random_strided(d, &[3, 2, d_len], &[2 * d_len + 9, d_len + 2, 1], 5);
            let (w, b) = (Array::random(w_type, &[d_len], 6), Array::random(DType::F32, &[d_len], 7));
            for form in 0..8 {
                let p = [1e-5, f64::from(form & 1), f64::from(form >> 1 & 1)];
                let (w, b) = (Some(&w).filter(|_| form < 6), Some(&b).filter(|_| form < 4));
                let (wv, bv) = (w.map(Array::values), b.map(Array::values));
                let row = &norm::ROWS[usize::from(p[2] == 0.0)];
                let mut call =
                    Call::new(row, vec![x.clone()], vec![Array::room(d, &[3, 2, d_len])]).params(p);
                call.inputs.extend([w.cloned(), b.cloned()]);
                let want: Vec<f64> = x
                    .values()
                    .chunks(d_len as usize)
                    .flat_map(|r| norm_row(r, wv.as_deref(), bv.as_deref(), p))
                    .collect();
                assert_close(&call.run()[0].values(), &want, 3e-6, 2.0 * rel(d), row.row.name);
                let y = Array::random(d, &[3, 2, d_len], 8);
                let outs = vec![Array::room(d, &[3, 2, d_len]), Array::room(d, &[3, 2, d_len])];
                let mut call = Call::new(&norm::ROWS[2], vec![x.clone(), y.clone()], outs).params(p);
                call.inputs.extend([w.cloned(), b.cloned()]);
                let got = call.run();
                let sum: Vec<f64> = x.values().iter().zip(y.values()).map(|(a, b)| a + b).collect();
                assert_close(&got[0].values(), &sum, 1e-7, rel(d), "sum");
                let want: Vec<f64> = got[0]
                    .values()
                    .chunks(d_len as usize)
                    .flat_map(|r| norm_row(r, wv.as_deref(), bv.as_deref(), p))
                    .collect();
                assert_close(&got[1].values(), &want, 3e-6, 2.0 * rel(d), "residual_norm");
            }
        }
    }
    let far: Vec<f64> = (0..96).map(|i| 1e9 + f64::from(i) * 64.0).collect();
    let x = Array::of(DType::F32, &[1, 96], &far);
    let mut call = Call::new(&norm::ROWS[1], vec![x.clone()], vec![Array::room(DType::F32, &[1, 96])])
        .params([1e-5, 0.0, 0.0]);
    call.inputs.extend([None, None]);
    assert_close(
        &call.run()[0].values(),
        &norm_row(&x.values(), None, None, [1e-5, 0.0, 0.0]),
        0.05,
        0.01,
        "far",
    );
}

#[test]
fn rotary_in_both_styles() {
    for (d_len, dims) in [(64i64, 64i64), (40, 34), (6, 2), (600, 580)] {
        for d in F32S {
            for interleaved in [false, true] {
                let x = Array::random_strided(
                    d,
                    &[2, 3, 4, d_len],
                    &[12 * d_len + 40, d_len, 3 * d_len + 5, 1],
                    3,
                );
                let at = [0.0, 7.0, 100_000.0];
                let positions = Array::of(DType::I32, &[1, 3], &at);
                let freq = Array::of(
                    DType::F32,
                    &[dims / 2],
                    &(0..dims / 2).map(|i| 0.7f64.powi(i as i32)).collect::<Vec<_>>(),
                );
                let f = freq.values();
                let mut want = x.values();
                for (n, head) in want.chunks_mut(d_len as usize).enumerate() {
                    for (p, f) in f.iter().enumerate() {
                        let angle = f64::from(at[n / 4 % 3] as f32 * *f as f32);
                        let (s, c) = (angle.sin() * 1.25, angle.cos() * 1.25);
                        let (i, j) =
                            if interleaved { (2 * p, 2 * p + 1) } else { (p, p + dims as usize / 2) };
                        (head[i], head[j]) = (head[i] * c - head[j] * s, head[j] * c + head[i] * s);
                    }
                }
                let out = Array::room(d, &[2, 3, 4, d_len]);
                let call = Call::new(&rotary::ROWS[0], vec![x, positions, freq], vec![out]);
                let got = call.params([dims as f64, f64::from(u8::from(interleaved)), 1.25]).run();
                assert_close(&got[0].values(), &want, 3e-7, rel(d), "rotary");
            }
        }
    }
}

#[test]
fn write_kv_places_and_refuses() {
    for (state, value) in [(DType::F32, DType::F32), (DType::F16, DType::F32), (DType::BF16, DType::F16)] {
        for (ring, paged) in [(false, false), (true, false), (false, true)] {
            let old = Array::random(state, &[3, 2, 4, 5], 1);
            let new = Array::random_strided(value, &[2, 3, 2, 5], &[40, 13, 6, 1], 2);
            let at = if ring { [5, -1, 10, 3, 9, 2] } else { [1, -2, 7, 3, 12, 0] };
            let positions = Array::of(DType::I32, &[2, 3], &at.map(f64::from));
            let pages = [2.0, 0.0, 7.0, 1.0];
            let mut want = old.values();
            let v = new.values();
            for (n, p) in at.iter().enumerate() {
                let b = n as i64 / 3;
                let slot = if ring || paged { p % 4 } else { *p };
                let page = match paged {
                    true if *p >= 0 && *p < 8 => pages[(b * 2 + i64::from(*p) / 4) as usize] as i64,
                    true => -1,
                    false => b,
                };
                if *p >= 0 && (0..3).contains(&page) && slot < 4 {
                    for h in 0..2 {
                        let to = ((page as usize * 2 + h) * 4 + slot as usize) * 5;
                        want[to..to + 5].copy_from_slice(&v[(n * 2 + h) * 5..][..5]);
                    }
                }
            }
            let want = Array::of(state, &[3, 2, 4, 5], &want).values();
            let out = Array::room(state, &[3, 2, 4, 5]);
            let mut call = Call::new(&write_kv::ROWS[0], vec![old, new, positions], vec![out]);
            call.inputs.push(paged.then(|| Array::of(DType::I32, &[2, 2], &pages)));
            let mut call = call.params([f64::from(u8::from(ring))]);
            assert_close(&call.run()[0].values(), &want, 0.0, 0.0, "copied");
            call.in_place = Some(0);
            assert_close(&call.run()[0].values(), &want, 0.0, 0.0, "in place");
        }
    }
}

#[test]
fn quantize_matches_its_definition() {
    for (d, bits) in F32S.iter().flat_map(|d| [(*d, 8), (*d, 16)]) {
        let mut values = Array::random(d, &[3, 96], 4).values();
        values[32..64].fill(0.0);
        values[70] = 60000.0;
        let x = Array::strided(d, &[3, 96], &[101, 1], &values);
        let want: Vec<f64> = x
            .values()
            .chunks(32)
            .flat_map(|b| {
                let amax = b.iter().fold(0f32, |a, v| a.max(v.abs() as f32));
                let scale = amax / if bits == 16 { 32385.0 } else { 127.0 };
                b.iter()
                    .map(|v| {
                        if scale == 0.0 {
                            0.0
                        } else {
                            f64::from((*v as f32 / scale).round_ties_even() * scale)
                        }
                    })
                    .collect::<Vec<_>>()
            })
            .collect();
        let out = vec![Array::room(DType::F32, &[3, 96])];
        let got = Call::new(&quantize::ROWS[0], vec![x], out).params([f64::from(bits)]).run();
        assert_close(&got[0].values(), &want, 0.0, 0.0, "quantized");
    }
}

#[test]
fn running_sums_of_every_layout_and_in_place() {
    for d in [DType::F32, DType::BF16, DType::F64, DType::I32, DType::U8] {
        for (dims, strides) in [
            ([2, 300, 3], [900, 3, 1]),
            ([3, 2, 515], [1100, 520, 1]),
            ([2, 5, 270], [1, 2, 10]),
            ([33, 1, 2], [2, 66, 1]),
        ] {
            for (axis, way) in (0..3).flat_map(|a| (0..4).map(move |w| (a, w))) {
                let (exclusive, reverse) = (way & 1 == 1, way & 2 == 2);
                // Whole numbers, so few that every sum is exact in bf16 too.
                let n: i64 = dims.iter().product();
                let x: Vec<f64> = (0..n).map(|i| f64::from(u8::from(i % 7 == 3))).collect();
                let own = dense(&dims);
                let mut want = vec![0.0; n as usize];
                each(&dims, |i| {
                    let mut sum = 0.0;
                    for j in 0..dims[axis] {
                        let taken = if reverse { j > i[axis] } else { j < i[axis] };
                        if taken || (j == i[axis] && !exclusive) {
                            let at = |a: usize| if a == axis { j } else { i[a] };
                            sum += x[(0..3).map(|a| at(a) * own[a]).sum::<i64>() as usize];
                        }
                    }
                    let at = i.iter().zip(&own).map(|(i, s)| i * s).sum::<i64>() as usize;
                    want[at] = if d == DType::U8 { sum % 256.0 } else { sum };
                });
                let params = [axis as f64, f64::from(u8::from(exclusive)), f64::from(u8::from(reverse))];
                let a = Array::strided(d, &dims, &strides, &x);
                let got = Call::new(&cumsum::ROWS[0], vec![a], vec![Array::room(d, &dims)]).params(params);
                assert_close(&got.run()[0].values(), &want, 0.0, 0.0, "strided");
                let a = Array::of(d, &dims, &x);
                let mut call =
                    Call::new(&cumsum::ROWS[0], vec![a], vec![Array::room(d, &dims)]).params(params);
                call.in_place = Some(0);
                assert_close(&call.run()[0].values(), &want, 0.0, 0.0, "in place");
            }
        }
    }
}

#[test]
fn sums_from_the_end_are_exact_behind_large_values() {
    let x: Vec<f64> = (0..64).map(|i| if i < 32 { 1e8 } else { 1.0 }).collect();
    for (dims, axis) in [([1, 64], 1.0), ([64, 1], 0.0)] {
        let a = Array::of(DType::F32, &dims, &x);
        let call = Call::new(&cumsum::ROWS[0], vec![a], vec![Array::room(DType::F32, &dims)]);
        let got = call.params([axis, 0.0, 1.0]).run()[0].values();
        assert_eq!(got[32..], (1..=32).rev().map(f64::from).collect::<Vec<_>>());
    }
}
