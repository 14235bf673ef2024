use std::collections::HashMap;

use frit_ir::dim::Dim;
use frit_ir::schedule::{Region, Schedule, Step};
use frit_ir::{DType, Tensor};

use super::random::{Rng, random_graph};
use super::simulate::simulate;
use super::{Overlap, check, map, plan};
use crate::CompileError;
use crate::legalize::testing::{graph, registry, target};
use crate::legalize::{Legalized, legalize};

fn planned(text: &str) -> (Legalized, Schedule) {
    let l = legalize(&graph(text), &registry(), &target()).unwrap();
    let s = plan(&l, &target()).unwrap();
    (l, s)
}

/// A line a step: arena offsets of the operands (`-` for other regions), inputs `->` results, and the scratch.
fn offsets(s: &Schedule) -> Vec<String> {
    let line = |step: &Step| {
        let Step::Kernel(k) = step else { return String::new() };
        let of = |o: &Option<frit_ir::schedule::Operand>| match o {
            Some(o) if o.region == Region::Arena => o.offset.to_string(),
            _ => "-".into(),
        };
        let list = |o: &[_]| o.iter().map(of).collect::<Vec<_>>().join(" ");
        let scratch = k.candidates.iter().any(|c| !c.scratch.is(0));
        let scratch = if scratch { format!(" ({})", k.scratch) } else { String::new() };
        format!("{}: {} -> {}{scratch}", k.name, list(&k.operands[..k.inputs]), list(&k.operands[k.inputs..]))
    };
    s.steps.iter().map(line).collect()
}

const NEG: &str = "{expr={(f32) 1=neg(0) -> 1:f32}}";
const ADD: &str = "{expr={(f32, f32) 2=add(0,1) -> 2:f32}}";

#[test]
fn a_chain_of_pointwise_steps_stays_in_place() {
    let (l, s) = planned(&format!(
        "symbol T 1..=16
input %x: f32[T, 32]
%a: f32[T, 32] = expr(%x) {NEG}
%b: f32[T, 32] = expr(%a) {NEG}
%c: f32[T, 32] = softmax(%b) {{axis=1, log=false}}
%d: f32[T, 32] = expr(%c, %c) {ADD}
output \"d\" = %d"
    ));
    assert_eq!(offsets(&s), ["a: - -> 0", "b: 0 -> 0", "c: 0 -> 0 (2048)", "d: 0 0 -> -"]);
    assert_eq!((s.memory.arena, s.memory.live), (2048 + 256, 2048 + 256));
    assert_eq!(s.memory.largest[0], ("a".into(), 2048, 0, 1));
    let text = |p: &super::Placed| {
        let ty = p.ty.as_ref().map_or("scratch".into(), ToString::to_string);
        format!("{} {ty} {}+{} {}..={}", p.name, p.offset, p.bytes, p.first, p.last)
    };
    let all: Vec<String> = map(&l, &s).unwrap().iter().map(text).collect();
    let want = ["a f32[T, 32] 0+2048 0..=1", "b f32[T, 32] 0+2048 1..=2", "c scratch 2048+256 2..=2"];
    assert_eq!(all, [&want[..], &["c f32[T, 32] 0+2048 2..=3"]].concat());
}

#[test]
fn a_result_takes_over_only_what_dies_and_lies_alike() {
    let (_, s) = planned(&format!(
        "input %x: f32[4, 4]
%a: f32[4, 4] = expr(%x) {NEG}
%t: f32[4, 4] = transpose(%a) {{perm=[1, 0]}}
%b: f32[4, 4] = expr(%a, %t) {ADD}
%c: f32[4, 4] = expr(%b) {NEG}
%d: f32[4, 4] = expr(%b, %c) {ADD}
output \"d\" = %d"
    ));
    // b reads a transposed too, c leaves b alive; a's bytes are free again for c.
    assert_eq!(offsets(&s), ["a: - -> 64", "b: 64 64 -> 0", "c: 0 -> 64", "d: 0 64 -> -"]);
    assert_eq!(s.memory.arena, 128);
}

