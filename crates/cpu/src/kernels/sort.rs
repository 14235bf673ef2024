//! `sort` and `top_k`: the first `k` elements of each row in order, `sort` asking for all of them.
//!
//! Each element becomes a *place*: a number with the element's rank among all values of its type above and its index below.
//! No two places are equal, so whatever way they are ordered, the result is that of a stable sort, and the same on any number
//! of threads. NaN ranks above every number, −0 as +0; descending, ranks are complemented and indices are not.

use frit_ir::DType;
use frit_ir::target::{KernelRow, LayoutClass};

use super::row::{COMPUTE, CpuRow, PLAIN, int, one};
use super::walk::Line;
use crate::args::Args;

/// Rows of this file.
pub static ROWS: &[CpuRow] = &[
    CpuRow { row: KernelRow { name: "sort", op: "sort", ..ROW }, kernel: |_| first },
    CpuRow { row: KernelRow { name: "top_k", op: "top_k", ..ROW }, kernel: |_| first },
];

const ROW: KernelRow = KernelRow {
    inputs: &[one("x", COMPUTE, LayoutClass::Strided)],
    outputs: &[one("values", COMPUTE, LayoutClass::Dense), one("indices", &[DType::I32], LayoutClass::Dense)],
    params: &[int("axis"), int("descending")],
    // See `room` and `SLOT`.
    scratch: "min(threads, rows)*min(extent, 2*k+64)*16",
    ..PLAIN
};

/// Bytes of scratch for a place: one of 16 bytes, or two of 8, the second for the radix sort.
const SLOT: usize = 16;

/// Places that are held to find the first `k` of `n`. Twice `k`, so that a selection leaves at least half; and not too few, so
/// that selections are rare for small `k`.
fn room(n: usize, k: usize) -> usize {
    n.min(2 * k + 64)
}

/// From here on a radix sort is faster than one by comparisons.
const RADIX: usize = 256;

unsafe fn first(args: &Args) {
    // SAFETY: the caller's, for each type.
    unsafe {
        match args.operands[0].dtype {
            DType::F64 => rows::<u64, u128>(args, |v| float(v, 64, f64::INFINITY.to_bits())),
            DType::F32 => rows::<u32, u64>(args, |v| float(v, 32, f32::INFINITY.to_bits().into())),
            DType::F16 => rows::<u16, u64>(args, |v| float(v, 16, half::f16::INFINITY.to_bits().into())),
            DType::BF16 => rows::<u16, u64>(args, |v| float(v, 16, half::bf16::INFINITY.to_bits().into())),
            DType::I64 => rows::<u64, u128>(args, |v| signed(v, 64)),
            DType::I32 => rows::<u32, u64>(args, |v| signed(v, 32)),
            DType::I16 => rows::<u16, u64>(args, |v| signed(v, 16)),
            DType::I8 => rows::<u8, u64>(args, |v| signed(v, 8)),
            DType::U64 => rows::<u64, u128>(args, |v| v),
            DType::U32 => rows::<u32, u64>(args, |v| v),
            DType::U16 => rows::<u16, u64>(args, |v| v),
            _ => rows::<u8, u64>(args, |v| v),
        }
    }
}

/// The rank of the float of `width` bits whose magnitude is NaN above `infinity`.
#[inline(always)]
fn float(bits: u64, width: u32, infinity: u64) -> u64 {
    let sign = 1u64 << (width - 1);
    let magnitude = bits & (sign - 1);
    // All ones if negative. No branch: signs are as good as random.
    let negative = 0u64.wrapping_sub(bits >> (width - 1));
    let rank = sign.wrapping_add((magnitude ^ negative).wrapping_sub(negative));
    if magnitude > infinity { u64::MAX >> (64 - width) } else { rank }
}

/// The rank of the two's complement integer of `width` bits.
#[inline(always)]
fn signed(bits: u64, width: u32) -> u64 {
    bits ^ 1 << (width - 1)
}

/// A rank above an index.
trait Place: Copy + Ord {
    /// Above every place.
    const END: Self;
    /// The bits of a rank.
    const RANKS: u64;
    fn new(rank: u64, index: usize) -> Self;
    fn index(self) -> usize;
    /// `places`, which are in the order of their indices, sorted, there or in `spare`.
    fn sort<'a>(places: &'a mut [Self], spare: &'a mut [Self]) -> &'a [Self];
}

/// Ranks of up to 32 bits.
impl Place for u64 {
    const END: u64 = u64::MAX;
    const RANKS: u64 = u32::MAX as u64;

