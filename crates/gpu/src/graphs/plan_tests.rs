use std::sync::Arc;

use frit_ir::expr::Expr;
use frit_ir::op::ParamValue;
use frit_ir::schedule::{Candidate, KernelStep, Operand, Schedule, Step};
use frit_ir::target::{ParamType, RowId};
use frit_ir::{DType, Dim, ScalarOp};

use super::super::steps::{Sight, concrete};
use super::*;
use crate::catalog;

fn dims(v: &[usize]) -> Vec<Dim> {
    v.iter().map(|n| Dim::from(*n)).collect()
}

/// A dense operand of f32.
fn at(region: Region, buffer: u32, offset: u64, shape: &[usize]) -> Operand {
    let strides: Vec<usize> = (0..shape.len()).map(|i| shape[i + 1..].iter().product()).collect();
    let (dtype, offset) = (DType::F32, Dim::from(offset as i64));
    Operand { region, buffer, offset, dtype, dims: dims(shape), strides: dims(&strides) }
}

fn arena(offset: u64, shape: &[usize]) -> Operand {
    at(Region::Arena, 0, offset, shape)
}

/// A step of the row `name`; parameters that are not given are 0.
fn step(
    name: &str,
    inputs: &[Operand],
    output: Operand,
    params: &[(&str, i64)],
    exprs: &[Expr],
    flops: i64,
) -> Step {
    let (number, row) = catalog::rows().enumerate().find(|(_, r)| r.row.name == name).expect("a row");
    let value = |spec: &frit_ir::target::ParamSpec| match spec.ty {
        ParamType::F32 | ParamType::Stored => ParamValue::Float(1e-5),
        _ => ParamValue::Dim(params.iter().find(|(n, _)| *n == spec.name).map_or(0, |(_, v)| *v).into()),
    };
    let candidate = Candidate {
        guards: vec![],
        row: RowId(number as u32),
        params: row.row.params.iter().map(value).collect(),
        scratch: Dim::from(0i64),
    };
    Step::Kernel(KernelStep {
        name: format!("{name}.{flops}"),
        candidates: vec![candidate],
        operands: inputs.iter().cloned().chain([output]).map(Some).collect(),
        inputs: inputs.len(),
        exprs: exprs.iter().cloned().map(Arc::new).collect(),
        scratch: 0,
        flops: Dim::from(flops),
        bytes: Dim::from(0i64),
    })
}

/// out `[4, 64]` = x `[4, 64]` · wᵀ, of a million operations.
fn linear(x: Operand, weight: u32, out: Operand) -> Step {
    let mut e = Expr::new(&[DType::F32]);
    e.output(0, DType::F32);
    let w = at(Region::Weights, weight, 0, &[64, 64]);
    step("linear", &[x, w], out, &[("weights", 1), ("groups", 1), ("arity0", 1)], &[e], 1_000_000)
}

fn add(a: Operand, b: Operand, out: Operand) -> Step {
    let e = Expr::single(ScalarOp::Add, &[DType::F32; 2], DType::F32);
    step("expr", &[a, b], out, &[], &[e], 256)
}

/// A step that is not in the table.
fn own(x: Operand, out: Operand) -> Step {
    step("cumsum", &[x], out, &[], &[], 100)
}

fn planned(steps: &[Step], options: GraphOptions) -> Result<Plan, GpuError> {
    let s = Schedule { steps: steps.to_vec(), ..Schedule::default() };
    let row = |id: RowId| catalog::rows().nth(id.0 as usize);
    let sight = Sight { bind: &|_| None, row: &row, choice: &|_| 0 };
    let capacity = |region, _| if region == Region::Weights { 64 * 64 * 4 } else { 1 << 20 };
    let frame = Frame { options, align: 256, capacity: &capacity };
    plan(&concrete(&s, &sight)?, &frame)
}

fn options(mode: GraphMode) -> GraphOptions {
    GraphOptions::default().mode(mode).least_flops(500_000)
}

const SHAPE: &[usize] = &[4, 64];

fn input() -> Operand {
    at(Region::Input, 0, 0, SHAPE)
}

fn output() -> Operand {
    at(Region::Output, 0, 0, SHAPE)
}

/// Two products with sums behind them, and a step of our own between.
fn two_stretches() -> Vec<Step> {
    vec![
        linear(input(), 0, arena(0, SHAPE)),
        add(arena(0, SHAPE), input(), arena(1024, SHAPE)),
        own(arena(1024, SHAPE), arena(0, SHAPE)),
        linear(arena(0, SHAPE), 1, arena(2048, SHAPE)),
        add(arena(2048, SHAPE), arena(1024, SHAPE), output()),
    ]
}

#[test]
fn stretches_stand_between_our_own_steps() {
    let plan = planned(&two_stretches(), options(GraphMode::Hybrid)).unwrap();
    // What only the graph reads is written nowhere: the first product; the sum is, which two later steps read.
    let want = "\
graph 0..2: 11 calls, reads [input 0+0 f32x256, weights 0+0 f32x4096], writes [arena 0+1024 f32x256], constants []
steps 2..3
graph 3..5: 12 calls, reads [arena 0+0 f32x256, weights 1+0 f32x4096, arena 0+1024 f32x256], writes [output 0+0 f32x256], constants []
";
    assert_eq!(plan.to_string(), want);
}

#[test]
fn every_step_is_in_one_piece_in_order() {
    for mode in [GraphMode::Off, GraphMode::Products, GraphMode::Hybrid] {
        let plan = planned(&two_stretches(), options(mode)).unwrap();
        let steps = plan.pieces.iter().flat_map(|p| match p {
            Piece::Steps(s) => s.clone(),
            Piece::Graph(g) => g.steps.clone(),
            Piece::Product(p) => p.step..p.step + 1,
        });
        assert_eq!(steps.collect::<Vec<_>>(), [0, 1, 2, 3, 4], "{mode:?}");
    }
}

