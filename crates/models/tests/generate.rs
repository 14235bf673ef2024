//! The generation loop over a model that counts: token t is followed by t + 1.

use frit_models::generate::{
    Cancel, GenerateError, GenerateOptions, Generation, Piece, StartError, Step, StopReason,
};
use frit_models::sampling::{SamplingError, SamplingOptions};

const VOCAB: usize = 40;

/// Records the steps it is asked for.
#[derive(Default)]
struct Counter {
    steps: Vec<(Vec<u32>, usize, bool)>,
    logits: Vec<f32>,
    cancel_at: Option<(usize, Cancel)>,
}

fn step<'x>(c: &'x mut Counter, s: Step<'_>) -> Result<&'x [f32], String> {
    c.steps.push((s.tokens.to_vec(), s.start, s.logits));
    if let Some((n, cancel)) = &c.cancel_at
        && c.steps.len() == *n
    {
        cancel.cancel();
    }
    c.logits = vec![0.0; VOCAB];
    c.logits[(s.tokens[s.tokens.len() - 1] as usize + 1) % VOCAB] = 5.0;
    Ok(&c.logits)
}

/// Token 1 is `a`, 2 is `b`, …
fn letter(token: Option<u32>) -> Result<String, String> {
    Ok(token.map_or(String::new(), |t| char::from(b'a' + (t - 1) as u8).to_string()))
}

fn drive(g: &mut Generation, c: &mut Counter) -> (Vec<Piece>, String) {
    let mut pieces = Vec::new();
    while let Some(p) = g.advance(c, step, letter).unwrap() {
        pieces.push(p);
    }
    let text = pieces.iter().map(|p| p.text.as_str()).collect();
    (pieces, text)
}

fn start(prompt: &[u32], used: usize, o: GenerateOptions) -> Generation {
    Generation::new(prompt, used, o, Cancel::new()).unwrap()
}

