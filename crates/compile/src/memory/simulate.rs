//! Runs schedules of the test target on f32 memory: the plainest executor that can be, to compare plans with the reference.
//! Memory that nobody has written is NaN, and so are scratch and results before a step runs.

use std::collections::HashMap;

use frit_ir::Tensor;
use frit_ir::expr::Scalar;
use frit_ir::op::ParamValue;
use frit_ir::schedule::{KernelStep, Operand, Region, Schedule, Step, WeightSource};
use frit_ir::target::Target;

type Memory = HashMap<(Region, u32), Vec<f32>>;

/// Runs `s` with `T` bound to `t` and gives outputs and states by name.
pub(super) fn simulate(
    s: &Schedule,
    target: &Target,
    aliases: &[Vec<(usize, usize)>],
    t: i64,
    values: &HashMap<String, Tensor>,
) -> HashMap<String, Vec<f32>> {
    let mut memory = Memory::new();
    let floats =
        |name: &str| -> Vec<f32> { values[name].to_f64().unwrap().into_iter().map(|v| v as f32).collect() };
    for (i, p) in s.inputs.iter().enumerate() {
        memory.insert((Region::Input, i as u32), floats(&p.name));
    }
    for (i, p) in s.states.iter().enumerate() {
        memory.insert((Region::State, i as u32), floats(&p.name));
    }
    for (i, w) in s.weights.iter().enumerate() {
        let WeightSource::Param(name) = &w.source else { panic!("no constants here") };
        memory.insert((Region::Weights, i as u32), floats(name));
    }
    for (i, p) in s.outputs.iter().enumerate() {
        let n = p.ty.elements().eval(&|_| Some(t)).unwrap();
        memory.insert((Region::Output, i as u32), vec![f32::NAN; n as usize]);
    }
    memory.insert((Region::Arena, 0), vec![f32::NAN; s.memory.arena.div_ceil(4) as usize]);
    for (i, step) in s.steps.iter().enumerate() {
        let Step::Kernel(k) = step else { panic!("only kernels are made") };
        run(k, target, &aliases[i], t, &mut memory);
    }
    let mut out = HashMap::new();
    for (ports, region) in [(&s.outputs, Region::Output), (&s.states, Region::State)] {
        for (i, p) in ports.iter().enumerate() {
            out.insert(p.name.clone(), memory[&(region, i as u32)].clone());
        }
    }
    out
}

/// Element positions of an operand in its buffer, in row-major order.
fn places(o: &Operand, t: i64) -> Vec<usize> {
    let eval = |d: &frit_ir::Dim| d.eval(&|_| Some(t)).unwrap() as usize;
    let mut all = vec![eval(&o.offset) / 4];
    for (d, s) in o.dims.iter().zip(&o.strides) {
        let (d, s) = (eval(d), eval(s));
        all = all.iter().flat_map(|p| (0..d).map(move |i| p + i * s)).collect();
    }
    all
}

fn run(k: &KernelStep, target: &Target, aliases: &[(usize, usize)], t: i64, memory: &mut Memory) {
    let bind = |_: &frit_ir::Sym| Some(t);
    let c = k
        .candidates
        .iter()
        .find(|c| c.guards.iter().all(|g| g.holds(g.dim.eval(&bind).unwrap())))
        .expect("one candidate always runs");
    let row = target.row(c.row);
    let ops: Vec<Option<(&Operand, Vec<usize>)>> =
        k.operands.iter().map(|o| o.as_ref().map(|o| (o, places(o, t)))).collect();
    poison(k, c, row.op, aliases, t, &ops, memory);
    let key = |o: &Operand| (o.region, o.buffer);
    let read = |memory: &Memory, i: usize| -> Vec<f32> {
        let (o, at) = ops[i].as_ref().unwrap();
        at.iter().map(|p| memory[&key(o)][*p]).collect()
    };
    let results: Vec<f32> = match row.op {
        "expr" => return pointwise(k, &ops, memory),
        "copy" => read(memory, 0),
        "set" => read(memory, 0).iter().zip(read(memory, 1)).map(|(s, v)| 0.5 * s + v).collect(),
        "softmax" => softmax(&read(memory, 0), k, t, &c.params[0]),
        "matmul" => matmul(&read(memory, 0), &read(memory, 1), k, t),
        op => panic!("no `{op}` here"),
    };
    let (o, at) = ops[k.inputs].as_ref().unwrap();
    let buffer = memory.get_mut(&key(o)).unwrap();
    at.iter().zip(results).for_each(|(p, v)| buffer[*p] = v);
}

