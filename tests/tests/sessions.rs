//! Sessions of the golden models: going back, snapshots, forks, saved states and batches.

use frit::{Activations, Batch, DType, Error, Generator, LoadOptions, Model, Options, Piece, Request};
use frit::{SamplingOptions, StopReason};
use frit_tests::golden;

/// Name, sliding window, global and sliding layers (all with 2 key heads of 16).
const MODELS: &[(&str, Option<usize>, usize, usize)] =
    &[("llama", None, 3, 0), ("mistral", Some(6), 0, 3), ("gemma3_text", Some(8), 1, 5)];
/// Tokens of a step. A sliding layer has a ring of its window and so many slots.
const CHUNK: usize = 4;

fn options() -> LoadOptions {
    // One thread: steps of models this small are mostly waiting for each other.
    LoadOptions::default().kv_dtype(DType::F32).activations(Activations::F32).chunk(CHUNK).threads(1)
}

fn load(name: &str, options: &LoadOptions) -> Model {
    Model::load_with(golden::folder(name), options).unwrap()
}

fn generator(model: &Model) -> Generator {
    model.generator(Options::default().ignore_end(true)).unwrap()
}

/// Tokens that look like nothing in particular.
fn ids(n: usize, seed: u32) -> Vec<u32> {
    (0..n as u32).map(|i| 3 + (i * 37 + seed * 101 + i * i * 11) % 300).collect()
}

fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|v| v.to_bits()).collect()
}

/// Largest difference over the standard deviation of `want`.
fn distance(got: &[f32], want: &[f32]) -> f64 {
    let n = want.len() as f64;
    let mean = want.iter().map(|v| *v as f64).sum::<f64>() / n;
    let std = (want.iter().map(|v| (*v as f64 - mean).powi(2)).sum::<f64>() / n).sqrt();
    got.iter().zip(want).map(|(g, w)| (*g as f64 - *w as f64).abs()).fold(0.0, f64::max) / std
}

#[test]
fn going_back_is_as_if_the_rest_had_never_been() {
    for (name, window, ..) in MODELS {
        let model = load(name, &options());
        for run in [5, 10, 11, 12, 13, 30, 33] {
            let (text, other) = (ids(run, 1), ids(7, 2));
            let mut g = generator(&model);
            g.feed(&text).unwrap();
            for n in 0..=run {
                let mut back = g.fork().unwrap();
                // The ring holds the last window + chunk positions; the token at position n sees window − 1 before it.
                let (kept, least) =
                    window.map_or((0, 0), |w| (run.saturating_sub(w + CHUNK), run.saturating_sub(CHUNK + 1)));
                let served = n == 0 || kept == 0 || n >= least;
                let done = back.truncate(n);
                assert_eq!(done.is_ok(), served, "{name}: from {run} to {n}: {done:?}");
                if let Err(e) = done {
                    assert!(matches!(e, Error::Value { .. }));
                    assert!(e.to_string().contains(&format!("go back to {least} or to 0")), "{e}");
                    assert_eq!(back.len(), run);
                    continue;
                }
                assert_eq!(back.history(), &text[..n]);
                let mut fresh = generator(&model);
                if n > 0 {
                    fresh.feed(&text[..n]).unwrap();
                }
                let d = distance(back.feed(&other).unwrap(), fresh.feed(&other).unwrap());
                assert!(d < 1e-5, "{name}: from {run} to {n}: {d:e}");
            }
            assert!(matches!(g.truncate(run + 1), Err(Error::Value { .. })));
        }
    }
}

#[test]
fn going_back_twice_knows_what_was_written_again() {
    let model = load("mistral", &options());
    let mut g = generator(&model);
    g.feed(&ids(30, 1)).unwrap();
    g.truncate(25).unwrap();
    g.feed(&ids(2, 2)).unwrap();
    // Positions 20 to 24 are of the first text, 25 and 26 of the second.
    assert!(g.truncate(24).is_err());
    g.truncate(25).unwrap();
    g.feed(&ids(20, 3)).unwrap();
    assert!(g.truncate(39).is_err());
    g.truncate(40).unwrap();
    let mut fresh = generator(&model);
    let text = [&ids(30, 1)[..25], &ids(20, 3)[..15], &ids(4, 4)[..]].concat();
    assert!(distance(g.feed(&ids(4, 4)).unwrap(), fresh.feed(&text).unwrap()) < 1e-5);
    g.clear();
    fresh.clear();
    assert_eq!(bits(g.feed(&ids(9, 5)).unwrap()), bits(fresh.feed(&ids(9, 5)).unwrap()));
}