    #[inline(always)]
    fn new(rank: u64, index: usize) -> u64 {
        rank << 32 | index as u64
    }
    #[inline(always)]
    fn index(self) -> usize {
        self as u32 as usize
    }
    fn sort<'a>(places: &'a mut [u64], spare: &'a mut [u64]) -> &'a [u64] {
        if places.len() < RADIX {
            places.sort_unstable();
            return places;
        }
        radix(places, spare)
    }
}

/// Ranks of 64 bits.
impl Place for u128 {
    const END: u128 = u128::MAX;
    const RANKS: u64 = u64::MAX;

    #[inline(always)]
    fn new(rank: u64, index: usize) -> u128 {
        u128::from(rank) << 64 | index as u128
    }
    #[inline(always)]
    fn index(self) -> usize {
        self as u64 as usize
    }
    fn sort<'a>(places: &'a mut [u128], _: &'a mut [u128]) -> &'a [u128] {
        places.sort_unstable();
        places
    }
}

/// Sorts by the bytes of the ranks, the lowest first; each pass keeps the order of equal bytes. A byte that all ranks share takes
/// no pass.
fn radix<'a>(mut from: &'a mut [u64], mut to: &'a mut [u64]) -> &'a [u64] {
    let byte = |p: u64, pass: usize| (p >> (32 + 8 * pass) & 0xff) as usize;
    let mut counts = [[0u32; 256]; 4];
    for p in from.iter() {
        for (pass, c) in counts.iter_mut().enumerate() {
            c[byte(*p, pass)] += 1;
        }
    }
    for (pass, starts) in counts.iter_mut().enumerate() {
        if starts[byte(from[0], pass)] as usize == from.len() {
            continue;
        }
        let mut start = 0;
        for s in starts.iter_mut() {
            start += std::mem::replace(s, start);
        }
        for p in from.iter() {
            let s = &mut starts[byte(*p, pass)];
            to[*s as usize] = *p;
            *s += 1;
        }
        std::mem::swap(&mut from, &mut to);
    }
    from
}

/// The rows of this thread. `rank` gives the rank of an element from its bits.
#[inline(always)]
unsafe fn rows<E: Copy + Into<u64>, P: Place>(args: &Args, rank: impl Fn(u64) -> u64) {
    let [x, values, indices] = args.operands else { return };
    let axis = args.params[0].int() as usize;
    let complement = if args.params[1].int() != 0 { P::RANKS } else { 0 };
    let (n, k) = (x.dims[axis] as usize, values.dims[axis] as usize);
    if values.is_empty() {
        return;
    }
    let (team, count) = (&args.team, values.len() as usize / k);
    let mine = team.range(count, 1);
    if mine.is_empty() {
        return;
    }
    // With fewer rows than threads a thread has one row, and its scratch is that row's.
    let slot = if count < team.threads { mine.start } else { team.thread };
    let bytes = room(n, k) * SLOT;
    // SAFETY: the scratch formula has a slot for each thread that has rows; every bit pattern is a place.
    let buffer = unsafe {
        let start = args.scratch.add(slot * bytes).cast::<P>();
        std::slice::from_raw_parts_mut(start, bytes / size_of::<P>())
    };
    for row in mine {
        let from = Line::of(x, axis, row);
        // SAFETY: the caller's: the row has `n` elements of this size.
        let at = |i: usize| unsafe { from.ptr.cast::<E>().offset(i as isize * from.stride).read() };
        let places = (0..n).map(|i| P::new(rank(at(i).into()) ^ complement, i));
        let best = best(places, k, room(n, k), buffer);
        let (values, indices) = (Line::of(values, axis, row), Line::of(indices, axis, row));
        for (j, p) in best.iter().enumerate() {
            // SAFETY: the caller's: rows of the results are this thread's and have `k` elements.
            unsafe {
                values.at(j, size_of::<E>()).cast::<E>().write(at(p.index()));
                indices.at(j, 4).cast::<i32>().write(p.index() as i32);
            }
        }
    }
}

