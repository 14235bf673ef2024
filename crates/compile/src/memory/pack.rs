//! Offsets for blocks with lifetimes: several greedy orders, the best of which is improved until it meets the lower bound
//! or a fixed amount of work is done. Everything is deterministic.

use std::cmp::Reverse;

/// A piece of memory that is needed from step `first` to step `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Block {
    /// Bytes, a multiple of the alignment.
    pub size: u64,
    pub first: u32,
    pub last: u32,
}

/// Offsets, one a block, and the figures of the plan.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Packed {
    pub offsets: Vec<u64>,
    /// Bytes in all.
    pub arena: u64,
    /// The largest sum of live blocks: no plan is smaller.
    pub live: u64,
}

/// Pair comparisons that may be spent on improving a plan.
const BUDGET: usize = 4_000_000;
/// Pair comparisons after which no further order is tried (very large graphs).
const MOST: usize = 200_000_000;
const MAX_ROUNDS: usize = 64;

/// Sums of live bytes by step; `None` on overflow.
fn live_by_step(blocks: &[Block], steps: usize) -> Option<Vec<u64>> {
    let (mut born, mut dead) = (vec![0u64; steps + 1], vec![0u64; steps + 1]);
    for b in blocks {
        let (first, next) = (b.first as usize, b.last as usize + 1);
        born[first] = born[first].checked_add(b.size)?;
        dead[next] = dead[next].checked_add(b.size)?;
    }
    let mut live = 0u64;
    let sum = |(b, d): (&u64, &u64)| {
        live = live.checked_sub(*d)?.checked_add(*b)?;
        Some(live)
    };
    born.iter().zip(&dead).map(sum).collect()
}

/// Packs `blocks` over `steps` steps; `None` if the sizes overflow.
pub(super) fn pack(blocks: &[Block], steps: usize) -> Option<Packed> {
    let by_step = live_by_step(blocks, steps)?;
    let live = by_step.iter().copied().max().unwrap_or(0);
    // Even a plan without any sharing must not overflow.
    blocks.iter().try_fold(0u64, |a, b| a.checked_add(b.size))?;
    let mut best: Option<(u64, Vec<u64>, Vec<usize>)> = None;
    for (n, order) in orders(blocks, &by_step).into_iter().enumerate() {
        if n > 0 && blocks.len().saturating_pow(2).saturating_mul(2 * n) > MOST {
            break;
        }
        for fit in [Fit::Lowest, Fit::Tightest] {
            let (arena, offsets) = place(blocks, &order, fit);
            if best.as_ref().is_none_or(|b| arena < b.0) {
                best = Some((arena, offsets, order.clone()));
            }
            if arena == live {
                return best.map(|(arena, offsets, _)| Packed { offsets, arena, live });
            }
        }
    }
    let (arena, offsets, order) = improve(blocks, best?, live);
    debug_assert_eq!(order.len(), blocks.len());
    Some(Packed { offsets, arena, live })
}

/// Orders in which blocks are placed: by size, by size and length of life, by the busiest step they live at, by time.
fn orders(blocks: &[Block], by_step: &[u64]) -> Vec<Vec<usize>> {
    let life = |b: &Block| u64::from(b.last - b.first) + 1;
    let busiest: Vec<u64> = blocks
        .iter()
        .map(|b| by_step[b.first as usize..=b.last as usize].iter().copied().max().unwrap_or(0))
        .collect();
    let sorted = |key: &dyn Fn(usize) -> (u64, u64)| {
        let mut order: Vec<usize> = (0..blocks.len()).collect();
        order.sort_by_key(|i| (Reverse(key(*i)), *i));
        order
    };
    vec![
        sorted(&|i| (blocks[i].size, life(&blocks[i]))),
        sorted(&|i| (busiest[i], blocks[i].size)),
        sorted(&|i| (life(&blocks[i]), blocks[i].size)),
        sorted(&|i| (blocks[i].size.saturating_mul(life(&blocks[i])), blocks[i].size)),
        sorted(&|i| (u64::MAX - u64::from(blocks[i].first), blocks[i].size)),
    ]
}