#[test]
fn snapshots_forks_and_saved_states_go_on_with_the_same_bits() {
    for (name, window, global, sliding) in MODELS {
        let model = load(name, &options());
        for run in [0, 1, 9, 10, 23] {
            let mut g = generator(&model);
            if run > 0 {
                g.feed(&ids(run, 1)).unwrap();
            }
            let snapshot = g.snapshot().unwrap();
            assert_eq!(snapshot.tokens(), ids(run, 1));
            let mut fork = g.fork().unwrap();
            let mut file = Vec::new();
            g.save(&mut file).unwrap();
            // Keys and values of 2 heads of 16 f32.
            let positions = global * run + sliding * run.min(window.unwrap_or(0) + CHUNK);
            assert_eq!(snapshot.bytes(), positions * 2 * 2 * 16 * 4);
            assert!(file.len() - snapshot.bytes() < 1024 + 4 * run, "{}", file.len());

            let want = bits(g.feed(&ids(13, 2)).unwrap());
            fork.feed(&ids(5, 9)).unwrap();
            fork.restore(&snapshot).unwrap();
            assert_eq!(bits(fork.feed(&ids(13, 2)).unwrap()), want, "{name} {run}: restored");
            let mut small = model.generator(Options::default().context(40)).unwrap();
            small.feed(&ids(3, 8)).unwrap();
            small.load(&file[..]).unwrap();
            assert_eq!(small.history(), ids(run, 1));
            assert_eq!(bits(small.feed(&ids(13, 2)).unwrap()), want, "{name} {run}: loaded");
            assert_eq!(g.len(), run + 13);
        }
    }
}

#[test]
fn a_fork_has_a_life_of_its_own() {
    let model = load("llama", &options());
    let mut a = generator(&model);
    a.feed(&ids(12, 1)).unwrap();
    let mut b = a.fork().unwrap();
    let (cancel, other) = (a.cancel(), b.cancel());
    cancel.cancel();
    assert!(!other.is_cancelled());
    b.feed(&ids(30, 2)).unwrap();
    let mut fresh = generator(&model);
    fresh.feed(&ids(12, 1)).unwrap();
    assert_eq!(bits(a.feed(&ids(6, 3)).unwrap()), bits(fresh.feed(&ids(6, 3)).unwrap()));
}

#[test]
fn a_damaged_or_foreign_state_is_an_error_and_changes_nothing() {
    let model = load("mistral", &options());
    let mut g = generator(&model);
    g.feed(&ids(14, 1)).unwrap();
    let mut file = Vec::new();
    g.save(&mut file).unwrap();
    let mut h = generator(&model);
    h.feed(&ids(3, 2)).unwrap();
    for n in 0..file.len() {
        let e = h.load(&file[..n]).unwrap_err();
        assert!(matches!(e, Error::Format { .. }), "{n}: {e}");
    }
    for at in (0..file.len()).filter(|a| *a < 400 || a % 53 == 0 || *a + 9 > file.len()) {
        for bit in [0, 7] {
            let mut bad = file.clone();
            bad[at] ^= 1 << bit;
            let e = h.load(&bad[..]).unwrap_err();
            assert!(!e.to_string().contains('\n'), "{e}");
        }
    }
    let patched = |h: &mut Generator, at: usize, bytes: &[u8]| {
        let mut bad = file.clone();
        bad[at..at + bytes.len()].copy_from_slice(bytes);
        h.load(&bad[..]).unwrap_err()
    };
    assert!(matches!(patched(&mut h, 8, &2u32.to_le_bytes()), Error::Unsupported { .. }));
    assert!(matches!(patched(&mut h, 12, &[1; 8]), Error::Value { .. }));
    assert!(matches!(patched(&mut h, 20, &u64::MAX.to_le_bytes()), Error::ContextFull { .. }));
    assert!(matches!(patched(&mut h, 20, &[0; 8]), Error::WrongTask { .. }));
    assert_eq!(h.history(), ids(3, 2));
    let mut fresh = generator(&model);
    fresh.feed(&ids(3, 2)).unwrap();
    assert_eq!(bits(h.feed(&[5]).unwrap()), bits(fresh.feed(&[5]).unwrap()));

    let mut llama = generator(&load("llama", &options()));
    assert!(matches!(llama.load(&file[..]), Err(Error::Value { .. })));
    assert!(matches!(llama.restore(&g.snapshot().unwrap()), Err(Error::Value { .. })));
    let mut small = model.generator(Options::default().context(13)).unwrap();
    let full = small.load(&file[..]);
    assert!(matches!(full, Err(Error::ContextFull { capacity: 13, needed: 14 })), "{full:?}");
    assert!(matches!(small.restore(&g.snapshot().unwrap()), Err(Error::ContextFull { .. })));
}

