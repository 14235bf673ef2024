//! The cases of `attention`.

use frit_ir::op::{Case, CaseInput, Layout, Role, Tolerance};
use frit_ir::{Attrs, DType, Tensor};

use crate::cases::{FLOATS, Numbers, case_of, expecting, fill, random, tolerance, values};

const F32: DType = DType::F32;

/// Attributes without softcap, ring or lse.
pub(crate) fn attrs(scale: f64, causal: bool, left: i64, right: i64) -> Attrs {
    Attrs::new()
        .with("scale", scale)
        .with("causal", causal)
        .with("window_left", left)
        .with("window_right", right)
        .with("softcap", 0.0)
        .with("ring", false)
        .with("lse", false)
}

/// Extents of a case; P = B unless a table is set.
#[derive(Clone, Copy)]
struct Extents {
    b: usize,
    t: usize,
    h: usize,
    kvh: usize,
    s: usize,
    d: usize,
    dv: usize,
}

/// `t` queries of one row, one head, against `s` keys of 16 elements.
fn small(t: usize, s: usize) -> Extents {
    Extents { b: 1, t, h: 1, kvh: 1, s, d: 16, dv: 16 }
}

/// A case under construction.
#[derive(Clone)]
struct Build {
    e: Extents,
    attrs: Attrs,
    q: DType,
    kv: DType,
    pages: usize,
    layout: Layout,
    option_layout: Layout,
    role: Role,
    options: [Option<Tensor>; 6],
    tolerance: Tolerance,
}

impl Build {
    fn new(e: Extents) -> Build {
        let attrs = attrs(1.0 / (e.d as f64).sqrt(), false, -1, -1);
        let (layout, role) = (Layout::Dense, Role::Input);
        let tolerance = tolerance(F32, 1e-5, 1e-5);
        let (option_layout, options) = (layout, Default::default());
        Build { e, attrs, q: F32, kv: F32, pages: e.b, layout, option_layout, role, options, tolerance }
    }

    fn with(mut self, name: &str, v: impl Into<frit_ir::Attr>) -> Build {
        self.attrs.set(name, v);
        self
    }

    fn causal(self) -> Build {
        self.with("causal", true)
    }

    fn window(self, left: i64, right: i64) -> Build {
        self.with("window_left", left).with("window_right", right)
    }

    fn types(mut self, q: DType, kv: DType) -> Build {
        (self.q, self.kv, self.tolerance) = (q, kv, tolerance(q, 1e-5, 1e-5));
        self
    }

    fn layout(mut self, layout: Layout) -> Build {
        self.layout = layout;
        self
    }

    fn cached(mut self) -> Build {
        self.role = Role::State;
        self
    }

    fn within(mut self, abs: f64) -> Build {
        self.tolerance.abs += abs;
        self
    }

    /// Sets the optional operand `i` (counted from kv_len).
    fn option(mut self, i: usize, t: Tensor) -> Build {
        self.options[i] = Some(t);
        self
    }

    fn kv_len(self, v: &[i32]) -> Build {
        self.option(0, ints(&[v.len()], v))
    }

    fn offset(self, v: &[i32]) -> Build {
        self.option(1, ints(&[v.len()], v))
    }

    /// A page table over `pages` pages.
    fn table(mut self, pages: usize, v: &[i32]) -> Build {
        self.pages = pages;
        let b = self.e.b;
        self.option(2, ints(&[b, v.len() / b], v))
    }

    fn bias(self, t: Tensor) -> Build {
        self.option(3, t)
    }

    fn sinks(self, v: &[f64]) -> Build {
        self.option(4, values(F32, &[v.len()], v))
    }

    fn key_mask(self, t: Tensor) -> Build {
        self.option(5, t)
    }

    fn case(self, name: impl Into<String>) -> Case {
        let e = self.e;
        let seed = (e.t * 131 + e.s * 7 + e.d) as u64;
        let q = random(self.q, &[e.b, e.t, e.h, e.d], seed);
        let k = random(self.kv, &[self.pages, e.kvh, e.s, e.d], seed + 1);
        let v = random(self.kv, &[self.pages, e.kvh, e.s, e.dv], seed + 2);
        self.case_with(name, q, k, v)
    }

