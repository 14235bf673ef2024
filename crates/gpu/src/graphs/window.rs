//! Operands of steps as values of a program: a strided window onto a line of elements becomes slices, a reshape, a transpose
//! and a broadcast.

use super::Unsupported;
use super::call::{Program, Value};

/// A window onto a line of elements, as the dense tensor of which it is a part: extents `radix`, outermost first, of which
/// dimension `i` is used from `starts[i]` on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tiling {
    /// First element of the dense tensor in the line, and its number of elements.
    pub first: usize,
    pub count: usize,
    radix: Vec<usize>,
    starts: Vec<usize>,
    /// The dimensions of the window that have a stride and more than one element, by falling stride.
    order: Vec<usize>,
    dims: Vec<usize>,
}

impl Tiling {
    /// The window of these extents (none 0) and strides at `start` of a line of `total` elements.
    ///
    /// # Errors
    /// Elements that overlap, strides that are no multiples of each other, a line too short to hold the tensor.
    pub fn of(total: usize, start: usize, dims: &[usize], strides: &[usize]) -> Result<Tiling, Unsupported> {
        let mut order: Vec<usize> = (0..dims.len()).filter(|i| dims[*i] > 1 && strides[*i] > 0).collect();
        order.sort_by_key(|i| std::cmp::Reverse(strides[*i]));
        let odd =
            || Unsupported(format!("extents {dims:?} with strides {strides:?} are no part of a dense value"));
        let Some(outer) = order.first() else {
            let (radix, starts) = (vec![1], vec![0]);
            return Ok(Tiling { first: start, count: 1, radix, starts, order, dims: dims.to_vec() });
        };
        // Extents of the dense tensor: how often each stride goes into the one outside, and what is left inside the last.
        let mut radix = vec![dims[*outer]];
        for pair in order.windows(2) {
            let (s, n, inner) = (strides[pair[0]], dims[pair[1]], strides[pair[1]]);
            if s % inner != 0 || n * inner > s {
                return Err(odd());
            }
            radix.push(s / inner);
        }
        let gap = strides[order[order.len() - 1]];
        if gap > 1 {
            radix.push(gap);
        }
        let count = dims[*outer].checked_mul(strides[*outer]).ok_or_else(odd)?;
        // A tensor that would leave the line begins earlier, and the window inside it.
        let back = (start + count).saturating_sub(total);
        let mut starts = vec![0; radix.len()];
        let mut rest = back;
        for (i, n) in radix.iter().enumerate().rev() {
            (starts[i], rest) = (rest % n, rest / n);
        }
        let used = order.iter().map(|i| dims[*i]).chain((gap > 1).then_some(1));
        let inside = starts.iter().zip(&radix).zip(used).all(|((s, r), n)| s + n <= *r);
        if rest > 0 || back > start || !inside {
            return Err(odd());
        }
        Ok(Tiling { first: start - back, count, radix, starts, order, dims: dims.to_vec() })
    }

    /// The window as a value of its extents; `line` begins at element `from` of what the tiling was made for.
    pub fn emit(&self, p: &mut Program, line: Value, from: usize) -> Value {
        let part = p.slice(line, &[self.first - from], &[self.count]);
        let whole = p.reshape(part, &self.radix);
        let used: Vec<usize> = self.order.iter().map(|i| self.dims[*i]).collect();
        if used.is_empty() {
            return self.spread(p, whole);
        }
        let slice: Vec<usize> = used.iter().copied().chain([1]).take(self.radix.len()).collect();
        let sliced = p.slice(whole, &self.starts, &slice);
        let dense = p.reshape(sliced, &used);
        // Where each dimension of the window is among those by stride.
        let mut kept = self.order.clone();
        kept.sort_unstable();
        let place = |i: &usize| self.order.iter().position(|o| o == i).unwrap_or(0);
        let turned = p.transpose(dense, &kept.iter().map(place).collect::<Vec<_>>());
        self.spread(p, turned)
    }

    /// The dimensions that are repeated or of one element.
    fn spread(&self, p: &mut Program, v: Value) -> Value {
        let one = |(i, n): (usize, &usize)| if self.order.contains(&i) { *n } else { 1 };
        let ones: Vec<usize> = self.dims.iter().enumerate().map(one).collect();
        let v = p.reshape(v, &ones);
        p.broadcast(v, &self.dims)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graphs::call::Call;
    use frit_ir::DType;

    fn tiling(total: usize, start: usize, dims: &[usize], strides: &[usize]) -> Option<(usize, usize)> {
        Tiling::of(total, start, dims, strides).ok().map(|t| (t.first, t.count))
    }

    #[test]
    fn windows_are_parts_of_dense_tensors() {
        assert_eq!(tiling(12, 0, &[3, 4], &[4, 1]), Some((0, 12)));
        assert_eq!(tiling(12, 0, &[4, 3], &[1, 4]), Some((0, 12)), "transposed");
        assert_eq!(tiling(12, 1, &[3, 2], &[4, 1]), Some((0, 12)), "columns 1 and 2 of 4");
        assert_eq!(tiling(13, 1, &[3, 2], &[4, 1]), Some((1, 12)));
        assert_eq!(tiling(6, 2, &[5, 4], &[0, 1]), Some((2, 4)), "repeated rows");
        assert_eq!(tiling(9, 7, &[1, 1], &[3, 1]), Some((7, 1)), "one element");
        assert_eq!(tiling(10, 0, &[3, 2], &[4, 1]), None, "the last row is cut off");
        assert_eq!(tiling(12, 0, &[3, 4], &[2, 1]), None, "rows overlap");
        assert_eq!(tiling(30, 0, &[3, 2], &[5, 2]), None, "no multiple");
    }

    #[test]
    fn dense_windows_cost_no_call() {
        let mut p = Program::default();
        let line = p.push(Call::Placeholder(0), DType::F32, &[12]);
        let t = Tiling::of(12, 0, &[12], &[1]).unwrap();
        let v = t.emit(&mut p, line, 0);
        assert_eq!(p.shape(v), [12]);
        let t = Tiling::of(12, 0, &[3, 4], &[4, 1]).unwrap();
        let v = t.emit(&mut p, line, 0);
        assert_eq!(p.shape(v), [3, 4]);
        assert!(p.nodes[1..].iter().all(|n| matches!(n.call, Call::Reshape(_))), "{:?}", p.nodes);
    }
}