#[test]
fn a_stretch_without_enough_products_is_our_own() {
    let cheap = options(GraphMode::Hybrid).least_flops(1_000_001);
    assert_eq!(planned(&two_stretches(), cheap).unwrap().to_string(), "steps 0..5\n");
    let sums = [add(input(), input(), arena(0, SHAPE)), add(arena(0, SHAPE), input(), output())];
    let none = options(GraphMode::Hybrid).least_flops(1);
    assert_eq!(planned(&sums, none).unwrap().to_string(), "steps 0..2\n");
}

#[test]
fn a_whole_graph_is_refused_by_the_step_that_cannot_be_in_it() {
    let all = two_stretches();
    let refused = planned(&all, options(GraphMode::Whole)).unwrap_err();
    let text = "step `cumsum.100` (`cumsum`) cannot be a part of one graph: the op `cumsum`";
    assert_eq!(refused.to_string(), text);
    // The cost does not matter to it.
    let sums = [add(input(), input(), output())];
    let plan = planned(&sums, options(GraphMode::Whole)).unwrap();
    assert_eq!(plan.graphs().count(), 1);
    let half = Operand { dtype: DType::F64, ..input() };
    let refused = planned(&[add(half.clone(), half, output())], options(GraphMode::Whole)).unwrap_err();
    assert!(refused.to_string().contains("an operand of f64"), "{refused}");
}

#[test]
fn weights_are_constants_up_to_the_cap_first_used_first() {
    let steps = [linear(input(), 5, arena(0, SHAPE)), linear(arena(0, SHAPE), 3, output())];
    let baked = |bytes| {
        let plan = planned(&steps, options(GraphMode::Hybrid).constants(bytes)).unwrap();
        let g = plan.graphs().next().unwrap();
        let weights = g.feeds.iter().filter(|b| b.region == Region::Weights).map(|b| b.buffer);
        (g.constants.clone(), weights.collect::<Vec<_>>(), plan.constant_bytes())
    };
    const ONE: u64 = 64 * 64 * 4;
    assert_eq!(baked(0), (vec![], vec![5, 3], 0));
    assert_eq!(baked(ONE - 1), (vec![], vec![5, 3], 0));
    assert_eq!(baked(2 * ONE - 1), (vec![5], vec![3], ONE));
    assert_eq!(baked(2 * ONE), (vec![5, 3], vec![], 2 * ONE));
}

#[test]
fn results_over_memory_that_the_graph_reads_are_staged() {
    // The sum lies in place of its operand.
    let steps = [
        linear(arena(0, SHAPE), 0, arena(1024, SHAPE)),
        add(arena(0, SHAPE), arena(1024, SHAPE), arena(0, SHAPE)),
        own(arena(0, SHAPE), output()),
    ];
    let plan = planned(&steps, options(GraphMode::Hybrid)).unwrap();
    let g = plan.graphs().next().unwrap();
    assert_eq!((g.steps.clone(), g.results.len(), g.staging), (0..2, 1, 1024), "{plan}");
    assert_eq!(g.results[0].staged, Some(0));
}

#[test]
fn an_operand_of_which_a_part_is_written_anew_ends_the_stretch() {
    let part = arena(0, &[2, 64]);
    let steps = [
        linear(input(), 0, arena(0, SHAPE)),
        add(at(Region::Input, 0, 0, &[2, 64]), at(Region::Input, 0, 0, &[2, 64]), part),
        linear(arena(0, SHAPE), 1, output()),
    ];
    let plan = planned(&steps, options(GraphMode::Hybrid)).unwrap();
    let pieces: Vec<String> = plan.to_string().lines().map(|l| l.split(':').next().unwrap().into()).collect();
    assert_eq!(pieces, ["graph 0..2", "product 2"]);
}

#[test]
fn products_of_plain_matrices_are_the_library_s() {
    let plan = planned(&two_stretches(), options(GraphMode::Products)).unwrap();
    assert_eq!(plan.to_string(), "product 0\nsteps 1..3\nproduct 3\nsteps 4..5\n");
    let Piece::Product(p) = &plan.pieces[0] else { panic!("{plan}") };
    assert_eq!((p.left.rows, p.left.columns, p.left.row_bytes), (4, 64, 256));
    assert_eq!((p.right.rows, p.right.columns, p.transposed), (64, 64, true));
    // Rows at a distance are fine, columns at one are not; neither is another type.
    let apart = |stride: [usize; 2], dtype| Operand { strides: dims(&stride), dtype, ..input() };
    for (x, yes) in [
        (apart([80, 1], DType::F32), true),
        (apart([64, 2], DType::F32), false),
        (apart([64, 1], DType::F16), false),
    ] {
        let plan = planned(&[linear(x, 0, output())], options(GraphMode::Products)).unwrap();
        assert_eq!(matches!(plan.pieces[0], Piece::Product(_)), yes, "{plan}");
    }
}

#[test]
fn feeds_begin_at_aligned_bytes_and_skip_what_is_before() {
    let rows = |from: u64| at(Region::Input, 0, from, &[1, 64]);
    let steps = [add(rows(768), rows(260), at(Region::Output, 0, 0, &[1, 64]))];
    let plan = planned(&steps, options(GraphMode::Whole)).unwrap();
    let g = plan.graphs().next().unwrap();
    let feeds: Vec<_> = g.feeds.iter().map(|b| (b.offset, b.line.elements, b.line.skip)).collect();
    assert_eq!(feeds, [(768, 64, 0), (256, 65, 1)]);
    assert_eq!(g.feeds[1].line.skipped(), 4);
}
