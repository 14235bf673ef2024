//! `linear`: activations times packed weights, several weights and their epilogues in one step.
//!
//! Operands: `x` `[.., K]` (f32, f16 or bf16, last stride 1), then the packed weights `[N, K]`, then the extra operands
//! of the epilogues group by group (they broadcast to the group's results), then the results `[.., N]` group by group.
//!
//! Weights stand in groups of equal N. The epilogue of a group takes its products (f32) in order, then its extra
//! operands.
//!
//! With `bits` 8 or 16 the activations are rounded per 32 (see `quant.rs`); otherwise they stay f32 and weights are
//! decoded to their exact values. Sums are f32, k ascending. The same bits come out for every instruction set, number of
//! threads and number of rows.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod finish;
mod float;
mod gather;
#[cfg(target_arch = "aarch64")]
mod neon;
mod quant;
pub(crate) mod rows;
mod simd;
pub(crate) mod table;
pub(crate) mod tile;

#[cfg(test)]
mod tests;

use frit_ir::DType;
use frit_ir::target::{Cmp, Count, Guard, KernelRow, LayoutClass, OperandSpec, ParamSpec};

use super::row::{BLOCKS, COMPUTE, CpuRow, F32S, PLAIN, WEIGHTS, int, one, rest};
use crate::args::{Args, Kernel, Operand};
use crate::expr::Program;
use crate::isa::Isa;
use crate::pack::{self, PANEL, panel_bytes};

use quant::Quantized;
pub(crate) use quant::largest_code;
use rows::Rows;
use table::{BlockOps, FORMATS, FloatOps, Ops, block_index, float_index};
use tile::{
    CORRECTIONS, Direct, DirectF, Expand, TileF, TileQ, XTile, correction, expanded_bytes, layout, plane,
};

/// The parameters in order: rows of x, its columns, number of weights, number of groups, whether activations are rounded
/// to 8 bits, and the number of weights of each group.
const PARAMS: &[ParamSpec] = &[
    int("m"),
    int("k"),
    int("weights"),
    int("groups"),
    int("bits"),
    int("arity0"),
    int("arity1"),
    int("arity2"),
    int("arity3"),
    int("arity4"),
    int("arity5"),
    int("arity6"),
    int("arity7"),
];

const fn weights(dtypes: &'static [DType]) -> OperandSpec {
    OperandSpec {
        name: "weights",
        dtypes,
        layout: LayoutClass::Dense,
        count: Count::Param("weights"),
        packing: Some(pack::NAME),
    }
}

const fn guard(param: &'static str, cmp: Cmp, value: i64) -> Guard {
    Guard { param, cmp, value }
}

const fn guards(bits: i64) -> [Guard; 9] {
    const MOST: i64 = MAX_ARITY as i64;
    [
        guard("bits", Cmp::Eq, bits),
        guard("arity0", Cmp::Le, MOST),
        guard("arity1", Cmp::Le, MOST),
        guard("arity2", Cmp::Le, MOST),
        guard("arity3", Cmp::Le, MOST),
        guard("arity4", Cmp::Le, MOST),
        guard("arity5", Cmp::Le, MOST),
        guard("arity6", Cmp::Le, MOST),
        guard("arity7", Cmp::Le, MOST),
    ]
}

