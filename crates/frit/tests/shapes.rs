//! What a session makes of the extents it is given: those that fit run, all others are refused with a reason.

use frit::{Builder, CompileOptions, Compiled, DType, Dim, Error, Tensor, Weights};

fn compiled(build: impl FnOnce(&mut Builder)) -> Compiled {
    let mut b = Builder::new("test");
    build(&mut b);
    frit::compile(&b.finish(), Weights::new(), &CompileOptions::default().threads(1)).unwrap()
}

/// 0, 1, 2 … in this shape.
fn counting(shape: &[usize]) -> Tensor {
    let n = shape.iter().product::<usize>();
    Tensor::from_f32(shape, &(0..n).map(|i| i as f32).collect::<Vec<_>>()).unwrap()
}

/// The message of the shape error that a new session gives for inputs of these shapes.
fn refused(c: &Compiled, inputs: &[(&str, &[usize])]) -> String {
    let tensors: Vec<_> = inputs.iter().map(|(n, s)| (*n, counting(s))).collect();
    let inputs: Vec<_> = tensors.iter().map(|(n, t)| (*n, t)).collect();
    match c.session().unwrap().run(&inputs).map(|_| ()) {
        Err(Error::Shape { message }) => message,
        other => panic!("not a shape error: {other:?}"),
    }
}

#[test]
fn a_negative_extent_is_refused_where_it_stands() {
    type Op = fn(&mut Builder, frit::graph::ValueId) -> frit::graph::ValueId;
    let ops: [Op; 4] = [
        |_, x| x,
        |b, x| b.transpose(x, &[0]).unwrap(),
        |b, x| b.softmax(x, 0).unwrap(),
        |b, x| b.concat(&[x, x], 0).unwrap(),
    ];
    for op in ops {
        let c = compiled(|b| {
            let t = b.symbol("T", 0, 9).unwrap();
            let z = b.input("z", DType::F32, [t.clone()]).unwrap();
            let x = b.input("x", DType::F32, [Dim::from(5) - t]).unwrap();
            let y = op(b, x);
            b.output("x", y).unwrap();
            b.output("z", z).unwrap();
        });
        let want = "input `x`: extent -T+5 is -4 at T = 9; extents must be at least 0";
        assert_eq!(refused(&c, &[("z", &[9]), ("x", &[0])]), want);
        let mut s = c.session().unwrap();
        assert!(s.run(&[("z", &counting(&[9])), ("x", &counting(&[0]))]).is_err());
        // The same session goes on with sizes that fit: an extent of 0 is one.
        let (z, x) = (counting(&[5]), counting(&[0]));
        let got = s.run(&[("z", &z), ("x", &x)]).unwrap();
        assert_eq!(got.get("z").unwrap().bytes(), z.bytes());
        assert_eq!(got.get("x").unwrap().shape(), [0]);
    }
}

#[test]
fn a_negative_extent_of_an_output_is_refused_too() {
    let c = compiled(|b| {
        let t = b.symbol("T", 0, 9).unwrap();
        let x = b.input("x", DType::F32, [t.clone(), 1.into()]).unwrap();
        let one = b.input("one", DType::F32, [1]).unwrap();
        let wide = b.broadcast(one, [Dim::from(5) - t]).unwrap();
        b.output("x", x).unwrap();
        b.output("wide", wide).unwrap();
    });
    let message = refused(&c, &[("x", &[9, 1]), ("one", &[1])]);
    assert!(message.contains("extents are not negative") && message.contains("-4"), "{message}");
}

#[test]
fn a_state_with_a_negative_extent_is_refused_when_it_is_made() {
    let c = compiled(|b| {
        let t = b.symbol("T", 0, 9).unwrap();
        let s = b.state("s", DType::F32, [Dim::from(5) - t]).unwrap();
        b.output("y", s).unwrap();
    });
    let message = c.session_with(&[("T", 9)]).map(|_| ()).unwrap_err().to_string();
    assert_eq!(message, "state `s`: extent -T+5 is -4 at T = 9; extents must be at least 0");
    assert!(c.session_with(&[("T", 5)]).is_ok());
}

