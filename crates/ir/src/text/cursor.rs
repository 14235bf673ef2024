//! A position in one line of text.

use super::{ParseError, is_name_char};

/// Deepest nesting of dimension expressions and attribute lists.
pub(super) const MAX_DEPTH: usize = 64;

/// Every NaN prints as `NaN`, so every NaN is read as the same.
pub(super) fn one_nan(v: f64) -> f64 {
    if v.is_nan() { f64::NAN } else { v }
}

pub(super) struct Cursor<'a> {
    text: &'a str,
    at: usize,
    line: usize,
    depth: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(text: &'a str, line: usize) -> Cursor<'a> {
        Cursor { text, at: 0, line, depth: 0 }
    }

    /// An error at the current position.
    pub(super) fn error(&self, message: impl Into<String>) -> ParseError {
        self.error_at(self.at, message)
    }

    pub(super) fn error_at(&self, at: usize, message: impl Into<String>) -> ParseError {
        let column = self.text[..at].chars().count() + 1;
        ParseError { line: self.line, column, message: message.into() }
    }

    /// The position after white space, for [`Cursor::error_at`].
    pub(super) fn position(&mut self) -> usize {
        self.skip_space();
        self.at
    }

    fn skip_space(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
    }

    pub(super) fn rest(&mut self) -> &'a str {
        self.skip_space();
        &self.text[self.at..]
    }

    pub(super) fn peek(&mut self) -> Option<char> {
        self.rest().chars().next()
    }

    /// Takes `what` if it stands here.
    pub(super) fn eat(&mut self, what: &str) -> bool {
        let hit = self.rest().starts_with(what);
        if hit {
            self.at += what.len();
        }
        hit
    }

    pub(super) fn expect(&mut self, what: &str) -> Result<(), ParseError> {
        if self.eat(what) {
            return Ok(());
        }
        let found = self.rest().chars().take(12).collect::<String>();
        let found = if found.is_empty() { "the end of the line".into() } else { format!("`{found}`") };
        Err(self.error(format!("expected `{what}`, found {found}")))
    }

    pub(super) fn end(&mut self) -> Result<(), ParseError> {
        match self.peek() {
            None => Ok(()),
            Some(c) => Err(self.error(format!("expected the end of the line, found `{c}`"))),
        }
    }

    /// The longest run of characters for which `f` holds; may be empty.
    pub(super) fn take_while(&mut self, f: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let n = rest.find(|c| !f(c)).unwrap_or(rest.len());
        self.at += n;
        &rest[..n]
    }

    /// A word of letters, digits and `_`.
    pub(super) fn word(&mut self) -> Result<&'a str, ParseError> {
        let w = self.take_while(|c| c.is_ascii_alphanumeric() || c == '_');
        if w.is_empty() { Err(self.error("expected a word")) } else { Ok(w) }
    }

    /// A bare or quoted name.
    pub(super) fn name(&mut self) -> Result<String, ParseError> {
        if self.peek() == Some('"') {
            return self.quoted();
        }
        let w = self.take_while(is_name_char);
        if w.is_empty() { Err(self.error("expected a name")) } else { Ok(w.into()) }
    }

    /// A string in double quotes with the escapes of Rust.
    pub(super) fn quoted(&mut self) -> Result<String, ParseError> {
        self.expect("\"")?;
        let mut out = String::new();
        loop {
            match self.next_char()? {
                '"' => return Ok(out),
                '\\' => out.push(self.escape()?),
                c => out.push(c),
            }
        }
    }

    fn next_char(&mut self) -> Result<char, ParseError> {
        match self.text[self.at..].chars().next() {
            Some(c) => {
                self.at += c.len_utf8();
                Ok(c)
            }
            None => Err(self.error("the string does not end; expected `\"`")),
        }
    }

    fn escape(&mut self) -> Result<char, ParseError> {
        Ok(match self.next_char()? {
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            '0' => '\0',
            c @ ('"' | '\\' | '\'') => c,
            'u' => {
                self.expect("{")?;
                let hex = self.take_while(|c| c.is_ascii_hexdigit());
                let code = u32::from_str_radix(hex, 16).ok().and_then(char::from_u32);
                let c = code.ok_or_else(|| self.error("`\\u{…}` must hold a Unicode scalar value in hex"))?;
                self.expect("}")?;
                c
            }
            c => return Err(self.error(format!("unknown escape `\\{c}`"))),
        })
    }

    /// A signed number without white space inside, as text.
    pub(super) fn number(&mut self) -> Result<&'a str, ParseError> {
        let start = self.position();
        let rest = &self.text[start..];
        let mut end = 0;
        let mut previous = ' ';
        for c in rest.chars() {
            let sign = matches!(c, '-' | '+') && (end == 0 || matches!(previous, 'e' | 'E'));
            if !(sign || c.is_ascii_alphanumeric() || c == '.') {
                break;
            }
            end += c.len_utf8();
            previous = c;
        }
        if end == 0 {
            return Err(self.error("expected a number"));
        }
        self.at = start + end;
        Ok(&rest[..end])
    }

    pub(super) fn integer(&mut self) -> Result<i64, ParseError> {
        let at = self.position();
        let neg = self.eat("-");
        let digits = self.take_while(|c| c.is_ascii_digit());
        let v: Option<i128> = digits.parse().ok().map(|v: i128| if neg { -v } else { v });
        v.and_then(|v| i64::try_from(v).ok())
            .ok_or_else(|| self.error_at(at, "expected an integer of at most 64 bits"))
    }

    pub(super) fn float(&mut self) -> Result<f64, ParseError> {
        let at = self.position();
        let text = self.number()?;
        text.parse().map(one_nan).map_err(|_| self.error_at(at, format!("`{text}` is not a number")))
    }

    /// Runs `f` one level deeper.
    pub(super) fn nested<T>(
        &mut self,
        f: impl FnOnce(&mut Self) -> Result<T, ParseError>,
    ) -> Result<T, ParseError> {
        if self.depth == MAX_DEPTH {
            return Err(self.error(format!("nested more than {MAX_DEPTH} deep")));
        }
        self.depth += 1;
        let r = f(self);
        self.depth -= 1;
        r
    }

    /// Items up to `close`, divided by commas; the opening bracket is already taken.
    pub(super) fn list<T>(
        &mut self,
        close: &str,
        mut item: impl FnMut(&mut Self) -> Result<T, ParseError>,
    ) -> Result<Vec<T>, ParseError> {
        let mut out = Vec::new();
        if self.eat(close) {
            return Ok(out);
        }
        loop {
            out.push(item(self)?);
            if self.eat(close) {
                return Ok(out);
            }
            if !self.eat(",") {
                return Err(self.error(format!("expected `,` or `{close}`")));
            }
        }
    }
}