    /// The case with NaN and infinities in the keys and values that `which` names.
    fn poisoned_case(self, name: impl Into<String>, which: &dyn Fn(usize, usize) -> bool) -> Case {
        let mut c = self.case(name);
        for i in [1, 2] {
            if let Some(input) = &mut c.inputs[i] {
                input.tensor = poisoned(&input.tensor, which);
            }
        }
        c
    }

    fn case_with(self, name: impl Into<String>, q: Tensor, k: Tensor, v: Tensor) -> Case {
        let one = |t: Tensor| CaseInput::new(t).layout(self.layout);
        let mut inputs = vec![Some(one(q)), Some(one(k).role(self.role)), Some(one(v).role(self.role))];
        let option = |t: Tensor| CaseInput::new(t).layout(self.option_layout);
        inputs.extend(self.options.into_iter().map(|t| t.map(option)));
        while inputs.last().is_some_and(Option::is_none) {
            inputs.pop();
        }
        case_of(name, self.attrs, inputs, self.tolerance)
    }
}

fn ints(shape: &[usize], v: &[i32]) -> Tensor {
    let v: Vec<f64> = v.iter().map(|v| f64::from(*v)).collect();
    values(DType::I32, shape, &v)
}

/// Zeros, with −∞ at a quarter of the places.
fn holes(shape: &[usize], seed: u64) -> Tensor {
    let mut n = Numbers::new(seed);
    fill(F32, shape, || if n.within(0, 4) == 0 { f64::NEG_INFINITY } else { n.unit() })
}

/// 0 where j ≤ i + s − t, else −∞, for `[t, s]`.
fn triangle(t: usize, s: usize) -> Tensor {
    let at = (0..t).flat_map(|i| (0..s).map(move |j| (i, j)));
    let v: Vec<f64> = at.map(|(i, j)| if j + t <= i + s { 0.0 } else { f64::NEG_INFINITY }).collect();
    values(F32, &[t, s], &v)
}

pub(crate) fn cases() -> Vec<Case> {
    let mut all = lengths();
    all.extend(heads());
    all.extend(masks());
    all.extend(batches());
    all.extend(places());
    all.extend(extremes());
    all.extend(hidden());
    all.extend(tiles());
    all.extend(known());
    all
}

const LENGTHS: [usize; 15] = [1, 2, 7, 8, 31, 32, 33, 63, 64, 65, 127, 128, 1023, 1024, 1025];

/// Numbers of keys and of queries at and one off tile sizes.
fn lengths() -> Vec<Case> {
    let mut all = Vec::new();
    for s in LENGTHS {
        for t in [1, 3, 9] {
            let e = Extents { h: 2, d: 32, dv: 32, ..small(t, s) };
            all.push(Build::new(e).causal().case(format!("causal-t{t}-kv{s}")));
            let f16 = Build::new(e).types(F32, DType::F16);
            all.push(f16.case(format!("open-f16-t{t}-kv{s}")));
        }
        let e = Extents { h: 2, d: 64, dv: 64, ..small(1, s + 40) };
        let b = Build::new(e).causal().types(F32, DType::F16).cached().kv_len(&[s as i32]);
        all.push(b.case(format!("cache-in-part-kv{s}")));
    }
    for t in [2, 4, 5, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 129] {
        all.push(Build::new(small(t, 65)).causal().case(format!("causal-queries-{t}")));
        all.push(Build::new(small(t, t)).causal().window(5, -1).case(format!("sliding-queries-{t}")));
    }
    all.push(Build::new(small(32, 1024)).causal().case("bottom-right-32-of-1024"));
    all.push(Build::new(small(5, 3)).causal().with("lse", true).case("bottom-right-5-of-3"));
    for s in [32767, 32768, 32769] {
        all.push(Build::new(small(1, s)).causal().within(2e-5).case(format!("long-{s}")));
    }
    for (name, t, s) in [("no-queries", 0, 5), ("no-keys", 3, 0)] {
        all.push(Build::new(small(t, s)).causal().with("lse", true).case(name));
    }
    all.push(Build::new(Extents { b: 0, ..small(2, 4) }).case("no-rows"));
    // An additive f16 mask over many heads and an odd number of keys.
    let e = Extents { h: 32, kvh: 8, d: 128, dv: 128, ..small(2, 1748) };
    let h = DType::F16;
    let mask = |t: usize, s: usize| {
        let mut n = Numbers::new(1);
        fill(h, &[1, 1, t, s], || if n.within(0, 3) == 0 { -65504.0 } else { 0.0 })
    };
    all.push(Build::new(e).types(h, h).bias(mask(2, 1748)).case("f16-mask-32-heads"));
    let e = Extents { h: 4, ..small(98, 1748) };
    all.push(Build::new(e).types(h, h).bias(mask(98, 1748)).case("f16-mask-98-queries"));
    all
}

