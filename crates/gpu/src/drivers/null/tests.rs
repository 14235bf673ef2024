//! Each fault that the driver must not pass over, and a run without any.

use super::*;
use crate::driver::Upload;
use crate::render::params::{MAX_RANK, OperandValue, Params};
use crate::row::KERNEL;

fn text() -> String {
    let mut t = String::from(
        "#define GROUP_SIZE 32\ntypedef i32 IDX;\nstruct frit_params {\n    struct frit_operand op_x;\n",
    );
    t.push_str("    struct frit_operand op_y;\n    i32 frit_end;\n};\n");
    for n in ["x", "y"] {
        t.push_str(&format!(
            "#define TYPE_{n} float\n#define UNIT_ELEMENTS_{n} 1\n#define UNIT_BYTES_{n} 4\n"
        ));
    }
    t.push_str("#define KERNEL ENTRY(k)(BUFFER(0), BUFFER(1), BLOCK(2))\n");
    t.push_str("#define OPERANDS (frit_b0 + P->op_x.offset) (frit_b1 + P->op_y.offset)\n");
    t
}

fn source() -> KernelSource {
    KernelSource { entry: "k".into(), text: text(), group: 32, buffers: 2 }
}

/// The block for `y = f(x)` of `n` floats, from byte `x` to byte `y`.
fn block(x: u64, y: u64, n: i64) -> Vec<u8> {
    let p = Params::new(&KERNEL, vec!["x".into(), "y".into()], false);
    let operand = |offset| {
        let mut o = OperandValue { offset, rank: 1, dims: [1; MAX_RANK], strides: [0; MAX_RANK] };
        (o.dims[0], o.strides[0]) = (n, 1);
        o
    };
    let mut bytes = vec![0; p.bytes()];
    p.write(&[operand(x), operand(y)], 0, &[], &mut bytes);
    bytes
}

/// A device with parameters, a buffer of 1024 bytes, and a chain of two launches in it: 0..64 → 64..128 → 128..192.
struct Setup {
    null: Null,
    params: BufferId,
    data: BufferId,
    launches: Vec<Launch>,
}

impl Setup {
    fn new() -> Setup {
        let null = Null::new(info()).with_digests();
        let params = null.allocate("the parameters", 1024).unwrap();
        let data = null.allocate("the data", 1024).unwrap();
        let kernel = null.build(&source()).unwrap();
        let span = |offset| Span { buffer: data, offset, bytes: 64 };
        let launch = |step: u32| Launch {
            step,
            kernel,
            buffers: vec![data, data],
            params: Span { buffer: params, offset: 256 * u64::from(step), bytes: 192 },
            grid: 1,
            group: 32,
            reads: vec![span(64 * u64::from(step))],
            writes: vec![span(64 * u64::from(step) + 64)],
        };
        Setup { launches: vec![launch(0), launch(1)], null, params, data }
    }

    /// Both parameter blocks.
    fn blocks(&self) -> Vec<u8> {
        let mut b = block(0, 64, 16);
        b.resize(256, 0);
        b.extend(block(64, 128, 16));
        b
    }

    fn run(&self, segments: &[SegmentId], upload: &[u8], downloads: &[Span]) -> Result<TicketId, GpuError> {
        let upload = Some(Upload { buffer: self.params, offset: 0, bytes: upload });
        self.null.submit(&Submission { upload, segments, downloads, timed: true })
    }

    fn out(&self, offset: u64, bytes: u64) -> Span {
        Span { buffer: self.data, offset, bytes }
    }

    /// Encodes and submits; gives what was wrong, which must stand in the journal, too.
    fn fails(&self, upload: &[u8], downloads: &[Span]) -> String {
        let all = self.null.encode(&self.launches).and_then(|s| self.run(&[s], upload, downloads));
        let e = all.expect_err("a fault that was passed over").to_string();
        assert_eq!(self.null.faults(), [e.as_str()]);
        e
    }
}

