//! One unit of attention over one chunk of keys, and the merge of chunks into results.

use std::ops::Range;

use super::keys::Piece;
use super::products::{are_finite, scores, weigh};
use super::{Call, ROWS_MAX, TILE, Unit};
use crate::args::Operand;
use crate::kernels::lanes::{Element, Floats, LANES, Lanes, array, steps, sum};
use crate::math;

/// A thread's working memory: query rows times the scale, a transposed tile of keys, scores.
pub(super) struct Scratch {
    q: *mut f32,
    turned: *mut f32,
    scores: *mut f32,
}

impl Scratch {
    /// Floats of it.
    pub fn floats(d: usize) -> usize {
        2 * ROWS_MAX * d.next_multiple_of(LANES) + ROWS_MAX * TILE
    }

    /// That of a thread.
    pub fn of(base: *mut f32, thread: usize, d: usize) -> Scratch {
        let q = base.wrapping_add(thread * Scratch::floats(d));
        let rows = ROWS_MAX * d.next_multiple_of(LANES);
        Scratch { q, turned: q.wrapping_add(rows), scores: q.wrapping_add(2 * rows) }
    }
}

/// The running softmax of a unit's rows: the largest score, the sum of e^(score − largest), and the values weighted alike.
pub(super) struct State {
    most: *mut f32,
    sum: *mut f32,
    out: *mut f32,
    floats: usize,
}

impl State {
    /// State number `n`.
    pub fn of(base: *mut f32, n: usize, dv: usize) -> State {
        let floats = ROWS_MAX * (dv + 2);
        let most = base.wrapping_add(n * floats);
        State { most, sum: most.wrapping_add(ROWS_MAX), out: most.wrapping_add(2 * ROWS_MAX), floats }
    }

    /// The `n`-th state after this one.
    fn after(&self, n: usize) -> State {
        let skip = |p: *mut f32| p.wrapping_add(n * self.floats);
        State { most: skip(self.most), sum: skip(self.sum), out: skip(self.out), floats: self.floats }
    }
}

/// Offset of [b, i, h, 0] in q, out or (with three dimensions) lse.
fn at(o: &Operand, b: usize, i: usize, h: usize) -> isize {
    (b as i64 * o.strides[0] + i as i64 * o.strides[1] + h as i64 * o.strides[2]) as isize
}

/// The query rows, times the scale, as f32 padded with zeros.
#[inline(always)]
unsafe fn load_queries<L: Lanes>(call: &Call, u: &Unit, to: *mut f32) {
    let stride = call.d.next_multiple_of(LANES);
    for r in 0..u.rows() {
        let q = Floats { ptr: call.q.ptr, dtype: call.q.dtype };
        let q = q.skip(at(call.q, u.b, u.query + r / u.heads, u.head + r % u.heads));
        for (i, n) in steps(call.d) {
            // SAFETY: the caller's: the row has `d` elements, and `to` has room for the padded rows.
            unsafe { L::store(to.add(r * stride + i), L::mul(q.load::<L>(i, n), L::splat(call.scale))) };
        }
    }
}

/// The keys of chunk `chunk` out of `all`.
fn chunk_of(call: &Call, all: Range<i64>, chunk: usize) -> Range<i64> {
    let n = (all.end - all.start).max(0) as usize;
    let each = n.div_ceil(call.chunks).next_multiple_of(TILE);
    let from = |c: usize| all.start + (c * each).min(n) as i64;
    from(chunk)..from(chunk + 1)
}

/// Computes chunk `chunk` of the unit into `state`.
///
/// # Safety
/// Operands as the executor ensures; scratch and state are this thread's.
#[inline(always)]
pub(super) unsafe fn attend<L: Lanes, E: Element>(
    call: &Call,
    u: &Unit,
    chunk: usize,
    scratch: &Scratch,
    state: &State,
) {
    let rows = u.rows();
    // SAFETY: the caller's, throughout.
    unsafe {
        std::slice::from_raw_parts_mut(state.most, rows).fill(f32::NEG_INFINITY);
        std::slice::from_raw_parts_mut(state.sum, rows).fill(0.0);
        std::slice::from_raw_parts_mut(state.out, rows * call.dv).fill(0.0);
        let (all, offset) = call.keys.row(u.b);
        let mut seen = [(0i64, 0i64); ROWS_MAX];
        let (mut first, mut end) = (all.end, all.start);
        for (i, s) in seen.iter_mut().enumerate().take(u.queries) {
            let r = call.keys.seen(&all, offset, u.query + i);
            *s = (r.start, r.end);
            if r.start < r.end {
                (first, end) = (first.min(r.start), end.max(r.end));
            }
        }
        let mine = chunk_of(call, first..end.max(first), chunk);
        if mine.is_empty() {
            return;
        }
        load_queries::<L>(call, u, scratch.q);
        let mut key = mine.start;
        while key < mine.end {
            let piece = call.keys.piece(u.b, key, mine.end);
            key += piece.n as i64;
            if call.keys.exists(&piece) {
                tile::<L, E>(call, u, &piece, &seen, scratch, state);
            }
        }
    }
}

