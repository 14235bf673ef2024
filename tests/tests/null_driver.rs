//! The GPU layer on the null driver: every op case, and what a model's sessions ask of a device.

use std::sync::Arc;

use frit_compile::memory::Placed;
use frit_compile::{Activations, CompileOptions};
use frit_gpu::device::Device;
use frit_gpu::driver::Driver;
use frit_gpu::drivers::null::{Call, Held, Null, info};
use frit_gpu::session::Session;
use frit_ir::schedule::{Operand, Region, Step};
use frit_ir::{DType, Dim, ScalarOp};
use frit_models::config::BuildOptions;
use frit_ops::case_graph;
use frit_tests::null::{self, Loaded, follows_schedule, keeps_values, load, load_compiled, set};
use frit_tests::{check, gpu};

const DECODERS: &[&str] = &["llama", "mistral", "qwen2", "qwen3", "gemma3_text"];

/// Positions of a session.
const CONTEXT: usize = 64;

/// Fails if anything was wrong.
fn faultless(null: &Null, what: &str) {
    let faults = null.faults();
    assert!(faults.is_empty(), "{what}: {} faults: {:#?}", faults.len(), &faults[..faults.len().min(5)]);
}

mod ops {
    use super::*;

    fn listed(op: &str, case: &str) -> bool {
        let mut lines = include_str!("../data/unsupported/null.txt").lines();
        lines.any(|l| l.split_once('/').is_some_and(|(o, c)| o == op && (c == "*" || c == case)))
    }

    /// Every case of `op`, as written and fused.
    fn run(op: &str) {
        let registry = frit_ops::registry();
        let null = Arc::new(Null::new(info()));
        let device = Device::new(null.clone(), None);
        let (mut ran, mut without) = (0, 0);
        let cases = (registry.get(op).expect("an op of the registry").cases)();
        for c in &cases {
            let g = case_graph::build(&registry, op, c).unwrap();
            let f64s = g.graph.values().iter().any(|v| v.ty.dtype == DType::F64);
            for options in [check::options(), CompileOptions::default()] {
                let result = gpu::run(&g.graph, &registry, &device, &options, &[], &g.values);
                faultless(&null, &format!("{op}/{}", c.name));
                match result {
                    Ok(_) => assert!(!listed(op, &c.name), "{op}/{}: listed, but runs", c.name),
                    Err(e) if e.starts_with("unsupported") && (f64s || listed(op, &c.name)) => without += 1,
                    Err(e) => panic!("{op}/{}: {e}", c.name),
                }
                ran += 1;
            }
        }
        println!("{op}: {ran} runs, {without} unsupported, {} kernels", device.builds());
        assert_eq!((null.allocated(), null.held()), (0, Held::default()), "{op}");
        let _ = null.calls();
    }

    frit_tests::test_each_op!(run);
}

fn small() -> BuildOptions {
    BuildOptions::default().context(CONTEXT).chunk(16).rows(4)
}

fn session(m: &Loaded, context: usize) -> Session {
    Session::new(&m.exe, &[("C", context as i64)]).unwrap()
}

/// Runs and waits, and holds what ran against the schedule.
fn step(m: &Loaded, s: &mut Session, tokens: &[i32], start: usize, rows: usize, what: &str) {
    // Nothing in them outlives a run.
    m.null.scramble("the arena");
    m.null.scramble("the outputs");
    set(s, tokens, start, rows).unwrap_or_else(|e| panic!("{what}: {e}"));
    s.run().unwrap_or_else(|e| panic!("{what}: {e}"));
    let (schedule, ran) = (m.exe.schedule(), m.null.last_run());
    let sizes = [("T", tokens.len() as i64), ("R", rows as i64), ("C", CONTEXT as i64)];
    follows_schedule(schedule, &sizes, &ran, info().align).unwrap_or_else(|e| panic!("{what}: {e}"));
    keeps_values(schedule, &m.placed, &ran).unwrap_or_else(|e| panic!("{what}: {e}"));
    faultless(&m.null, what);
}

/// Models as they are stored and run: the type of projections, how they read activations.
const FORMS: &[(DType, Activations)] = &[
    (DType::F32, Activations::F32),
    (DType::BF16, Activations::F32),
    (DType::Q8_0, Activations::Q8),
    (DType::Q4_0, Activations::Q16),
];