/// Head dimensions, groups of heads, types and layouts.
fn heads() -> Vec<Case> {
    let mut all = Vec::new();
    let (h, b) = (DType::F16, DType::BF16);
    for d in [8, 16, 24, 64, 80, 96, 128, 192, 256] {
        for (q, kv) in [(F32, F32), (F32, h), (F32, b), (h, h), (b, b), (h, F32)] {
            for (t, s) in [(1, 40), (5, 33)] {
                let e = Extents { h: 2, d, dv: d, ..small(t, s) };
                all.push(Build::new(e).causal().types(q, kv).case(format!("d{d}-{q}-{kv}-t{t}")));
            }
        }
    }
    for (d, dv) in [(192, 128), (16, 24), (24, 8), (7, 5), (1, 1), (33, 65)] {
        for t in [1, 6] {
            let e = Extents { d, dv, ..small(t, 37) };
            all.push(Build::new(e).causal().case(format!("d{d}-dv{dv}-t{t}")));
        }
    }
    for (h, kvh) in [(4, 4), (4, 2), (8, 1), (6, 3), (7, 1), (14, 2), (32, 8), (71, 1)] {
        for t in [1, 4, 17] {
            let e = Extents { b: 2, h, kvh, ..small(t, 35) };
            all.push(Build::new(e).causal().case(format!("heads-{h}-of-{kvh}-t{t}")));
            let lse = Build::new(e).causal().types(F32, DType::F16).with("lse", true);
            all.push(lse.case(format!("heads-{h}-of-{kvh}-t{t}-f16-lse")));
        }
    }
    for layout in [Layout::Rows, Layout::Strided] {
        for (q, kv) in [(F32, F32), (F32, h), (h, h), (b, b)] {
            for t in [1, 6] {
                let e = Extents { b: 2, h: 4, kvh: 2, d: 32, dv: 32, ..small(t, 19) };
                let c = Build::new(e).causal().types(q, kv).layout(layout);
                all.push(c.case(format!("{layout:?}-{q}-{kv}-t{t}")));
            }
        }
    }
    for bias in FLOATS {
        let e = Extents { h: 2, ..small(4, 21) };
        let c = Build::new(e).bias(random(bias, &[2, 4, 21], 5));
        all.push(c.case(format!("bias-{bias}")));
    }
    all
}

