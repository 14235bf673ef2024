//! Gemma 3 270M against a full-precision reference with the weights exactly as stored, and its windowed layers against whole ones.

use std::sync::OnceLock;

use frit::{Activations, DType, EncodeOptions, Generator, LoadOptions, Model, Options};
use frit_tests::golden;
use frit_tests::reference::{self, Measured, Prompt, measure, nll};

fn prompts() -> &'static [Prompt] {
    static ALL: OnceLock<Vec<Prompt>> = OnceLock::new();
    ALL.get_or_init(|| reference::prompts("gemma3"))
}

fn exact() -> LoadOptions {
    LoadOptions::default().activations(Activations::F32).kv_dtype(DType::F32)
}

fn load(options: LoadOptions) -> Model {
    Model::load_with(golden::gemma3(), &options.rows(32)).unwrap()
}

fn generator(model: &Model) -> Generator {
    model.generator(Options::default()).unwrap()
}

#[test]
fn token_ids_are_the_reference_s() {
    let model = Model::load(golden::gemma3()).unwrap();
    for p in prompts() {
        let options = EncodeOptions { add_special: true, ..Default::default() };
        assert_eq!(model.tokenizer().unwrap().encode(&p.text, options).unwrap(), p.ids, "{}", p.text);
    }
}

/// The default: 16-bit activations.
#[test]
fn quantized_activations_stay_within_the_allowed_error() {
    let mut g = generator(&load(LoadOptions::default().context(512)));
    for p in prompts() {
        let Measured { rms, nll, top } = measure(&mut g, p);
        println!("q16: rms {rms:.4}, nll {nll:.5} (reference {:.5}): {:?}", p.nll, p.text);
        assert!(rms <= 0.01, "{}: rms {rms}", p.text);
        assert!((nll - p.nll).abs() <= 0.002, "{}: nll {nll}, reference {}", p.text, p.nll);
        if p.top.1 > 0.02 {
            assert_eq!(top, p.top.0, "{}", p.text);
        }
    }
}

#[test]
fn exact_activations_are_nearly_the_reference() {
    let mut g = generator(&load(exact().context(512)));
    for p in prompts() {
        let Measured { rms, nll, top } = measure(&mut g, p);
        println!("f32: rms {rms:.6}, nll {nll:.5} (reference {:.5}): {:?}", p.nll, p.text);
        assert!(rms < 0.01, "{}: rms {rms}", p.text);
        assert!((nll - p.nll).abs() <= 0.001, "{}: nll {nll}, reference {}", p.text, p.nll);
        assert_eq!(top, p.top.0, "{}", p.text);
    }
}

#[test]
fn text_is_generated_and_streamed() {
    let model = load(exact().context(512));
    let mut g = model.generator(Options::default().max_tokens(20).ignore_end(true)).unwrap();
    let p = &prompts()[0];
    let text: String = g.complete(&p.text).unwrap().map(|piece| piece.unwrap().text).collect();
    assert_eq!(text, p.greedy_text);
}

/// The first `n` ids of a text of this repository.
fn long(model: &Model, n: usize) -> Vec<u32> {
    let text = std::fs::read_to_string(golden::root().join("LICENSE-APACHE")).unwrap();
    let ids = model.tokenizer().unwrap().encode(&text, EncodeOptions::default()).unwrap();
    assert!(ids.len() >= n, "{} tokens", ids.len());
    ids[..n].to_vec()
}

/// The window of the file.
const WINDOW: usize = 512;

/// The same model with another window.
fn with_window(window: u32, options: LoadOptions) -> Model {
    let mut bytes = std::fs::read(golden::gemma3()).unwrap();
    // A key is followed by the type of its value (4: u32) and the value.
    let key = b"gemma3.attention.sliding_window\x04\0\0\0";
    let at = bytes.windows(key.len()).position(|w| w == key).unwrap() + key.len();
    assert_eq!(bytes[at..at + 4], (WINDOW as u32).to_le_bytes());
    bytes[at..at + 4].copy_from_slice(&window.to_le_bytes());
    Model::from_bytes(bytes, &options.rows(32)).unwrap()
}

/// Extents of the keys of the first layer, which has a window: the positions that it holds.
fn slots(model: &Model) -> String {
    let g = model.graph();
    g.ty(g.find("model.layers.0.self_attn.keys").unwrap()).shape[2].to_string()
}

#[test]
fn a_ring_is_the_window_masked() {
    // Keys of every position, which the window masks: chunks that are not shorter than the context need no ring.
    const LONG: usize = 1100;
    let options = || exact().context(LONG).chunk(LONG);
    let whole = load(options());
    assert_eq!(slots(&whole), "C");
    let mut masked = generator(&whole);
    let ids = long(&whole, LONG);
    let want = nll(&mut masked, &ids[..700]);
    let mut last = |n: usize| {
        masked.clear();
        masked.feed(&ids[..n]).unwrap().to_vec()
    };
    let ends = [700, LONG].map(|n| (n, last(n)));
    for chunk in [512, 64] {
        let ring = load(exact().context(2048).chunk(chunk));
        assert_eq!(slots(&ring), (WINDOW + chunk).to_string());
        let mut g = generator(&ring);
        let got = nll(&mut g, &ids[..700]);
        println!("chunks of {chunk}: nll {got:.7}, masked {want:.7}");
        assert!((got - want).abs() < 1e-5, "chunks of {chunk}: {got}, masked {want}");
        // In steps as long as may be: 700 tokens overwrite the ring of the short ones, more of them that of the long ones.
        for (n, want) in &ends {
            g.clear();
            let worst = distance(g.feed(&ids[..*n]).unwrap(), want);
            println!("chunks of {chunk}, {n} tokens: logits differ by {worst:e}");
            assert!(worst < 1e-3, "chunks of {chunk}, {n} tokens: {worst}");
        }
    }
    // Without a window it is another result.
    let open = distance(generator(&with_window(4096, options())).feed(&ids[..700]).unwrap(), &ends[0].1);
    assert!(open > 0.1, "{open}");
}

/// The largest difference.
fn distance(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    // A NaN must not be lost in the maximum.
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, |m, d| if d.is_nan() { d } else { f32::max(m, d) })
}
