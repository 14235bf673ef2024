//! The rows of all kernels, and the target of a device made of them.

mod moves;
mod order;
mod pointwise;
mod products;
mod rowwise;

use frit_ir::DType;
use frit_ir::expr::{ScalarOp, compute_type};
use frit_ir::target::Target;

use crate::driver::DeviceInfo;
use crate::row::{COMPUTE, GpuRow, Needs};

/// The tables in the order of preference.
static FILES: &[&[GpuRow]] = &[products::ROWS, rowwise::ROWS, order::ROWS, moves::ROWS, pointwise::ROWS];

/// Groups for each compute unit that keep a device busy.
const GROUPS_PER_UNIT: u32 = 16;

/// Every row of every device, the preferred first.
pub fn rows() -> impl Iterator<Item = &'static GpuRow> {
    FILES.iter().copied().flatten()
}

/// The rows of a device, in the order of its target's.
pub fn rows_of(info: &DeviceInfo) -> impl Iterator<Item = &'static GpuRow> + '_ {
    rows().filter(|r| fits(r, info))
}

/// Whether the device has what the row needs.
pub(crate) fn fits(row: &GpuRow, info: &DeviceInfo) -> bool {
    match row.needs {
        None => true,
        Some(Needs::Hopper) => info.features.hopper,
    }
}

/// Groups that fill the device, a power of two.
pub fn most_groups(info: &DeviceInfo) -> u32 {
    info.units.max(1).saturating_mul(GROUPS_PER_UNIT).checked_next_power_of_two().unwrap_or(1 << 31)
}

/// The device as the compiler sees it. `threads` of scratch formulas is the largest number of groups of a launch.
pub fn target(info: &DeviceInfo) -> Target {
    let lacks = if info.features.f64 { vec![] } else { vec![DType::F64] };
    let mut compute: Vec<DType> = COMPUTE.iter().map(|d| compute_type(*d)).collect();
    compute.retain(|d| !lacks.contains(d));
    compute.sort();
    compute.dedup();
    Target {
        name: info.api.into(),
        align: info.align,
        threads: most_groups(info).into(),
        rows: rows_of(info).map(|r| r.row).collect(),
        scalars: ScalarOp::all().collect(),
        compute,
        lacks,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::row::{Count, OperandSpec};

    #[test]
    fn rows_are_named_once_and_speak_of_what_is_there() {
        let names: HashSet<&str> = rows().map(|r| r.row.name).collect();
        assert_eq!(names.len(), rows().count());
        for r in rows() {
            let name = r.row.name;
            let many = |s: &[OperandSpec]| s.iter().any(|s| s.count == Count::Rest);
            for (i, o) in r.row.alias {
                assert!(*i < r.row.inputs.len() || many(r.row.inputs), "{name}");
                assert!(*o < r.row.outputs.len() || many(r.row.outputs), "{name}");
            }
            assert!(r.group.is_power_of_two() && (32..=1024).contains(&r.group), "{name}: {}", r.group);
            let known = |p: &&str| r.row.params.iter().any(|s| s.name == *p);
            assert!(r.constants.iter().all(known), "{name}: constants");
            assert!(r.exprs.is_none_or(|e| e.values.iter().all(known)), "{name}: values");
            assert!(r.row.inputs.iter().chain(r.row.outputs).all(|s| s.packing.is_none()), "{name}");
            frit_ir::text::parse_dim(r.grid).unwrap_or_else(|e| panic!("{name}: {e}"));
            if !r.row.scratch.is_empty() {
                frit_ir::text::parse_dim(r.row.scratch).unwrap_or_else(|e| panic!("{name}: {e}"));
            }
        }
    }
}
