//! The parameter block of a kernel: one table from which its C struct is printed and its bytes are written.

use std::fmt::Write;

use frit_ir::target::ParamType;

use crate::row::GpuRow;

/// The most dimensions of an operand.
pub const MAX_RANK: usize = 8;

/// Type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    /// An operand: `struct frit_operand`.
    Operand,
    I64,
    I32,
    F32,
}

/// The table of one kernel: fields in order with their offsets.
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    fields: Vec<(String, Field, usize)>,
    wide: bool,
    bytes: usize,
}

/// An operand's part of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperandValue {
    /// Byte of its first element in the buffer.
    pub offset: u64,
    /// Dimensions in use.
    pub rank: usize,
    /// Extents, outermost first.
    pub dims: [i64; MAX_RANK],
    /// Strides in elements.
    pub strides: [i64; MAX_RANK],
    /// Whether every row of the last dimension begins at a multiple of 16 bytes and has no gaps.
    pub aligned: bool,
}

impl OperandValue {
    /// Number of elements.
    pub fn len(&self) -> i64 {
        self.dims[..self.rank].iter().product()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The last extent, 1 without dimensions.
    pub fn last(&self) -> i64 {
        self.dims[..self.rank].last().copied().unwrap_or(1)
    }

    /// Whether elements lie in row-major order without gaps. An extent of 1 may have any stride.
    pub fn is_dense(&self) -> bool {
        let mut expected = 1i64;
        for (d, s) in self.dims[..self.rank].iter().zip(&self.strides).rev() {
            if *d != 1 && *s != expected {
                return false;
            }
            expected = expected.saturating_mul(*d);
        }
        true
    }

    /// Whether every row of the last dimension begins at a multiple of 16 bytes and has no gaps; `elements` share `bytes`.
    pub fn rows_are_aligned(&self, elements: i64, bytes: i64) -> bool {
        let Some((last, outer)) = self.strides[..self.rank].split_last() else { return false };
        let even = |(s, d): (&i64, &i64)| *d == 1 || s % elements == 0 && s / elements * bytes % 16 == 0;
        self.offset.is_multiple_of(16)
            && (*last == 1 || self.last() == 1)
            && outer.iter().zip(&self.dims).all(even)
    }

    /// The product of the extents but the last.
    pub fn rows(&self) -> i64 {
        self.dims[..self.rank.saturating_sub(1)].iter().product()
    }
}

/// A value of the row's parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// An integer.
    Int(i64),
    /// A real number.
    Float(f64),
}

impl Params {
    /// The table of `row`, whose present operands have these names: operands, scratch, then the row's parameters that are
    /// no constants of the text.
    pub(crate) fn new(row: &GpuRow, operands: Vec<String>, wide: bool) -> Params {
        let mut p = Params { fields: Vec::new(), wide, bytes: 0 };
        for name in operands {
            p.add(format!("op_{name}"), Field::Operand);
        }
        if !row.row.scratch.is_empty() {
            p.add("scratch".into(), Field::I64);
        }
        for spec in row.row.params.iter().filter(|s| !row.constants.contains(&s.name)) {
            let field = match spec.ty {
                ParamType::I32 => Field::I32,
                // A stored value is as many bits as its type has, from the lowest on.
                ParamType::I64 | ParamType::Stored => Field::I64,
                ParamType::F32 => Field::F32,
            };
            p.add(format!("param_{}", spec.name), field);
        }
        p.bytes = p.bytes.next_multiple_of(16);
        p
    }

    fn add(&mut self, name: String, field: Field) {
        let (size, align) = match field {
            Field::Operand => (Self::operand_bytes(self.wide), 8),
            Field::I64 => (8, 8),
            Field::I32 | Field::F32 => (4, 4),
        };
        let at = self.bytes.next_multiple_of(align);
        self.fields.push((name, field, at));
        self.bytes = at + size;
    }

    /// Size of `struct frit_operand`: an offset, three counts, the rank, whether it is dense, whether its rows
    /// are aligned, extents and strides.
    fn operand_bytes(wide: bool) -> usize {
        if wide { 8 + 3 * 8 + 16 + 16 * 8 } else { 8 + 3 * 4 + 12 + 16 * 4 }
    }

