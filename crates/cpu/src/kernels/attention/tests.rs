//! Attention against the plain formula in f64.

use frit_ir::DType;

use super::ROWS;
use crate::kernels::testing::{Array, Call, Random, assert_close, each};

const F32: DType = DType::F32;

/// A case: extents, attributes and options.
#[derive(Clone)]
struct Case {
    b: i64,
    t: i64,
    h: i64,
    kvh: i64,
    s: i64,
    d: i64,
    dv: i64,
    pages: i64,
    q: DType,
    kv: DType,
    causal: bool,
    left: i64,
    right: i64,
    softcap: f64,
    ring: bool,
    kv_len: Option<Vec<i64>>,
    offset: Option<Vec<i64>>,
    table: Option<Vec<i64>>,
    bias: Option<Array>,
    sinks: Option<Vec<f64>>,
    mask: Option<Array>,
}

impl Case {
    fn new([b, t, h, kvh, s]: [i64; 5], d: i64, dv: i64) -> Case {
        Case {
            b,
            t,
            h,
            kvh,
            s,
            d,
            dv,
            pages: b,
            q: F32,
            kv: F32,
            causal: true,
            left: -1,
            right: -1,
            softcap: 0.0,
            ring: false,
            kv_len: None,
            offset: None,
            table: None,
            bias: None,
            sinks: None,
            mask: None,
        }
    }

    fn types(self, q: DType, kv: DType) -> Case {
        Case { q, kv, ..self }
    }

    /// Keys that a row can have.
    fn keys(&self) -> i64 {
        self.table.as_ref().map_or(self.s, |t| t.len() as i64 / self.b * self.s)
    }

    /// Page and slot of key `j` of row `b`, if query `i` sees it.
    fn sees(&self, b: i64, i: i64, j: i64) -> Option<(i64, i64)> {
        let len = self.kv_len.as_ref().map_or(self.keys(), |v| v[b as usize].max(0));
        let len = if self.ring { len } else { len.min(self.keys()) };
        let offset =
            self.offset.as_ref().map_or(len - self.t, |o| o[if o.len() == 1 { 0 } else { b as usize }]);
        let at = i + offset;
        let masked = |m: &Array| m.values()[(b * self.keys() + j) as usize] == 0.0;
        let page = self.table.as_ref().map_or(b, |t| {
            t.get((b * (t.len() as i64 / self.b) + j / self.s) as usize).copied().unwrap_or(-1)
        });
        let hidden = j >= len
            || (self.ring && j < len - self.s)
            || (self.causal && j > at)
            || (self.left >= 0 && at - j > self.left)
            || (self.right >= 0 && j - at > self.right)
            || !(0..self.pages).contains(&page)
            || self.mask.as_ref().is_some_and(masked);
        (!hidden).then_some((page, j % self.s))
    }

    /// Results of the formula: out and lse.
    fn want(&self, q: &[f64], k: &[f64], v: &[f64], scale: f64) -> (Vec<f64>, Vec<f64>) {
        let (mut out, mut lse) = (Vec::new(), Vec::new());
        let bias = self.bias.as_ref().map(|b| (b.values(), b.dims().to_vec()));
        let last = self.keys().max(self.kv_len.iter().flatten().copied().max().unwrap_or(0));
        let mask_off = Case { mask: None, ..self.clone() };
        let masked = self.mask.as_ref().map(Array::values);
        each(&[self.b, self.t, self.h], |index| {
            let (b, i, h) = (index[0], index[1], index[2]);
            let query = &q[(((b * self.t + i) * self.h + h) * self.d) as usize..][..self.d as usize];
            let mut scores = Vec::new();
            for j in 0..last {
                let Some((page, slot)) = mask_off.sees(b, i, j) else { continue };
                if masked.as_ref().is_some_and(|m| m[(b * self.keys() + j) as usize] == 0.0) {
                    continue;
                }
                let row = ((page * self.kvh + h / (self.h / self.kvh)) * self.s + slot) as usize;
                let key = &k[row * self.d as usize..][..self.d as usize];
                let mut x = scale * query.iter().zip(key).map(|(a, b)| a * b).sum::<f64>();
                if self.softcap != 0.0 {
                    x = self.softcap * (x / self.softcap).tanh();
                }
                if let Some((v, dims)) = &bias {
                    let full = [b, h, i, j];
                    let own = dims
                        .iter()
                        .enumerate()
                        .fold(0, |a, (k, n)| a * n + if *n == 1 { 0 } else { full[4 - dims.len() + k] });
                    x += v[own as usize];
                }
                scores.push((x, row));
            }
            let sink = self.sinks.as_ref().map_or(f64::NEG_INFINITY, |s| s[h as usize]);
            let top = scores.iter().fold(sink, |a, s| a.max(s.0));
            let weight = |x: f64| if top == f64::NEG_INFINITY { 0.0 } else { (x - top).exp() };
            let sum: f64 = scores.iter().map(|s| weight(s.0)).sum::<f64>() + weight(sink);
            lse.push(if sum == 0.0 { f64::NEG_INFINITY } else { top + sum.ln() });
            for c in 0..self.dv as usize {
                let dot: f64 = scores.iter().map(|(x, row)| weight(*x) * v[row * self.dv as usize + c]).sum();
                out.push(if sum == 0.0 { 0.0 } else { dot / sum });
            }
        });
        (out, lse)
    }

