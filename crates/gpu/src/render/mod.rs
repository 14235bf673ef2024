//! From a step's form to kernel text: the dialect's header, the parameter struct, a set of definitions for each operand,
//! the scalar expressions, and the kernel's own text. Extents never enter: two steps that differ only in sizes have the
//! same text, and the text is the key of a built kernel.

mod expr;
pub mod params;

use std::fmt::Write;
use std::sync::Arc;

use frit_ir::DType;
use frit_ir::dtype::Kind;
use frit_ir::expr::Expr;
use frit_ir::target::{Count, OperandSpec};

use crate::catalog;
use crate::driver::{Dialect, KernelSource};
use crate::error::GpuError;
use crate::row::GpuRow;
use params::Params;

/// Pointer arguments that every dialect takes; with more operands, the base of each buffer is handed over once.
pub const MAX_POINTERS: usize = 24;

/// An operand as far as the text depends on it.
#[derive(Clone, Debug, PartialEq)]
pub struct Form {
    /// Element type.
    pub dtype: DType,
    /// The buffer argument that holds it.
    pub pointer: usize,
}

/// A step as far as the text depends on it.
#[derive(Clone, Debug)]
pub struct Spec<'a> {
    /// The row.
    pub row: &'a GpuRow,
    /// Inputs, then results, in the step's order; `None` for an absent one.
    pub operands: &'a [Option<Form>],
    /// Number of inputs among them.
    pub inputs: usize,
    /// Values of the row's integer parameters where they are constants, by the row's order.
    pub params: &'a [Option<i64>],
    /// Number of buffer arguments of the operands.
    pub pointers: usize,
    /// Whether element indices take 64 bits.
    pub wide: bool,
    /// Scalar expressions.
    pub exprs: &'a [Arc<Expr>],
}

/// A rendered kernel: its text and the table that writes its parameter block.
#[derive(Clone, Debug)]
pub struct Rendered {
    /// The text.
    pub source: KernelSource,
    /// The parameter block.
    pub params: Params,
}

/// An operand's name, with its place among the lists of the row.
pub(crate) struct Named {
    pub name: String,
    pub form: Option<Form>,
}

/// A list of operands: its name and how many there are.
pub(crate) struct List {
    name: &'static str,
    count: usize,
}

/// Brings `spec` into the text of `dialect`.
///
/// # Errors
/// Operands that do not fit the row, a parameter of the text that is not constant.
pub fn render(dialect: Dialect, spec: &Spec) -> Result<Rendered, GpuError> {
    let (operands, lists) = names(spec)?;
    let present = operands.iter().filter(|o| o.form.is_some()).map(|o| o.name.clone()).collect();
    let params = Params::new(spec.row, present, spec.wide);
    let entry = format!("frit_{}", text_name(spec.row).replace('.', "_"));
    let mut t = String::new();
    let idx = if spec.wide { "i64" } else { "i32" };
    let _ = writeln!(t, "#define GROUP_SIZE {}", spec.row.group);
    t.push_str(header(dialect));
    let _ = writeln!(t, "typedef {idx} IDX;");
    t.push_str(include_str!("../../kernels/compat/common.h"));
    if operands.iter().any(|o| o.form.as_ref().is_some_and(|f| f.dtype.is_block())) {
        t.push_str(include_str!("../../kernels/compat/blocks.h"));
    }
    dtypes(&mut t);
    params.render(&mut t);
    for o in &operands {
        operand(&mut t, o, spec.row.bits)?;
    }
    for l in &lists {
        let _ = writeln!(t, "#define COUNT_{} {}", l.name, l.count);
        let all: Vec<String> = (0..l.count).map(|i| format!("M({}_{i}, {i})", l.name)).collect();
        let _ = writeln!(t, "#define EACH_{}(M) {}", l.name, all.join(" "));
    }
    constants(&mut t, spec)?;
    signature(&mut t, &entry, spec, &operands);
    expr::render(&mut t, spec, &lists)?;
    t.push_str(spec.row.defines);
    t.push_str(spec.row.source);
    let source = KernelSource {
        entry,
        text: t,
        group: spec.row.group,
        buffers: buffers(spec) as u32,
        shared: spec.row.shared,
    };
    Ok(Rendered { source, params })
}

/// The name of the first row with this text, so that rows which share one share built kernels too.
fn text_name(row: &GpuRow) -> &'static str {
    let same = |r: &&GpuRow| r.source == row.source && r.defines == row.defines;
    catalog::rows().find(same).unwrap_or(row).row.name
}

/// Buffer arguments: those of the operands, and one for scratch.
pub fn buffers(spec: &Spec) -> usize {
    spec.pointers + usize::from(!spec.row.row.scratch.is_empty())
}