/// Every mask, alone and with the others.
fn masks() -> Vec<Case> {
    let mut all = Vec::new();
    for bits in 0..72 {
        let pick = |n: usize, of: usize| bits / n % of;
        let (left, right) = ([-1, 0, 3][pick(2, 3)], [-1, 0, 2][pick(6, 3)]);
        let e = Extents { b: 2, h: 2, ..small(5, 9) };
        let mut b = Build::new(e).window(left, right).with("causal", pick(1, 2) == 1).with("lse", true);
        let mut name = format!("mask-{}-l{left}-r{right}", if pick(1, 2) == 1 { "causal" } else { "open" });
        if pick(18, 2) == 1 {
            b = b.bias(holes(&[2, 2, 5, 9], bits as u64));
            name.push_str("-bias");
        }
        if pick(36, 2) == 1 {
            b = b.key_mask(random(DType::Bool, &[2, 9], bits as u64));
            name.push_str("-keys");
        }
        all.push(b.case(name));
    }
    // Causal and the same mask once more as a bias, with the first and some other keys masked out.
    for n in 1..=130 {
        let mut r = Numbers::new(n as u64);
        let mut first = true;
        let keys = fill(DType::Bool, &[1, n], || {
            let keep = !std::mem::take(&mut first) && r.within(0, 3) > 0;
            f64::from(keep)
        });
        let b = Build::new(small(n, n)).causal().bias(triangle(n, n)).key_mask(keys);
        all.push(b.case(format!("causal-and-explicit-{n}")));
    }
    for (name, shape) in [
        ("scalar", vec![]),
        ("key", vec![33]),
        ("head", vec![2, 1, 1]),
        ("row", vec![2, 1, 1, 33]),
        ("query", vec![6, 1]),
        ("full", vec![2, 2, 6, 33]),
    ] {
        let e = Extents { b: 2, h: 2, ..small(6, 33) };
        all.push(Build::new(e).causal().bias(random(F32, &shape, 3)).case(format!("bias-by-{name}")));
    }
    for t in [1, 7] {
        let e = Extents { h: 2, ..small(t, 40) };
        for cap in [0.5, 30.0] {
            let b = Build::new(e).causal().with("softcap", cap).with("scale", 1.0);
            all.push(b.clone().case(format!("softcap-{cap}-t{t}")));
            let b = b.bias(holes(&[t, 40], 4)).with("lse", true);
            all.push(b.case(format!("softcap-{cap}-bias-t{t}")));
        }
        let b = Build::new(e).causal().sinks(&[0.3, -2.0]);
        all.push(b.clone().case(format!("sinks-t{t}")));
        all.push(b.clone().with("lse", true).window(4, -1).case(format!("sinks-window-lse-t{t}")));
        all.push(b.sinks(&[50.0, -50.0]).case(format!("large-sinks-t{t}")));
        let f16 = Build::new(e).causal().sinks(&[0.0, 1.0]).types(DType::F16, DType::F16);
        all.push(f16.case(format!("sinks-f16-t{t}")));
    }
    all
}

/// Rows with lengths and offsets of their own.
fn batches() -> Vec<Case> {
    let mut all = Vec::new();
    let e = |t| Extents { b: 4, h: 4, kvh: 2, ..small(t, 33) };
    for (left, name) in [(-1, "causal"), (6, "sliding")] {
        for t in [1, 3, 8] {
            let b = Build::new(e(t)).causal().window(left, -1).with("lse", true);
            all.push(b.clone().kv_len(&[9; 4]).case(format!("equal-lengths-{name}-t{t}")));
            all.push(b.clone().kv_len(&[0, 1, 17, 33]).case(format!("lengths-{name}-t{t}")));
            let c = b.clone().kv_len(&[20, 33, 8, 12]).offset(&[12, 3, 7, -2]);
            all.push(c.case(format!("lengths-and-offsets-{name}-t{t}")));
            all.push(b.clone().offset(&[11]).case(format!("one-offset-{name}-t{t}")));
            let c = b.types(F32, DType::F16).kv_len(&[33, 16, 5, 32]);
            all.push(c.cached().case(format!("lengths-f16-{name}-t{t}")));
        }
    }
    // Lengths outside the cache count as none or all of it.
    let b = Build::new(e(2)).kv_len(&[-3, 34, i32::MAX, i32::MIN]).offset(&[5]);
    all.push(b.clone().case("lengths-out-of-range"));
    all.push(b.causal().window(8, 2).case("lengths-out-of-range-masked"));
    let far = Build::new(e(2)).causal().offset(&[i32::MAX, i32::MIN, 1 << 30, -(1 << 30)]);
    all.push(far.clone().case("offsets-far-out"));
    all.push(far.window(16, 3).case("offsets-far-out-window"));
    all
}