#[test]
fn views_keep_their_distance_from_the_start_of_the_value() {
    let (_, s) = planned(&format!(
        "input %x: f32[4, 4]
%a: f32[4, 4] = expr(%x) {NEG}
%k: f32[4, 4] = expr(%x, %a) {ADD}
%s: f32[2, 4] = slice(%k) {{starts=[2, 0], sizes=[2, 4], steps=[1, 1]}}
%b: f32[2, 4] = expr(%s) {NEG}
%r: f32[4, 4] = expr(%a, %k) {ADD}
output \"b\" = %b
output \"r\" = %r"
    ));
    assert_eq!(offsets(&s), ["a: - -> 0", "k: - 0 -> 64", "b: 96 -> -", "r: 0 64 -> -"]);
}

#[test]
fn empty_and_unused_values_are_planned() {
    let (_, s) = planned(&format!(
        "input %x: f32[0, 4]
input %y: f32[4]
%a: f32[0, 4] = expr(%x) {NEG}
%b: f32[0, 4] = expr(%a) {NEG}
%unused: f32[4] = expr(%y) {NEG}
output \"b\" = %b"
    ));
    assert_eq!(s.memory.arena, 64);
    let (_, s) = planned("input %x: f32[4]\noutput \"x\" = %x");
    assert_eq!((s.memory.arena, s.memory.live), (0, 0));
}

#[test]
fn sizes_beyond_the_address_space_are_refused() {
    let text = format!(
        "symbol T 1..=9000000000000000000
input %x: f32[T, 32]
%a: f32[T, 32] = expr(%x) {NEG}
%b: f32[T, 32] = expr(%a) {NEG}
output \"b\" = %b"
    );
    let e = legalize(&graph(&text), &registry(), &target()).unwrap_err();
    assert!(matches!(e, CompileError::TooLarge { ref what, .. } if what.contains("value `a`")), "{e}");
    // Each value fits, their sum does not.
    let text = text.replace("9000000000000000000", "60000000000000000").replace(
        "%b: f32[T, 32] = expr(%a)",
        "%c: f32[T, 32] = expr(%x) {expr={(f32) 1=neg(0) -> 1:f32}}\n%b: f32[T, 32] = expr(%a)",
    );
    let text =
        text.replace("output", &format!("%d: f32[T, 32] = expr(%a, %c) {ADD}\noutput \"d\" = %d\noutput"));
    let l = legalize(&graph(&text), &registry(), &target()).unwrap();
    let e = plan(&l, &target()).unwrap_err();
    assert!(matches!(e, CompileError::TooLarge { ref what, .. } if what == "the arena"), "{e}");
}

/// Moves one arena operand of one step.
fn moved(s: &Schedule, step: usize, operand: usize, by: i64) -> Schedule {
    let mut s = s.clone();
    if let Step::Kernel(k) = &mut s.steps[step] {
        let o = k.operands[operand].as_mut().unwrap();
        o.offset = o.offset.clone() + Dim::from(by);
    }
    s
}