/// Which gap a block goes to.
#[derive(Clone, Copy, PartialEq)]
enum Fit {
    /// The lowest that is large enough.
    Lowest,
    /// The smallest that is large enough.
    Tightest,
}

/// Places blocks one by one, and gives the total size and the offsets.
fn place(blocks: &[Block], order: &[usize], fit: Fit) -> (u64, Vec<u64>) {
    // (offset, end, first, last) of those placed, by offset.
    let mut placed: Vec<(u64, u64, u32, u32)> = Vec::with_capacity(blocks.len());
    let mut offsets = vec![0u64; blocks.len()];
    let mut arena = 0;
    for i in order {
        let b = &blocks[*i];
        if b.size == 0 {
            continue;
        }
        let (mut cursor, mut at, mut gap) = (0u64, None, u64::MAX);
        for (offset, end, first, last) in &placed {
            if *first > b.last || *last < b.first {
                continue;
            }
            if *offset >= cursor && offset - cursor >= b.size && offset - cursor < gap {
                (at, gap) = (Some(cursor), offset - cursor);
                if fit == Fit::Lowest {
                    break;
                }
            }
            cursor = cursor.max(*end);
        }
        let at = at.unwrap_or(cursor);
        let end = at.saturating_add(b.size);
        let index = placed.partition_point(|p| p.0 <= at);
        placed.insert(index, (at, end, b.first, b.last));
        offsets[*i] = at;
        arena = arena.max(end);
    }
    (arena, offsets)
}

type Plan = (u64, Vec<u64>, Vec<usize>);

/// Moves the blocks that reach the top of the arena to the front of the order and places again, as long as work is left.
fn improve(blocks: &[Block], mut best: Plan, live: u64) -> Plan {
    let rounds = (BUDGET / (blocks.len() * blocks.len()).max(1)).min(MAX_ROUNDS);
    let (mut order, mut top, mut offsets) = (best.2.clone(), best.0, best.1.clone());
    for _ in 0..rounds {
        if best.0 == live {
            break;
        }
        let reaches = |i: &usize| blocks[*i].size > 0 && offsets[*i].saturating_add(blocks[*i].size) == top;
        let (mut front, rest): (Vec<usize>, Vec<usize>) = order.iter().copied().partition(reaches);
        front.extend(rest);
        if front == order {
            break;
        }
        order = front;
        let lowest = place(blocks, &order, Fit::Lowest);
        let tightest = place(blocks, &order, Fit::Tightest);
        (top, offsets) = if tightest.0 < lowest.0 { tightest } else { lowest };
        if top < best.0 {
            best = (top, offsets.clone(), order.clone());
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(size: u64, first: u32, last: u32) -> Block {
        Block { size, first, last }
    }

    #[test]
    fn disjoint_lives_share() {
        let p = pack(&[block(64, 0, 1), block(64, 2, 3), block(64, 1, 2)], 4).unwrap();
        assert_eq!((p.arena, p.live), (128, 128));
        assert_eq!(p.offsets[0], p.offsets[1]);
    }

    #[test]
    fn empty_blocks_take_nothing() {
        let p = pack(&[block(0, 0, 5), block(64, 0, 5)], 6).unwrap();
        assert_eq!((p.arena, p.live), (64, 64));
        assert_eq!(pack(&[], 0).unwrap().arena, 0);
    }

    #[test]
    fn overflow_is_seen() {
        assert_eq!(pack(&[block(u64::MAX - 63, 0, 1), block(64, 0, 1)], 2), None);
    }

    #[test]
    fn a_wide_value_above_two_narrow_ones_is_improved_on() {
        // Greedy by time leaves a hole here; the bound is reachable.
        let blocks = [block(64, 0, 2), block(128, 1, 4), block(64, 3, 6), block(192, 5, 7), block(64, 0, 0)];
        let p = pack(&blocks, 8).unwrap();
        assert_eq!(p.arena, p.live);
    }
}
