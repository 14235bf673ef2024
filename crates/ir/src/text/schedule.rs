//! Schedules to text, for goldens and inspection.

use std::fmt::{self, Write};

use super::print::{Name, write_symbols, write_tensor};
use crate::op::ParamValue;
use crate::schedule::{Candidate, KernelStep, Operand, Port, Region, Schedule, Step, WeightSource};
use crate::target::{Cmp, Target};

/// The text of a schedule made for `target`: symbols, buffers, one step a line, the memory plan.
pub fn print_schedule(schedule: &Schedule, target: &Target) -> String {
    let mut s = String::with_capacity(200 * (schedule.steps.len() + 8));
    // Writing to a string cannot fail.
    let _ = write_schedule(&mut s, schedule, target);
    s
}

/// The line of one step: name, candidate rows with their guards and parameters, operands, expressions, scratch.
pub fn print_step(step: &Step, target: &Target) -> String {
    let mut s = String::new();
    let Step::Kernel(k) = step;
    // Writing to a string cannot fail.
    let _ = write_kernel(&mut s, k, target);
    s
}

fn write_schedule(s: &mut String, x: &Schedule, target: &Target) -> fmt::Result {
    writeln!(s, "schedule {:?} for {}", x.name, x.target)?;
    write_symbols(s, &x.symbols, &x.guards)?;
    write_ports(s, "input", &x.inputs)?;
    write_ports(s, "output", &x.outputs)?;
    write_ports(s, "state", &x.states)?;
    for (i, w) in x.weights.iter().enumerate() {
        write!(s, "weight {i}: {} = ", w.ty)?;
        match &w.source {
            WeightSource::Param(name) => write!(s, "%{}", Name(name))?,
            WeightSource::Const(t) => write_tensor(s, t)?,
        }
        if let Some(p) = w.packing {
            write!(s, " as {p}")?;
        }
        s.push('\n');
    }
    for (i, step) in x.steps.iter().enumerate() {
        writeln!(s, "{i}: {}", print_step(step, target))?;
    }
    writeln!(s, "arena {} bytes, live {} bytes", x.memory.arena, x.memory.live)?;
    for (name, bytes, first, last) in &x.memory.largest {
        writeln!(s, "  {bytes} %{} {first}..={last}", Name(name))?;
    }
    Ok(())
}

fn write_ports(s: &mut String, kind: &str, ports: &[Port]) -> fmt::Result {
    for (i, p) in ports.iter().enumerate() {
        writeln!(s, "{kind} {i}: %{}: {}", Name(&p.name), p.ty)?;
    }
    Ok(())
}

fn write_kernel(s: &mut String, k: &KernelStep, target: &Target) -> fmt::Result {
    write!(s, "%{} =", Name(&k.name))?;
    for (i, c) in k.candidates.iter().enumerate() {
        s.push_str(if i > 0 { " | " } else { " " });
        write_candidate(s, c, target)?;
    }
    let (inputs, outputs) = k.operands.split_at(k.inputs.min(k.operands.len()));
    s.push_str(" (");
    write_operands(s, inputs)?;
    s.push_str(") -> (");
    write_operands(s, outputs)?;
    s.push(')');
    for e in &k.exprs {
        write!(s, " {e}")?;
    }
    if k.candidates.iter().any(|c| !c.scratch.is(0)) {
        write!(s, " scratch arena+{}", k.scratch)?;
    }
    Ok(())
}

fn write_candidate(s: &mut String, c: &Candidate, target: &Target) -> fmt::Result {
    let row = target.rows.get(c.row.0 as usize);
    match row {
        Some(r) => s.push_str(r.name),
        None => write!(s, "row{}", c.row.0)?,
    }
    if !c.params.is_empty() {
        s.push('{');
        for (i, p) in c.params.iter().enumerate() {
            s.push_str(if i > 0 { ", " } else { "" });
            if let Some(spec) = row.and_then(|r| r.params.get(i)) {
                write!(s, "{}=", spec.name)?;
            }
            match p {
                ParamValue::Dim(d) => write!(s, "{d}")?,
                ParamValue::Float(v) => write!(s, "{v:?}")?,
            }
        }
        s.push('}');
    }
    if !c.scratch.is(0) {
        write!(s, "[scratch {}]", c.scratch)?;
    }
    for (i, g) in c.guards.iter().enumerate() {
        let sign = match g.cmp {
            Cmp::Eq => "==",
            Cmp::Ne => "!=",
            Cmp::Le => "<=",
            Cmp::Ge => ">=",
            Cmp::MultipleOf => "multiple of",
        };
        write!(s, " {} {} {sign} {}", if i > 0 { "and" } else { "if" }, g.dim, g.value)?;
    }
    Ok(())
}

fn write_operands(s: &mut String, all: &[Option<Operand>]) -> fmt::Result {
    for (i, o) in all.iter().enumerate() {
        s.push_str(if i > 0 { ", " } else { "" });
        match o {
            Some(o) => write_operand(s, o)?,
            None => s.push('_'),
        }
    }
    Ok(())
}

/// `arena+64 f32[T, 8]:[8, 1]`: region and buffer, byte offset, type, extents and strides in elements.
fn write_operand(s: &mut String, o: &Operand) -> fmt::Result {
    let region = match o.region {
        Region::Weights => "weight",
        Region::State => "state",
        Region::Arena => "arena",
        Region::Input => "input",
        Region::Output => "output",
    };
    s.push_str(region);
    if o.region != Region::Arena || o.buffer != 0 {
        write!(s, "{}", o.buffer)?;
    }
    if !o.offset.is(0) {
        write!(s, "+{}", o.offset)?;
    }
    write!(s, " {}[", o.dtype)?;
    for (i, d) in o.dims.iter().enumerate() {
        write!(s, "{}{d}", if i > 0 { ", " } else { "" })?;
    }
    s.push_str("]:[");
    for (i, d) in o.strides.iter().enumerate() {
        write!(s, "{}{d}", if i > 0 { ", " } else { "" })?;
    }
    s.push(']');
    Ok(())
}
