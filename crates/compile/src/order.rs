//! The order of steps: topological, stable, with a small live set.
//!
//! Several orders are tried and the one with the lowest peak taken; the given order wins ties, since whoever built the graph
//! put related work side by side.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A step as the orderer sees it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Item {
    /// Transient values read or written, each once. A value lives from the first item that has it to the last.
    pub values: Vec<u32>,
    /// Items that must come before, each once.
    pub before: Vec<u32>,
    /// Bytes needed while the item runs.
    pub scratch: u64,
}

/// How the next of the ready items is chosen.
#[derive(Clone, Copy)]
enum Rule {
    /// The one that frees most, or allocates least.
    Delta,
    /// One that does not grow the live set, the one that frees most first; else the earliest.
    Shrink,
}

/// The order of `items`, which stand in a topological order already. `bytes` are the sizes of the values.
pub(crate) fn order(items: &[Item], bytes: &[u64]) -> Vec<u32> {
    let mut best: Vec<u32> = (0..items.len() as u32).collect();
    let mut lowest = peak(items, bytes, &best);
    for rule in [Rule::Shrink, Rule::Delta] {
        let other = greedy(items, bytes, rule);
        let p = peak(items, bytes, &other);
        if p < lowest {
            (best, lowest) = (other, p);
        }
    }
    best
}

/// The largest sum of live bytes over the steps of `sequence`.
fn peak(items: &[Item], bytes: &[u64], sequence: &[u32]) -> u128 {
    let mut left = touches(items, bytes.len());
    let total = left.clone();
    let (mut live, mut most) = (0u128, 0u128);
    for i in sequence {
        let item = &items[*i as usize];
        let size = |v: &u32| u128::from(bytes[*v as usize]);
        live +=
            item.values.iter().filter(|v| left[**v as usize] == total[**v as usize]).map(size).sum::<u128>();
        most = most.max(live + u128::from(item.scratch));
        for v in &item.values {
            left[*v as usize] -= 1;
            if left[*v as usize] == 0 {
                live -= size(v);
            }
        }
    }
    most
}

/// How many items have each value.
fn touches(items: &[Item], values: usize) -> Vec<u32> {
    let mut n = vec![0; values];
    items.iter().flat_map(|i| &i.values).for_each(|v| n[*v as usize] += 1);
    n
}

struct Greedy<'a> {
    items: &'a [Item],
    bytes: &'a [u64],
    rule: Rule,
    total: Vec<u32>,
    left: Vec<u32>,
    /// Best first; an entry whose key is no longer the item's key is stale.
    ready: BinaryHeap<Reverse<(i128, u32)>>,
}

fn greedy(items: &[Item], bytes: &[u64], rule: Rule) -> Vec<u32> {
    let total = touches(items, bytes.len());
    let mut missing: Vec<usize> = items.iter().map(|i| i.before.len()).collect();
    let mut after: Vec<Vec<u32>> = vec![Vec::new(); items.len()];
    let mut holders: Vec<Vec<u32>> = vec![Vec::new(); bytes.len()];
    for (i, item) in items.iter().enumerate() {
        item.before.iter().for_each(|b| after[*b as usize].push(i as u32));
        item.values.iter().for_each(|v| holders[*v as usize].push(i as u32));
    }
    let mut g = Greedy { items, bytes, rule, left: total.clone(), total, ready: BinaryHeap::new() };
    (0..items.len()).filter(|i| missing[*i] == 0).for_each(|i| g.push(i as u32));
    let (mut out, mut done) = (Vec::with_capacity(items.len()), vec![false; items.len()]);
    while let Some(Reverse((key, i))) = g.ready.pop() {
        if done[i as usize] || key != g.key(i) {
            continue;
        }
        done[i as usize] = true;
        out.push(i);
        for v in &items[i as usize].values {
            g.left[*v as usize] -= 1;
            // The last holder now frees the value: its key has changed.
            if g.left[*v as usize] == 1 {
                let last = holders[*v as usize].iter().find(|h| !done[**h as usize]);
                last.filter(|h| missing[**h as usize] == 0).into_iter().for_each(|h| g.push(*h));
            }
        }
        for a in &after[i as usize] {
            missing[*a as usize] -= 1;
            if missing[*a as usize] == 0 {
                g.push(*a);
            }
        }
    }
    out
}

impl Greedy<'_> {
    fn push(&mut self, i: u32) {
        let key = self.key(i);
        self.ready.push(Reverse((key, i)));
    }

    /// Change of the live set by running `i` now, as the rule sees it.
    fn key(&self, i: u32) -> i128 {
        let mut delta = 0i128;
        for v in &self.items[i as usize].values {
            let (v, size) = (*v as usize, i128::from(self.bytes[*v as usize]));
            if self.left[v] == self.total[v] {
                delta += size;
            }
            if self.left[v] == 1 {
                delta -= size;
            }
        }
        match self.rule {
            Rule::Delta => delta,
            Rule::Shrink => delta.min(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(values: &[u32], before: &[u32]) -> Item {
        Item { values: values.to_vec(), before: before.to_vec(), scratch: 0 }
    }

    fn valid(items: &[Item], sequence: &[u32]) {
        let mut at = vec![usize::MAX; items.len()];
        sequence.iter().enumerate().for_each(|(p, i)| at[*i as usize] = p);
        for (i, item) in items.iter().enumerate() {
            assert!(at[i] != usize::MAX);
            assert!(item.before.iter().all(|b| at[*b as usize] < at[i]));
        }
    }

    #[test]
    fn values_are_used_up_before_new_ones_are_made() {
        // Four large values made first, each reduced to a small one: reducing at once keeps one large value alive.
        let mut items: Vec<Item> = (0..4).map(|i| item(&[i], &[])).collect();
        items.extend((0..4).map(|i| item(&[i, 4 + i], &[i])));
        let bytes = [1000, 1000, 1000, 1000, 1, 1, 1, 1];
        let o = order(&items, &bytes);
        valid(&items, &o);
        assert_eq!(o, [0, 4, 1, 5, 2, 6, 3, 7]);
        assert_eq!(peak(&items, &bytes, &o), 1001);
    }

    #[test]
    fn the_given_order_wins_ties() {
        let items = [item(&[0], &[]), item(&[1], &[]), item(&[0, 1, 2], &[0, 1])];
        assert_eq!(order(&items, &[8, 8, 8]), [0, 1, 2]);
    }

    #[test]
    fn cheap_work_is_not_hoisted_to_the_front() {
        // A chain of large values, each step of which also needs a small value made from nothing.
        let mut items = Vec::new();
        let mut bytes = Vec::new();
        for layer in 0..8u32 {
            items.push(item(&[2 * layer], &[]));
            let mut values = vec![2 * layer, 2 * layer + 1];
            let mut before = vec![2 * layer];
            if layer > 0 {
                values.push(2 * layer - 1);
                before.push(2 * layer - 1);
            }
            items.push(item(&values, &before));
            bytes.extend([10, 1000]);
        }
        let o = order(&items, &bytes);
        valid(&items, &o);
        assert_eq!(peak(&items, &bytes, &o), 2010);
    }
}