#[test]
fn a_port_whose_extent_falls_as_a_symbol_grows_holds_every_size() {
    let c = compiled(|b| {
        let t = b.symbol("T", 0, 5).unwrap();
        let x = b.input("x", DType::F32, [5]).unwrap();
        let z = b.input("z", DType::F32, [t.clone()]).unwrap();
        let rest = b.input("rest", DType::F32, [Dim::from(5) - t.clone()]).unwrap();
        let tail = b.slice(x, [t.clone()], [Dim::from(5) - t]).unwrap();
        let sum = b.add(tail, rest).unwrap();
        b.output("sum", sum).unwrap();
        b.output("z", z).unwrap();
    });
    let run = |s: &mut frit::Session, n: usize| {
        let got = s
            .run(&[("x", &counting(&[5])), ("z", &counting(&[n])), ("rest", &counting(&[5 - n]))])
            .unwrap()
            .get("sum")
            .unwrap();
        // x[n + i] + rest[i]
        let want: Vec<f32> = (0..5 - n).map(|i| (n + 2 * i) as f32).collect();
        assert_eq!((got.shape(), got.as_slice::<f32>().unwrap()), (&[5 - n][..], &want[..]));
    };
    let mut free = c.session().unwrap();
    for n in [5, 0, 3, 1] {
        run(&mut free, n);
        run(&mut c.session_with(&[("T", n as i64)]).unwrap(), n);
    }
}

#[test]
fn inputs_that_contradict_each_other_are_refused() {
    // As many bytes as the last value of N would take: only the extents tell.
    let c = compiled(|b| {
        let (n, m) = (b.symbol("N", 1, 9).unwrap(), b.symbol("M", 1, 9).unwrap());
        let x = b.input("x", DType::F32, [n.clone(), m.clone()]).unwrap();
        let z = b.input("z", DType::F32, [m, n]).unwrap();
        b.output("x", x).unwrap();
        b.output("z", z).unwrap();
    });
    assert_eq!(
        refused(&c, &[("x", &[2, 6]), ("z", &[3, 4])]),
        "`N` is 2 by extent 0 of input `x`, which takes f32[N, M], but 4 by extent 1 of input `z`, which takes f32[M, N]"
    );
    assert!(c.session().unwrap().run(&[("x", &counting(&[2, 6])), ("z", &counting(&[6, 2]))]).is_ok());

    let c = compiled(|b| {
        let n = b.symbol("N", 0, 9).unwrap();
        let x = b.input("x", DType::F32, [n.clone(), n]).unwrap();
        b.output("x", x).unwrap();
    });
    assert_eq!(
        refused(&c, &[("x", &[5, 0])]),
        "`N` is 5 by extent 0 of input `x`, which takes f32[N, N], but 0 by extent 1 of input `x`, which takes f32[N, N]"
    );
    assert!(c.session().unwrap().run(&[("x", &counting(&[5, 5]))]).is_ok());

    let c = compiled(|b| {
        let n = b.symbol("N", 0, 9).unwrap();
        let z = b.input("z", DType::F32, [n.clone()]).unwrap();
        let x = b.input("x", DType::F32, [n.clone() * 2.into(), n * 3.into()]).unwrap();
        b.output("x", x).unwrap();
        b.output("z", z).unwrap();
    });
    let message = refused(&c, &[("z", &[2]), ("x", &[6, 4])]);
    assert_eq!(message, "input `x` takes f32[2*N, 3*N], [4, 6] at these sizes, got [6, 4]");
    assert!(c.session().unwrap().run(&[("z", &counting(&[2])), ("x", &counting(&[4, 6]))]).is_ok());
}