#[test]
fn every_decoder_prefills_and_decodes_without_fault() {
    for name in DECODERS {
        for (stored, activations) in FORMS {
            let g = null::graph(name, *stored, &small()).unwrap();
            let m = load(&g, Null::new(info()), *activations).unwrap();
            let mut s = session(&m, CONTEXT);
            let what = format!("{name} in {stored}");
            for (n, start, rows) in [(1, 0, 1), (16, 1, 1), (7, 17, 4), (1, 24, 1), (16, 25, 4), (1, 41, 1)] {
                let tokens: Vec<i32> = (0..n).map(|i| 3 + 5 * i).collect();
                step(&m, &mut s, &tokens, start, rows, &what);
            }
            drop(s);
            assert_eq!(m.null.held().segments, 0, "{what}");
        }
    }
}

/// The counts of a session's run of one token: nothing but one submission with one upload, and its wait.
fn steady(calls: &[Call]) -> bool {
    matches!(calls, [Call::Submit { ticket, upload: Some(_), segments, .. }, Call::Wait(waited)]
        if ticket == waited && segments.len() == 1)
}

/// Bytes of the uploads.
fn uploaded(calls: &[Call]) -> u64 {
    let one = |c: &Call| if let Call::Submit { upload: Some(u), .. } = c { u.bytes } else { 0 };
    calls.iter().map(one).sum()
}

/// `kv_len` and the positions are inputs, and the symbol `C` belongs to the session: from one token to the next, no size
/// changes, so nothing is bound, written or encoded anew.
#[test]
fn a_decode_step_is_one_upload_and_one_submission_at_every_position() {
    for name in ["llama", "gemma3_text"] {
        let m = null::decoder(name, &BuildOptions::default().context(4096).chunk(16), false).unwrap();
        let mut s = session(&m, 4096);
        set(&mut s, &[5], 0, 1).unwrap();
        s.run().unwrap();
        let first = uploaded(&m.null.calls());
        let mut bytes = None;
        for position in 1..4096 {
            set(&mut s, &[position % 300], position as usize, 1).unwrap();
            s.run().unwrap();
            let calls = m.null.calls();
            assert!(steady(&calls), "{name} at {position}: {calls:?}");
            let now = uploaded(&calls);
            // The inputs without the parameters.
            assert!(now < first, "{name} at {position}: {now} of {first} bytes");
            assert_eq!(*bytes.get_or_insert(now), now, "{name} at {position}: another upload");
        }
        assert_eq!(s.encoded(), 1, "{name}");
        println!("{name}: {first} bytes of upload, then {bytes:?} at each of 4095 positions, 1 segment");
        faultless(&m.null, name);
    }
}

/// Steps of every number of tokens: sizes are rounded up for groups, so that few segments serve all.
#[test]
fn few_segments_serve_steps_of_every_length() {
    for name in DECODERS {
        let m = null::decoder(name, &BuildOptions::default().context(256).chunk(256), false).unwrap();
        let mut s = session(&m, 256);
        for n in 1..=256 {
            set(&mut s, &vec![7; n], 0, 1).unwrap();
            s.run().unwrap();
        }
        let first = s.encoded();
        assert!(first <= 12, "{name}: encoded {first} times");
        m.null.calls();
        for n in (1..=256).step_by(3) {
            set(&mut s, &vec![7; n], 0, 1).unwrap();
            s.run().unwrap();
            let calls = m.null.calls();
            assert!(steady(&calls), "{name}: {n} tokens again");
            // Once more: the parameters are there already.
            set(&mut s, &vec![8; n], 0, 1).unwrap();
            s.run().unwrap();
            assert!(uploaded(&m.null.calls()) < uploaded(&calls), "{name}: {n} tokens once more");
        }
        assert_eq!(s.encoded(), first, "{name}: encoded again");
        println!("{name}: {first} segments for 1 to 256 tokens, {} launches", m.exe.schedule().steps.len());
        faultless(&m.null, name);
    }
}