/// Pages and rings.
fn places() -> Vec<Case> {
    let mut all = Vec::new();
    for t in [1, 3, 9] {
        let e = Extents { b: 3, h: 4, kvh: 2, ..small(t, 16) };
        let table = [6, 0, 3, 2, 5, 1, 4, -1, -1];
        for (q, kv) in [(F32, F32), (F32, DType::F16), (DType::BF16, DType::BF16)] {
            let b = Build::new(e).causal().types(q, kv).cached().table(7, &table).kv_len(&[33, 48, 9]);
            all.push(b.case(format!("table-{q}-{kv}-t{t}")));
        }
        let b = Build::new(e).table(7, &table).kv_len(&[17, 31, 16]);
        let extra =
            b.clone().causal().bias(holes(&[3, 1, t, 48], 6)).key_mask(random(DType::Bool, &[3, 48], 7));
        all.push(extra.case(format!("table-masked-t{t}")));
        all.push(b.clone().window(7, 1).with("lse", true).case(format!("table-window-t{t}")));
        for layout in [Layout::Rows, Layout::Strided] {
            let all_masks = Build { option_layout: layout, ..b.clone() };
            let all_masks =
                all_masks.bias(holes(&[3, 1, t, 48], 8)).key_mask(random(DType::Bool, &[3, 48], 9));
            let all_masks = all_masks.offset(&[14, 30, 11]).sinks(&[0.5, -1.0, 0.0, 2.0]);
            all.push(all_masks.case(format!("table-masked-{layout:?}-t{t}")));
        }
        // Pages that do not exist hold no keys.
        let bad = [6, 7, 3, -1, i32::MAX, i32::MIN, 0, 0, 1];
        let b = Build::new(e).table(7, &bad).kv_len(&[48, 48, 40]).with("lse", true);
        all.push(b.case(format!("table-of-bad-pages-t{t}")));
        let ring = Build::new(e).causal().with("ring", true).cached().with("lse", true);
        for (name, len) in [("partly", [5, 9, 15]), ("just", [16, 17, 31]), ("often", [32, 50, 1003])] {
            all.push(ring.clone().kv_len(&len).case(format!("ring-{name}-full-t{t}")));
            let window = ring.clone().window(6, -1).types(F32, DType::F16);
            all.push(window.kv_len(&len).case(format!("ring-{name}-full-window-t{t}")));
        }
        let sinks = ring.kv_len(&[40, 16, 3]).sinks(&[0.1, 0.2, -0.3, 2.0]).with("softcap", 5.0);
        all.push(sinks.case(format!("ring-sinks-softcap-t{t}")));
    }
    let e = Extents { b: 2, h: 2, d: 64, dv: 64, ..small(1, 1) };
    all.push(Build::new(e).table(5, &[4, 1, 3, 0, 2, 2]).kv_len(&[3, 2]).case("pages-of-one-slot"));
    let e = Extents { h: 2, d: 64, dv: 64, ..small(1, 32) };
    let table: Vec<i32> = (0..40).map(|i| i * 7 % 40).collect();
    all.push(Build::new(e).causal().table(40, &table).kv_len(&[1250]).case("many-pages"));
    all
}

/// Scores that overflow an unguarded exponential, and masks made of huge numbers.
fn extremes() -> Vec<Case> {
    let mut all = Vec::new();
    let steps = |sign: f64| {
        let mut i = 0usize;
        fill(F32, &[1, 1, 9, 16], || {
            i += 1;
            sign * (1 + (i - 1) / 16) as f64
        })
    };
    for (t, f) in [(1, 100.0), (4, 100.0)] {
        let q = || values(F32, &[1, t, 1, 16], &vec![f; 16 * t]);
        let v = random(F32, &[1, 1, 9, 16], 3);
        let b = Build::new(small(t, 9)).with("scale", 1.0).with("lse", true);
        all.push(b.clone().case_with(format!("scores-to-14400-t{t}"), q(), steps(1.0), v.clone()));
        all.push(b.case_with(format!("scores-to-minus-14400-t{t}"), q(), steps(-1.0), v));
    }
    for t in [1, 3, 17] {
        let lowest = f64::from(f32::MIN);
        let mut n = Numbers::new(2);
        let b = Build::new(small(t, 34)).causal();
        let some = fill(F32, &[t, 34], || if n.within(0, 2) == 0 { lowest } else { 0.0 });
        all.push(b.clone().bias(some).case(format!("bias-lowest-here-and-there-t{t}")));
        let never = values(DType::Bool, &[1, 34], &[0.0; 34]);
        let none = b.clone().key_mask(never).with("lse", true);
        all.push(none.clone().case(format!("nothing-seen-t{t}")));
        all.push(none.sinks(&[0.7]).case(format!("nothing-seen-sinks-t{t}")));
        let closed = values(F32, &[1], &[f64::NEG_INFINITY]);
        all.push(b.clone().bias(closed).case(format!("bias-all-closed-t{t}")));
        let first = b.window(0, -1).offset(&[-20]).with("lse", true);
        all.push(first.types(DType::F16, DType::F16).case(format!("nothing-in-window-t{t}")));
    }
    all
}

