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

/// Most groups of a launch of this row, an even number: clusters are of two groups, or as many as a power of two.
pub fn held_groups(info: &DeviceInfo, row: &GpuRow) -> u32 {
    let held = info.units.saturating_mul(row.per_unit).max(2) & !1;
    if row.per_unit == 0 { most_groups(info) } else { held }
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
    use crate::drivers::null;
    use crate::row::{Count, KERNEL, OperandSpec};

    #[test]
    fn rows_that_walk_get_as_many_groups_as_the_device_holds() {
        let info = |units| DeviceInfo { units, ..null::info() };
        let held = |units, per_unit| held_groups(&info(units), &GpuRow { per_unit, ..KERNEL });
        assert_eq!((held(132, 1), held(7, 1), held(0, 1), held(66, 2)), (132, 6, 2, 132));
        assert_eq!(held(132, 0), most_groups(&info(132)));
    }

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
            // What folds a group halves it; texts for one device may do without.
            let folds = r.group.is_power_of_two() || r.needs.is_some() && r.group % 32 == 0;
            assert!(folds && (32..=1024).contains(&r.group), "{name}: {}", r.group);
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