/// More outcomes than a session keeps: those that went are encoded again and those that stayed are still there.
#[test]
fn segments_that_make_room_are_not_used_again() {
    const SIZES: [&str; 3] = ["L", "M", "N"];
    let mut b = frit_ops::build::Builder::new("three");
    for n in SIZES {
        let size = b.symbol(n, 1, 1 << 14).unwrap();
        let x = b.input(&format!("x{n}"), DType::F32, [size]).unwrap();
        let y = b.unary(ScalarOp::Exp, x).unwrap();
        b.output(&format!("y{n}"), y).unwrap();
    }
    let m = load(&b.finish(), Null::new(info()), Activations::F32).unwrap();
    let mut s = Session::new(&m.exe, &[]).unwrap();
    let mut run = |outcome: usize| {
        let sizes = [outcome % 5, outcome / 5 % 5, outcome / 25].map(|i| 1024usize << i);
        for (name, n) in SIZES.iter().zip(sizes) {
            s.set_size(m.exe.symbol(name).unwrap(), n as i64).unwrap();
        }
        for (slot, n) in sizes.iter().enumerate() {
            s.set_input(slot, &vec![1; 4 * n]).unwrap();
        }
        s.run().unwrap();
        s.encoded()
    };
    assert_eq!((0..125).map(&mut run).collect::<Vec<_>>(), (1..=125).collect::<Vec<_>>());
    assert_eq!(m.null.held().segments, 64);
    // Those that stayed serve again, the others are encoded again.
    assert_eq!((61..125).map(&mut run).collect::<Vec<_>>(), [125; 64]);
    assert_eq!((0..61).map(&mut run).collect::<Vec<_>>(), (126..=186).collect::<Vec<_>>());
    drop(s);
    assert_eq!(m.null.held().segments, 0);
    faultless(&m.null, "three sizes");
}

/// Outputs of one step with a digest of all that it read.
fn digest(s: &mut Session, tokens: &[i32], start: usize) -> Vec<u8> {
    set(s, tokens, start, 1).unwrap();
    s.submit(false).unwrap().wait().unwrap().bytes(0).to_vec()
}

#[test]
fn runs_in_flight_keep_their_own_parameters_and_results() {
    for name in DECODERS {
        let m = null::decoder(name, &small(), true).unwrap();
        let texts: [&[i32]; 5] = [&[1, 2, 3], &[4], &[5], &[6, 7], &[8, 9]];
        let starts = [0, 3, 4, 5, 7];
        let mut one = session(&m, CONTEXT);
        let want: Vec<Vec<u8>> = texts.iter().zip(starts).map(|(t, at)| digest(&mut one, t, at)).collect();
        let mut s = session(&m, CONTEXT);
        set(&mut s, texts[0], 0, 1).unwrap();
        let first = s.submit(false).unwrap();
        m.null.calls();
        let mut tickets = vec![first];
        for (t, at) in texts.iter().zip(starts).skip(1) {
            set(&mut s, t, at, 1).unwrap();
            tickets.push(s.submit(false).unwrap());
        }
        let calls = m.null.calls();
        let only = |c: &&Call| !matches!(c, Call::Submit { .. } | Call::Encode { .. });
        assert_eq!(calls.iter().find(only), None, "{name}: the host waits between submit and wait");
        assert_eq!(m.null.held().tickets, 5);
        // The last one that was submitted is waited for first.
        for (ticket, want) in tickets.into_iter().zip(&want).rev() {
            assert_eq!(ticket.wait().unwrap().bytes(0), want, "{name}");
        }
        assert_eq!(m.null.held().tickets, 0);
        // One that nobody waits for does not hold up the others.
        drop(s.submit(false).unwrap());
        assert_eq!(m.null.held().tickets, 0);
        faultless(&m.null, name);
    }
}

/// What a step gives depends on all that was set for it, and on nothing else.
#[test]
fn results_follow_from_inputs_states_and_weights_alone() {
    for name in DECODERS {
        let m = null::decoder(name, &small(), true).unwrap();
        let (mut a, mut b) = (session(&m, CONTEXT), session(&m, CONTEXT));
        // The first takes a detour over other sizes, then starts anew.
        digest(&mut a, &[9; 16], 0);
        digest(&mut a, &[9], 16);
        for slot in 0..m.exe.schedule().states.len() {
            let zeros = vec![0; a.state_bytes(slot)];
            a.write_state(slot, 0, &zeros).unwrap();
        }
        let mut last = Vec::new();
        for (tokens, start) in [([1, 2].as_slice(), 0), (&[3], 2), (&[4], 3), (&[1, 2, 3], 4), (&[4], 7)] {
            let (x, y) = (digest(&mut a, tokens, start), digest(&mut b, tokens, start));
            assert_eq!(x, y, "{name}: {tokens:?} at {start}");
            assert_ne!(x, last, "{name}: {tokens:?} at {start}");
            last = x;
        }
        // The first and the last byte of every input count, in a run whose sizes are those of the run before.
        let mut seen = std::collections::HashSet::new();
        for change in 0..9usize {
            let mut c = b.fresh().unwrap();
            digest(&mut c, &[1, 2, 3], 0);
            let mut bytes = set(&mut c, &[1, 2, 3], 0, 1).unwrap();
            if let Some(i) = change.checked_sub(1) {
                let input = &mut bytes[i / 2];
                let at = if i % 2 == 0 { 0 } else { input.len() - 1 };
                input[at] ^= 0x5a;
                c.set_input(i / 2, input).unwrap();
            }
            let out = c.submit(false).unwrap().wait().unwrap().bytes(0).to_vec();
            assert!(seen.insert(out), "{name}: change {change} changes nothing");
        }
        faultless(&m.null, name);
    }
}

