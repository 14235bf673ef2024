//! The parameter struct as the text of a kernel declares it, and what a block of parameters says by it. Read from the text,
//! not from the table that writes blocks: the two must agree.

use crate::driver::{BufferId, KernelSource};
use crate::launch::Span;

/// An operand as the text declares it.
#[derive(Clone, Debug)]
struct Declared {
    name: String,
    /// The buffer argument that it is found from.
    pointer: usize,
    /// Bytes of the type that the kernel reads it as.
    align: u64,
    unit_elements: i64,
    unit_bytes: u64,
    /// First byte in the block.
    at: usize,
}

/// The parameter struct of a kernel.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    /// Name of the kernel.
    pub entry: String,
    operands: Vec<Declared>,
    /// Place of the offset of the scratch.
    scratch: Option<usize>,
    /// Places of numbers: first byte and number of bytes.
    numbers: Vec<(usize, usize)>,
    wide: bool,
    /// Bytes of a block.
    pub bytes: usize,
    /// A number that other texts do not have.
    pub text: u64,
}

/// An operand of a launch as its parameter block has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// Its name in the kernel.
    pub name: String,
    /// The buffer.
    pub buffer: BufferId,
    /// First byte.
    pub offset: u64,
    /// Extents, outermost first.
    pub dims: Vec<i64>,
    /// Strides in elements.
    pub strides: Vec<i64>,
    /// Elements of a unit of storage.
    pub unit_elements: i64,
    /// Bytes of a unit of storage.
    pub unit_bytes: u64,
}

impl Access {
    /// The bytes between the first and the last that it touches; none without elements.
    pub fn hull(&self) -> Span {
        let last: i128 =
            self.dims.iter().zip(&self.strides).map(|(d, s)| i128::from(d - 1) * i128::from(*s)).sum();
        let units = if self.dims.contains(&0) { 0 } else { last / i128::from(self.unit_elements) + 1 };
        let bytes = u64::try_from(units * i128::from(self.unit_bytes)).unwrap_or(u64::MAX);
        Span { buffer: self.buffer, offset: self.offset, bytes }
    }

    /// Every stretch of bytes that it touches.
    pub fn stretches(&self) -> Vec<Span> {
        if self.dims.contains(&0) {
            return Vec::new();
        }
        // As a set of bytes, the order of the dimensions does not matter, and neither do repetitions.
        let mut dims: Vec<(i64, i64)> = self
            .strides
            .iter()
            .copied()
            .zip(self.dims.iter().copied())
            .filter(|(s, d)| *s != 0 && *d != 1)
            .collect();
        dims.sort_unstable();
        let (mut run, mut outer) = (1, 0);
        while outer < dims.len() && dims[outer].0 == run {
            run *= dims[outer].1;
            outer += 1;
        }
        let mut starts = vec![0i64];
        for (stride, n) in &dims[outer..] {
            starts = starts.iter().flat_map(|s| (0..*n).map(move |i| s + i * stride)).collect();
        }
        let unit = |e: i64| (e / self.unit_elements).unsigned_abs() * self.unit_bytes;
        let one = |s: i64| {
            let (from, to) = (unit(s), unit(s + run - 1) + self.unit_bytes);
            Span { buffer: self.buffer, offset: self.offset + from, bytes: to - from }
        };
        starts.into_iter().map(one).collect()
    }
}

/// What a block says.
pub struct Decoded {
    /// The operands in the order of the struct: inputs, then results.
    pub operands: Vec<Access>,
    /// First byte of the scratch in the last buffer argument.
    pub scratch: Option<u64>,
    /// What else the kernel's results depend on.
    pub numbers: Vec<u8>,
}

/// The word behind `before` in `text`.
fn word<'t>(text: &'t str, before: &str) -> Option<&'t str> {
    let rest = &text[text.find(before)? + before.len()..];
    rest.split(|c: char| c.is_whitespace() || c == ')').next()
}

/// Bytes of a type of the dialect; 0 for one that is none.
fn size_of(ty: &str) -> u64 {
    match ty {
        "i8" | "u8" => 1,
        "i16" | "u16" => 2,
        "i32" | "u32" | "float" => 4,
        "i64" | "u64" | "double" => 8,
        _ => 0,
    }
}

