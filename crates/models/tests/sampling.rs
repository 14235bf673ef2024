//! The sampler: filters, order, draws, errors.

use frit_models::sampling::{Sampler, SamplingError, SamplingOptions, log_prob, top_log_probs};

fn options() -> SamplingOptions {
    SamplingOptions::default().temperature(1.0).seed(11)
}

fn logits_of(p: &[f64]) -> Vec<f32> {
    p.iter().map(|p| p.ln() as f32).collect()
}

/// How often each token is drawn in `n` draws.
fn counts(options: SamplingOptions, logits: &[f32], n: usize) -> Vec<usize> {
    let mut sampler = Sampler::new(options).unwrap();
    let mut counts = vec![0; logits.len()];
    for _ in 0..n {
        counts[sampler.sample(logits, &[]).unwrap() as usize] += 1;
    }
    counts
}

/// Chi-square of `counts` against probabilities; tokens of probability 0 must not occur.
fn chi_square(counts: &[usize], p: &[f64]) -> f64 {
    let n: usize = counts.iter().sum();
    let mut sum = 0.0;
    for (&c, &p) in counts.iter().zip(p) {
        if p == 0.0 {
            assert_eq!(c, 0);
        } else {
            let want = p * n as f64;
            sum += (c as f64 - want).powi(2) / want;
        }
    }
    sum
}

#[test]
fn greedy_takes_the_largest_and_the_lower_index() {
    let mut s = Sampler::new(SamplingOptions::default()).unwrap();
    assert_eq!(s.sample(&[0.0, 3.0, -1.0, 3.0], &[]), Ok(1));
    assert_eq!(s.sample(&[-0.0, 0.0], &[]), Ok(0));
    assert_eq!(s.sample(&[f32::NEG_INFINITY, f32::NEG_INFINITY, -9.0], &[]), Ok(2));
    // So small that the penalty makes it a zero, which is as large as the other.
    let mut penalized = Sampler::new(SamplingOptions::default().repetition_penalty(0.25, 8)).unwrap();
    assert_eq!(penalized.sample(&[-1e-45, 0.0], &[0]), Ok(0));
    // Wherever the largest lies, once more behind it.
    for (n, at) in [(70_001, 70_000), (70_001, 33), (70_001, 69_983), (31, 30), (32, 31), (5000, 0)] {
        let mut logits: Vec<f32> = (0..n).map(|i| ((i * 37) % 1000) as f32 * -0.5 - 1.0).collect();
        logits[at] = -0.25;
        logits[n - 1] = -0.25;
        assert_eq!(s.sample(&logits, &[]), Ok(at as u32));
        // A penalty that changes nothing takes the other way.
        let mut slow = Sampler::new(SamplingOptions::default().repetition_penalty(1.5, 8)).unwrap();
        assert_eq!(slow.sample(&logits, &[]), Ok(at as u32));
        logits[n / 2] = f32::NAN;
        let bad = s.sample(&logits, &[]);
        assert!(matches!(bad, Err(SamplingError::Logit { token, .. }) if token as usize == n / 2), "{bad:?}");
    }
}

#[test]
fn draws_follow_the_distribution() {
    // 3 degrees of freedom: 16.3 is exceeded once in a thousand seeds; the seed is fixed.
    let p = [0.1, 0.5, 0.15, 0.25];
    let logits = logits_of(&p);
    assert!(chi_square(&counts(options(), &logits, 20_000), &p) < 16.3);
    let squared: f64 = p.iter().map(|p| p * p).sum();
    let half = p.map(|p| p * p / squared);
    assert!(chi_square(&counts(options().temperature(0.5), &logits, 20_000), &half) < 16.3);
}

#[test]
fn each_filter_keeps_what_it_says() {
    let p = [0.1, 0.4, 0.05, 0.2, 0.25];
    let logits = logits_of(&p);
    let check = |o: SamplingOptions, kept: &[usize]| {
        let total: f64 = kept.iter().map(|i| p[*i]).sum();
        let want: Vec<f64> =
            (0..p.len()).map(|i| if kept.contains(&i) { p[i] / total } else { 0.0 }).collect();
        let got = counts(o.clone(), &logits, 8_000);
        assert!(chi_square(&got, &want) < 18.5, "{o:?}: {got:?}");
    };
    check(options().top_k(2), &[1, 4]);
    check(options().top_k(1), &[1]);
    check(options().top_k(99), &[0, 1, 2, 3, 4]);
    // 0.4 + 0.25 reaches 0.6, 0.4 alone does not; a tiny top_p keeps one.
    check(options().top_p(0.6), &[1, 4]);
    check(options().top_p(0.7), &[1, 4, 3]);
    check(options().top_p(1e-6), &[1]);
    check(options().min_p(0.45), &[1, 3, 4]);
    check(options().min_p(1.0), &[1]);
    // Top-p sees what top-k leaves: of 0.4, 0.25, 0.2 the first two are 0.76.
    check(options().top_k(3).top_p(0.75), &[1, 4]);
    check(options().top_k(4).top_p(0.99).min_p(0.3), &[1, 3, 4]);
}