#[test]
fn a_run_without_faults_gives_what_depends_on_its_inputs() {
    let s = Setup::new();
    let segment = s.null.encode(&s.launches).unwrap();
    let mut results = Vec::new();
    for input in [[1u8; 64], [2; 64], [1; 64]] {
        s.null.write(s.data, 0, &input).unwrap();
        let t = s.run(&[segment], &s.blocks(), &[s.out(128, 64)]).unwrap();
        let mut out = vec![0; 64];
        assert_eq!(s.null.wait(t, &mut out).unwrap().len(), 2);
        results.push(out);
    }
    assert_eq!(results[0], results[2]);
    assert_ne!(results[0], results[1]);
    assert_eq!(s.null.held(), Held { buffers: 2, segments: 1, tickets: 0 });
    let ran = s.null.last_run();
    assert_eq!((ran.len(), ran[1].reads[0].offset, ran[1].writes[0].offset), (2, 64, 128));
    s.null.release(segment);
    s.null.free(s.data);
    s.null.free(s.data);
    s.null.free(s.params);
    s.null.forget(TicketId(99));
    assert_eq!((s.null.allocated(), s.null.faults()), (0, vec![]));
    let calls = s.null.calls();
    assert!(matches!(
        calls[calls.len() - 4..],
        [Call::Wait(_), Call::Release(_), Call::Free(_), Call::Free(_)]
    ));
}

#[test]
fn what_was_never_written_is_not_read() {
    let s = Setup::new();
    assert!(s.fails(&s.blocks(), &[]).contains("nothing has written byte 0"));
    let s = Setup::new();
    s.null.write(s.data, 0, &[1; 63]).unwrap();
    assert!(s.fails(&s.blocks(), &[]).contains("nothing has written byte 63"));
    let s = Setup::new();
    s.null.write(s.data, 0, &[1; 64]).unwrap();
    assert!(s.fails(&s.blocks()[..400], &[]).contains("its parameters, reads"));
    let s = Setup::new();
    s.null.write(s.data, 0, &[1; 64]).unwrap();
    assert!(s.fails(&s.blocks(), &[s.out(128, 65)]).contains("a download reads"));
    let s = Setup::new();
    assert!(s.null.read(s.data, 0, &mut [0]).is_err());
}

#[test]
fn operands_stay_in_what_the_launch_declares() {
    type Change = fn(&mut Setup, &mut Vec<u8>);
    let cases: [(&str, Change); 10] = [
        ("is written over a part of `x`", |s, b| {
            s.launches[0].writes[0].offset = 0;
            b[..192].copy_from_slice(&block(0, 4, 8));
        }),
        ("outside of what it declares", |s, _| s.launches[0].writes.clear()),
        ("outside of what it declares", |s, _| s.launches[1].reads.clear()),
        ("outside of what it declares", |_, b| b[..192].copy_from_slice(&block(16, 64, 16))),
        ("outside of what it declares", |_, b| b[..192].copy_from_slice(&block(0, 64, 17))),
        ("is not aligned", |_, b| b[..192].copy_from_slice(&block(0, 66, 2))),
        ("has counts that are not", |_, b| b[8] += 1),
        ("dimensions", |_, b| b[20] = 9),
        ("not aligned to 16", |s, _| s.launches[1].params.offset = 264),
        ("bytes of parameters for a kernel", |s, _| s.launches[1].params.bytes = 96),
    ];
    for (i, (why, change)) in cases.into_iter().enumerate() {
        let mut s = Setup::new();
        s.null.write(s.data, 0, &[1; 64]).unwrap();
        let mut blocks = s.blocks();
        change(&mut s, &mut blocks);
        let e = s.fails(&blocks, &[]);
        assert!(e.contains(why), "case {i}: {e}");
    }
}

#[test]
fn scratch_is_declared_behind_the_results() {
    let mut s = Setup::new();
    let with = text().replace("    i32 frit_end;", "    i64 scratch;\n    i32 frit_end;");
    let with = with.replace("BUFFER(1), BLOCK(2)", "BUFFER(1), BUFFER(2), BLOCK(3)");
    let kernel = s.null.build(&KernelSource { text: with, buffers: 3, ..source() }).unwrap();
    s.null.write(s.data, 0, &[1; 64]).unwrap();
    let mut bytes = block(0, 64, 16);
    bytes.extend([512u64, 0].iter().flat_map(|v| v.to_le_bytes()));
    s.launches.truncate(1);
    let (l, scratch) = (&mut s.launches[0], Span { buffer: s.data, offset: 512, bytes: 512 });
    (l.kernel, l.params.bytes) = (kernel, 208);
    l.buffers.push(s.data);
    l.writes.push(scratch);
    let right = s.null.encode(&s.launches).unwrap();
    assert!(s.run(&[right], &bytes, &[]).is_ok());
    s.launches[0].writes.pop();
    assert!(s.fails(&bytes, &[]).contains("its scratch at 512 is not what it declares"));
}