/// Rows of this folder.
pub const ROWS: &[CpuRow] = &[
    CpuRow {
        row: KernelRow {
            name: "linear.q8",
            op: "linear",
            inputs: &[
                one("x", F32S, LayoutClass::Rows),
                weights(BLOCKS),
                rest("extras", COMPUTE, LayoutClass::Strided),
            ],
            outputs: &[rest("results", COMPUTE, LayoutClass::Dense)],
            guards: &guards(8),
            params: PARAMS,
            scratch: "threads*172032 + (threads*4 + m + 8)*ceildiv(k*19, 8) + 256",
            ..PLAIN
        },
        kernel: linear,
    },
    CpuRow {
        row: KernelRow {
            name: "linear.q16",
            op: "linear",
            inputs: &[
                one("x", F32S, LayoutClass::Rows),
                weights(BLOCKS),
                rest("extras", COMPUTE, LayoutClass::Strided),
            ],
            outputs: &[rest("results", COMPUTE, LayoutClass::Dense)],
            guards: &guards(16),
            params: PARAMS,
            scratch: "threads*172032 + (threads*8 + m*2 + 16)*ceildiv(k*19, 8) + 256",
            ..PLAIN
        },
        kernel: linear,
    },
    CpuRow {
        row: KernelRow {
            name: "linear.f32",
            op: "linear",
            inputs: &[
                one("x", F32S, LayoutClass::Rows),
                weights(WEIGHTS),
                rest("extras", COMPUTE, LayoutClass::Strided),
            ],
            outputs: &[rest("results", COMPUTE, LayoutClass::Dense)],
            guards: &guards(0),
            params: PARAMS,
            scratch: "threads*172032 + m*k*4 + 256",
            ..PLAIN
        },
        kernel: linear,
    },
    CpuRow {
        row: KernelRow {
            name: "gather.packed",
            op: "gather",
            inputs: &[
                OperandSpec { name: "table", count: Count::One, ..weights(WEIGHTS) },
                one("indices", &[DType::I32, DType::I64], LayoutClass::Strided),
            ],
            outputs: &[one("out", F32S, LayoutClass::Dense)],
            guards: &[guard("axis", Cmp::Eq, 0)],
            params: &[int("axis")],
            ..PLAIN
        },
        kernel: gather::gather,
    },
];

/// The most weights in a group.
pub const MAX_ARITY: usize = 8;

/// Most rows that share one expansion of a panel; whole tiles of every instruction set.
const ROW_BLOCK: usize = 132;
/// Most columns expanded at a time: two panels of them stay in the first-level cache.
const Q_CHUNK: usize = 768;
/// The same for panels of f32.
const F_CHUNK: usize = 256;
/// Most rows that read the packed panels directly.
const DIRECT_ROWS: usize = 4;
/// Most panels whose results wait for one run of the epilogue.
const SPAN: usize = 32;
/// Floats of one product that wait for the epilogue.
const PRODUCT: usize = ROW_BLOCK * 2 * PANEL;
/// Bytes of expanded panels.
const EXPANDED: usize = 36 * 1024;
/// Bytes of scratch of a thread; the rows' formulas name it.
const THREAD_SCRATCH: usize = EXPANDED + MAX_ARITY * PRODUCT * 4;

const _: () = assert!(EXPANDED >= 2 * expanded_bytes(Q_CHUNK) && EXPANDED >= 2 * F_CHUNK * PANEL * 4);
const _: () = assert!(PRODUCT >= SPAN * PANEL * DIRECT_ROWS);

/// Bytes of the planes of a quantized row of `k` columns at one level, whole tiles of four rows or more.
const fn row_bytes(k: usize) -> usize {
    (k * 19).div_ceil(8)
}

/// Scratch bytes that [`linear`] needs: what the rows' formulas say.
pub fn scratch_bytes(m: usize, k: usize, threads: usize, bits: i64) -> usize {
    let levels = bits as usize / 8;
    let planes = levels * (threads * 4 + m + 8) * row_bytes(k);
    threads * THREAD_SCRATCH + if levels > 0 { planes } else { m * k * 4 } + 256
}

/// The kernel for `isa` (or for the best set that the machine has, if it lacks that one).
pub fn linear(isa: Isa) -> Kernel {
    ENTRIES[table::fastest(isa)]
}

/// The kernel over each of [`table::SETS`].
const ENTRIES: [Kernel; 4] = [entry::<0>, entry::<1>, entry::<2>, entry::<3>];

unsafe fn entry<const I: usize>(args: &Args) {
    // SAFETY: the caller's.
    unsafe { run(table::SETS[I].0, args) }
}

/// A run of weights with one epilogue.
struct Group<'a> {
    weights: &'a [Operand],
    program: &'a Program,
    extras: &'a [Operand],
    outs: &'a [Operand],
}

impl Group<'_> {
    /// Rows of each weight: columns of the result.
    fn n(&self) -> usize {
        self.weights.first().map_or(0, |w| w.dims()[..w.dims().len() - 1].iter().product::<i64>() as usize)
    }
}