#[test]
fn a_prompt_goes_in_chunks_and_tokens_one_by_one() {
    let mut c = Counter::default();
    let mut g = start(&[1, 2, 3, 4, 5, 6, 7], 10, GenerateOptions::new(64, 3).max_tokens(3));
    let (pieces, text) = drive(&mut g, &mut c);
    assert_eq!(text, "hij");
    assert_eq!(pieces.iter().map(|p| p.token).collect::<Vec<_>>(), [Some(8), Some(9), Some(10)]);
    let want = [
        (vec![1, 2, 3], 10, false),
        (vec![4, 5, 6], 13, false),
        (vec![7], 16, true),
        (vec![8], 17, true),
        (vec![9], 18, true),
    ];
    assert_eq!(c.steps, want);
    assert_eq!(g.stop_reason(), Some(&StopReason::MaxTokens));
    assert_eq!(g.generated(), [8, 9, 10]);
    assert_eq!(g.cached(), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
    assert_eq!((g.stats().prompt_tokens, g.stats().generated_tokens), (7, 3));
    assert!(g.advance(&mut c, step, letter).unwrap().is_none());
    assert_eq!(c.steps.len(), 5);
}

#[test]
fn no_tokens_means_only_the_prompt() {
    let mut c = Counter::default();
    let mut g = start(&[1, 2], 0, GenerateOptions::new(2, 8).max_tokens(0));
    assert!(drive(&mut g, &mut c).0.is_empty());
    assert_eq!(c.steps, [(vec![1, 2], 0, false)]);
    assert_eq!(g.stop_reason(), Some(&StopReason::MaxTokens));
    assert_eq!(g.cached(), [1, 2]);
}

#[test]
fn an_end_token_is_not_text() {
    let mut c = Counter::default();
    let mut g = start(&[1], 0, GenerateOptions::new(64, 8).end_tokens(vec![30, 4]));
    assert_eq!(drive(&mut g, &mut c).1, "bc");
    assert_eq!(g.stop_reason(), Some(&StopReason::EndToken(4)));
    assert_eq!(g.generated(), [2, 3]);
}

#[test]
fn the_last_position_is_used() {
    let mut c = Counter::default();
    let mut g = start(&[1, 2], 3, GenerateOptions::new(7, 8));
    // Positions 3..7 hold 1 2 3 4; the fifth token is chosen but has no position.
    assert_eq!(drive(&mut g, &mut c).1, "cde");
    assert_eq!(g.stop_reason(), Some(&StopReason::ContextFull));
    assert_eq!(g.cached(), [1, 2, 3, 4]);
}

#[test]
fn a_stop_string_ends_across_tokens() {
    let mut c = Counter::default();
    let o = GenerateOptions::new(64, 8).stop(vec!["efg".into(), "ex".into()]);
    let mut g = start(&[1], 0, o);
    let (pieces, text) = drive(&mut g, &mut c);
    assert_eq!(text, "bcd");
    assert_eq!(pieces.iter().map(|p| p.text.as_str()).collect::<Vec<_>>(), ["b", "c", "d", "", "", ""]);
    assert_eq!(g.stop_reason(), Some(&StopReason::StopString("efg".into())));
}

#[test]
fn held_text_comes_out_at_another_end() {
    let mut c = Counter::default();
    let o = GenerateOptions::new(64, 8).stop(vec!["efg".into()]).max_tokens(5);
    let (pieces, text) = drive(&mut start(&[1], 0, o), &mut c);
    assert_eq!(text, "bcdef");
    assert_eq!(pieces.last().map(|p| (p.token, p.text.as_str())), Some((None, "ef")));
}

#[test]
fn the_tokenizer_is_flushed_once_and_its_tail_is_searched() {
    let mut c = Counter::default();
    let o = GenerateOptions::new(64, 8).stop(vec!["d!".into()]).max_tokens(3);
    let mut g = start(&[1], 0, o);
    let mut flushes = 0;
    let mut text = String::new();
    while let Some(p) = g
        .advance(&mut c, step, |t| {
            flushes += usize::from(t.is_none());
            if t.is_none() { Ok("!?".into()) } else { letter(t) }
        })
        .unwrap()
    {
        text += &p.text;
    }
    assert_eq!((text.as_str(), flushes), ("bc", 1));
    assert_eq!(g.stop_reason(), Some(&StopReason::StopString("d!".into())));
}

#[test]
fn cancel_stops_before_the_next_step() {
    for at in 1..4 {
        let cancel = Cancel::new();
        let mut c = Counter { cancel_at: Some((at, cancel.clone())), ..Counter::default() };
        let mut g = Generation::new(&[1, 2, 3, 4], 0, GenerateOptions::new(64, 2), cancel.clone()).unwrap();
        drive(&mut g, &mut c);
        assert_eq!(c.steps.len(), at);
        assert_eq!(g.stop_reason(), Some(&StopReason::Cancelled));
        assert_eq!(g.cached().len(), [2, 4, 5][at - 1]);
        assert!(cancel.is_cancelled());
    }
}

#[test]
fn errors_are_typed_and_a_failed_step_can_be_repeated() {
    let o = || GenerateOptions::new(8, 4);
    let new = |p: &[u32], used, o| Generation::new(p, used, o, Cancel::new()).err();
    assert_eq!(new(&[], 0, o()), Some(StartError::EmptyPrompt));
    let long = StartError::PromptTooLong { prompt: 3, used: 6, context: 8 };
    assert_eq!(new(&[1, 2, 3], 6, o()), Some(long));
    assert!(matches!(new(&[1], usize::MAX, o()), Some(StartError::PromptTooLong { .. })));
    let named =
        |e: Option<StartError>, n| matches!(e, Some(StartError::Option { option, .. }) if option == n);
    assert!(named(new(&[1], 0, GenerateOptions::new(8, 0)), "chunk"));
    assert!(named(new(&[1], 0, o().stop(vec!["a".into(), String::new()])), "stop"));
    let hot = SamplingOptions::default().temperature(-1.0);
    assert!(matches!(new(&[1], 0, o().sampling(hot)), Some(StartError::Sampling(_))));

    let mut c = Counter::default();
    let mut g = start(&[1], 0, o().max_tokens(1));
    let lost = g.advance(&mut c, |_, _| Err("lost".to_string()), letter);
    assert_eq!(lost, Err(GenerateError::Caller("lost".into())));
    let nan = g.advance(&mut c, |_, _| Ok(&[f32::NAN]), letter);
    assert!(matches!(nan, Err(GenerateError::Sampling(SamplingError::Logit { .. }))));
    assert_eq!(drive(&mut g, &mut c).1, "b");
}

#[test]
fn log_probabilities_come_when_asked_for() {
    let mut c = Counter::default();
    let mut g = start(&[1], 0, GenerateOptions::new(8, 4).max_tokens(1).log_probs(2));
    let (pieces, _) = drive(&mut g, &mut c);
    let want = 5.0 - (5f32.exp() + 39.0).ln();
    assert!((pieces[0].log_prob.unwrap() - want).abs() < 1e-5);
    assert_eq!(pieces[0].top.iter().map(|t| t.0).collect::<Vec<_>>(), [2, 0]);
}