#[test]
fn filters_come_before_temperature() {
    // At temperature 4 the distribution is nearly flat, so a top-p of 0.6 over it would keep more than two tokens.
    let logits = logits_of(&[0.1, 0.4, 0.05, 0.2, 0.25]);
    let got = counts(options().top_p(0.6).temperature(4.0), &logits, 500);
    assert!(got[0] == 0 && got[2] == 0 && got[3] == 0 && got[1] > 150 && got[4] > 150, "{got:?}");
}

#[test]
fn a_large_vocabulary_is_cut_as_a_small_one() {
    // 5000 equal tokens and top_p 0.5: the 2500 lower tokens remain, whatever way the front part was sorted.
    let got = counts(options().top_p(0.5), &vec![1.25; 5000], 2_000);
    assert!(got[2500..].iter().all(|c| *c == 0));
    // 2000 draws from 2500 reach 1377 of them on average.
    assert!((1300..1450).contains(&got[..2500].iter().filter(|c| **c > 0).count()));
}

#[test]
fn the_repetition_penalty_counts_once_and_within_its_window() {
    let greedy = |penalty, window| {
        Sampler::new(SamplingOptions::default().repetition_penalty(penalty, window)).unwrap()
    };
    let logits = [2.0, 1.5, -1.0];
    // 2/1.2 = 1.67 stays first; twice applied it would not.
    assert_eq!(greedy(1.2, 64).sample(&logits, &[0, 0, 0]), Ok(0));
    assert_eq!(greedy(1.4, 64).sample(&logits, &[0, 0, 0]), Ok(1));
    assert_eq!(greedy(1.4, 2).sample(&logits, &[0, 2, 2]), Ok(0));
    assert_eq!(greedy(1.4, 0).sample(&logits, &[0]), Ok(0));
    // A negative logit moves away from zero.
    assert_eq!(greedy(1.5, 8).sample(&[-1.0, -1.4], &[0]), Ok(1));
    // Every call starts afresh.
    let mut s = greedy(1.2, 64);
    for _ in 0..3 {
        assert_eq!(s.sample(&logits, &[0]), Ok(0));
    }
    assert_eq!(greedy(1.4, 4).sample(&logits, &[3]), Err(SamplingError::Token { token: 3, vocab: 3 }));
}

#[test]
fn a_seed_repeats_and_another_differs() {
    let logits: Vec<f32> = (0..50).map(|i| (i % 7) as f32 * 0.3).collect();
    let run = |seed| {
        let mut s = Sampler::new(options().top_k(20).top_p(0.9).seed(seed)).unwrap();
        (0..64).map(|_| s.sample(&logits, &[]).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
    assert_ne!(run(5), run(5 + (1 << 32)));
}

#[test]
fn unusable_logits_are_errors() {
    for o in [SamplingOptions::default(), options(), options().top_k(2).top_p(0.5).min_p(0.1)] {
        let mut s = Sampler::new(o).unwrap();
        assert!(matches!(s.sample(&[0.0, f32::NAN], &[]), Err(SamplingError::Logit { token: 1, .. })));
        assert!(matches!(s.sample(&[f32::INFINITY], &[]), Err(SamplingError::Logit { token: 0, .. })));
        assert_eq!(s.sample(&[f32::NEG_INFINITY; 4], &[]), Err(SamplingError::Empty(4)));
        assert_eq!(s.sample(&[], &[]), Err(SamplingError::Empty(0)));
        assert_eq!(s.sample(&[f32::MIN, f32::MAX], &[]), Ok(1));
    }
}

#[test]
fn options_are_checked() {
    let d = SamplingOptions::default;
    let bad = [
        (d().temperature(-0.1), "temperature"),
        (d().temperature(f32::NAN), "temperature"),
        (d().temperature(f32::INFINITY), "temperature"),
        (d().top_p(0.0), "top_p"),
        (d().top_p(1.1), "top_p"),
        (d().min_p(-0.1), "min_p"),
        (d().min_p(1.5), "min_p"),
        (d().repetition_penalty(0.0, 8), "repetition_penalty"),
        (d().repetition_penalty(f32::INFINITY, 8), "repetition_penalty"),
    ];
    for (o, name) in bad {
        assert!(
            matches!(Sampler::new(o), Err(SamplingError::Option { option, .. }) if option == name),
            "{name}"
        );
    }
}

#[test]
fn log_probabilities_are_those_of_softmax() {
    let p = [0.1, 0.4, 0.05, 0.2, 0.25];
    let logits: Vec<f32> = logits_of(&p).iter().map(|l| l + 50.0).collect();
    for (i, p) in p.iter().enumerate() {
        assert!((f64::from(log_prob(&logits, i as u32).unwrap()) - p.ln()).abs() < 1e-5);
    }
    let mut top = Vec::new();
    top_log_probs(&logits, 3, &mut top).unwrap();
    assert_eq!(top.iter().map(|t| t.0).collect::<Vec<_>>(), [1, 4, 3]);
    assert!((f64::from(top[1].1) - 0.25f64.ln()).abs() < 1e-5);
    top_log_probs(&[1.0, 2.0, 2.0, 1.0], 3, &mut top).unwrap();
    assert_eq!(top.iter().map(|t| t.0).collect::<Vec<_>>(), [1, 2, 0]);
    top_log_probs(&[1.0], 0, &mut top).unwrap();
    assert!(top.is_empty());
    assert!(log_prob(&[0.0], 1).is_err());
}