/// `t` with NaN and infinities in the rows (its first three dimensions but one, heads aside) that `which` names by page and slot.
fn poisoned(t: &Tensor, which: impl Fn(usize, usize) -> bool) -> Tensor {
    let (shape, mut v) = (t.shape().to_vec(), t.to_f64().expect("floats"));
    let bad = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
    for (row, v) in v.chunks_exact_mut(shape[3]).enumerate() {
        let (page, slot) = (row / (shape[1] * shape[2]), row % shape[2]);
        if which(page, slot) {
            v.iter_mut().enumerate().for_each(|(i, v)| *v = bad[(row + i) % 3]);
        }
    }
    values(t.dtype(), &shape, &v)
}

/// Keys that no query may see, or only some, hold NaN and infinities: nothing of them shows where they are not seen, and
/// where they are it shows.
fn hidden() -> Vec<Case> {
    let (h, b) = (DType::F16, DType::BF16);
    let mut all = Vec::new();
    for (q, kv) in [(F32, F32), (F32, h), (F32, b), (h, h), (b, b), (h, F32)] {
        for t in [1, 3, 5, 17] {
            // One, two and more tiles of keys; head dimensions with and without a rest.
            for (s, d, dv) in [(40, 16, 16), (130, 24, 40)] {
                let e = Extents { b: 2, h: 4, kvh: 2, d, dv, ..small(t, s) };
                let make = Build::new(e).types(q, kv).with("lse", true);
                let closed = |page: usize, slot: usize| (slot * 7 + page) % 5 == 2;
                let name = |kind: &str| format!("hidden-{kind}-{q}-{kv}-t{t}-kv{s}");
                let mut add = |b: Build, kind: &str, which: &dyn Fn(usize, usize) -> bool| {
                    all.push(b.poisoned_case(name(kind), which));
                };
                let (first, last) = (s - t, s - 1);
                add(make.clone().causal(), "causal", &|_, j| j == first + t / 2);
                add(make.clone().causal().offset(&[first as i32 - 2]), "ahead", &|_, j| j >= last - 1);
                add(make.clone().window(6, 0), "window", &|_, j| j + 8 < first || j == first - 4);
                let len = [(s - 9) as i32, (s / 2) as i32];
                let beyond = |p: usize, j: usize| j as i32 >= len[p];
                add(make.clone().causal().kv_len(&len), "length", &beyond);
                let open = |v: f64| {
                    let at = (0..2).flat_map(|p| (0..s).map(move |j| (p, j)));
                    at.map(|(p, j)| if closed(p, j) { v } else { 0.0 }).collect::<Vec<f64>>()
                };
                let bias = values(q, &[2, 1, 1, s], &open(f64::NEG_INFINITY));
                add(make.clone().bias(bias), "bias", &closed);
                let keep: Vec<f64> = open(-1.0).iter().map(|v| v + 1.0).collect();
                let mask = values(DType::Bool, &[2, s], &keep);
                add(make.clone().key_mask(mask), "keys", &closed);
                let capped =
                    make.clone().with("softcap", 8.0).bias(triangle(t, s)).sinks(&[0.5, 0.0, 1.0, -1.0]);
                add(capped, "bias-of-some", &|_, j| j == first + t / 2);
            }
            let e = Extents { b: 2, h: 4, kvh: 2, ..small(t, 32) };
            let make = Build::new(e).types(q, kv).causal().cached();
            let ring = make.clone().with("ring", true).kv_len(&[20, 7]).within(rounding(kv, q));
            let unwritten = |p: usize, j: usize| j >= [20, 7][p];
            all.push(ring.poisoned_case(format!("hidden-ring-{q}-{kv}-t{t}"), &unwritten));
            // Row 0 has 39 keys in pages 4 and 1, row 1 has 50 in pages 0 and 3; page 2 is nobody's.
            let table = make.table(5, &[4, 1, 0, 3]).kv_len(&[39, 50]);
            let free = |p: usize, j: usize| p == 2 || (p == 1 && j >= 7) || (p == 3 && j >= 18);
            all.push(table.poisoned_case(format!("hidden-table-{q}-{kv}-t{t}"), &free));
        }
    }
    // A query that is not a number gives what is none, and the others keep theirs.
    for t in [1, 12] {
        let (e, nan) = (Extents { h: 2, ..small(t, 70) }, f64::NAN);
        let mut n = Numbers::new(9);
        let mut i = 0usize;
        let q = fill(F32, &[1, t, 2, 16], || {
            i += 1;
            if i == 20 { nan } else { n.unit() }
        });
        let (k, v) = (random(F32, &[1, 1, 70, 16], 4), random(F32, &[1, 1, 70, 16], 5));
        let b = Build::new(e).causal().with("lse", true);
        all.push(b.case_with(format!("query-of-nan-t{t}"), q, k, v));
    }
    all
}

