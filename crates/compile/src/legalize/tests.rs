use frit_ir::DType;
use frit_ir::dim::Dim;
use frit_ir::schedule::{KernelStep, Region, Step};
use frit_ir::target::{KernelRow, ParamSpec, ParamType, Target};

use super::testing::{graph, registry, target};
use super::{Legalized, legalize};
use crate::CompileError;

fn run(text: &str) -> Result<Legalized, CompileError> {
    legalize(&graph(text), &registry(), &target())
}

/// The lines of the steps, without names.
fn steps(l: &Legalized) -> Vec<String> {
    let line = |s: &Step| {
        let text = frit_ir::text::print_step(s, &target());
        text.split_once(" = ").map_or(text.clone(), |(_, rest)| rest.to_string())
    };
    l.schedule.steps.iter().map(line).collect()
}

fn kernels(l: &Legalized) -> Vec<&KernelStep> {
    let mut out = Vec::new();
    for s in &l.schedule.steps {
        let Step::Kernel(k) = s else { panic!("only kernels are made") };
        out.push(k);
    }
    out
}

fn row_names(l: &Legalized) -> Vec<&'static str> {
    kernels(l).iter().map(|k| target().row(k.candidates[0].row).name).collect()
}

const NEG: &str = "{expr={(f32) 1=neg(0) -> 1:f32}}";
const ADD: &str = "{expr={(f32, f32) 2=add(0,1) -> 2:f32}}";

#[test]
fn views_become_strides_and_dimensions_merge() {
    let l = run(&format!(
        "symbol T 1..=8
input %x: f32[T, 6]
input %b: f32[3]
%h: f32[T, 2, 3] = reshape(%x) {{shape=[(T), 2, 3]}}
%t: f32[T, 3, 2] = transpose(%h) {{perm=[0, 2, 1]}}
%y: f32[T, 2, 3] = expr(%h, %b) {ADD}
%z: f32[T, 3, 2] = expr(%t) {NEG}
output \"y\" = %y
output \"z\" = %z"
    ))
    .unwrap();
    assert_eq!(
        steps(&l),
        [
            "expr_any (input0 f32[2*T, 3]:[3, 1], input1 f32[2*T, 3]:[0, 1]) -> (output0 f32[2*T, 3]:[3, 1]) \
             {(f32, f32) 2=add(0,1) -> 2:f32}",
            "expr_any (input0 f32[T, 3, 2]:[6, 1, 3]) -> (output1 f32[T, 3, 2]:[6, 2, 1]) \
             {(f32) 1=neg(0) -> 1:f32}",
        ]
    );
}

#[test]
fn outputs_are_written_in_place_or_copied() {
    let l = run(&format!(
        "input %x: f32[4, 4]
param %p: f32[4]
%y: f32[4, 4] = expr(%x) {NEG}
%r: f32[16] = reshape(%y) {{shape=[16]}}
%t: f32[4, 4] = transpose(%y) {{perm=[1, 0]}}
output \"flat\" = %r
output \"again\" = %y
output \"turned\" = %t
output \"x\" = %x
output \"p\" = %p"
    ))
    .unwrap();
    let s = steps(&l);
    assert_eq!(s.len(), 5);
    assert!(s[0].contains("-> (output0 f32[16]:[1])"), "{s:?}");
    assert_eq!(s[1], "copy_any (output0 f32[16]:[1]) -> (output1 f32[16]:[1])");
    assert_eq!(s[2], "copy_any (output0 f32[4, 4]:[1, 4]) -> (output2 f32[4, 4]:[4, 1])");
    assert_eq!(s[3], "copy_any (input0 f32[16]:[1]) -> (output3 f32[16]:[1])");
    assert_eq!(s[4], "copy_any (weight0 f32[4]:[1]) -> (output4 f32[4]:[1])");
    assert!(l.arena.is_empty());
}

#[test]
fn a_layout_that_no_row_takes_is_copied_once() {
    let l = run("input %x: f32[4, 8]
%t: f32[8, 4] = transpose(%x) {perm=[1, 0]}
%a: f32[8, 4] = softmax(%t) {axis=1, log=false}
%b: f32[8, 4] = softmax(%t) {axis=0, log=false}
output \"a\" = %a
output \"b\" = %b")
    .unwrap();
    assert_eq!(row_names(&l), ["copy_any", "softmax_dense", "softmax_dense"]);
    assert_eq!(l.report.nodes[1].copies, ["x"]);
    let text = "x.copy = copy: copy_any\na = softmax: softmax_dense; copies x\nb = softmax: softmax_dense; copies x\n";
    assert_eq!(l.report.to_string(), text);
    assert_eq!(l.aliases, [vec![], vec![(0, 1)], vec![(0, 1)]]);
}

