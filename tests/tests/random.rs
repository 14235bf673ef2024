//! 1000 random graphs: optimized and unoptimized programs agree with the reference.

use std::sync::Arc;

use frit_cpu::pool::Pool;
use frit_tests::random::check;

#[test]
fn optimized_and_unoptimized_agree_with_the_reference() {
    let registry = frit_ops::registry();
    let pool = Arc::new(Pool::new(2).unwrap());
    let mut compared = 0;
    for seed in 0..1000 {
        compared += check(seed, 8 + seed as usize % 17, &registry, &pool).unwrap();
    }
    println!("1000 graphs, {compared} results");
    assert!(compared >= 4000);
}
