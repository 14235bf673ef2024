//! Every case of every op: inference and reference agree, stated results come out, and cost and lowering work.

use std::collections::HashSet;
use std::sync::LazyLock;

use frit_ir::op::{Case, InferCtx, NodeCtx, OpError};
use frit_ir::{OpDef, Symbols, Tensor, Type};
use frit_ops::interpret::{reference_of_case, type_of};
use frit_ops::registry;

/// Every op with its cases, built once for all tests.
static OPS: LazyLock<Vec<(OpDef, Vec<Case>)>> =
    LazyLock::new(|| registry().iter().map(|d| (d.clone(), (d.cases)())).collect());

/// Runs `check` on every case and collects what it finds wrong.
fn each_case(check: impl Fn(&OpDef, &Case) -> Result<(), String>) {
    let mut wrong = Vec::new();
    for (def, cases) in OPS.iter() {
        for case in cases {
            if let Err(e) = check(def, case) {
                wrong.push(format!("{} `{}`: {e}", def.name, case.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong[..wrong.len().min(20)].join("\n"));
}

fn types(case: &Case) -> Vec<Option<Type>> {
    case.inputs.iter().map(|i| i.as_ref().map(|i| type_of(&i.tensor))).collect()
}

/// The largest distance beyond the bound, or `None` if all values are within it.
fn far(got: &[f64], want: &[f64], abs: f64, rel: f64) -> Option<String> {
    if got.len() != want.len() {
        return Some(format!("{} values, not {}", got.len(), want.len()));
    }
    let within = |(g, w): (&f64, &f64)| match (g.is_finite(), w.is_finite()) {
        (true, true) => (g - w).abs() <= abs + rel * w.abs(),
        _ => g == w || (g.is_nan() && w.is_nan()),
    };
    let at = got.iter().zip(want).position(|p| !within(p))?;
    Some(format!("element {at} is {}, not {}", got[at], want[at]))
}

#[test]
fn references_run_and_stated_results_come_out() {
    let registry = registry();
    each_case(|def, case| {
        let results = reference_of_case(&registry, def.name, case).map_err(|e| e.to_string())?;
        let Some(expect) = &case.expect else { return Ok(()) };
        if expect.len() != results.len() {
            return Err(format!("{} results, {} stated", results.len(), expect.len()));
        }
        for (i, (t, want)) in results.iter().zip(expect).enumerate() {
            let got = Tensor::to_f64(t).map_err(|e| e.to_string())?;
            if let Some(e) = far(&got, want, case.tolerance.abs, case.tolerance.rel) {
                return Err(format!("result {i}: {e}"));
            }
        }
        Ok(())
    });
}

#[test]
fn cost_and_lowering_work_on_every_case() {
    each_case(|def, case| {
        let (types, symbols) = (types(case), Symbols::default());
        let refs: Vec<Option<&Type>> = types.iter().map(Option::as_ref).collect();
        let mut ctx = InferCtx::new(&case.attrs, &refs, &symbols);
        let outputs = (def.infer)(&mut ctx).map_err(|e| e.to_string())?;
        let node = NodeCtx { attrs: &case.attrs, inputs: &refs, outputs: &outputs };
        let lowered = (def.lower)(&node).map_err(|e| e.to_string())?;
        let names: HashSet<_> = lowered.params.iter().map(|(n, _)| n).collect();
        if names.len() != lowered.params.len() {
            return Err("a parameter name is given twice".into());
        }
        let cost = (def.cost)(&node);
        let valid = |d: &frit_ir::Dim| d.as_const().is_some_and(|v| v >= 0);
        if valid(&cost.flops) && valid(&cost.bytes) { Ok(()) } else { Err(format!("{cost:?}")) }
    });
}

#[test]
fn names_are_unique_and_tolerances_finite() {
    for (def, cases) in OPS.iter() {
        assert!(!cases.is_empty(), "{} has no case", def.name);
        let mut names = HashSet::new();
        for c in cases {
            assert!(names.insert(c.name.as_str()), "two cases of {} are called `{}`", def.name, c.name);
            let t = c.tolerance;
            assert!(
                t.abs >= 0.0 && t.abs.is_finite() && t.rel >= 0.0 && t.rel < 0.1,
                "{} {}",
                def.name,
                c.name
            );
        }
    }
}

#[test]
fn unknown_attributes_and_too_many_operands_are_refused() {
    for (def, cases) in OPS.iter() {
        let case = &cases[0];
        let types = types(case);
        let refs: Vec<Option<&Type>> = types.iter().map(Option::as_ref).collect();
        let attrs = case.attrs.clone().with("nonsense", 1i64);
        let symbols = Symbols::default();
        let e = (def.infer)(&mut InferCtx::new(&attrs, &refs, &symbols)).unwrap_err();
        assert!(e.to_string().contains("`nonsense`"), "{}: {e}", def.name);
        let none = (def.infer)(&mut InferCtx::new(&case.attrs, &[], &symbols));
        assert!(none.is_err() || refs.is_empty(), "{} takes no operands", def.name);
        if def.name != "concat" {
            let many = vec![refs[0]; 64];
            let e = (def.infer)(&mut InferCtx::new(&case.attrs, &many, &symbols)).unwrap_err();
            assert!(matches!(e, OpError::Operands { .. } | OpError::DType(_)), "{}: {e}", def.name);
        }
    }
}

#[test]
fn each_op_has_one_specification() {
    for def in registry().iter() {
        assert!(def.reference.is_some() != def.expand.is_some(), "{}", def.name);
        assert!(def.vjp.is_none(), "{}", def.name);
    }
}
