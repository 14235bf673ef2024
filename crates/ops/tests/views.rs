//! The stride arithmetic of views against their references: read through its view, a buffer gives what the reference
//! gives, from dense and strided operands.

use frit_ir::dim::Dim;
use frit_ir::op::{InferCtx, NodeCtx, View};
use frit_ir::{DType, Symbols, Tensor, Type};
use frit_ops::interpret::{run_node, type_of};
use frit_ops::{cases, registry};

fn ints(all: &[Dim]) -> Vec<usize> {
    all.iter().map(|d| usize::try_from(d.as_const().expect("constant")).expect("not negative")).collect()
}

/// The elements of `buffer` that `v` shows, row by row.
fn show(v: &View, buffer: &[i32]) -> Vec<i32> {
    let (dims, strides) = (ints(&v.dims), ints(&v.strides));
    let start = ints(std::slice::from_ref(&v.offset))[0];
    let n: usize = dims.iter().product();
    let at = |mut i: usize| {
        let mut at = start;
        for (d, s) in dims.iter().zip(&strides).rev() {
            at += i % d * s;
            i /= d;
        }
        at
    };
    (0..n).map(|i| buffer[at(i)]).collect()
}

/// `dims` dense; with rows further apart; with the last two dimensions swapped and every second element skipped.
fn bases(dims: &[usize]) -> Vec<View> {
    let dense = View::dense(&dims.iter().copied().map(Dim::from).collect::<Vec<_>>());
    let mut longer: Vec<Dim> = dense.dims.to_vec();
    if let Some(last) = longer.last_mut() {
        *last = last.clone() + 2.into();
    }
    let rows = View { strides: View::dense(&longer).strides, offset: 3.into(), ..dense.clone() };
    let mut swapped = dense.dims.to_vec();
    let n = swapped.len();
    if n >= 2 {
        swapped.swap(n - 1, n - 2);
    }
    let mut strides: Vec<Dim> =
        View::dense(&swapped).strides.into_iter().map(|s| s * Dim::from(2i64)).collect();
    if n >= 2 {
        strides.swap(n - 1, n - 2);
    }
    let strided = View { offset: 1.into(), dims: dense.dims.clone(), strides: strides.into_iter().collect() };
    vec![dense, rows, strided]
}

#[test]
fn views_show_what_references_compute() {
    let registry = registry();
    let buffer: Vec<i32> = (0..20_000).collect();
    let mut shown = 0;
    for def in registry.iter() {
        let Some(view) = def.view else { continue };
        for case in (def.cases)() {
            let dims = case.inputs[0].as_ref().expect("an operand").tensor.shape().to_vec();
            for (i, base) in bases(&dims).iter().enumerate() {
                let t = Tensor::from_i32(&dims, &show(base, &buffer)).expect("fits");
                let want = run_node(&registry, def, &case.attrs, &[Some(&t)]).expect("the case runs");
                let outputs = [type_of(&want[0])];
                let ty = type_of(&t);
                let node = NodeCtx { attrs: &case.attrs, inputs: &[Some(&ty)], outputs: &outputs };
                let Some(v) = view(&node, base) else {
                    assert!(i > 0, "{} {}: a dense operand always has a view", def.name, case.name);
                    continue;
                };
                let want: Vec<i32> =
                    want[0].to_i64().expect("integers").into_iter().map(|v| v as i32).collect();
                assert_eq!(show(&v, &buffer), want, "{} {} base {i}", def.name, case.name);
                assert_eq!(v.dims, outputs[0].shape, "{} {}", def.name, case.name);
                shown += 1;
            }
        }
    }
    assert!(shown > 1000, "{shown} views were compared");
}

#[test]
fn block_formats_move_by_whole_rows_and_blocks() {
    let registry = registry();
    let t = cases::random(DType::Q4_0, &[4, 64], 1);
    let all = t.to_f64().expect("decodes");
    let run = |op: &str, attrs| {
        let def = registry.get(op).expect("an op");
        run_node(&registry, def, &attrs, &[Some(&t)]).map(|r| r[0].to_f64().expect("decodes"))
    };
    let attrs = |start: i64, size: i64| {
        let list = |a: i64, b: i64| vec![a, b];
        frit_ir::Attrs::new()
            .with("starts", list(1, start))
            .with("sizes", list(2, size))
            .with("steps", list(1, 1))
    };
    let want: Vec<f64> = [&all[96..128], &all[160..192]].concat();
    assert_eq!(run("slice", attrs(32, 32)), Ok(want));
    let e = run("slice", attrs(16, 32)).unwrap_err().to_string();
    assert!(e.contains("whole units of 32"), "{e}");
    let e = run("transpose", frit_ir::Attrs::new().with("perm", vec![1i64, 0])).unwrap_err().to_string();
    assert!(e.contains("must stay last"), "{e}");
    let rows = run("reshape", frit_ir::Attrs::new().with("shape", vec![8i64, 32])).expect("whole rows");
    assert_eq!(rows, all);
}

#[test]
fn symbolic_windows_become_guards() {
    let registry = registry();
    let def = registry.get("slice").expect("slice");
    let mut symbols = Symbols::default();
    let t = symbols.declare("T", 1, 8).expect("a range");
    let r = symbols.declare("R", 1, 8).expect("a range");
    let ty = Type::new(DType::F32, [t.clone(), 4.into()]);
    let attrs = frit_ir::Attrs::new()
        .with("starts", vec![t.clone() - r.clone(), 0i64.into()])
        .with("sizes", vec![r.clone(), 4i64.into()])
        .with("steps", vec![1i64, 1]);
    let inputs = [Some(&ty)];
    let mut ctx = InferCtx::new(&attrs, &inputs, &symbols);
    let out = (def.infer)(&mut ctx).expect("a window of the last R rows");
    assert_eq!(out[0].to_string(), "f32[R, 4]");
    // That it ends inside is proved; that it starts at 0 or later depends on the sizes.
    let guards = ctx.into_guards();
    assert_eq!(guards.len(), 1, "{guards:?}");
    assert!(guards[0].why.contains("start of dimension 0"), "{guards:?}");
}
