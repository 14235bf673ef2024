//! The CPU as the compiler sees it: the rows of all kernel files, and the function behind each.

use frit_ir::DType;
use frit_ir::expr::{ScalarOp, compute_type};
use frit_ir::target::{RowId, Target};

use crate::args::Kernel;
use crate::host::HostKernel;
use crate::isa::Isa;
use crate::kernels::row::{COMPUTE, CpuRow};
use crate::kernels::{
    attention, concat, copy, cumsum, dequantize, expr, flip, gather, linear, matmul, norm, pad, quantize,
    reduce, rotary, softmax, sort, write_kv,
};

/// Alignment of values in the arena, in bytes: a cache line.
const ALIGN: u64 = 64;

/// The tables in the order of preference: packed weights come before the rows that read them as they lie in the file.
static FILES: &[&[CpuRow]] = &[
    linear::ROWS,
    matmul::ROWS,
    attention::ROWS,
    norm::ROWS,
    rotary::ROWS,
    write_kv::ROWS,
    expr::ROWS,
    softmax::ROWS,
    cumsum::ROWS,
    sort::ROWS,
    reduce::ROWS,
    gather::ROWS,
    concat::ROWS,
    copy::ROWS,
    pad::ROWS,
    flip::ROWS,
    quantize::ROWS,
    dequantize::ROWS,
];

fn rows() -> impl Iterator<Item = &'static CpuRow> {
    FILES.iter().copied().flatten()
}

/// The target of a pool of `threads` threads.
pub fn target(threads: usize) -> Target {
    with_host(threads, &[])
}

/// The same with rows of its user's, which come before all others.
pub fn with_host(threads: usize, host: &[&'static HostKernel]) -> Target {
    let mut compute: Vec<DType> = COMPUTE.iter().map(|d| compute_type(*d)).collect();
    compute.sort();
    compute.dedup();
    Target {
        name: "cpu".into(),
        align: ALIGN,
        threads: i64::try_from(threads).unwrap_or(i64::MAX),
        rows: host.iter().map(|h| h.row).chain(rows().map(|r| r.row)).collect(),
        scalars: ScalarOp::all().collect(),
        compute,
        lacks: vec![],
    }
}

/// The kernel of a row for `isa` (or for the best set that the machine has, if it lacks that one); `None` if there is no
/// such row.
pub fn kernel(row: RowId, isa: Isa) -> Option<Kernel> {
    rows().nth(row.0 as usize).map(|r| (r.kernel)(isa.min(Isa::detect())))
}

/// Number of rows.
pub fn row_count() -> usize {
    rows().count()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use frit_ir::target::Count;

    use super::*;

    #[test]
    fn rows_are_named_once_and_every_row_has_kernels() {
        let t = target(3);
        let names: HashSet<&str> = t.rows.iter().map(|r| r.name).collect();
        assert_eq!(names.len(), row_count());
        for i in 0..row_count() {
            assert!(Isa::ALL.into_iter().all(|isa| kernel(RowId(i as u32), isa).is_some()));
        }
        assert!(kernel(RowId(row_count() as u32), Isa::Portable).is_none());
    }

    #[test]
    fn formulas_and_aliases_speak_of_what_is_there() {
        for r in &target(2).rows {
            if !r.scratch.is_empty() {
                frit_ir::text::parse_dim(r.scratch).unwrap_or_else(|e| panic!("{}: {e}", r.name));
            }
            let many = |s: &[frit_ir::target::OperandSpec]| s.iter().any(|s| s.count == Count::Rest);
            for (i, o) in r.alias {
                assert!(*i < r.inputs.len() || many(r.inputs), "{}", r.name);
                assert!(*o < r.outputs.len() || many(r.outputs), "{}", r.name);
            }
        }
    }
}
