//! Every kernel that the op cases ask of a Metal device, type-checked by clang, and planted faults that it must find.

use frit_tests::msl::Checker;
use frit_tests::recorder::{Asked, Recorder, asked, asked_of, faults};
use frit_tests::snake;

#[test]
fn every_kernel_of_the_cases_is_metal() {
    let checker = Checker::new().unwrap();
    let Asked { texts, missing, without } = asked(&Recorder::metal());
    let faults = faults(&texts, &|s| checker.check(&s.text));
    println!("{} kernel texts, {} at fault", texts.len(), faults.len());
    println!("ops without a text of their own: {}", without.join(", "));
    let shown: Vec<&str> = faults.iter().map(String::as_str).take(5).collect();
    assert!(faults.is_empty(), "{} faults, the first of them:\n{}", faults.len(), shown.join("\n"));
    assert!(missing.is_empty(), "no case asks for a kernel of these rows: {}", missing.join(", "));
}

/// The kernel of the example with an op of its own.
#[test]
fn a_kernel_of_a_program_s_own_is_metal() {
    let checker = Checker::new().unwrap();
    let rows: Vec<_> = snake::DEVICE.iter().collect();
    let texts = asked_of(&Recorder::metal(), &rows, &snake::registry().unwrap(), snake::NAME);
    assert!(!texts.is_empty());
    assert_eq!(faults(&texts, &|s| checker.check(&s.text)), Vec::<String>::new());
}

/// What the driver itself runs, beside the rows.
#[test]
fn the_driver_s_own_kernel_is_metal() {
    let header = include_str!("../../crates/gpu/kernels/compat/metal.h");
    let body = include_str!("../../crates/gpu/src/drivers/metal/move_bytes.k");
    let text = format!("#define GROUP_SIZE 32\n{header}\n{body}");
    assert_eq!(Checker::new().unwrap().check(&text), Ok(()));
    assert!(Checker::new().unwrap().check(&text.replace("= (CONSTANT u64 *)", "= (GLOBAL u64 *)")).is_err());
}

/// A small kernel with everything that a fault is planted in.
fn sample() -> String {
    let header = include_str!("../../crates/gpu/kernels/compat/metal.h");
    let body = "
HELPER float frit_first(GLOBAL const float *p) { return p[0]; }
HELPER float frit_shared(SHARED_PTR float *p) { return p[0]; }
HELPER float frit_own(PRIVATE float *p) { return exp_f32(p[0]); }
ENTRY(frit_sample)(BUFFER(0), BUFFER(1), BLOCK(2)) {
    GLOBAL float *out = (GLOBAL float *)(frit_b0 + 16);
    SHARED(float, part, 16 * (64 + 1));
    CONSTANT i32 *n = (CONSTANT i32 *)BLOCK_PTR;
    float own[2] = { 1, 2 };
    part[LOCAL_ID] = frit_first(out) + frit_own(own) * n[0];
    BARRIER();
    out[GROUP_ID] = frit_shared(part) + GROUP_COUNT;
}
";
    format!("#define GROUP_SIZE 256\n{header}{body}")
}

#[test]
fn planted_faults_are_found() {
    let checker = Checker::new().unwrap();
    let sample = sample();
    assert_eq!(checker.check(&sample), Ok(()));
    let faults: &[(&str, &str, &str)] = &[
        ("GLOBAL const float *p", "const float *p", "without an address space"),
        ("GLOBAL const float *p", "SHARED_PTR const float *p", "no matching function"),
        ("PRIVATE float *p", "float *p", "without an address space"),
        ("PRIVATE float *p", "GLOBAL float *p", "no matching function"),
        ("GLOBAL float *out", "PRIVATE float *out", "address space"),
        ("float own[2]", "double own[2]", "`double`"),
        ("BUFFER(1)", "BUFFER(30), BUFFER(1)", ""),
        ("BUFFER(1)", "BUFFER(31), BUFFER(1)", "buffer(31)"),
        ("BUFFER(1)", "BUFFER(0)", "buffer(0)"),
        ("16 * (64 + 1)", "33 * 256", "33792 bytes of threadgroup memory"),
        ("16 * (64 + 1)", "n[0]", "no constant"),
        ("GROUP_SIZE 256", "GROUP_SIZE 2048", "groups of 2048"),
        ("exp_f32(p[0])", "erf(p[0])", "undeclared"),
        ("part[LOCAL_ID] =", "n[0] = 1; part[LOCAL_ID] =", "read-only"),
        ("frit_own", "matrix", "ambiguous"),
        ("thread_index_in_threadgroup", "thread_index", "no attribute"),
        ("mem_flags::mem_threadgroup", "mem_flags::mem_local", "mem_local"),
    ];
    for (from, to, says) in faults {
        assert!(sample.contains(from), "{from}");
        let got = checker.check(&sample.replace(from, to));
        match got {
            Ok(()) => assert!(says.is_empty(), "{from} as {to} passed"),
            Err(e) => assert!(!says.is_empty() && e.contains(says), "{from} as {to}: {e}"),
        }
    }
}
