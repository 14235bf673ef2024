//! A conversation: `cargo run --release --example chat -- MODEL [MESSAGE]…`.

use std::io::Write;

use frit::{Message, Model, Options};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("usage: chat MODEL [MESSAGE]…")?;
    let mut questions: Vec<String> = args.collect();
    if questions.is_empty() {
        questions = vec!["What is the capital of France?".into(), "And of Italy?".into()];
    }

    let model = Model::load(&path)?;
    let mut generator = model.generator(Options::default().max_tokens(40))?;
    let mut messages = vec![Message::system("Answer in one short sentence.")];
    for question in questions {
        println!("> {question}");
        messages.push(Message::user(question));
        // Only what the context does not hold yet is run: the last answer's end and the new question.
        let mut reply = generator.chat(&messages)?;
        let mut text = String::new();
        for piece in &mut reply {
            let piece = piece?;
            print!("{}", piece.text);
            std::io::stdout().flush()?;
            text.push_str(&piece.text);
        }
        let end = reply.finish()?;
        println!("\n[{:?}, {} prompt tokens run]", end.reason, end.stats.prompt_tokens);
        messages.push(Message::assistant(text));
    }
    Ok(())
}
