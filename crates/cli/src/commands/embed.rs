//! `frit embed`: vectors of texts, or how alike the texts are.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};

use frit::{EmbedOptions, Embedder, Error, Pooling};
use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::args::{EmbedArgs, PoolingArg};
use crate::failure::Failure;
use crate::interrupt;
use crate::models;
use crate::output;

/// Texts that are read before they are embedded: they run in batches of like length, and results go out in the order given.
const WINDOW: usize = 1024;

/// The JSON document.
#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    model: &'a str,
    pooling: &'a str,
    normalized: bool,
    dimensions: usize,
    texts: Vec<Embedded<'a>>,
    /// Cosine similarities, a row for each text.
    #[serde(skip_serializing_if = "Option::is_none")]
    similarities: Option<Vec<Vec<f64>>>,
}

#[derive(Serialize)]
struct Embedded<'a> {
    text: &'a str,
    tokens: usize,
    embedding: &'a [f32],
}

/// A line of `--json-lines`: the object that came in, or one of the text alone, with its embedding at the end.
struct Line<'a> {
    text: &'a Text,
    embedding: &'a [f32],
}

impl Serialize for Line<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        if self.text.fields.0.is_empty() {
            map.serialize_entry(TEXT, &self.text.text)?;
        }
        for (key, value) in &self.text.fields.0 {
            map.serialize_entry(key, value)?;
        }
        map.serialize_entry(EMBEDDING, self.embedding)?;
        map.end()
    }
}

const TEXT: &str = "text";
const EMBEDDING: &str = "embedding";

/// The fields of a JSON object in their order, values as they were written: numbers keep their digits.
#[derive(Default)]
struct Fields(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Fields, D::Error> {
        from.deserialize_map(FieldsOf)
    }
}

struct FieldsOf;

impl<'de> Visitor<'de> for FieldsOf {
    type Value = Fields;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
        let mut all = Vec::new();
        while let Some(field) = map.next_entry()? {
            all.push(field);
        }
        Ok(Fields(all))
    }
}

/// A text to embed.
struct Text {
    text: String,
    /// Where it came from, for errors.
    from: String,
    /// The fields of its JSON object, the text among them; none if it did not come in one.
    fields: Fields,
}

/// A text that is embedded.
struct Done {
    text: Text,
    tokens: usize,
    embedding: Vec<f32>,
}

/// Runs the command.
pub fn run(a: &EmbedArgs) -> Result<(), Failure> {
    let model = models::load_for_text(&a.model)?;
    let mut options = EmbedOptions::default().truncate(a.truncate);
    options.pooling = a.pooling.map(|p| match p {
        PoolingArg::Mean => Pooling::Mean,
        PoolingArg::Cls => Pooling::Cls,
        PoolingArg::Max => Pooling::Max,
        PoolingArg::Last => Pooling::Last,
    });
    options.normalize = if a.normalize { Some(true) } else { a.no_normalize.then_some(false) };
    let mut embedder = model.embedder(options)?;
    let cancel = embedder.cancel();
    interrupt::on_interrupt(move || cancel.cancel())?;
    if a.matrix || a.json { whole(a, &mut embedder) } else { streamed(a, &mut embedder) }
}

/// All texts at once: a JSON document or a table.
fn whole(a: &EmbedArgs, embedder: &mut Embedder) -> Result<(), Failure> {
    let mut all = Vec::new();
    each_window(a, |window| {
        all.extend(embed(embedder, window)?);
        Ok(())
    })?;
    let similarities = a.matrix.then(|| similarities(&all));
    if let (false, Some(table)) = (a.json, &similarities) {
        let mut out = io::stdout().lock();
        let head: Vec<String> = (1..=all.len()).map(|i| format!("{i:7}")).collect();
        writeln!(out, "{:5}{}", "", head.join(" "))?;
        for (i, (row, d)) in table.iter().zip(&all).enumerate() {
            let cells: Vec<String> = row.iter().map(|c| format!("{c:7.4}")).collect();
            writeln!(out, "{:<5}{}  {}", i + 1, cells.join(" "), d.text.text)?;
        }
        return Ok(out.flush()?);
    }
    let one = |d| {
        let Done { text, tokens, embedding }: &Done = d;
        Embedded { text: &text.text, tokens: *tokens, embedding }
    };
    Ok(output::json(&Document {
        schema: output::SCHEMA,
        model: &a.model.model,
        pooling: embedder.pooling().name(),
        normalized: embedder.normalizes(),
        dimensions: embedder.dimensions(),
        texts: all.iter().map(one).collect(),
        similarities,
    })?)
}

/// A line for each text, written as soon as its window is done: numbers, or a JSON object.
fn streamed(a: &EmbedArgs, embedder: &mut Embedder) -> Result<(), Failure> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    each_window(a, |window| {
        for Done { text, embedding, .. } in embed(embedder, window)? {
            if a.json_lines {
                let line = Line { text: &text, embedding: &embedding };
                serde_json::to_writer(&mut out, &line).map_err(io::Error::from)?;
            } else {
                let numbers: Vec<String> = embedding.iter().map(f32::to_string).collect();
                out.write_all(numbers.join(" ").as_bytes())?;
            }
            out.write_all(b"\n")?;
        }
        Ok(out.flush()?)
    })
}

