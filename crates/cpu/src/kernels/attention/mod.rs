//! `attention`: softmax-weighted sums of cached values, one tile of keys at a time with a running maximum, so that memory
//! does not grow with the number of keys.
//!
//! Work is cut into units (a row of the batch, heads that share a key head, a run of queries) and, when there are few
//! units, each into chunks of keys whose results are merged in order. The cut depends on the sizes alone, so the result
//! does not depend on the number of threads.

mod keys;
mod products;
mod unit;

#[cfg(test)]
mod tests;

use frit_ir::DType;
use frit_ir::target::{KernelRow, LayoutClass, OperandSpec};
use half::{bf16, f16};

use super::lanes::{Element, Lanes};
use super::row::{Body, CpuRow, F32S, PLAIN, int, kernel, one, optional, real};
use crate::args::{Args, Operand};
use keys::Keys;
use unit::{Scratch, State};

/// Query rows (queries × heads of a group) of a unit.
const ROWS_MAX: usize = 64;
/// Keys of a tile.
const TILE: usize = 64;
/// With fewer units than this, keys are split into chunks.
const SPLIT: usize = 32;

/// Bytes of [`Scratch`] of each thread and of `threads + SPLIT` [`State`]s, a bit more than needed.
const SCRATCH: &str = "512*threads*d+25600*threads+256*threads*dv+512*threads+8192*dv+16384+4096";

const I32: &[DType] = &[DType::I32];
const INPUTS: &[OperandSpec] = &[
    one("q", F32S, LayoutClass::Rows),
    one("k", F32S, LayoutClass::Rows),
    one("v", F32S, LayoutClass::Rows),
    optional("kv_len", I32, LayoutClass::Dense),
    optional("offset", I32, LayoutClass::Dense),
    optional("table", I32, LayoutClass::Rows),
    optional("bias", F32S, LayoutClass::Strided),
    optional("sinks", &[DType::F32], LayoutClass::Dense),
    optional("key_mask", &[DType::Bool], LayoutClass::Rows),
];

/// Rows of this file.
pub static ROWS: &[CpuRow] = &[CpuRow {
    row: KernelRow {
        name: "attention",
        op: "attention",
        inputs: INPUTS,
        outputs: &[one("out", F32S, LayoutClass::Dense), optional("lse", &[DType::F32], LayoutClass::Dense)],
        params: &[
            real("scale"),
            int("causal"),
            int("window_left"),
            int("window_right"),
            real("softcap"),
            int("ring"),
            int("lse"),
            int("d"),
            int("dv"),
        ],
        scratch: SCRATCH,
        ..PLAIN
    },
    kernel: kernel::<Attention>,
}];

/// A call: operands, extents and attributes.
struct Call<'a> {
    q: &'a Operand,
    k: &'a Operand,
    v: &'a Operand,
    bias: Option<&'a Operand>,
    sinks: Option<&'a Operand>,
    out: &'a Operand,
    lse: Option<&'a Operand>,
    keys: Keys<'a>,
    scale: f32,
    softcap: f32,
    /// Batch, queries, heads.
    extents: [usize; 3],
    d: usize,
    dv: usize,
    /// Heads that share a key head.
    group: usize,
    /// Heads and queries of a unit.
    heads: usize,
    queries: usize,
    /// Chunks of keys of a unit.
    chunks: usize,
}

