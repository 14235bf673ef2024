//! Checks of timed runs: every step once, times in order, sums that agree, a file that parses.

use std::collections::HashMap;
use std::time::Duration;

use frit::Trace;
use frit_ir::schedule::{Schedule, Step};
use serde_json::Value;

/// The names of the steps of `s`, in order.
pub fn names(s: &Schedule) -> Vec<String> {
    let name = |s: &Step| match s {
        Step::Kernel(k) => Some(k.name.clone()),
        _ => None,
    };
    s.steps.iter().filter_map(name).collect()
}

/// Holds a trace of runs of `s` against itself.
///
/// # Panics
/// It does not agree; `what` says whose it is.
pub fn check(trace: &Trace, s: &Schedule, what: &str) {
    let (mut count, mut time, mut work) = (0, Duration::ZERO, (0, 0));
    for r in trace.runs() {
        assert_eq!(r.steps.iter().map(|s| s.name.clone()).collect::<Vec<_>>(), names(s), "{what}");
        assert_eq!(r.target, s.target, "{what}");
        assert_eq!(r.time(), r.encode + r.submit + r.wait, "{what}");
        for (i, step) in r.steps.iter().enumerate() {
            assert!(step.start <= step.end, "{what}: {step:?}");
            assert!(i == 0 || r.steps[i - 1].end <= step.start, "{what}: {step:?}");
            assert!(!step.op.is_empty() && !step.kernel.is_empty() && step.bytes > 0, "{what}: {step:?}");
            time += step.time();
            work = (work.0 + step.flops, work.1 + step.bytes);
        }
        count += r.steps.len();
        assert!(r.steps.last().is_some_and(|s| s.end <= r.submit + r.wait), "{what}: {:?}", r.steps.last());
    }
    let totals = trace.totals();
    assert_eq!(totals.iter().map(|t| t.count).sum::<usize>(), count, "{what}");
    assert_eq!(totals.iter().map(|t| t.time).sum::<Duration>(), time, "{what}");
    let sum = totals.iter().fold((0, 0), |w, t| (w.0 + t.flops, w.1 + t.bytes));
    assert_eq!(sum, work, "{what}");
    assert!((totals.iter().map(|t| t.share).sum::<f64>() - 1.0).abs() < 1e-9, "{what}");
    assert!(totals.is_sorted_by(|a, b| a.time >= b.time), "{what}");
    for t in &totals {
        let flops = t.flops_per_second() * t.time.as_secs_f64();
        assert!((flops - t.flops as f64).abs() <= 1e-6 * t.flops as f64, "{what}: {t:?}");
    }
    file(trace, count, what);
}

/// The file holds every step and every run; events of one track nest or follow one another.
fn file(trace: &Trace, steps: usize, what: &str) {
    let mut bytes = Vec::new();
    trace.write_chrome(&mut bytes).unwrap();
    let v: Value = serde_json::from_slice(&bytes).unwrap_or_else(|e| panic!("{what}: {e}"));
    let events = v["traceEvents"].as_array().unwrap();
    let of = |category: &str| events.iter().filter(|e| e["cat"] == category).count();
    let runs = trace.runs().len();
    assert_eq!((of("run"), of("host"), of("step")), (runs, 3 * runs, steps), "{what}");
    let mut tracks: HashMap<u64, Vec<(u64, u64)>> = HashMap::new();
    for e in events.iter().filter(|e| e["ph"] == "X") {
        // Nanoseconds.
        let at = |key: &str| (e[key].as_f64().unwrap() * 1e3).round() as u64;
        tracks.entry(e["tid"].as_u64().unwrap()).or_default().push((at("ts"), at("ts") + at("dur")));
    }
    for (track, spans) in &tracks {
        let named = |e: &&Value| e["name"] == "thread_name" && e["tid"] == *track;
        assert_eq!(events.iter().filter(named).count(), 1, "{what}: track {track}");
        for (i, a) in spans.iter().enumerate() {
            for b in &spans[..i] {
                let apart = a.1 <= b.0 || b.1 <= a.0;
                let nested = (a.0 <= b.0 && b.1 <= a.1) || (b.0 <= a.0 && a.1 <= b.1);
                assert!(apart || nested, "{what}: {a:?} and {b:?} on track {track}");
            }
        }
    }
}