/// What weights rounded to the type of the values, where the queries have it too, may differ by.
fn rounding(kv: DType, q: DType) -> f64 {
    let same = if kv == DType::BF16 { 4e-3 } else { 5e-4 };
    if q == kv && kv != F32 { same } else { 0.0 }
}

/// More queries and keys than a tile of matrix units has, at and off its edges.
fn tiles() -> Vec<Case> {
    let mut all = Vec::new();
    for kv in [DType::BF16, DType::F16] {
        let e = |t, s, d, dv| Extents { b: 2, h: 4, kvh: 2, d, dv, ..small(t, s) };
        let b = |e: Extents| Build::new(e).types(kv, kv).within(rounding(kv, kv));
        let mut add = |name: &str, b: Build| all.push(b.case(format!("tiles-{name}-{kv}")));
        for (t, s) in [(128, 128), (129, 257), (40, 300)] {
            add(&format!("causal-t{t}-kv{s}"), b(e(t, s, 64, 64)).causal());
            add(&format!("open-t{t}-kv{s}"), b(e(t, s, 128, 128)));
        }
        add("d96-dv80", b(e(70, 140, 96, 80)).causal());
        add("d128-dv24", b(e(9, 130, 128, 24)).causal());
        add("window", b(e(150, 200, 64, 64)).window(20, 5));
        add("sliding", b(e(130, 260, 128, 128)).causal().window(64, -1));
        add("softcap", b(e(20, 140, 64, 64)).causal().with("softcap", 2.0));
        add("negative-scale", b(e(20, 140, 64, 64)).causal().with("scale", -0.25));
        add("lengths", b(e(20, 140, 128, 128)).causal().cached().kv_len(&[131, 9]).offset(&[100, -3]));
        add("one-offset", b(e(20, 140, 64, 64)).causal().kv_len(&[131, 20]).offset(&[60]));
        let ring = b(e(20, 140, 64, 64)).causal().cached().with("ring", true);
        add("ring", ring.clone().kv_len(&[300, 30]).window(100, -1));
        add("ring-in-part", ring.kv_len(&[140, 30]));
        add("rows", b(e(20, 140, 128, 128)).causal().layout(Layout::Rows));
        for (name, at) in [("causal", 125), ("late", 139)] {
            let b = b(e(30, 140, 64, 64)).causal();
            all.push(b.poisoned_case(format!("tiles-hidden-{name}-{kv}"), &|_, j| j == at));
        }
    }
    all
}

