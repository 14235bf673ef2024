//! Memory of the process: sessions come and go without leaving anything, and share the weights. Alone in its file, and one
//! test after the other: it is the process that is measured.
#![cfg(target_os = "linux")]

use frit::{LoadOptions, Model, Options};
use frit_tests::golden;

/// Resident bytes of this process.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}

#[test]
fn sessions_share_weights_and_leave_nothing() {
    thousand_generators();
    thousand_sessions();
    weights_are_shared();
}

fn thousand_generators() {
    let model = Model::load_with(golden::folder("llama"), &LoadOptions::default().threads(1)).unwrap();
    let once = || {
        let mut g = model.generator(Options::default().max_tokens(2)).unwrap();
        g.tokens(&[1, 5, 9]).unwrap().finish().unwrap();
        let fork = g.fork().unwrap();
        let snapshot = fork.snapshot().unwrap();
        g.restore(&snapshot).unwrap();
    };
    (0..50).for_each(|_| once());
    let before = resident();
    (0..1000).for_each(|_| once());
    let grown = resident() as i64 - before as i64;
    println!("1000 generators: {grown} bytes");
    assert!(grown < 1 << 20, "{grown} bytes after 1000 generators");
}

fn thousand_sessions() {
    let mut b = frit::Builder::new("sum");
    let x = b.input("x", frit::DType::F32, [1 << 16]).unwrap();
    let s = b.state("s", frit::DType::F32, [1i64 << 16]).unwrap();
    let next = b.add(s, x).unwrap();
    b.update(s, next).unwrap();
    b.output("y", next).unwrap();
    let compiled =
        frit::compile(&b.finish(), Default::default(), &frit::CompileOptions::default().threads(1)).unwrap();
    let x = frit::Tensor::from_f32(&[1 << 16], &[1.0; 1 << 16]).unwrap();
    let once = || {
        let mut session = compiled.session().unwrap();
        session.run(&[("x", &x)]).unwrap();
        session.fork().unwrap();
    };
    (0..50).for_each(|_| once());
    let before = resident();
    (0..1000).for_each(|_| once());
    let grown = resident() as i64 - before as i64;
    println!("1000 sessions: {grown} bytes");
    assert!(grown < 1 << 20, "{grown} bytes after 1000 sessions");
}

fn weights_are_shared() {
    let model = Model::load_with(golden::smollm2(), &LoadOptions::default().context(128)).unwrap();
    let (own, shared) = model.compiled().weight_bytes();
    let make = || {
        let mut g = model.generator(Options::default()).unwrap();
        g.feed(&[504, 3575, 282]).unwrap();
        g
    };
    let _a = make();
    let before = resident();
    let b = make();
    let grown = resident().saturating_sub(before);
    let (arena, cache, io) = b.memory();
    println!(
        "second generator: {grown} bytes; weights {own} + {shared} bytes; holds {arena} + {cache} + {io}"
    );
    assert!(own + shared > 80_000_000);
    assert!(grown <= arena + cache + io + (1 << 20), "{grown}");
    assert!(grown * 4 < own + shared);
}