#[test]
fn sessions_leave_nothing_behind() {
    let m = null::decoder("llama", &small(), false).unwrap();
    let (allocated, held) = (m.null.allocated(), m.null.held());
    let mut s = session(&m, CONTEXT);
    for i in 0..1000 {
        let mut other = if i % 2 == 0 { session(&m, CONTEXT) } else { s.fresh().unwrap() };
        set(&mut other, &[1, 2], 0, 1).unwrap();
        let ticket = other.submit(i % 3 == 0).unwrap();
        match i % 3 {
            0 => drop(ticket.wait().unwrap()),
            1 => drop(ticket),
            // A session may go before its ticket.
            _ => {
                drop(other);
                drop(ticket);
            }
        }
        m.null.calls();
    }
    set(&mut s, &[1], 0, 1).unwrap();
    s.run().unwrap();
    drop(s);
    assert_eq!((m.null.allocated(), m.null.held()), (allocated, held));
    let null = m.null.clone();
    drop(m);
    assert_eq!((null.allocated(), null.held()), (0, Held::default()));
    faultless(&null, "1000 sessions");
}

#[test]
fn an_encoder_runs_batches_without_fault() {
    let g = null::graph("bert", DType::F32, &BuildOptions::default().chunk(64)).unwrap();
    let m = load(&g, Null::new(info()).with_digests(), Activations::F32).unwrap();
    let mut s = Session::new(&m.exe, &[]).unwrap();
    for (b, t) in [(1, 1), (1, 64), (4, 16), (3, 5), (16, 4)] {
        m.null.scramble("the arena");
        m.null.scramble("the outputs");
        for (symbol, n) in [("B", b), ("T", t)] {
            s.set_size(m.exe.symbol(symbol).unwrap(), n).unwrap();
        }
        s.set_input(0, &vec![0; (4 * b * t) as usize]).unwrap();
        s.set_input(1, &(t as i32).to_le_bytes().repeat(b as usize)).unwrap();
        s.run().unwrap();
        let ran = m.null.last_run();
        follows_schedule(m.exe.schedule(), &[("B", b), ("T", t)], &ran, info().align).unwrap();
        keeps_values(m.exe.schedule(), &m.placed, &ran).unwrap();
        faultless(&m.null, "bert");
    }
}

/// A value laid over another that is still in use: neither hazards nor unwritten memory show it.
#[test]
fn a_value_laid_over_another_is_noticed() {
    let g = null::graph("llama", DType::F32, &small()).unwrap();
    let (registry, target) = (frit_ops::registry(), frit_gpu::catalog::target(&info()));
    let compiled = frit_compile::compile(&g, &registry, &target, &CompileOptions::default()).unwrap();
    let placed = compiled.report.memory.clone();
    let fits = |under: &Placed, over: &Placed| {
        under.first < over.first && over.first < under.last && over.bytes <= under.bytes
    };
    let pairs = || placed.iter().flat_map(|under| placed.iter().map(move |over| (under, over)));
    let (under, over) = pairs().find(|(a, b)| fits(a, b)).expect("two values in use at one step");
    let mut moved = compiled.clone();
    for (i, step) in moved.schedule.steps.iter_mut().enumerate() {
        let Step::Kernel(k) = step else { continue };
        if i as u32 >= over.first && i as u32 <= over.last {
            let theirs = |o: &&mut Operand| o.region == Region::Arena && o.offset.is(over.offset as i64);
            k.operands
                .iter_mut()
                .flatten()
                .filter(theirs)
                .for_each(|o| o.offset = Dim::from(under.offset as i64));
        }
    }
    let mut outs = Vec::new();
    for c in [compiled, moved] {
        let m = load_compiled(c, Null::new(info()).with_digests()).unwrap();
        outs.push(digest(&mut session(&m, CONTEXT), &[1, 2], 0));
        let kept = keeps_values(m.exe.schedule(), &m.placed, &m.null.last_run());
        assert_eq!(kept.is_ok(), outs.len() == 1, "{kept:?}");
        faultless(&m.null, "an overlap");
    }
    assert_ne!(outs[0], outs[1]);
}