/// The lowest `k` of `places` in order, found in `buffer`, of which the first `room` places are held. `room` is more than `k` or
/// their number.
#[inline(always)]
fn best<P: Place>(places: impl ExactSizeIterator<Item = P>, k: usize, room: usize, buffer: &mut [P]) -> &[P] {
    let (n, mut len, mut end) = (places.len(), 0, P::END);
    for p in places {
        if p >= end {
            continue;
        }
        if len == room {
            buffer[..len].select_nth_unstable(k - 1);
            (len, end) = (k, buffer[k - 1]);
            if p >= end {
                continue;
            }
        }
        buffer[len] = p;
        len += 1;
    }
    if len == n && n <= 2 * k {
        // All are here, in the order of their indices.
        let (places, spare) = buffer.split_at_mut(n);
        return &P::sort(places, spare)[..k];
    }
    buffer[..len].select_nth_unstable(k - 1);
    buffer[..k].sort_unstable();
    &buffer[..k]
}

#[cfg(test)]
mod tests {
    use frit_ir::Dim;

    use super::*;
    use crate::kernels::testing::{Array, Call, Random};

    /// Bytes of scratch by the formula of the rows.
    fn scratch(threads: i64, rows: i64, n: i64, k: i64) -> usize {
        let sizes = [("threads", threads), ("rows", rows), ("extent", n), ("k", k)];
        let d: Dim = frit_ir::text::parse_dim(ROW.scratch).unwrap();
        d.eval(&|s| sizes.iter().find(|(name, _)| *name == s.name()).map(|p| p.1)).unwrap() as usize
    }

    #[test]
    fn scratch_holds_the_room_of_every_thread_with_rows() {
        for (threads, rows, n, k) in [(1, 9, 7, 7), (4, 3, 1000, 5), (4, 9, 1000, 1000), (2, 2, 70, 3)] {
            let want = threads.min(rows) as usize * room(n as usize, k as usize) * SLOT;
            assert_eq!(scratch(threads, rows, n, k), want);
        }
    }

    /// Rows are permutations of their operands, bit for bit, and each element stands before the next: by value, NaN above every
    /// number, then by index.
    fn check(d: DType, x: &[f64], out: &[Array], (n, k): (usize, usize), descending: bool) {
        let (values, indices) = (out[0].values(), out[1].values());
        for (row, x) in x.chunks(n).enumerate() {
            let at: Vec<usize> = indices[row * k..][..k].iter().map(|i| *i as usize).collect();
            let mut seen = vec![false; n];
            assert!(at.iter().all(|i| !std::mem::replace(&mut seen[*i], true)), "{d}: an index twice");
            for (v, i) in values[row * k..].iter().zip(&at) {
                assert!(v.to_bits() == x[*i].to_bits() || v.is_nan() && x[*i].is_nan(), "{d}: {v} at {i}");
            }
            let before = |a: usize, b: usize| {
                let (u, v) = if descending { (x[b], x[a]) } else { (x[a], x[b]) };
                let same = u == v || u.is_nan() && v.is_nan();
                u < v || !u.is_nan() && v.is_nan() || same && a < b
            };
            assert!(at.windows(2).all(|w| before(w[0], w[1])), "{d}: out of order");
            let last = *at.last().unwrap();
            let rest = (0..n).filter(|i| !seen[*i]);
            assert!(rest.into_iter().all(|i| before(last, i)), "{d}: an element was passed over");
        }
    }

    #[test]
    fn rows_are_ordered_permutations() {
        for d in COMPUTE.iter().copied() {
            for (rows, n) in [(5, 1), (1, 255), (2, 256), (3, 700), (2, 1025)] {
                let mut r = Random(n as u64);
                // Few values, so that most elements have equals.
                let number = |r: &mut Random| match r.next() % 8 {
                    0 if d.is_float() => f64::NAN,
                    1 if d.is_float() => -0.0,
                    _ if d == DType::Bool => (r.next() % 2) as f64,
                    _ => {
                        (r.next() % 100) as f64
                            - if d.info().kind == frit_ir::dtype::Kind::Unsigned { 0.0 } else { 50.0 }
                    }
                };
                let v: Vec<f64> = (0..rows * n).map(|_| number(&mut r)).collect();
                let (a, b) = (rows as i64, n as i64);
                for strides in [[b, 1], [b + 3, 1], [2, 2 * a]] {
                    for k in [1, n.min(7), n / 2 + 1, n] {
                        for descending in [false, true] {
                            let x = Array::strided(d, &[a, b], &strides, &v);
                            let dims = [a, k as i64];
                            let out = vec![Array::room(d, &dims), Array::room(DType::I32, &dims)];
                            let mut call = Call::new(&ROWS[1], vec![x], out);
                            call.scratch = scratch(3, a, b, k as i64);
                            let call = call.params([1.0, f64::from(u8::from(descending))]);
                            check(d, &v, &call.run(), (n, k), descending);
                        }
                    }
                }
            }
        }
    }
}
