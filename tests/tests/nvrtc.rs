//! Every kernel that the op cases ask of a Hopper card, built by NVRTC, which needs no card.

use frit_gpu::drivers::cuda::Compiler;
use frit_tests::recorder::{Asked, Recorder, asked, asked_of, faults};
use frit_tests::snake;

const HOPPER: u32 = 90;

#[test]
fn every_kernel_of_the_cases_is_cuda() {
    let compiler = Compiler::new().unwrap();
    let arch = compiler.arch(HOPPER).unwrap();
    let Asked { texts, missing, .. } = asked(&Recorder::hopper());
    let faults = faults(&texts, &|s| compiler.build(&arch, &s.entry, &s.text).map(|_| ()));
    println!("{} kernel texts for {arch}, {} at fault", texts.len(), faults.len());
    let shown: Vec<&str> = faults.iter().map(String::as_str).take(5).collect();
    assert!(faults.is_empty(), "{} faults, the first of them:\n{}", faults.len(), shown.join("\n"));
    assert!(missing.is_empty(), "no case asks for a kernel of these rows: {}", missing.join(", "));
}

/// The kernel of the example with an op of its own.
#[test]
fn a_kernel_of_a_program_s_own_is_cuda() {
    let compiler = Compiler::new().unwrap();
    let arch = compiler.arch(HOPPER).unwrap();
    let rows: Vec<_> = snake::DEVICE.iter().collect();
    let texts = asked_of(&Recorder::hopper(), &rows, &snake::registry().unwrap(), snake::NAME);
    assert!(!texts.is_empty());
    let faults = faults(&texts, &|s| compiler.build(&arch, &s.entry, &s.text).map(|_| ()));
    assert_eq!(faults, Vec::<String>::new());
}
