use std::collections::HashMap;

use super::*;
use crate::driver::KernelId;

fn span(buffer: u64, offset: u64, bytes: u64) -> Span {
    Span { buffer: BufferId(buffer), offset, bytes }
}

fn launch(reads: &[Span], writes: &[Span]) -> Launch {
    let buffers = reads.iter().chain(writes).map(|s| s.buffer).collect();
    let (reads, writes) = (reads.to_vec(), writes.to_vec());
    Launch {
        step: 0,
        kernel: KernelId(0),
        buffers,
        params: span(9, 0, 16),
        grid: 1,
        group: 32,
        reads,
        writes,
    }
}

/// Memory that commands move bytes of: the slot, then buffers of 64 bytes.
struct Memory {
    slot: Vec<u8>,
    buffers: HashMap<BufferId, Vec<u8>>,
}

impl Memory {
    fn at(&mut self, place: Place) -> &mut [u8] {
        match place {
            Place::Slot(at) => &mut self.slot[at as usize..],
            Place::Buffer(b, at) => &mut self.buffers.get_mut(&b).unwrap()[at as usize..],
        }
    }

    /// Carries commands out as Metal would, and refuses what Metal refuses.
    fn carry_out(&mut self, commands: &[Command]) {
        let offset = |p: Place| match p {
            Place::Slot(at) | Place::Buffer(_, at) => at,
        };
        for c in commands {
            match *c {
                Command::Copy { from, to, bytes } => {
                    assert!([offset(from), offset(to), bytes].iter().all(|n| n % 4 == 0), "{c:?}");
                    let moved = self.at(from)[..bytes as usize].to_vec();
                    self.at(to)[..bytes as usize].copy_from_slice(&moved);
                }
                Command::Bytes { from, to, bytes } => {
                    assert!(bytes < UNIT, "{c:?}");
                    let moved = self.at(from)[..bytes as usize].to_vec();
                    self.at(to)[..bytes as usize].copy_from_slice(&moved);
                }
                Command::Fill(s) => {
                    assert!(s.offset % 4 == 0 && s.bytes % 4 == 0, "{c:?}");
                    self.at(Place::Buffer(s.buffer, s.offset))[..s.bytes as usize].fill(0);
                }
                _ => panic!("{c:?}"),
            }
        }
    }
}

#[test]
fn uploads_write_exactly_their_bytes_and_downloads_bring_exactly_theirs() {
    for offset in 0..9 {
        for bytes in 0..23 {
            let (up, downs) =
                (span(1, offset, bytes), [span(1, offset, bytes), span(1, 3, 0), span(1, 5, 7)]);
            let l = layout(Some(up), &downs);
            let mut m = Memory {
                slot: vec![0xee; l.bytes as usize],
                buffers: HashMap::from([(BufferId(1), vec![7; 64])]),
            };
            let given: Vec<u8> = (100..100 + bytes as u8).collect();
            m.at(Place::Slot(l.upload))[..bytes as usize].copy_from_slice(&given);
            let batches = run(Some(up), &[], &downs, &l, false);
            assert_eq!(batches.len(), 1);
            m.carry_out(&batches[0].commands);
            let mut want = vec![7; 64];
            want[offset as usize..(offset + bytes) as usize].copy_from_slice(&given);
            assert_eq!(m.buffers[&BufferId(1)], want, "{bytes} at {offset}");
            for (d, (at, n)) in downs.iter().zip(&l.results) {
                let of = |from: u64| from as usize..(from + d.bytes) as usize;
                assert_eq!(*n, d.bytes);
                if d.bytes > 0 {
                    assert_eq!(m.slot[of(*at)], want[of(d.offset)], "{bytes} at {offset}");
                }
            }
        }
    }
}

#[test]
fn zeros_go_exactly_where_they_are_wanted() {
    for offset in 0..9 {
        for bytes in 0..23 {
            let mut m = Memory { slot: vec![0; 4], buffers: HashMap::from([(BufferId(1), vec![7; 64])]) };
            m.carry_out(&zero(span(1, offset, bytes)));
            let mut want = vec![7; 64];
            want[offset as usize..(offset + bytes) as usize].fill(0);
            assert_eq!(m.buffers[&BufferId(1)], want, "{bytes} at {offset}");
        }
    }
}

#[test]
fn a_launch_waits_only_for_what_no_barrier_has_waited_for() {
    let (a, b, c) = (span(0, 0, 8), span(0, 8, 8), span(0, 16, 8));
    let all = [
        launch(&[], &[a]),
        launch(&[], &[b]),
        launch(&[a, b], &[c]),
        launch(&[a], &[span(1, 0, 4)]),
        launch(&[b], &[span(2, 0, 4)]),
        launch(&[c], &[span(3, 0, 4)]),
        launch(&[span(3, 0, 4)], &[a]),
    ];
    assert_eq!(barriers(&all), [false, false, true, false, false, true, true]);
    assert!(barriers(&[]).is_empty());
}