    fn check(&self, name: &str) {
        let scale = 1.0 / (self.d as f64).sqrt() * 1.01;
        // Rows apart in memory, and the cache with room between its heads.
        let apart = [self.t * self.h * self.d + 7, self.h * self.d + 3, self.d, 1];
        let q = Array::random_strided(self.q, &[self.b, self.t, self.h, self.d], &apart, 1);
        let cache = |d: i64, seed: u64| {
            let strides = [self.kvh * self.s * (d + 2), self.s * (d + 2), d + 2, 1];
            Array::random_strided(self.kv, &[self.pages, self.kvh, self.s, d], &strides, seed)
        };
        let (k, v) = (cache(self.d, 2), cache(self.dv, 3));
        let (out, lse) = self.want(&q.values(), &k.values(), &v.values(), scale);
        let ints = |v: &Vec<i64>, dims: &[i64]| {
            Array::of(DType::I32, dims, &v.iter().map(|v| *v as f64).collect::<Vec<_>>())
        };
        let outs = vec![
            Array::room(self.q, &[self.b, self.t, self.h, self.dv]),
            Array::room(F32, &[self.b, self.t, self.h]),
        ];
        let mut call = Call::new(&ROWS[0], vec![q, k, v], outs);
        call.inputs.extend([
            self.kv_len.as_ref().map(|v| ints(v, &[self.b])),
            self.offset.as_ref().map(|v| ints(v, &[v.len() as i64])),
            self.table.as_ref().map(|v| ints(v, &[self.b, v.len() as i64 / self.b])),
            self.bias.clone(),
            self.sinks.as_ref().map(|v| Array::of(F32, &[self.h], v)),
            self.mask.clone(),
        ]);
        let flag = |b: bool| f64::from(u8::from(b));
        let sizes = [self.left as f64, self.right as f64, self.softcap, flag(self.ring), 1.0];
        let params = [scale, flag(self.causal)].into_iter().chain(sizes);
        let mut call = call.params(params.chain([self.d as f64, self.dv as f64]));
        let formula = frit_ir::text::parse_dim(super::SCRATCH).unwrap();
        let bind = |s: &frit_ir::Sym| {
            Some(if s.name() == "threads" {
                3
            } else if s.name() == "d" {
                self.d
            } else {
                self.dv
            })
        };
        call.scratch = formula.eval(&bind).unwrap() as usize;
        let got = call.run();
        let tolerance = crate::kernels::testing::rel(self.q).max(1e-5);
        assert_close(&got[0].values(), &out, 3e-6, tolerance, name);
        assert_close(&got[1].values(), &lse, 2e-5, 1e-5, name);
    }
}

#[test]
fn lengths_heads_and_types() {
    let types = [(F32, F32), (F32, DType::F16), (DType::F16, DType::F16), (DType::BF16, DType::BF16)];
    for (n, (t, s)) in
        [(1, 1), (1, 63), (1, 300), (3, 64), (9, 65), (23, 130), (70, 200), (5, 3)].iter().enumerate()
    {
        for (m, (h, kvh)) in [(1, 1), (6, 2), (8, 1), (71, 1)].iter().enumerate() {
            // Many heads with few queries, to stay quick.
            if h * t > 300 {
                continue;
            }
            let (q, kv) = types[(n + m) % 4];
            let (d, dv) = [(64, 64), (16, 24), (33, 65), (7, 5)][(n + 2 * m) % 4];
            let c = Case::new([2, *t, *h, *kvh, *s], d, dv).types(q, kv);
            c.check(&format!("{t} of {s}, {h}/{kvh} heads of {d}/{dv}, {q} {kv}"));
        }
    }
    for (t, s) in [(0, 3), (2, 0)] {
        Case::new([1, t, 2, 1, s], 16, 16).check("empty");
    }
}