    /// Bytes of the block, a multiple of 16.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Prints the C struct.
    pub(crate) fn render(&self, t: &mut String) {
        t.push_str("struct frit_params {\n");
        for (name, field, _) in &self.fields {
            let ty = match field {
                Field::Operand => "struct frit_operand",
                Field::I64 => "i64",
                Field::I32 => "i32",
                Field::F32 => "float",
            };
            let _ = writeln!(t, "    {ty} {name};");
        }
        t.push_str("    i32 frit_end;\n};\n");
    }

    /// Writes the block: `operands` are those present in order, `params` those of the row's table that are no constants.
    pub fn write(&self, operands: &[OperandValue], scratch: u64, params: &[Value], to: &mut [u8]) {
        let (mut operands, mut params) = (operands.iter(), params.iter());
        for (name, field, at) in &self.fields {
            let to = &mut to[*at..];
            if *field == Field::Operand {
                if let Some(o) = operands.next() {
                    self.write_operand(o, to);
                }
                continue;
            }
            let value = if name == "scratch" {
                Value::Int(scratch as i64)
            } else {
                params.next().copied().unwrap_or(Value::Int(0))
            };
            match (field, value) {
                (Field::F32, Value::Float(v)) => to[..4].copy_from_slice(&(v as f32).to_le_bytes()),
                (Field::F32, Value::Int(v)) => to[..4].copy_from_slice(&(v as f32).to_le_bytes()),
                (Field::I32, Value::Int(v)) => to[..4].copy_from_slice(&narrow(v).to_le_bytes()),
                (Field::I64, Value::Int(v)) => to[..8].copy_from_slice(&v.to_le_bytes()),
                // The compiler converts by the row's table: an integer parameter is never a float.
                _ => {}
            }
        }
    }

    fn write_operand(&self, o: &OperandValue, to: &mut [u8]) {
        to[..8].copy_from_slice(&o.offset.to_le_bytes());
        let mut at = 8;
        let mut put = |v: i64, wide: bool| {
            if wide {
                to[at..at + 8].copy_from_slice(&v.to_le_bytes());
            } else {
                to[at..at + 4].copy_from_slice(&narrow(v).to_le_bytes());
            }
            at += if wide { 8 } else { 4 };
        };
        for v in [o.len(), o.last(), o.rows()] {
            put(v, self.wide);
        }
        put(o.rank as i64, false);
        put(o.is_dense().into(), false);
        put(o.aligned.into(), false);
        if self.wide {
            put(0, false);
        }
        for v in o.dims.iter().chain(&o.strides) {
            put(*v, self.wide);
        }
    }
}

fn narrow(v: i64) -> i32 {
    v.clamp(i32::MIN.into(), i32::MAX.into()) as i32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::{KERNEL, int, real};
    use frit_ir::target::KernelRow;

    #[test]
    fn the_writer_follows_the_struct() {
        const PARAMS: &[frit_ir::target::ParamSpec] = &[real("eps"), int("axis"), int("log")];
        let row = GpuRow {
            row: KernelRow { params: PARAMS, scratch: "4", ..KERNEL.row },
            constants: &["log"],
            ..KERNEL
        };
        let mut o = OperandValue { offset: 7 << 33, rank: 2, dims: [1; 8], strides: [0; 8], aligned: true };
        (o.dims[0], o.dims[1], o.strides[0], o.strides[1]) = (3, 5, 10, 1);
        for (wide, size) in [(false, 96), (true, 176)] {
            let p = Params::new(&row, vec!["x".into()], wide);
            assert_eq!(p.bytes() % 16, 0);
            let mut b = vec![0xaa; p.bytes()];
            p.write(&[o], 96, &[Value::Float(0.5), Value::Int(-2)], &mut b);
            let long = |at: usize| i64::from_le_bytes(b[at..at + 8].try_into().unwrap());
            let int = |at: usize| i32::from_le_bytes(b[at..at + 4].try_into().unwrap());
            assert_eq!(long(0), 7 << 33);
            let idx = |i: usize| if wide { long(8 + 8 * i) } else { int(8 + 4 * i).into() };
            assert_eq!([0, 1, 2].map(idx), [15, 5, 3]);
            let rank = if wide { 32 } else { 20 };
            assert_eq!((int(rank), int(rank + 4), int(rank + 8)), (2, 0, 1));
            let first = if wide { 5 } else { 6 };
            assert_eq!([0, 1, 8, 9].map(|i| idx(first + i)), [3, 5, 10, 1]);
            assert_eq!((long(size), int(size + 8), long(size + 16)), (96, 0.5f32.to_bits() as i32, -2));
        }
    }
}