#[test]
fn symbolic_guards_give_candidates() {
    let text = |t: &str| {
        format!(
            "symbol T {t}
input %a: f32[T, 16]
param %b: f32[16, 32]
%y: f32[T, 32] = matmul(%a, %b)
output \"y\" = %y"
        )
    };
    let l = run(&text("1..=64")).unwrap();
    let c = &kernels(&l)[0].candidates;
    assert_eq!(c.len(), 2);
    assert!(steps(&l)[0].starts_with("matvec{k=16, m=T} if T <= 4 | gemm{n=32}[scratch 64*T+7]"));
    assert!(l.report.to_string().contains("matvec if T <= 4 | gemm"), "{}", l.report);
    assert_eq!(kernels(&run(&text("1..=4")).unwrap())[0].candidates.len(), 1);
    assert_eq!(row_names(&run(&text("5..=9")).unwrap()), ["gemm"]);
}

#[test]
fn guards_that_cover_every_size_together_are_total() {
    let mut t = target();
    for r in &mut t.rows {
        if r.name == "gemm" {
            use frit_ir::target::{Cmp, Guard};
            *r = KernelRow { guards: &[Guard { param: "m", cmp: Cmp::Ge, value: 5 }], ..*r };
        }
    }
    let g = graph(
        "symbol T 1..=64
input %a: f32[T, 16]
param %b: f32[16, 32]
%y: f32[T, 32] = matmul(%a, %b)
output \"y\" = %y",
    );
    let l = legalize(&g, &registry(), &t).unwrap();
    let c = &kernels(&l)[0].candidates;
    assert_eq!((c[0].guards.len(), c[1].guards.len()), (1, 0));
}