fn header(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::OpenCl => include_str!("../../kernels/compat/opencl.h"),
        Dialect::Cuda => include_str!("../../kernels/compat/cuda.h"),
        Dialect::Metal => include_str!("../../kernels/compat/metal.h"),
    }
}

fn misfit(row: &GpuRow, why: impl Into<String>) -> GpuError {
    GpuError::Step { step: row.row.name.into(), why: why.into() }
}

/// The operands with their names, and the lists among them.
pub(crate) fn names(spec: &Spec) -> Result<(Vec<Named>, Vec<List>), GpuError> {
    let (mut operands, mut lists) = (Vec::new(), Vec::new());
    let (inputs, outputs) = spec.operands.split_at(spec.inputs.min(spec.operands.len()));
    for (forms, specs) in [(inputs, spec.row.row.inputs), (outputs, spec.row.row.outputs)] {
        let mut rest = forms;
        for s in specs {
            let list = list_length(spec, s, rest.len())?;
            let n = list.unwrap_or(1).min(rest.len());
            let (these, others) = rest.split_at(n);
            rest = others;
            match list {
                Some(count) if count > n => return Err(misfit(spec.row, "there are too few operands")),
                Some(count) => lists.push(List { name: s.name, count }),
                None => {}
            }
            for i in 0..list.unwrap_or(1) {
                let name = if list.is_some() { format!("{}_{i}", s.name) } else { s.name.to_owned() };
                operands.push(Named { name, form: these.get(i).cloned().flatten() });
            }
        }
        if !rest.is_empty() {
            return Err(misfit(spec.row, "there are too many operands"));
        }
    }
    Ok((operands, lists))
}

/// The length of a list; `None` for a single operand.
fn list_length(spec: &Spec, s: &OperandSpec, left: usize) -> Result<Option<usize>, GpuError> {
    match s.count {
        Count::One | Count::Optional => Ok(None),
        Count::Rest => Ok(Some(left)),
        Count::Param(name) => match param(spec, name).and_then(|v| usize::try_from(v).ok()) {
            Some(n) => Ok(Some(n)),
            None => Err(misfit(spec.row, format!("the parameter `{name}` is no constant"))),
        },
    }
}

/// The constant value of a parameter.
fn param(spec: &Spec, name: &str) -> Option<i64> {
    let at = spec.row.row.params.iter().position(|p| p.name == name)?;
    *spec.params.get(at)?
}

/// The name of a type in identifiers of the text.
pub(crate) fn ident(d: DType) -> String {
    d.name().to_lowercase()
}

fn dtypes(t: &mut String) {
    for (i, d) in DType::all().enumerate() {
        let _ = writeln!(t, "#define DTYPE_{} {i}", ident(d));
    }
    t.push_str("#define DTYPE_none (-1)\n");
}

/// How a type is stored and computed in, and the suffix of its `load_` and `store_`.
pub(crate) fn c_types(d: DType) -> (&'static str, &'static str, &'static str) {
    match d {
        DType::F64 => ("double", "double", "raw"),
        DType::F32 => ("float", "float", "raw"),
        DType::F16 => ("u16", "float", "f16"),
        DType::BF16 => ("u16", "float", "bf16"),
        DType::Bool => ("u8", "u8", "bool"),
        _ => {
            let int = int_type(d);
            (int, int, "raw")
        }
    }
}

/// The integer type of the size of `d`, signed if `d` is; bytes for types whose elements share them.
fn int_type(d: DType) -> &'static str {
    let info = d.info();
    let signed = info.kind == Kind::Signed;
    match (info.unit_elements, info.unit_bytes) {
        (1, 8) => ["u64", "i64"][usize::from(signed)],
        (1, 4) => ["u32", "i32"][usize::from(signed)],
        (1, 2) => ["u16", "i16"][usize::from(signed)],
        (1, _) => ["u8", "i8"][usize::from(signed)],
        _ => "u8",
    }
}

/// The least and the largest value of a type that is computed in; infinities for floats.
fn extremes(d: DType) -> (String, String) {
    let (_, value, _) = c_types(d);
    let info = d.info();
    let bits = 8 * info.unit_bytes as u32;
    match info.kind {
        Kind::Float => {
            let infinite = format!("(({value})AS_FLOAT(0x7f800000))");
            (format!("(-{infinite})"), infinite)
        }
        Kind::Signed => {
            let most = format!("({value})0x{:x}", u64::MAX >> (65 - bits));
            (format!("(({value})(-({most}) - 1))"), format!("({most})"))
        }
        Kind::Unsigned => (format!("(({value})0)"), format!("(({value})0x{:x})", u64::MAX >> (64 - bits))),
        Kind::Bool | Kind::Block => ("((u8)0)".into(), "((u8)1)".into()),
    }
}