impl<'a> Call<'a> {
    fn of(args: &'a Args) -> Option<Call<'a>> {
        // The second result may be left out or stand there as absent.
        let two = args.params[6].int() != 0 || args.operands.last()?.is_absent();
        let (inputs, outputs) =
            args.operands.split_at(args.operands.len().checked_sub(1 + usize::from(two))?);
        let [q, k, v, rest @ ..] = inputs else { return None };
        let given = |i: usize| rest.get(i).filter(|o| !o.is_absent());
        let (&[b, t, h, d], &[_, kvh, ..]) = (q.dims(), k.dims()) else { return None };
        let [b, t, h, d, kvh] = [b, t, h, d, kvh].map(|v| v as usize);
        let group = h.checked_div(kvh)?;
        if group == 0 || t == 0 {
            return None;
        }
        let heads = group.min(ROWS_MAX);
        let most = ROWS_MAX / heads;
        // Whole register tiles of four rows where that is possible.
        let queries = t.min(if most >= 4 { most - most % 4 } else { most.max(1) });
        let mut call = Call {
            q,
            k,
            v,
            bias: given(3),
            sinks: given(4),
            out: outputs.first()?,
            lse: outputs.get(1).filter(|o| !o.is_absent()),
            keys: Keys::of(args, k, t, [given(0), given(1), given(2), given(5)]),
            scale: args.params[0].float() as f32,
            softcap: args.params[4].float() as f32,
            extents: [b, t, h],
            d,
            dv: v.dims[3] as usize,
            group,
            heads,
            queries,
            chunks: 1,
        };
        call.chunks = (SPLIT / call.units().max(1)).max(1);
        Some(call)
    }

    /// Units of one row of the batch and one key head: blocks of heads × blocks of queries.
    fn blocks(&self) -> (usize, usize) {
        (self.group.div_ceil(self.heads), self.extents[1].div_ceil(self.queries))
    }

    fn units(&self) -> usize {
        let (h, q) = self.blocks();
        self.extents[0] * (self.extents[2] / self.group) * h * q
    }

    /// Unit number `n`.
    fn unit(&self, n: usize) -> Unit {
        let (hb, qb) = self.blocks();
        let (rest, query) = (n / qb, n % qb * self.queries);
        let (rest, head) = (rest / hb, rest % hb * self.heads);
        let kv_heads = self.extents[2] / self.group;
        Unit {
            b: rest / kv_heads,
            kv_head: rest % kv_heads,
            head: rest % kv_heads * self.group + head,
            heads: self.heads.min(self.group - head),
            query,
            queries: self.queries.min(self.extents[1] - query),
        }
    }
}

/// Query rows that are computed together: row `r` is query `query + r / heads`, head `head + r % heads`.
struct Unit {
    b: usize,
    kv_head: usize,
    head: usize,
    heads: usize,
    query: usize,
    queries: usize,
}

impl Unit {
    fn rows(&self) -> usize {
        self.heads * self.queries
    }
}

struct Attention;

impl Body for Attention {
    #[inline(always)]
    unsafe fn run<L: Lanes>(args: &Args) {
        let Some(call) = Call::of(args) else { return };
        // SAFETY: the caller's; keys and values have one type.
        unsafe {
            match call.k.dtype {
                DType::F16 => run::<L, f16>(args, &call),
                DType::BF16 => run::<L, bf16>(args, &call),
                _ => run::<L, f32>(args, &call),
            }
        }
    }
}

#[inline(always)]
unsafe fn run<L: Lanes, E: Element>(args: &Args, call: &Call) {
    let (team, units) = (&args.team, call.units());
    let scratch = Scratch::of(args.scratch.cast(), team.thread, call.d);
    let states = args.scratch.cast::<f32>().wrapping_add(team.threads * Scratch::floats(call.d));
    let state = |n: usize| State::of(states, n, call.dv);
    let whole = call.chunks == 1;
    // SAFETY: the caller's; a state belongs to one thread until the barrier, and results to the thread that finishes them.
    unsafe {
        for n in (team.thread..units * call.chunks).step_by(team.threads) {
            let (u, s) = (call.unit(n / call.chunks), state(if whole { team.thread } else { n }));
            unit::attend::<L, E>(call, &u, n % call.chunks, &scratch, &s);
            for r in 0..if whole { u.rows() } else { 0 } {
                unit::finish::<L>(call, &u, r, &s, 1);
            }
        }
        if whole {
            return;
        }
        team.barrier();
        let mut row = 0;
        for n in 0..units {
            let u = call.unit(n);
            for r in 0..u.rows() {
                if row % team.threads == team.thread {
                    unit::finish::<L>(call, &u, r, &state(n * call.chunks), call.chunks);
                }
                row += 1;
            }
        }
    }
}