/// Fills scratch, and results that take over nothing, with NaN: reading either would show.
fn poison(
    k: &KernelStep,
    c: &frit_ir::schedule::Candidate,
    op: &str,
    aliases: &[(usize, usize)],
    t: i64,
    ops: &[Option<(&Operand, Vec<usize>)>],
    memory: &mut Memory,
) {
    let scratch = c.scratch.eval(&|_| Some(t)).unwrap();
    let arena = memory.get_mut(&(Region::Arena, 0)).unwrap();
    (k.scratch / 4..(k.scratch + scratch as u64).div_ceil(4)).for_each(|i| arena[i as usize] = f32::NAN);
    for (n, (o, at)) in ops.iter().enumerate().skip(k.inputs).flat_map(|(n, o)| o.iter().map(move |o| (n, o)))
    {
        let aliased = |i: usize| aliases.contains(&(i, n)) || (op == "set" && i == 0);
        let shares = (0..k.inputs).any(|i| {
            aliased(i)
                && ops[i]
                    .as_ref()
                    .is_some_and(|(x, p)| (x.region, x.buffer) == (o.region, o.buffer) && p == at)
        });
        if !shares {
            let buffer = memory.get_mut(&(o.region, o.buffer)).unwrap();
            at.iter().for_each(|p| buffer[*p] = f32::NAN);
        }
    }
}

/// Point by point: what a point writes is seen by the next point's reads.
fn pointwise(k: &KernelStep, ops: &[Option<(&Operand, Vec<usize>)>], memory: &mut Memory) {
    let points = ops[k.inputs].as_ref().unwrap().1.len();
    for i in 0..points {
        let of = |(o, at): &(&Operand, Vec<usize>)| ((o.region, o.buffer), at[i]);
        let inputs: Vec<Scalar> = ops[..k.inputs]
            .iter()
            .flatten()
            .map(of)
            .map(|(key, p)| Scalar::Float(memory[&key][p].into()))
            .collect();
        let results = k.exprs[0].eval(&inputs);
        for (place, v) in ops[k.inputs..].iter().flatten().map(of).zip(results) {
            memory.get_mut(&place.0).unwrap()[place.1] = v.to_f64() as f32;
        }
    }
}

fn dims(k: &KernelStep, operand: usize, t: i64) -> Vec<usize> {
    let o = k.operands[operand].as_ref().unwrap();
    o.dims.iter().map(|d| d.eval(&|_| Some(t)).unwrap() as usize).collect()
}

/// Over the last axis, which is the only one the tests use.
fn softmax(x: &[f32], k: &KernelStep, t: i64, axis: &ParamValue) -> Vec<f32> {
    let dims = dims(k, 0, t);
    assert_eq!(*axis, ParamValue::Dim((dims.len() - 1).into()));
    let row = |r: &[f32]| {
        let most = r.iter().fold(f64::NEG_INFINITY, |a, b| a.max(f64::from(*b)));
        let e: Vec<f64> = r.iter().map(|v| (f64::from(*v) - most).exp()).collect();
        let sum: f64 = e.iter().sum();
        e.into_iter().map(|v| (v / sum) as f32).collect::<Vec<_>>()
    };
    x.chunks(dims[dims.len() - 1]).flat_map(row).collect()
}

fn matmul(a: &[f32], b: &[f32], k: &KernelStep, t: i64) -> Vec<f32> {
    let (a_dims, b_dims) = (dims(k, 0, t), dims(k, 1, t));
    let (m, inner, n) = (a_dims[0], a_dims[1], b_dims[1]);
    let cell = |i: usize, j: usize| {
        (0..inner).map(|p| f64::from(a[i * inner + p]) * f64::from(b[p * n + j])).sum::<f64>() as f32
    };
    (0..m).flat_map(|i| (0..n).map(move |j| (i, j))).map(|(i, j)| cell(i, j)).collect()
}
