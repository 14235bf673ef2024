//! `frit inspect --html`: the document with the script that draws it, in one file that loads nothing.

use super::document::Document;

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The page of `d`.
pub fn render(d: &Document) -> String {
    // A document of strings, numbers, lists and maps of them: it always has a JSON form.
    let data = serde_json::to_string(d).unwrap_or_default().replace('<', "\\u003c");
    let parts = [
        ("{title}", escape(d.model())),
        ("{style}", STYLE.into()),
        ("{data}", data),
        ("{script}", SCRIPT.into()),
    ];
    let (mut page, mut rest) = (String::with_capacity(PAGE.len() + parts[2].1.len() + SCRIPT.len()), PAGE);
    for (mark, text) in parts {
        // One mark after the other, so that a mark within a text is only text.
        if let Some((before, after)) = rest.split_once(mark) {
            page += before;
            page += &text;
            rest = after;
        }
    }
    page + rest
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