/// The groups of a step, in order.
struct Groups<'a> {
    args: &'a Args<'a>,
    next: usize,
    weight: usize,
    extra: usize,
    out: usize,
}

impl<'a> Groups<'a> {
    fn new(args: &'a Args<'a>) -> Groups<'a> {
        let (weights, groups) = (args.params[2].int() as usize, args.params[3].int() as usize);
        // Products are inputs of the programs too: there are as many inputs as weights and extras together.
        let inputs: usize = args.programs[..groups].iter().map(|p| p.inputs().len()).sum();
        Groups { args, next: 0, weight: 1, extra: 1 + weights, out: 1 + inputs }
    }
}

impl<'a> Iterator for Groups<'a> {
    type Item = Group<'a>;

    fn next(&mut self) -> Option<Group<'a>> {
        if self.next >= self.args.params[3].int() as usize {
            return None;
        }
        let (o, program) = (self.args.operands, &self.args.programs[self.next]);
        let arity = self.args.params[5 + self.next].int() as usize;
        let (extras, outs) = (program.inputs().len() - arity, program.outputs().len());
        let group = Group {
            weights: &o[self.weight..self.weight + arity],
            program,
            extras: &o[self.extra..self.extra + extras],
            outs: &o[self.out..self.out + outs],
        };
        self.next += 1;
        self.weight += arity;
        self.extra += extras;
        self.out += outs;
        Some(group)
    }
}

/// The loops of one weight.
#[derive(Clone, Copy)]
enum Loops {
    Block(&'static BlockOps),
    Float(&'static FloatOps),
}

/// What every part of a step knows.
struct Step<'a> {
    ops: &'static Ops,
    args: &'a Args<'a>,
    m: usize,
    k: usize,
    /// Whether activations are quantized.
    quantized: bool,
    /// Quantized activations.
    q: Quantized,
    /// f32 activations and floats from row to row.
    f: (*const f32, isize),
    /// This thread's expanded panels.
    expanded: *mut u8,
    /// This thread's products.
    products: *mut f32,
}

impl Step<'_> {
    fn loops(&self, dtype: DType) -> Loops {
        match (block_index(dtype), float_index(dtype)) {
            (Some(b), _) if self.quantized => Loops::Block(&self.ops.blocks[b]),
            (Some(b), _) => Loops::Float(&self.ops.floats[b]),
            (_, f) => Loops::Float(&self.ops.floats[FORMATS + f.unwrap_or(0)]),
        }
    }

    fn is_direct(&self) -> bool {
        self.m <= DIRECT_ROWS
    }
}

/// # Safety
/// As [`Kernel`]; the machine has the instruction set of `ops`.
unsafe fn run(ops: &'static Ops, args: &Args) {
    let (m, k) = (args.params[0].int() as usize, args.params[1].int() as usize);
    if m == 0 {
        return;
    }
    let bits = args.params[4].int();
    let levels = (bits as usize / 8).max(1);
    let team = args.team;
    let own = args.scratch.wrapping_add(team.thread * THREAD_SCRATCH);
    // Few rows are quantized by every thread for itself, which costs less than waiting for another.
    let mut planes = args.scratch.wrapping_add(team.threads * THREAD_SCRATCH);
    if m <= DIRECT_ROWS && bits > 0 {
        planes = planes.wrapping_add(team.thread * 4 * row_bytes(k) * levels);
    }
    let tile = match m {
        1 | 2 => m,
        3 | 4 => 4,
        _ => ops.tile_rows,
    };
    let none = [false; CORRECTIONS.len()];
    let q = Quantized { rows: m, k, tile, planes: none, halves: false, levels, base: planes };
    let mut step = Step {
        ops,
        args,
        m,
        k,
        quantized: bits > 0,
        q,
        f: (std::ptr::null(), 0),
        expanded: own,
        products: own.wrapping_add(EXPANDED).cast(),
    };
    // SAFETY: the caller's.
    unsafe {
        prepare(&mut step);
        multiply(&step);
    }
}