/// Results known without the reference.
fn known() -> Vec<Case> {
    let e = |t, s| Extents { d: 2, dv: 2, ..small(t, s) };
    let q = |t: usize| values(F32, &[1, t, 1, 2], &vec![1.0; 2 * t]);
    let zero = |s: usize| values(F32, &[1, 1, s, 2], &vec![0.0; 2 * s]);
    let v3 = || values(F32, &[1, 1, 3, 2], &[3.0, 30.0, 6.0, 60.0, 9.0, 90.0]);
    let lse = |b: Build| b.with("lse", true);
    let ln = |v: f64| v.ln();
    let inf = f64::NEG_INFINITY;
    // Equal scores: each query gets the mean of the values it sees.
    let causal = lse(Build::new(e(3, 3)).causal()).case_with("mean-causal", q(3), zero(3), v3());
    let want: &[&[f64]] = &[&[3.0, 30.0, 4.5, 45.0, 6.0, 60.0], &[0.0, ln(2.0), ln(3.0)]];
    let mut all = vec![expecting(causal, want)];
    let right = lse(Build::new(e(5, 3)).causal()).case_with("mean-bottom-right", q(5), zero(3), v3());
    let want: &[&[f64]] =
        &[&[0.0, 0.0, 0.0, 0.0, 3.0, 30.0, 4.5, 45.0, 6.0, 60.0], &[inf, inf, 0.0, ln(2.0), ln(3.0)]];
    all.push(expecting(right, want));
    let window = Build::new(e(3, 3)).window(0, 1).case_with("mean-window", q(3), zero(3), v3());
    all.push(expecting(window, &[&[4.5, 45.0, 7.5, 75.0, 9.0, 90.0]]));
    // A sink of the same score takes a quarter.
    let sink = lse(Build::new(e(1, 3))).sinks(&[0.0]).case_with("mean-sink", q(1), zero(3), v3());
    all.push(expecting(sink, &[&[4.5, 45.0], &[ln(4.0)]]));
    let only =
        lse(Build::new(e(1, 3)).kv_len(&[0])).sinks(&[0.5]).case_with("sink-only", q(1), zero(3), v3());
    all.push(expecting(only, &[&[0.0, 0.0], &[0.5]]));
    // The second of three values is not a number: the first query does not see it, the mask hides it from the others.
    let v = values(F32, &[1, 1, 3, 2], &[3.0, 30.0, f64::NAN, f64::INFINITY, 9.0, 90.0]);
    let k = values(F32, &[1, 1, 3, 2], &[0.0, 0.0, f64::INFINITY, f64::NAN, 0.0, 0.0]);
    let mask = values(DType::Bool, &[1, 3], &[1.0, 0.0, 1.0]);
    let c = Build::new(e(3, 3)).causal().key_mask(mask).case_with("mean-around-nan", q(3), k, v);
    all.push(expecting(c, &[&[3.0, 30.0, 3.0, 30.0, 6.0, 60.0]]));
    // A bias of ln 3 makes the first of two keys three times as heavy.
    let bias = values(F32, &[3], &[ln(3.0), 0.0, inf]);
    let heavy = lse(Build::new(e(1, 3))).bias(bias).case_with("bias-ln-3", q(1), zero(3), v3());
    all.push(expecting(heavy, &[&[3.75, 37.5], &[ln(4.0)]]));
    // Key 3 stands in slot 0 of a ring of three slots; keys 1 to 3 exist, and the query at 3 sees the last two.
    let ring = Build::new(e(1, 3)).causal().window(1, -1).with("ring", true).kv_len(&[4]);
    all.push(expecting(ring.case_with("mean-ring", q(1), zero(3), v3()), &[&[6.0, 60.0]]));
    // tanh: scores of ±2·10 capped at 1 give weights e^1 and e^−1.
    let k = values(F32, &[1, 1, 2, 2], &[10.0, 10.0, -10.0, -10.0]);
    let v = values(F32, &[1, 1, 2, 2], &[1.0, 0.0, 0.0, 1.0]);
    let c = Build::new(e(1, 2)).with("scale", 1.0).with("softcap", 1.0).case_with("softcap-1", q(1), k, v);
    let first = 1.0 / (1.0 + (-2f64).exp());
    all.push(expecting(c, &[&[first, 1.0 - first]]));
    all
}