/// The type under which a row that only moves bits sees `d`.
fn bits_of(d: DType) -> DType {
    match d.size() {
        Some(8) => DType::U64,
        Some(4) => DType::U32,
        Some(2) => DType::U16,
        Some(_) => DType::U8,
        None => d,
    }
}

fn operand(t: &mut String, o: &Named, bits: bool) -> Result<(), GpuError> {
    let n = &o.name;
    let _ = writeln!(t, "\n#define HAS_{n} {}", u8::from(o.form.is_some()));
    let Some(form) = &o.form else {
        let _ = writeln!(t, "#define DTYPE_{n} DTYPE_none\n#define TYPE_{n} float\n#define VALUE_{n} float");
        let _ = writeln!(t, "#define LOAD_{n}(i) 0.0f\n#define AT_{n}(i) (i)\n#define ROW_{n}(r) (r)");
        return Ok(());
    };
    let d = if bits { bits_of(form.dtype) } else { form.dtype };
    let (stored, value, io) = c_types(d);
    let info = d.info();
    let _ = writeln!(t, "#define DTYPE_{n} DTYPE_{}", ident(d));
    let _ = writeln!(t, "#define TYPE_{n} {stored}\n#define VALUE_{n} {value}");
    let _ = writeln!(t, "#define UNIT_ELEMENTS_{n} {}", info.unit_elements);
    let _ = writeln!(t, "#define UNIT_BYTES_{n} {}", info.unit_bytes);
    let _ = writeln!(t, "#define LOAD_{n}(i) load_{io}(frit_{n}, i)");
    let _ = writeln!(t, "#define STORE_{n}(i, v) store_{io}(frit_{n}, i, v)");
    let _ = writeln!(t, "#define ROUNDED_{n}(v) rounded_{io}(v)");
    let load8 = match d.is_block() {
        true => format!("BLOCK(frit_{}, {}, {}, ", ident(d), info.unit_elements, info.unit_bytes),
        false => format!("ELEMENTS({io}, "),
    };
    let _ = writeln!(t, "#define LOAD8_{n}(i, left, y) LOAD8_{load8}frit_{n}, i, left, y)");
    let _ = writeln!(t, "#define OCTET_{n}(i, y) OCTET_{load8}frit_{n}, i, y)");
    let (lowest, highest) = extremes(d);
    let _ = writeln!(t, "#define LOWEST_{n} {lowest}\n#define HIGHEST_{n} {highest}");
    let _ =
        writeln!(t, "#define AT_{n}(i) frit_at(&P->op_{n}, i)\n#define ROW_{n}(r) frit_row(&P->op_{n}, r)");
    Ok(())
}

/// Definitions of the row's parameters: fields of the block, or constants.
fn constants(t: &mut String, spec: &Spec) -> Result<(), GpuError> {
    for p in spec.row.row.params {
        let value = if spec.row.constants.contains(&p.name) {
            let Some(v) = param(spec, p.name) else {
                return Err(misfit(spec.row, format!("the parameter `{}` is no constant", p.name)));
            };
            format!("({v})")
        } else {
            format!("(P->param_{})", p.name)
        };
        let _ = writeln!(t, "#define PARAM_{} {value}", p.name);
    }
    Ok(())
}

/// `KERNEL`, `DECLARE`, `OPERANDS`, `ARGS_DECL`, `ARGS` and `SCRATCH`.
fn signature(t: &mut String, entry: &str, spec: &Spec, operands: &[Named]) {
    let n = buffers(spec);
    let all: String = (0..n).map(|i| format!("BUFFER({i}), ")).collect();
    let _ = writeln!(t, "#define KERNEL ENTRY({entry})({all}BLOCK({n}))");
    let mut declare =
        String::from("CONSTANT struct frit_params *P = (CONSTANT struct frit_params *)BLOCK_PTR");
    let (mut decl, mut args) =
        (String::from("CONSTANT struct frit_params *P IDS_DECL"), String::from("P IDS"));
    for o in operands {
        let (Some(form), name) = (&o.form, &o.name) else { continue };
        let of = format!("GLOBAL TYPE_{name} *frit_{name}");
        let _ =
            write!(declare, "; {of} = (GLOBAL TYPE_{name} *)(frit_b{} + P->op_{name}.offset)", form.pointer);
        let _ = write!(decl, ", {of}");
        let _ = write!(args, ", frit_{name}");
    }
    if n > spec.pointers {
        let _ = write!(declare, "; GLOBAL u8 *SCRATCH = frit_b{} + P->scratch", n - 1);
        decl.push_str(", GLOBAL u8 *SCRATCH");
        args.push_str(", SCRATCH");
    }
    let _ = writeln!(
        t,
        "#define DECLARE {declare}\n#define OPERANDS DECLARE; BEGIN\n#define ARGS_DECL {decl}\n#define ARGS {args}"
    );
}