/// Brings the activations into the forms that the weights of the step want, each thread its share of the rows.
unsafe fn prepare(s: &mut Step) {
    let x = &s.args.operands[0];
    for w in &s.args.operands[1..1 + s.args.params[2].int() as usize] {
        let Some(l) = block_index(w.dtype).map(layout) else { continue };
        let fix = correction(&l, s.ops.bias);
        if fix != 0 {
            s.q.planes[plane(fix)] = true;
        }
        s.q.halves |= l.has_min() && l.group() == 16;
    }
    let rows = Rows::of(x);
    let from = float_index(x.dtype).unwrap_or(0);
    let team = s.args.team;
    // SAFETY: `x` has m rows of k elements; the planes and the copy lie in the scratch that the row declares, and
    // threads write rows of their own.
    unsafe {
        if s.quantized {
            let alone = s.is_direct();
            let share = if alone { 0..s.q.padded() } else { team.range(s.q.padded(), 1) };
            for row in share {
                let p = if row < s.m { rows.at(row, 0).cast_const() } else { std::ptr::null() };
                (s.ops.quantize[from])(&s.q, row, p);
            }
            if alone {
                return;
            }
        } else if let (Some(step), DType::F32) = (rows.step, x.dtype) {
            s.f = (x.ptr.cast(), step as isize);
            return;
        } else {
            let copy = s.q.base.cast::<f32>();
            s.f = (copy, s.k as isize);
            for row in team.range(s.m, 1) {
                (s.ops.widen[from])(rows.at(row, 0), s.k, copy.wrapping_add(row * s.k));
            }
        }
    }
    team.barrier();
}

/// The products and epilogues: each thread takes a run of (panels, rows) pieces of about equal cost.
unsafe fn multiply(s: &Step) {
    let unit = if s.is_direct() { 1 } else { 2 };
    let blocks = s.m.div_ceil(ROW_BLOCK);
    let pieces = |g: &Group| (g.n().div_ceil(PANEL).div_ceil(unit) * blocks) as u64;
    let cost =
        |g: &Group| g.weights.iter().map(|w| panel_bytes(w.dtype, s.k).unwrap_or(0) as u64 + 64).sum::<u64>();
    let total: u64 = Groups::new(s.args).map(|g| pieces(&g) * cost(&g)).sum();
    let share = |t: usize| (total as u128 * t as u128 / s.args.team.threads as u128) as u64;
    let (from, to) = (share(s.args.team.thread), share(s.args.team.thread + 1));
    let mut base = 0;
    for g in Groups::new(s.args) {
        let (n, each) = (pieces(&g), cost(&g));
        let at = |c: u64| c.saturating_sub(base).div_ceil(each.max(1)).min(n) as usize;
        let (lo, hi) = (at(from), at(to));
        base += n * each;
        // SAFETY: the caller's; pieces of different threads write different results.
        unsafe {
            if s.is_direct() {
                direct(s, &g, lo, hi);
            } else {
                blocked(s, &g, lo, hi, blocks);
            }
        }
    }
}

/// Panels `lo..hi` against the few rows, read as they are packed.
unsafe fn direct(s: &Step, g: &Group, lo: usize, hi: usize) {
    let mut at = lo;
    while at < hi {
        let span = (hi - at).min(SPAN);
        let ld = span * PANEL;
        for (i, w) in g.weights.iter().enumerate() {
            let bytes = panel_bytes(w.dtype, s.k).unwrap_or(0);
            let panel = w.ptr.cast_const().wrapping_add(at * bytes);
            let c = s.products.wrapping_add(i * PRODUCT);
            // SAFETY: panels below `hi` exist, and the products of a span fit.
            unsafe {
                match s.loops(w.dtype) {
                    Loops::Block(ops) => {
                        let kernel = ops.direct[s.q.tile.ilog2() as usize];
                        let x = s.q.tile(0);
                        for p in 0..span {
                            kernel(&Direct {
                                panel: panel.add(p * bytes),
                                k: s.k,
                                x,
                                c: c.add(p * PANEL),
                                ldc: ld,
                            });
                        }
                    }
                    Loops::Float(ops) => {
                        for row in 0..s.m {
                            let (x, c) = (s.f.0.offset(row as isize * s.f.1), c.add(row * ld));
                            (ops.direct)(&DirectF { panel, stride: bytes, panels: span, k: s.k, x, c });
                        }
                    }
                }
            }
        }
        // SAFETY: the products of these columns are complete.
        unsafe { finish::finish(s, g, 0, s.m, at * PANEL, ld) };
        at += span;
    }
}