#[test]
fn rings_do_not_fit_a_model_with_other_rings() {
    let mut g = generator(&load("mistral", &options()));
    g.feed(&ids(14, 1)).unwrap();
    let snapshot = g.snapshot().unwrap();
    // Another chunk makes other rings; another context does not.
    let mut other = generator(&load("mistral", &options().chunk(8)));
    assert!(matches!(other.restore(&snapshot), Err(Error::Value { .. })));
    let mut longer = generator(&load("mistral", &options().context(200)));
    longer.restore(&snapshot).unwrap();
    assert_eq!(bits(longer.feed(&[7]).unwrap()), bits(g.feed(&[7]).unwrap()));
}

/// The pieces of every request of a batch.
fn pieces(batch: &mut Batch, requests: &[Request]) -> (Vec<Vec<Piece>>, Vec<frit::End>) {
    let mut all = vec![Vec::new(); requests.len()];
    let mut reply = batch.generate(requests.to_vec()).unwrap();
    for piece in &mut reply {
        let (row, piece) = piece.unwrap();
        all[row].push(piece);
    }
    (all, reply.finish().unwrap())
}

/// Whether each request's text in the batch is what a generator gives for it alone; the largest difference in a log-probability.
fn compare(model: &Model, rows: usize, prompts: &[(Vec<u32>, Options)]) -> f32 {
    let mut batch = model.batch(rows, Options::default()).unwrap();
    let request = |(p, o): &(Vec<u32>, Options)| Request::tokens(p.clone()).options(o.clone());
    let requests: Vec<Request> = prompts.iter().map(request).collect();
    let (got, ends) = pieces(&mut batch, &requests);
    let mut worst = 0f32;
    for (i, (prompt, options)) in prompts.iter().enumerate() {
        let mut g = model.generator(options.clone()).unwrap();
        let mut reply = g.tokens(prompt).unwrap();
        let alone: Vec<Piece> = (&mut reply).map(Result::unwrap).collect();
        let end = reply.finish().unwrap();
        assert_eq!((&ends[i].tokens, &ends[i].reason), (&end.tokens, &end.reason), "request {i}");
        assert_eq!(ends[i].stats.prompt_tokens, prompt.len());
        assert_eq!(ends[i].stats.generated_tokens, end.tokens.len());
        assert_eq!(got[i].len(), alone.len());
        for (a, b) in got[i].iter().zip(&alone) {
            assert_eq!((a.token, &a.text), (b.token, &b.text));
            worst = worst.max((a.log_prob.unwrap() - b.log_prob.unwrap()).abs());
        }
    }
    worst
}

fn greedy(n: usize) -> Options {
    Options::default().max_tokens(n).ignore_end(true).log_probs(0)
}

#[test]
fn rows_of_equal_length_get_what_they_get_alone() {
    for (name, ..) in MODELS {
        for chunk in [512, 16] {
            let model = load(name, &options().chunk(chunk).batch(4));
            let prompts: Vec<_> = (0..4).map(|i| (ids(12, i), greedy(24))).collect();
            let worst = compare(&model, 4, &prompts);
            println!("{name}, chunk {chunk}: log-probabilities differ by at most {worst:e}");
            assert!(worst < 1e-5, "{name} {worst}");
        }
    }
}