/// Embeds a window; an error about a text says where that text came from.
fn embed(embedder: &mut Embedder, window: Vec<Text>) -> Result<Vec<Done>, Failure> {
    let mut ids = Vec::with_capacity(window.len());
    for t in &window {
        ids.push(embedder.encode(&t.text).map_err(|e| match e {
            Error::TextTooLong { tokens, max, .. } => {
                let from = &t.from;
                format!(
                    "{from}: {tokens} tokens, and the model takes {max} at most; --truncate cuts the text"
                )
            }
            e => format!("{}: {e}", t.from),
        })?);
    }
    let vectors = embedder.embed_tokens(&ids)?;
    let all = window.into_iter().zip(ids).zip(vectors);
    Ok(all.map(|((text, ids), embedding)| Done { text, tokens: ids.len(), embedding }).collect())
}

/// The cosine similarity of each with each; 0 with a vector of length 0.
fn similarities(all: &[Done]) -> Vec<Vec<f64>> {
    let dot = |a: &Done, b: &Done| -> f64 {
        a.embedding.iter().zip(&b.embedding).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum()
    };
    let lengths: Vec<f64> = all.iter().map(|d| dot(d, d).sqrt()).collect();
    let cell =
        |(a, m): (&Done, f64), (b, n): (&Done, f64)| if m * n > 0.0 { dot(a, b) / (m * n) } else { 0.0 };
    let with = || all.iter().zip(lengths.iter().copied());
    with().map(|a| with().map(|b| cell(a, b)).collect()).collect()
}

/// Calls `f` with all texts that the arguments give, in order, some at a time.
fn each_window(a: &EmbedArgs, mut f: impl FnMut(Vec<Text>) -> Result<(), Failure>) -> Result<(), Failure> {
    let mut window = Vec::new();
    let mut any = false;
    let mut take = |t: Text| {
        any = true;
        window.push(t);
        if window.len() < WINDOW { Ok(()) } else { f(std::mem::take(&mut window)) }
    };
    for (i, t) in a.texts.iter().enumerate() {
        if t == "-" {
            lines(io::stdin().lock(), "standard input", a.json_lines, &mut take)?;
        } else {
            take(Text { text: t.clone(), from: format!("text {}", i + 1), fields: Fields::default() })?;
        }
    }
    for file in &a.file {
        let opened = File::open(file).map_err(|e| Failure::Error(format!("{}: {e}", file.display())))?;
        lines(BufReader::new(opened), &file.display().to_string(), a.json_lines, &mut take)?;
    }
    match (any, window.is_empty()) {
        (false, _) => Err(Failure::Error("no texts were given".into())),
        (_, true) => Ok(()),
        _ => f(window),
    }
}

/// Gives each line of `from` to `take`: a text, or with `json` a JSON string or an object with a `text`.
fn lines(
    mut from: impl BufRead,
    name: &str,
    json: bool,
    take: &mut impl FnMut(Text) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut line = String::new();
    for number in 1.. {
        line.clear();
        let place = || format!("{name}, line {number}");
        match from.read_line(&mut line) {
            Ok(0) => break,
            Ok(_) => {}
            Err(e) => return Err(Failure::Error(format!("{}: {e}", place()))),
        }
        let bare = line.strip_suffix('\n').unwrap_or(&line);
        let bare = bare.strip_suffix('\r').unwrap_or(bare);
        let (text, fields) = match json {
            true => json_line(bare).map_err(|e| format!("{}: {e}", place()))?,
            false => (bare.to_owned(), Fields::default()),
        };
        take(Text { text, from: place(), fields })?;
    }
    Ok(())
}

/// The text of a line of JSON, and the fields of the object that it stands in.
fn json_line(line: &str) -> Result<(String, Fields), String> {
    let bad = |e: serde_json::Error| format!("not JSON: {e}");
    let whole: &RawValue = serde_json::from_str(line).map_err(bad)?;
    match whole.get().as_bytes().first() {
        Some(b'"') => Ok((serde_json::from_str(line).map_err(bad)?, Fields::default())),
        Some(b'{') => {
            let fields: Fields = serde_json::from_str(line).map_err(bad)?;
            if fields.0.iter().any(|(key, _)| key == EMBEDDING) {
                return Err("the object has an `embedding` already; rename it or leave it out".into());
            }
            let mut texts = fields.0.iter().filter(|(key, _)| key == TEXT);
            let text = match (texts.next(), texts.next()) {
                (Some((_, value)), None) if value.get().starts_with('"') => {
                    serde_json::from_str(value.get()).map_err(|e| format!("`text`: {e}"))?
                }
                (Some(_), Some(_)) => return Err("the object has two fields `text`".into()),
                _ => return Err("the object has no string `text`".into()),
            };
            Ok((text, fields))
        }
        _ => Err("neither a string nor an object with a `text`".into()),
    }
}