/// Pieces `lo..hi`, each up to two panels and one of `blocks` blocks of rows.
unsafe fn blocked(s: &Step, g: &Group, lo: usize, hi: usize, blocks: usize) {
    let tile = s.q.tile;
    let block = s.m.div_ceil(blocks).next_multiple_of(tile);
    let all = g.n().div_ceil(PANEL);
    for piece in lo..hi {
        let (at, row) = (piece / blocks * 2, piece % blocks * block);
        let (panels, rows) = ((all - at).min(2), s.m.saturating_sub(row).min(block));
        if rows == 0 {
            continue;
        }
        for (i, w) in g.weights.iter().enumerate() {
            let bytes = panel_bytes(w.dtype, s.k).unwrap_or(0);
            let panel = w.ptr.cast_const().wrapping_add(at * bytes);
            let piece = Piece { panel, bytes, panels, row, rows, c: s.products.wrapping_add(i * PRODUCT) };
            // SAFETY: the panels exist, and the products of a piece fit.
            unsafe {
                match s.loops(w.dtype) {
                    Loops::Block(ops) => piece.quantized(s, ops),
                    Loops::Float(ops) => piece.float(s, ops, w.dtype == DType::F32),
                }
            }
        }
        // SAFETY: the products of these rows and columns are complete.
        unsafe { finish::finish(s, g, row, rows, at * PANEL, 2 * PANEL) };
    }
}

/// One or two panels of a weight against a block of rows.
struct Piece {
    panel: *const u8,
    bytes: usize,
    panels: usize,
    row: usize,
    rows: usize,
    c: *mut f32,
}

impl Piece {
    unsafe fn quantized(&self, s: &Step, ops: &BlockOps) {
        let tile = s.q.tile;
        let chunks = s.k.div_ceil(Q_CHUNK).max(1);
        let chunk = s.k.div_ceil(chunks).next_multiple_of(256);
        let stride = expanded_bytes(chunk.min(s.k));
        let first: XTile = s.q.tile(self.row / tile);
        // SAFETY: as `blocked` says; a chunk of two panels fits.
        unsafe {
            for from in (0..s.k.max(1)).step_by(chunk.max(1)) {
                let count = (s.k - from).min(chunk);
                for p in 0..self.panels {
                    let panel = self.panel.add(p * self.bytes);
                    (ops.expand)(&Expand { panel, k: s.k, from, count, to: s.expanded.add(p * stride) });
                }
                (ops.tile)(&TileQ {
                    panel: s.expanded,
                    stride,
                    panels: self.panels,
                    count,
                    x: first.advance(from * tile),
                    step: s.k * tile,
                    tiles: self.rows.div_ceil(tile),
                    c: self.c,
                    ldc: 2 * PANEL,
                    first: from == 0,
                });
            }
        }
    }

    /// `plain`: the panel is f32 and is read where it lies.
    unsafe fn float(&self, s: &Step, ops: &FloatOps, plain: bool) {
        // SAFETY: as `blocked` says; a chunk of two panels fits.
        unsafe {
            let x = s.f.0.offset(self.row as isize * s.f.1);
            for from in (0..s.k.max(1)).step_by(F_CHUNK) {
                let count = (s.k - from).min(F_CHUNK);
                let (panel, stride) = if plain {
                    (self.panel.cast::<f32>().add(from * PANEL), self.bytes / 4)
                } else {
                    for p in 0..self.panels {
                        let to = s.expanded.add(p * F_CHUNK * PANEL * 4);
                        (ops.decode)(&Expand {
                            panel: self.panel.add(p * self.bytes),
                            k: s.k,
                            from,
                            count,
                            to,
                        });
                    }
                    (s.expanded.cast_const().cast(), F_CHUNK * PANEL)
                };
                (s.ops.tile_f)(&TileF {
                    panel,
                    stride,
                    panels: self.panels,
                    count,
                    x: x.add(from),
                    ldx: s.f.1,
                    rows: self.rows,
                    c: self.c,
                    ldc: 2 * PANEL,
                    first: from == 0,
                });
            }
        }
    }
}