impl Layout {
    /// Of each operand, in the order of the struct: the buffer argument that it is found from, and the place in the block of
    /// its offset there.
    pub fn places(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.operands.iter().map(|o| (o.pointer, o.at))
    }

    /// The place in the block of the offset of the scratch in the last buffer argument, if there is one.
    pub fn scratch(&self) -> Option<usize> {
        self.scratch
    }

    /// Reads the text of a kernel.
    ///
    /// # Errors
    /// A line that says what is missing or does not agree.
    pub fn parse(source: &KernelSource) -> Result<Layout, String> {
        let text = &source.text;
        let wide = text.contains("typedef i64 IDX;");
        if !wide && !text.contains("typedef i32 IDX;") {
            return Err("it does not say what an index is".into());
        }
        let hash = text
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
        let mut l = Layout { entry: source.entry.clone(), wide, text: hash, ..Layout::default() };
        let Some((_, body)) = text.split_once("struct frit_params {") else {
            return Err("it has no parameter struct".into());
        };
        let body = body.split_once("};").map_or(body, |(b, _)| b);
        for field in body.split(';').map(str::trim).filter(|f| !f.is_empty()) {
            let Some((ty, name)) = field.rsplit_once(' ') else {
                return Err(format!("`{field}` is no field"));
            };
            let (size, align) = match ty {
                "struct frit_operand" => (if wide { 8 + 3 * 8 + 16 + 128 } else { 96 }, 8),
                "i64" => (8, 8),
                "i32" | "float" => (4, 4),
                _ => return Err(format!("`{ty}` is no type of a parameter")),
            };
            let at = l.bytes.next_multiple_of(align);
            if name == "frit_end" {
                break;
            }
            l.bytes = at + size;
            match (ty, name) {
                ("struct frit_operand", _) => l.operands.push(declared(text, name, at)?),
                (_, "scratch") => l.scratch = Some(at),
                _ => l.numbers.push((at, size)),
            }
        }
        l.bytes = l.bytes.next_multiple_of(16);
        let pointers =
            (0..source.buffers as usize).filter(|i| text.contains(&format!("BUFFER({i})"))).count();
        let beyond = l.operands.iter().any(|o| o.pointer >= source.buffers as usize);
        if pointers != source.buffers as usize || !text.contains(&format!("BLOCK({pointers})")) || beyond {
            return Err(format!("it does not take {} buffers and a block", source.buffers));
        }
        Ok(l)
    }

    /// What `block` says for a launch with these buffer arguments.
    ///
    /// # Errors
    /// A line that says what cannot be.
    pub fn decode(&self, block: &[u8], buffers: &[BufferId]) -> Result<Decoded, String> {
        let long = |at: usize| i64::from_le_bytes(block[at..at + 8].try_into().unwrap_or_default());
        let int = |at: usize| i32::from_le_bytes(block[at..at + 4].try_into().unwrap_or_default());
        let mut operands = Vec::with_capacity(self.operands.len());
        for o in &self.operands {
            let index =
                |i: usize| if self.wide { long(o.at + 8 + 8 * i) } else { int(o.at + 8 + 4 * i).into() };
            let rank_at = o.at + if self.wide { 32 } else { 20 };
            let (rank, dense) = (int(rank_at), int(rank_at + 4));
            if !(0..=8).contains(&rank) {
                return Err(format!("`{}` has {rank} dimensions", o.name));
            }
            let first = if self.wide { 5 } else { 6 };
            let dims: Vec<i64> = (0..rank as usize).map(|i| index(first + i)).collect();
            let strides: Vec<i64> = (0..rank as usize).map(|i| index(first + 8 + i)).collect();
            let a = Access {
                name: o.name.clone(),
                buffer: buffers[o.pointer],
                offset: long(o.at).unsigned_abs(),
                dims,
                strides,
                unit_elements: o.unit_elements,
                unit_bytes: o.unit_bytes,
            };
            agrees(&a, [0, 1, 2].map(index), dense != 0)?;
            if !a.offset.is_multiple_of(o.align) {
                return Err(format!("`{}` at {} is not aligned to {}", o.name, a.offset, o.align));
            }
            operands.push(a);
        }
        let numbers = self.numbers.iter().flat_map(|(at, n)| block[*at..at + n].iter().copied()).collect();
        Ok(Decoded { operands, scratch: self.scratch.map(|at| long(at).unsigned_abs()), numbers })
    }
}