/// Whatever the launches, one that depends on another has a barrier between them.
#[test]
fn no_dependency_is_without_a_barrier() {
    let mut state = 1u64;
    let mut random = |n: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % n
    };
    for _ in 0..200 {
        let mut one = || span(random(2), random(6) * 8, 8 + random(2) * 8);
        let all: Vec<Launch> = (0..12).map(|_| launch(&[one(), one()], &[one()])).collect();
        let waits = barriers(&all);
        for i in 0..all.len() {
            for j in (0..i).filter(|j| all[i].depends_on(&all[*j])) {
                assert!(waits[j + 1..=i].contains(&true), "{i} after {j}");
            }
        }
    }
}

#[test]
fn buffers_are_declared_once_with_all_their_uses() {
    let mut scratch = launch(&[span(1, 0, 8)], &[span(2, 0, 8)]);
    scratch.buffers.push(BufferId(3));
    let all = [scratch, launch(&[span(2, 0, 8)], &[span(4, 0, 4)])];
    let of = |buffer, reads, writes| Use { buffer: BufferId(buffer), reads, writes };
    let want =
        [of(1, true, false), of(9, true, false), of(2, true, true), of(3, true, true), of(4, false, true)];
    assert_eq!(uses(&all), want);
}

#[test]
fn a_run_is_one_command_buffer_and_a_timed_run_one_for_each_launch() {
    let (steps, waits) = ([5, 6, 7], [false, false, true]);
    let shape = |replay| Shape { id: SegmentId(1), steps: &steps, barriers: &waits, replay, vendor: None };
    let (up, down) = (span(1, 0, 8), [span(2, 0, 8)]);
    let l = layout(Some(up), &down);
    let plain = run(Some(up), &[shape(false)], &down, &l, false);
    assert_eq!(plain.len(), 1);
    let kinds: Vec<_> = encoders(&plain[0].commands).into_iter().map(|(k, r)| (k, r.len())).collect();
    assert_eq!(kinds, [(Encoder::Blit, 1), (Encoder::Compute, 3), (Encoder::Blit, 1)]);
    let replayed = run(Some(up), &[shape(true), shape(true)], &down, &l, false);
    assert_eq!(replayed[0].commands[1], Command::Replay { segment: SegmentId(1), piece: 0 });
    assert_eq!(encoders(&replayed[0].commands).len(), 4, "segments are ordered by their encoders");
    let timed = run(Some(up), &[shape(true)], &down, &l, true);
    let of: Vec<_> = timed.iter().map(|b| (b.step, b.commands.len())).collect();
    assert_eq!(of, [(None, 1), (Some(5), 1), (Some(6), 1), (Some(7), 1), (None, 1)]);
    let bare = run(None, &[shape(true)], &[], &layout(None, &[]), true);
    assert_eq!(bare.len(), 3, "no empty command buffer before");
    assert_eq!(run(None, &[], &[], &layout(None, &[]), true), [Batch::default()], "an end to wait for");
}

#[test]
fn the_same_segment_twice_takes_two_encoders() {
    let launch = |index, barrier| Command::Launch { segment: SegmentId(1), index, barrier };
    let twice = [launch(0, false), launch(1, true), launch(0, false), launch(1, true)];
    assert_eq!(encoders(&twice), [(Encoder::Compute, 0..2), (Encoder::Compute, 2..4)]);
    let edges = Command::Bytes { from: Place::Slot(0), to: Place::Slot(8), bytes: 1 };
    assert_eq!(encoders(&[edges, edges, launch(0, false)]).len(), 2, "a kernel reads what was uploaded");
}

#[test]
fn long_segments_are_cut() {
    assert!(pieces(0).is_empty());
    assert_eq!(pieces(MOST_COMMANDS).len(), 1);
    assert_eq!(pieces(MOST_COMMANDS + 1), [0..MOST_COMMANDS, MOST_COMMANDS..MOST_COMMANDS + 1]);
}

#[test]
fn abilities_decide_the_way() {
    let of = |unified, apple, samples| way(Abilities { unified, apple, samples });
    assert_eq!(of(true, 7, true), Way { shared: true, replay: false, samples: true });
    assert_eq!(of(true, 9, true), Way { shared: true, replay: true, samples: true });
    assert_eq!(of(false, 0, false), Way { shared: false, replay: false, samples: false });
    assert_eq!(STAGE % UNIT, 0);
    assert!(sampled(of(true, 7, true), 1, false) && sampled(of(true, 7, true), 2048, false));
    assert!(
        !sampled(of(true, 7, true), 0, false)
            && !sampled(of(true, 7, true), 2049, false)
            && !sampled(of(true, 7, true), 1, true)
            && !sampled(of(true, 7, false), 1, false)
    );
}