#[test]
fn errors_name_the_op_the_types_and_the_closest_rows() {
    let e = run("input %a: f16[2, 16]
input %b: f16[16, 32]
%y: f16[2, 32] = matmul(%a, %b)
output \"y\" = %y")
    .unwrap_err();
    let text = e.to_string();
    for part in [
        "target `test` has no kernel for `matmul` on (f16[2, 16], f16[16, 32]) -> (f16[2, 32])",
        "`matvec` takes f32 as `a`, not f16",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let e =
        run("input %a: f32[2]\n%y: f32[2] = expr(%a) {expr={(f32) 1=exp(0) -> 1:f32}}\noutput \"y\" = %y");
    assert!(e.unwrap_err().to_string().contains("has no scalar op `exp`"));
    let e = run("input %a: f32[2, 3]\n%y: f32[3, 2] = flip(%a) {axes=[0]}".replace("3, 2", "2, 3").as_str());
    assert!(e.unwrap_err().to_string().contains("no row for this op at all"));
}

#[test]
fn a_parameter_that_the_op_does_not_give_is_an_error() {
    let mut t = target();
    let at = t.rows.iter().position(|r| r.name == "softmax_dense").unwrap();
    let base = t.rows[at];
    let g = graph("input %x: f32[4]\n%y: f32[4] = softmax(%x) {axis=0, log=false}\noutput \"y\" = %y");
    let mut with = |row: KernelRow| {
        t.rows[at] = row;
        legalize(&g, &registry(), &Target { ..t.clone() }).unwrap_err()
    };
    let bad = KernelRow { params: &[ParamSpec { name: "speed", ty: ParamType::I32 }], ..base };
    assert!(matches!(with(bad), CompileError::Param { param, .. } if param == "speed"));
    assert!(
        matches!(with(KernelRow { scratch: "zeal*4", ..base }), CompileError::Param { param, .. } if param == "zeal")
    );
    assert!(matches!(with(KernelRow { scratch: "4*(", ..base }), CompileError::Scratch { .. }));
}

#[test]
fn fused_ops_are_expanded_until_rows_fit() {
    let l = run("input %x: f32[4]\n%y: f32[4] = four(%x)\noutput \"y\" = %y").unwrap();
    assert_eq!(row_names(&l), ["expr_any", "expr_any"]);
    assert_eq!(l.report.nodes[0].expanded_from.as_deref(), Some("y = four"));
    let e = run("input %x: f32[4]\n%y: f32[4] = ever(%x)\noutput \"y\" = %y").unwrap_err();
    assert!(matches!(e, CompileError::Expansion { op, .. } if op == "ever"));
}

#[test]
fn weights_get_an_entry_for_each_packing() {
    let l = run("input %x: f32[2, 4]
param %w: f32[4, 4]
%a: f32[2, 4] = weigh(%x, %w)
%b: f32[2, 4] = weigh(%a, %w)
%t: f32[4, 4] = transpose(%w) {perm=[1, 0]}
%c: f32[2, 4] = weigh(%b, %t)
output \"c\" = %c")
    .unwrap();
    // The transposed weight is no whole parameter, and not by rows: it is copied for the plain kernel.
    assert_eq!(row_names(&l), ["weigh_packed", "weigh_packed", "copy_any", "weigh_plain"]);
    let packings: Vec<_> = l.schedule.weights.iter().map(|w| w.packing).collect();
    assert_eq!(packings, [Some("panel"), None]);
    // The optional operand that was left out has its place.
    assert_eq!(kernels(&l)[0].operands.len(), 4);
    assert!(kernels(&l)[0].operands[2].is_none());
}

#[test]
fn block_formats_are_viewed_by_whole_blocks() {
    let text = |slice: &str, cols: u32| {
        format!(
            "input %x: f32[2, 64]
param %w: Q8_0[8, 64]
%s: Q8_0[2, {cols}] = slice(%w) {slice}
%y: f32[2, 64] = weigh(%x, %s)
output \"y\" = %y"
        )
    };
    let l = run(&text("{starts=[3, 32], sizes=[2, 32], steps=[1, 1]}", 32)).unwrap();
    let w = kernels(&l)[0].operands[1].clone().unwrap();
    assert_eq!(w.region, Region::Weights);
    assert_eq!((w.offset, w.dtype), (Dim::from((3 * 64 + 32) / 32 * 34i64), DType::Q8_0));
    let g = frit_ir::text::parse(&text("{starts=[3, 16], sizes=[2, 32], steps=[1, 1]}", 32), &registry());
    // Whoever refuses first, a cut block never becomes a step.
    if let Ok(g) = g {
        let e = legalize(&g, &registry(), &target()).unwrap_err();
        assert!(matches!(e, CompileError::View { .. }), "{e}");
    }
}

#[test]
fn a_state_is_written_in_place_after_its_readers() {
    let l = run(&format!(
        "input %x: f32[4]
state %s: f32[4]
%n: f32[4] = set(%s, %x)
%old: f32[4] = expr(%s) {NEG}
%new: f32[4] = expr(%n) {NEG}
output \"old\" = %old
output \"new\" = %new
update %s = %n"
    ))
    .unwrap();
    let names: Vec<_> = kernels(&l).iter().map(|k| k.name.as_str()).collect();
    assert_eq!(names, ["old", "n", "new"]);
    assert!(
        steps(&l)[1].starts_with("set_rows (state0 f32[4]:[1], input0 f32[4]:[1]) -> (state0 f32[4]:[1])")
    );
}

#[test]
fn a_read_that_must_come_after_the_write_sees_a_copy() {
    let l = run(&format!(
        "input %x: f32[4]
state %s: f32[4]
%n: f32[4] = set(%s, %x)
%both: f32[4] = expr(%s, %n) {ADD}
output \"both\" = %both
update %s = %n"
    ))
    .unwrap();
    assert_eq!(row_names(&l), ["copy_any", "set_rows", "expr_any"]);
    assert!(steps(&l)[2].starts_with("expr_any (arena f32[4]:[1], state0 f32[4]:[1])"), "{:?}", steps(&l));
}

#[test]
fn states_that_swap_or_are_computed_are_copied_back() {
    let l = run("state %a: f32[4]\nstate %b: f32[4]\nupdate %a = %b\nupdate %b = %a").unwrap();
    let s = steps(&l);
    assert_eq!(s.len(), 3, "{s:?}");
    assert_eq!(s[0], "copy_any (state0 f32[4]:[1]) -> (arena f32[4]:[1])");
    assert_eq!(s[1], "copy_any (state1 f32[4]:[1]) -> (state0 f32[4]:[1])");
    assert_eq!(s[2], "copy_any (arena f32[4]:[1]) -> (state1 f32[4]:[1])");
    let l = run(&format!("state %a: f32[4]\n%n: f32[4] = expr(%a) {NEG}\nupdate %a = %n")).unwrap();
    assert_eq!(steps(&l)[1], "copy_any (arena f32[4]:[1]) -> (state0 f32[4]:[1])");
}

#[test]
fn only_the_version_that_lasts_is_in_place() {
    // Two futures of one state: the one that is not kept works on a copy.
    let l = run("input %x: f32[4]
input %z: f32[4]
state %s: f32[4]
%lost: f32[4] = set(%s, %x)
%kept: f32[4] = set(%s, %z)
output \"lost\" = %lost
update %s = %kept")
    .unwrap();
    assert_eq!(row_names(&l), ["copy_any", "set_rows", "set_rows"]);
    let s = steps(&l);
    assert!(s[1].ends_with("-> (output0 f32[4]:[1])"), "{s:?}");
    assert!(s[2].ends_with("-> (state0 f32[4]:[1])"), "{s:?}");
    // A value that is no state: an input is copied before it is overwritten.
    let l = run("input %x: f32[4]\ninput %z: f32[4]\n%n: f32[4] = set(%x, %z)\noutput \"n\" = %n").unwrap();
    assert_eq!(row_names(&l), ["copy_any", "set_rows"]);
}

#[test]
fn too_many_dimensions_are_an_error() {
    let dims = "2, 2, 2, 2, 2, 2, 2, 2, 2";
    let l = run(&format!(
        "input %x: f32[{dims}]
%t: f32[{dims}] = transpose(%x) {{perm=[8, 7, 6, 5, 4, 3, 2, 1, 0]}}
%y: f32[{dims}] = expr(%t) {NEG}
output \"y\" = %y"
    ));
    assert!(matches!(l, Err(CompileError::Rank { rank: 9, .. })), "{l:?}");
}