/// First element of the piece in k or v.
fn place<E>(o: &Operand, u: &Unit, p: &Piece) -> *const E {
    let at = p.page * o.strides[0] + u.kv_head as i64 * o.strides[1] + p.slot * o.strides[2];
    o.ptr.cast::<E>().wrapping_offset(at as isize)
}

/// One tile of keys.
#[inline(always)]
unsafe fn tile<L: Lanes, E: Element>(
    call: &Call,
    u: &Unit,
    p: &Piece,
    seen: &[(i64, i64); ROWS_MAX],
    scratch: &Scratch,
    state: &State,
) {
    let (rows, n) = (u.rows(), p.n);
    // SAFETY: the caller's.
    unsafe {
        let (k, v) = (place::<E>(call.k, u, p), place::<E>(call.v, u, p));
        let stride = call.d.next_multiple_of(LANES);
        let k_stride = call.k.strides[2] as isize;
        scores::<L, E>(scratch.q, stride, rows, call.d, k, k_stride, n, scratch.turned, scratch.scores);
        let (mut shown, mut hidden) = ([0u64; ROWS_MAX], 0);
        for r in 0..rows {
            let (start, end) = seen[r / u.heads];
            let cut = |key: i64| (key - p.key).clamp(0, n as i64) as usize;
            let s = &mut *scratch.scores.add(r * TILE).cast::<[f32; TILE]>();
            shown[r] = mask(call, u, p, r, cut(start)..cut(end).max(cut(start)), s);
            hidden |= bits(0..n) & !shown[r];
            let scale = step::<L>(s, &mut *state.most.add(r), &mut *state.sum.add(r));
            if scale != 1.0 {
                let out = std::slice::from_raw_parts_mut(state.out.add(r * call.dv), call.dv);
                out.iter_mut().for_each(|o| *o *= scale);
            }
        }
        let v_stride = call.v.strides[2] as isize;
        if hidden == 0 || are_finite::<L, E>(v, v_stride, hidden, call.dv) {
            return weigh::<L, E>([rows, n, call.dv], scratch.scores, v, v_stride, state.out);
        }
        // A weight of zero does not take NaN and infinity away: each row reads the runs of keys that it sees.
        for (r, shown) in shown.iter().enumerate().take(rows) {
            let mut at = 0;
            while let Some(run) = next_run(*shown, at) {
                let (p, v) =
                    (scratch.scores.add(r * TILE + run.start), v.offset(run.start as isize * v_stride));
                weigh::<L, E>([1, run.len(), call.dv], p, v, v_stride, state.out.add(r * call.dv));
                at = run.end;
            }
        }
    }
}

/// A tile's keys as bits.
fn bits(keys: Range<usize>) -> u64 {
    let below = |n: usize| if n < TILE { (1u64 << n) - 1 } else { u64::MAX };
    below(keys.end) & !below(keys.start)
}

/// The first run of set bits from bit `from` on.
fn next_run(set: u64, from: usize) -> Option<Range<usize>> {
    let left = set & bits(from..TILE);
    let start = left.trailing_zeros() as usize;
    (left != 0).then(|| start..start + (left >> start).trailing_ones() as usize)
}

const _: () = assert!(TILE == u64::BITS as usize);

/// Softcap, bias and masks on the scores of row `r`; what it does not see becomes −∞, whatever it was. Gives the keys that it
/// sees, `seen` but for what bias and key mask hide.
#[inline(always)]
unsafe fn mask(call: &Call, u: &Unit, p: &Piece, r: usize, seen: Range<usize>, s: &mut [f32; TILE]) -> u64 {
    let mut shown = bits(seen.clone());
    let cap = call.softcap;
    if cap != 0.0 {
        for v in s.iter_mut() {
            *v = cap * math::tanh(*v / cap);
        }
    }
    if seen.len() < TILE {
        // Narrow integers make as many lanes as the scores.
        let (start, end) = (seen.start as i32, seen.end as i32);
        for j in 0..TILE as i32 {
            let v = &mut s[j as usize];
            *v = if j >= start && j < end { *v } else { f32::NEG_INFINITY };
        }
    }
    if let Some(o) = call.bias {
        let (bias, stride) = bias_of(o, u, p, r);
        for (j, v) in s.iter_mut().enumerate().take(seen.end).skip(seen.start) {
            // SAFETY: the caller's: the key is one of the bias's.
            let bias = unsafe { bias.skip(j as isize * stride).get(0) };
            if bias == f32::NEG_INFINITY {
                (*v, shown) = (bias, shown & !(1 << j));
            } else {
                *v += bias;
            }
        }
    }
    if let Some((m, stride)) = call.keys.mask(u.b, p.key) {
        for (j, v) in s.iter_mut().enumerate().take(seen.end).skip(seen.start) {
            // SAFETY: the caller's: the key is one of the mask's.
            if unsafe { *m.offset(j as isize * stride) } == 0 {
                (*v, shown) = (f32::NEG_INFINITY, shown & !(1 << j));
            }
        }
    }
    shown
}