#[test]
fn names_tell_the_units() {
    let all = [
        ("Apple M1", 10),
        ("Apple M2 Pro", 20),
        ("Apple M3 Max", 40),
        ("Apple M2 Ultra", 80),
        ("Apple Paravirtual device", 10),
        ("Intel(R) Iris(TM) Plus Graphics 655", 10),
        ("AMD Radeon Pro 5500M", 20),
        ("AMD Radeon RX 580", 40),
    ];
    for (name, want) in all {
        assert_eq!(units(name), want, "{name}");
    }
}

#[test]
fn faults_have_a_meaning() {
    assert_eq!(fault(8), "the device has no memory left for it");
    assert_eq!(fault(99), "an error that Metal does not name");
    assert!(FAULTS.is_sorted_by_key(|f| f.0));
}

#[test]
fn times_of_the_device_become_nanoseconds() {
    let moment = |host, device| Moment { host, device };
    // A clock of 24 MHz over one second.
    let (a, b) = (moment(1_000_000_000, 500), moment(2_000_000_000, 24_000_500));
    assert_eq!(nanoseconds(12_000_500, 500, a, b), 500_000_000);
    assert_eq!(nanoseconds(400, 500, a, b), 0, "before the origin");
    assert_eq!(nanoseconds(700, 500, a, a), 0, "no time between the moments");
    let far = moment(u64::MAX, u64::MAX);
    assert_eq!(nanoseconds(u64::MAX, 0, Moment::default(), far), u64::MAX);
}

/// The commands of each command buffer, as letters.
fn letters(batches: &[Batch]) -> Vec<(Option<u32>, String)> {
    let letter = |c: &Command| match c {
        Command::Copy { .. } => 'c',
        Command::Fill(_) => 'f',
        Command::Bytes { .. } => 'b',
        Command::Replay { .. } => 'r',
        Command::Launch { .. } => 'l',
        Command::Graph { .. } => 'G',
        Command::Product { .. } => 'P',
    };
    batches.iter().map(|b| (b.step, b.commands.iter().map(letter).collect())).collect()
}

#[test]
fn a_graph_has_command_buffers_of_its_own_and_its_copies_come_after_it() {
    let copies = [(span(5, 0, 10), span(6, 256, 10))];
    let own =
        Shape { id: SegmentId(1), steps: &[0, 1], barriers: &[false, true], replay: false, vendor: None };
    let of = |graph, copies| Some(Vendor { graph, copies });
    let graph =
        Shape { id: SegmentId(2), steps: &[2], barriers: &[false], replay: false, vendor: of(true, &copies) };
    let product = Shape { id: SegmentId(3), vendor: of(false, &[]), steps: &[7], ..graph };
    let (up, down) = (Some(span(1, 0, 8)), [span(2, 0, 8)]);
    let l = layout(up, &down);
    let commands = |segments: &[Shape], timed| letters(&run(up, segments, &down, &l, timed));
    let plain = |all: &[&str]| all.iter().map(|s| (None, s.to_string())).collect::<Vec<_>>();
    // Ten bytes are a copy of eight and two single ones.
    assert_eq!(commands(&[own, graph, own], false), plain(&["cll", "G", "cbllc"]));
    assert_eq!(commands(&[graph, graph], false), plain(&["c", "G", "cb", "G", "cbc"]));
    assert_eq!(commands(&[own, product, own], false), plain(&["cllPllc"]));
    let timed = commands(&[own, graph, product], true);
    let steps: Vec<_> = timed.iter().map(|(s, c)| (*s, c.as_str())).collect();
    let want = [
        (None, "c"),
        (Some(0), "l"),
        (Some(1), "l"),
        (Some(2), "G"),
        (None, "cb"),
        (Some(7), "P"),
        (None, "c"),
    ];
    assert_eq!(steps, want);
    // Nothing before it: no empty command buffer.
    assert_eq!(
        letters(&run(None, &[Shape { vendor: of(true, &[]), ..graph }], &[], &l, false)),
        plain(&["G"])
    );
}

#[test]
fn products_stand_between_encoders() {
    let (l, p) = (
        |index| Command::Launch { segment: SegmentId(1), index, barrier: false },
        Command::Product { segment: SegmentId(2) },
    );
    let all = [l(0), l(1), p, p, l(0)];
    let want = [
        (Encoder::Compute, 0..2),
        (Encoder::Vendor, 2..3),
        (Encoder::Vendor, 3..4),
        (Encoder::Compute, 4..5),
    ];
    assert_eq!(encoders(&all), want);
}

#[test]
fn work_for_the_vendor_declares_every_buffer_once() {
    let spans = [span(3, 0, 4), span(1, 0, 4)];
    let got = vendor_uses(&spans, &[span(3, 8, 4)], &[(span(2, 0, 4), span(1, 0, 4))]);
    assert_eq!(got.iter().map(|u| u.buffer.0).collect::<Vec<_>>(), [1, 2, 3]);
}