#[test]
fn launches_that_meet_are_ordered() {
    let s = Setup::new();
    let unordered = Segment::unordered(&s.launches);
    let spans: Vec<_> = s.launches.iter().map(|l| (l.reads.clone(), l.writes.clone())).collect();
    let e = unordered.ordered(&info(), &spans).unwrap_err().to_string();
    assert!(e.contains("steps 0 and 1 both touch bytes of 64..128"), "{e}");
    let apart = vec![spans[0].clone(), (vec![], vec![s.out(512, 64)])];
    assert_eq!(unordered.ordered(&info(), &apart), Ok(()));
    // Reading the same bytes is no conflict.
    let both = vec![(vec![s.out(0, 64)], vec![]), (vec![s.out(0, 64)], vec![])];
    assert_eq!(unordered.ordered(&info(), &both), Ok(()));
}

#[test]
fn what_is_gone_is_not_used() {
    let s = Setup::new();
    s.null.write(s.data, 0, &[1; 64]).unwrap();
    let segment = s.null.encode(&s.launches).unwrap();
    s.null.free(s.data);
    assert!(s.null.faults()[0].contains("still uses it"));
    assert!(s.run(&[segment], &s.blocks(), &[]).is_err());
    s.null.release(segment);
    assert!(s.run(&[segment], &s.blocks(), &[]).is_err());
    assert!(s.null.write(s.data, 0, &[1]).is_err());
    assert!(s.null.zero(s.out(0, 1)).is_err());
    assert!(s.null.encode(&s.launches).is_err());
    assert_eq!(s.null.faults().len(), 6);
}

#[test]
fn tickets_are_waited_for_once_and_for_all_of_their_results() {
    let s = Setup::new();
    s.null.write(s.data, 0, &[1; 64]).unwrap();
    let segment = s.null.encode(&s.launches).unwrap();
    let ticket = || s.run(&[segment], &s.blocks(), &[s.out(128, 64)]).unwrap();
    let (a, b, c) = (ticket(), ticket(), ticket());
    assert_eq!(s.null.held().tickets, 3);
    s.null.wait(a, &mut [0; 64]).unwrap();
    assert!(s.null.wait(a, &mut [0; 64]).is_err());
    s.null.forget(b);
    assert!(s.null.wait(b, &mut [0; 64]).is_err());
    assert!(s.null.wait(c, &mut [0; 63]).is_err());
    assert_eq!((s.null.held().tickets, s.null.faults().len()), (0, 3));
}

#[test]
fn ranges_lie_in_their_buffers() {
    let s = Setup::new();
    assert!(s.null.write(s.data, 1000, &[0; 25]).is_err());
    assert!(s.null.zero(s.out(u64::MAX, 2)).is_err());
    assert!(s.null.read(s.data, 0, &mut [0; 1025]).is_err());
    assert!(s.run(&[], &[0; 1025], &[]).is_err());
    assert!(s.run(&[], &[], &[s.out(1024, 1)]).is_err());
    assert_eq!(s.null.faults().len(), 5);
}

#[test]
fn texts_keep_to_the_limits() {
    let null = Null::new(info());
    let good = source();
    assert!(null.build(&good).is_ok());
    let changed = |from: &str, to: &str| KernelSource { text: good.text.replace(from, to), ..good.clone() };
    let bad = [
        KernelSource { buffers: 31, ..good.clone() },
        KernelSource { buffers: 3, ..good.clone() },
        KernelSource { buffers: 1, ..good.clone() },
        KernelSource { group: 64, ..good.clone() },
        KernelSource { group: 2048, ..changed("SIZE 32", "SIZE 2048") },
        changed("typedef i32 IDX;", ""),
        changed("frit_params", "params"),
        changed("frit_b1", "frit_b2"),
        changed("TYPE_x float", "TYPE_x real"),
        changed("struct frit_operand op_y", "double op_y"),
    ];
    for (i, b) in bad.iter().enumerate() {
        assert!(null.build(b).is_err(), "text {i}");
    }
    assert_eq!(null.faults().len(), bad.len());
}