#[test]
fn masks_combine() {
    let mut r = Random(4);
    for bits in 0..48 {
        let pick = |n: i64, of: i64| bits / n % of;
        let (left, right) = ([-1, 0, 30][pick(2, 3) as usize], [-1, 2][pick(6, 2) as usize]);
        let mut c = Case::new([2, 5, 2, 1, 90], 16, 16);
        c = Case { causal: pick(1, 2) == 1, left, right, ..c };
        if pick(12, 2) == 1 {
            let v: Vec<f64> = (0..2 * 5 * 90)
                .map(|_| if r.next().is_multiple_of(4) { f64::NEG_INFINITY } else { r.unit() })
                .collect();
            c.bias = Some(Array::of(DType::F16, &[2, 1, 5, 90], &v));
        }
        if pick(24, 2) == 1 {
            c.mask = Some(Array::random(DType::Bool, &[2, 90], 5 + bits as u64));
        }
        c.check(&format!("masks {bits}"));
    }
    for dims in [vec![], vec![90], vec![2, 1, 1], vec![2, 2, 5, 90], vec![5, 1]] {
        let bias = Some(Array::random(F32, &dims, 8));
        Case { bias, ..Case::new([2, 5, 2, 1, 90], 16, 16) }.check("bias");
    }
    for t in [1, 7] {
        let c = Case::new([1, t, 4, 2, 80], 32, 32);
        Case { softcap: 0.5, ..c.clone() }.check("softcap");
        Case { sinks: Some(vec![0.25, -2.5, 50.5, -50.5]), ..c.clone() }.check("sinks");
        let none = Array::of(DType::Bool, &[1, 80], &[0.0; 80]);
        Case { mask: Some(none), sinks: (t == 1).then(|| vec![0.75; 4]), ..c }.check("nothing seen");
    }
}

#[test]
fn lengths_offsets_pages_and_rings() {
    for t in [1, 3, 12] {
        let c = Case::new([3, t, 4, 2, 33], 16, 16);
        let len = Some(vec![0, 17, 40]);
        Case { kv_len: len.clone(), ..c.clone() }.check("lengths");
        Case { kv_len: len.clone(), offset: Some(vec![5]), left: 6, ..c.clone() }.check("one offset");
        let far = Some(vec![i64::from(i32::MAX), i64::from(i32::MIN), 1 << 30]);
        Case { kv_len: len, offset: far, left: 8, right: 2, ..c.clone() }.check("far offsets");
        let table = Some(vec![6, 0, 3, 2, 5, 1, 4, -1, 99]);
        let paged = Case { s: 16, pages: 7, table, kv_len: Some(vec![33, 48, 48]), ..c.clone() };
        Case { kv: DType::F16, ..paged.clone() }.check("pages");
        let bias = Some(Array::random(F32, &[3, 1, t, 48], 6));
        let mask = Some(Array::random(DType::Bool, &[3, 48], 7));
        Case { causal: false, left: 7, bias, mask, ..paged }.check("pages, masked");
        for len in [[5, 9, 15], [16, 17, 31], [32, 50, 1003]] {
            let ring = Case { s: 16, ring: true, kv_len: Some(len.to_vec()), ..c.clone() };
            ring.check("ring");
            Case { left: 6, ..ring }.check("ring with a window");
        }
    }
}

#[test]
fn large_scores_do_not_overflow() {
    for sign in [1.0, -1.0] {
        let steps: Vec<f64> = (0..9).flat_map(|i| [sign * f64::from(i + 1); 16]).collect();
        for t in [1, 12] {
            let c = Case { causal: false, ..Case::new([1, t, 1, 1, 9], 16, 16) };
            let q = Array::of(F32, &[1, t, 1, 16], &vec![100.0; 16 * t as usize]);
            let (k, v) = (Array::of(F32, &[1, 1, 9, 16], &steps), Array::random(F32, &[1, 1, 9, 16], 3));
            let (out, lse) = c.want(&q.values(), &k.values(), &v.values(), 1.0);
            let outs = vec![Array::room(F32, &[1, t, 1, 16]), Array::room(F32, &[1, t, 1])];
            let mut call = Call::new(&ROWS[0], vec![q, k, v], outs);
            call.scratch = 1 << 20;
            let got = call.params([1.0, 0.0, -1.0, -1.0, 0.0, 0.0, 1.0, 16.0, 16.0]).run();
            assert_close(&got[0].values(), &out, 1e-6, 1e-5, "out");
            assert_close(&got[1].values(), &lse, 1e-6, 1e-5, "lse");
        }
    }
}