#[test]
fn the_checker_sees_what_is_wrong() {
    let text = format!(
        "input %x: f32[16]
%a: f32[16] = expr(%x) {NEG}
%b: f32[16] = softmax(%x) {{axis=0, log=false}}
%c: f32[16] = expr(%a, %b) {ADD}
%d: f32[16] = expr(%c, %b) {ADD}
output \"d\" = %d"
    );
    let (l, s) = planned(&text);
    assert_eq!(offsets(&s)[..2], ["a: - -> 256", "b: - -> 320 (0)"]);
    check(&s, &l, &target()).unwrap();
    let fails = |s: &Schedule| check(s, &l, &target()).unwrap_err();
    assert!(matches!(fails(&moved(&s, 0, 1, 64)), Overlap::Moved { step: 2, value: 0 }));
    assert!(matches!(fails(&moved(&s, 0, 1, 4)), Overlap::Alignment { step: 0, .. }));
    let both = moved(&moved(&moved(&s, 0, 1, 64), 2, 0, 64), 2, 2, 64);
    let both = moved(&both, 3, 0, 64);
    assert!(matches!(fails(&both), Overlap::Shared { step: 1, .. }), "{}", fails(&both));
    let mut scratch = s.clone();
    if let Step::Kernel(k) = &mut scratch.steps[1] {
        k.scratch = 128;
    }
    assert!(fails(&scratch).to_string().contains("the scratch of `b`"));
    let mut small = s.clone();
    small.memory.arena = 300;
    assert!(matches!(fails(&small), Overlap::Outside { .. }));
    let mut early = s.clone();
    early.steps.swap(0, 2);
    assert!(matches!(fails(&early), Overlap::Changed(0)));
    // The same order in both: now a value is read before it is written.
    let mut l2 = l.clone();
    l2.schedule.steps.swap(0, 2);
    l2.aliases.swap(0, 2);
    assert!(matches!(check(&early, &l2, &target()).unwrap_err(), Overlap::Unwritten { step: 0, .. }));
    // In place without leave.
    let mut strict = l.clone();
    strict.aliases.iter_mut().for_each(Vec::clear);
    assert!(matches!(check(&s, &strict, &target()).unwrap_err(), Overlap::Shared { step: 2, .. }));
}

fn tensor(shape: &[usize], rng: &mut Rng) -> Tensor {
    let n = shape.iter().product();
    let values: Vec<f64> = (0..n).map(|_| rng.below(17) as f64 / 8.0 - 1.0).collect();
    Tensor::from_f64(DType::F32, shape, &values).unwrap()
}

/// The map holds every value and scratch, within the arena; two share bytes only at the one step that works in place.
fn mapped(l: &Legalized, s: &Schedule, seed: u64) {
    let all = map(l, s).unwrap();
    let scratch = all.iter().filter(|p| p.ty.is_none()).count();
    assert_eq!(all.len() - scratch, l.arena.len(), "seed {seed}");
    for (i, a) in all.iter().enumerate() {
        assert!(a.offset + a.bytes <= s.memory.arena && a.first <= a.last, "seed {seed}: {a:?}");
        for b in &all[..i] {
            let bytes = a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
            let both = a.first.max(b.first)..=a.last.min(b.last);
            assert!(!bytes || both.count() <= 1, "seed {seed}: {a:?} {b:?}");
        }
    }
}

#[test]
fn random_graphs_run_as_the_reference_says() {
    let (r, t) = (registry(), target());
    for seed in 0..1000 {
        let g = random_graph(seed, &r);
        let l = legalize(&g, &r, &t).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        let s = plan(&l, &t).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        assert!(s.memory.live <= s.memory.arena, "seed {seed}");
        mapped(&l, &s, seed);
        for size in [5, 2] {
            let mut rng = Rng(seed ^ 77);
            let shapes = [("x", vec![size, 4]), ("z", vec![3, 4]), ("p", vec![4]), ("w", vec![4, 4])];
            let states = [("s", vec![3, 4]), ("q", vec![3, 4])];
            let values: HashMap<String, Tensor> = shapes
                .iter()
                .chain(&states)
                .map(|(n, shape)| (n.to_string(), tensor(shape, &mut rng)))
                .collect();
            let got = simulate(&s, &t, &l.aliases, size as i64, &values);
            let want = frit_ops::interpret::interpret(&g, &r, &[("T", size as i64)], &values).unwrap();
            for (name, w) in want.outputs.iter().chain(&want.states) {
                let w = w.to_f64().unwrap();
                let same = got[name]
                    .iter()
                    .zip(&w)
                    .all(|(a, b)| (f64::from(*a) - b).abs() <= 1e-4 * (1.0 + b.abs()));
                assert!(
                    same && got[name].len() == w.len(),
                    "seed {seed} {name}: {:?} {w:?}\n{}",
                    got[name],
                    frit_ir::text::print(&g)
                );
            }
        }
    }
}