/// The operand of the field `name`.
fn declared(text: &str, name: &str, at: usize) -> Result<Declared, String> {
    let short = name.strip_prefix("op_").unwrap_or(name);
    let number =
        |before: &str| word(text, &format!("#define {before}_{short} ")).and_then(|w| w.parse::<i64>().ok());
    let base = text.split("(frit_b").find_map(|s| s.split_once(&format!(" + P->{name}.offset)")));
    let pointer = base.and_then(|(n, _)| n.parse().ok());
    let align = word(text, &format!("#define TYPE_{short} ")).map_or(0, size_of);
    match (pointer, number("UNIT_ELEMENTS"), number("UNIT_BYTES")) {
        (Some(pointer), Some(unit_elements @ 1..), Some(unit_bytes @ 1..)) if align > 0 => {
            let unit_bytes = unit_bytes.unsigned_abs();
            Ok(Declared { name: short.into(), pointer, align, unit_elements, unit_bytes, at })
        }
        _ => Err(format!("it does not say where `{short}` is or what it is made of")),
    }
}

/// Whether what the block says of an operand fits together; `counts` are its elements, its last extent and its rows.
fn agrees(a: &Access, counts: [i64; 3], dense: bool) -> Result<(), String> {
    let bad = |what: &str| Err(format!("`{}` {what}: {:?} by {:?}", a.name, a.dims, a.strides));
    if a.dims.iter().chain(&a.strides).any(|v| *v < 0) {
        return bad("has a negative extent or stride");
    }
    let (last, outer) = a.dims.split_last().map_or((1, [].as_slice()), |(l, o)| (*l, o));
    let rows = outer.iter().fold(1i128, |n, d| n.saturating_mul((*d).into()));
    if counts.map(i128::from) != [rows.saturating_mul(last.into()), last.into(), rows] {
        return bad("has counts that are not those of its extents");
    }
    let mut expected = 1i128;
    let mut in_order = true;
    for (d, s) in a.dims.iter().zip(&a.strides).rev() {
        in_order &= *d == 1 || i128::from(*s) == expected;
        expected = expected.saturating_mul((*d).into());
    }
    if dense != in_order {
        return bad("is dense or is not, and says the opposite");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(dims: &[i64], strides: &[i64], unit: (i64, u64)) -> Access {
        Access {
            name: "x".into(),
            buffer: BufferId(1),
            offset: 100,
            dims: dims.to_vec(),
            strides: strides.to_vec(),
            unit_elements: unit.0,
            unit_bytes: unit.1,
        }
    }

    fn bytes(a: &Access) -> Vec<(u64, u64)> {
        a.stretches().iter().map(|s| (s.offset, s.bytes)).collect()
    }

    #[test]
    fn stretches_are_the_bytes_of_the_elements() {
        assert_eq!(bytes(&access(&[2, 3], &[3, 1], (1, 4))), [(100, 24)]);
        assert_eq!(bytes(&access(&[3, 2], &[1, 3], (1, 4))), [(100, 24)]);
        assert_eq!(bytes(&access(&[2, 3], &[5, 1], (1, 4))), [(100, 12), (120, 12)]);
        assert_eq!(bytes(&access(&[4, 3], &[0, 1], (1, 2))), [(100, 6)]);
        assert_eq!(bytes(&access(&[2], &[2], (1, 1))), [(100, 1), (102, 1)]);
        assert_eq!(bytes(&access(&[2, 64], &[96, 1], (32, 18))), [(100, 36), (154, 36)]);
        assert_eq!(bytes(&access(&[0, 3], &[3, 1], (1, 4))), []);
        assert_eq!(access(&[2, 3], &[5, 1], (1, 4)).hull().bytes, 32);
        assert_eq!(access(&[2, 64], &[96, 1], (32, 18)).hull().bytes, 90);
        assert_eq!(access(&[0, 3], &[5, 1], (1, 4)).hull().bytes, 0);
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        let a = access(&[2, 3], &[3, 1], (1, 4));
        assert_eq!(agrees(&a, [6, 3, 2], true), Ok(()));
        assert!(agrees(&a, [6, 3, 2], false).is_err());
        assert!(agrees(&a, [5, 3, 2], true).is_err());
        assert!(agrees(&access(&[2, -3], &[3, 1], (1, 4)), [-6, -3, 2], true).is_err());
    }
}