/// The bias of row `r` at the piece's first key, and its stride over keys. Its dimensions are the last of [b, h, t, key].
fn bias_of(o: &Operand, u: &Unit, p: &Piece, r: usize) -> (Floats, isize) {
    let index = [u.b as i64, (u.head + r % u.heads) as i64, (u.query + r / u.heads) as i64, p.key];
    let rank = o.rank as usize;
    // An extent of 1 repeats.
    let stride = |d: usize| if o.dims[d] == 1 { 0 } else { o.strides[d] };
    let at: i64 = (0..rank).map(|d| index[4 - rank + d] * stride(d)).sum();
    let last = if rank == 0 { 0 } else { stride(rank - 1) };
    (Floats { ptr: o.ptr, dtype: o.dtype }.skip(at as isize), last as isize)
}

/// Scores become weights e^(score − largest); gives the factor for what was summed before. A score of −∞ weighs nothing, one
/// of NaN makes the sum NaN.
#[inline(always)]
unsafe fn step<L: Lanes>(s: &mut [f32; TILE], most: &mut f32, weight: &mut f32) -> f32 {
    let p = s.as_mut_ptr();
    // SAFETY: the caller's; a tile is four vectors.
    let mut top = unsafe {
        let low = L::splat(f32::NEG_INFINITY);
        let mut top = low;
        for i in (0..TILE).step_by(LANES) {
            // NaN gives way to the second.
            top = L::max(L::load(p.add(i)), top);
        }
        array::<L>(top)
    };
    for half in [8, 4, 2, 1] {
        for i in 0..half {
            top[i] = if top[i + half] > top[i] { top[i + half] } else { top[i] };
        }
    }
    let mut top = if top[0] > *most { top[0] } else { *most };
    if top == f32::NEG_INFINITY {
        if !s.iter().any(|v| v.is_nan()) {
            s.fill(0.0);
            return 1.0;
        }
        // Any finite number will do: the row is NaN from here on.
        top = 0.0;
    }
    for v in s.iter_mut() {
        *v = math::exp(*v - top);
    }
    // SAFETY: as above.
    let total = unsafe {
        let mut total = L::load(p);
        for i in (LANES..TILE).step_by(LANES) {
            total = L::add(total, L::load(p.add(i)));
        }
        sum::<L>(total)
    };
    let scale = if top == *most { 1.0 } else { math::exp(*most - top) };
    *most = top;
    *weight = weight.mul_add(scale, total);
    scale
}

/// Row `r` of the unit from `chunks` states, the first of which is `state`.
///
/// # Safety
/// As [`attend`]; every state is complete.
#[inline(always)]
pub(super) unsafe fn finish<L: Lanes>(call: &Call, u: &Unit, r: usize, state: &State, chunks: usize) {
    let (i, h) = (u.query + r / u.heads, u.head + r % u.heads);
    // SAFETY: the caller's, throughout.
    unsafe {
        let sink = call
            .sinks
            .map_or(f32::NEG_INFINITY, |o| *o.ptr.cast::<f32>().offset(h as isize * o.strides[0] as isize));
        let states = (0..chunks).map(|c| state.after(c));
        let most = states.clone().fold(sink, |a, s| if *s.most.add(r) > a { *s.most.add(r) } else { a });
        let none = most == f32::NEG_INFINITY;
        let factor = |v: f32| if v == most { 1.0 } else { math::exp(v - most) };
        let mut sum = if none || sink == f32::NEG_INFINITY { 0.0 } else { factor(sink) };
        if !none {
            sum = states.clone().fold(sum, |a, s| (*s.sum.add(r)).mul_add(factor(*s.most.add(r)), a));
        }
        if let Some(lse) = call.lse {
            let v = if none { most } else { most + math::log(sum) };
            lse.ptr.cast::<f32>().offset(at(lse, u.b, i, h)).write(v);
        }
        let out = Floats { ptr: call.out.ptr, dtype: call.out.dtype }.skip(at(call.out, u.b, i, h));
        let by = L::splat(if none { 0.0 } else { 1.0 / sum });
        for (c, n) in steps(call.dv) {
            let mut acc = L::splat(0.0);
            for s in states.clone().take(if none { 0 } else { chunks }) {
                let own = Floats { ptr: s.out.add(r * call.dv).cast(), dtype: frit_ir::DType::F32 };
                acc = L::fma(own.load::<L>(c, n), L::splat(factor(*s.most.add(r))), acc);
            }
            out.store::<L>(c, n, L::mul(acc, by));
        }
    }
}