#[test]
fn rows_of_any_length_options_and_number_get_what_they_get_alone() {
    for (name, ..) in MODELS {
        let model = load(name, &options().chunk(16).batch(4));
        let hot = |seed| greedy(30).sampling(SamplingOptions::default().temperature(0.9).seed(seed));
        let prompts = [
            (ids(1, 1), greedy(40)),
            (ids(3, 2), greedy(3)),
            (ids(11, 3), hot(1)),
            (ids(50, 4), hot(2)),
            (ids(7, 5), greedy(0)),
            (ids(17, 5), hot(3).context(64)),
            (ids(100, 6), greedy(200)),
        ];
        for rows in [1, 2, 3, 4] {
            let worst = compare(&model, rows, &prompts);
            println!("{name}, {rows} rows: log-probabilities differ by at most {worst:e}");
            assert!(worst < 1e-5, "{name} {worst}");
        }
    }
}

#[test]
fn a_batch_ends_rows_by_themselves_and_stays_usable() {
    let model = load("llama", &options().chunk(16).batch(3));
    let mut batch = model.batch(2, Options::default().ignore_end(true).context(32)).unwrap();
    assert_eq!((batch.rows(), batch.context()), (2, 32));
    let cancelled = Request::tokens(ids(4, 1)).options(greedy(20));
    let cancel = cancelled.cancel();
    let full = Request::tokens(ids(30, 2)).options(greedy(20));
    let mut reply = batch.generate([cancelled, full, Request::tokens(ids(2, 3))]).unwrap();
    let first = reply.find(|p| p.as_ref().unwrap().0 == 0).unwrap().unwrap();
    assert!(first.1.token.is_some());
    cancel.cancel();
    let ends = reply.finish().unwrap();
    assert_eq!(ends[0].reason, StopReason::Cancelled);
    assert!(ends[0].tokens.len() < 20);
    assert_eq!((&ends[1].reason, ends[1].tokens.len()), (&StopReason::ContextFull, 3));
    assert_eq!((&ends[2].reason, ends[2].tokens.len()), (&StopReason::ContextFull, 31));

    let mut dropped = batch.generate([Request::tokens(ids(9, 1))]).unwrap();
    dropped.next().unwrap().unwrap();
    drop(dropped);
    let again = batch.generate([Request::tokens(ids(4, 1)).options(greedy(20))]).unwrap().finish().unwrap();
    let mut alone = model.generator(greedy(20)).unwrap();
    assert_eq!(again[0].tokens, alone.tokens(&ids(4, 1)).unwrap().finish().unwrap().tokens);
    assert!(batch.generate([]).unwrap().next().is_none());
}

#[test]
fn a_wrong_request_is_named() {
    let model = load("llama", &options().chunk(16).batch(2));
    let mut batch = model.batch(2, Options::default()).unwrap();
    let fault = |batch: &mut Batch, tokens: Vec<u32>| {
        batch.generate([Request::tokens(vec![1]), Request::tokens(tokens)]).err().unwrap()
    };
    let e = fault(&mut batch, vec![]);
    assert!(
        matches!(e, Error::Value { .. }) && e.to_string().starts_with("request 1: the prompt is empty"),
        "{e}"
    );
    let e = fault(&mut batch, vec![9999]);
    assert!(e.to_string().starts_with("request 1: token 9999"), "{e}");
    assert!(matches!(fault(&mut batch, vec![1; 300]), Error::ContextFull { .. }));
    for rows in [0, 3] {
        assert!(matches!(model.batch(rows, Options::default()), Err(Error::Value { .. })));
    }
    assert!(matches!(load("llama", &options()).batch(2, Options::default()), Err(Error::Value { .. })));
    let refused = Model::load_with(golden::folder("llama"), &options().batch(0));
    assert!(matches!(refused, Err(Error::Value { .. })));
}

#[test]
fn room_for_more_sequences_costs_one_sequence_nothing() {
    let sizes = |o: LoadOptions| generator(&load("mistral", &o)).memory();
    let (arena, cache, io) = sizes(options());
    assert_eq!(sizes(options().batch(1)), (arena, cache, io));
    let model = load("mistral", &options().batch(4));
    let one = generator(&model).memory();
    assert_eq!(one.1, cache);
    assert_eq!(model.batch(4, Options::default()).unwrap().memory().1, 4 * cache);
}
