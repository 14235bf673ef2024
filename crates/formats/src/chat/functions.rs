//! What chat templates use besides Jinja's own: Python's string methods, `raise_exception`, `strftime_now`, `tojson` as Python
//! writes it, and the `generation` block of training templates.

use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind};
use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

/// What a template said when it refused the messages.
#[derive(Debug)]
pub(super) struct Refusal(pub String);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refusal {}

pub(super) fn add(environment: &mut Environment<'_>) {
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, "raise_exception").with_source(Refusal(message)))
    });
    environment.add_function("strftime_now", |format: &str| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        strftime(format, now)
    });
    environment.add_filter("tojson", to_json);
}

/// The template with `{% generation %}` blocks as blocks that are always taken: they only mark the text that a model is
/// trained on.
pub(super) fn plain_blocks(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some((before, tag)) = rest.split_once("{%") {
        out.push_str(before);
        out.push_str("{%");
        rest = tag;
        let (inside, after) = tag.split_once("%}").unwrap_or((tag, ""));
        let name = inside.trim_matches(['-', '+']).trim();
        let plain = match name {
            "generation" => "if true",
            "endgeneration" => "endif",
            _ => continue,
        };
        out.push_str(&inside.replace(name, plain));
        out.push_str("%}");
        rest = after;
    }
    out.push_str(rest);
    out
}

/// `tojson(indent=none)`: JSON with the separators of Python's `json.dumps` and without escapes beyond ASCII.
fn to_json(value: &Value, options: Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = options.get("indent")?;
    // Every value is written as UTF-8.
    let _: Option<bool> = options.get("ensure_ascii")?;
    options.assert_all_used()?;
    let mut out = String::new();
    write_json(value, indent, 0, &mut out)?;
    Ok(Value::from_safe_string(out))
}

fn write_json(value: &Value, indent: Option<usize>, depth: usize, out: &mut String) -> Result<(), Error> {
    let (open, close) = match value.kind() {
        ValueKind::Map => ('{', '}'),
        ValueKind::Seq | ValueKind::Iterable => ('[', ']'),
        ValueKind::String => {
            out.push_str(&serde_json::Value::from(value.to_string()).to_string());
            return Ok(());
        }
        // Python's True is JSON's true.
        ValueKind::Number | ValueKind::Bool => {
            out.push_str(&value.to_string().to_ascii_lowercase());
            return Ok(());
        }
        ValueKind::None => {
            out.push_str("null");
            return Ok(());
        }
        kind => {
            let message = format!("tojson: {kind} is not JSON");
            return Err(Error::new(ErrorKind::InvalidOperation, message));
        }
    };
    if depth > 100 {
        return Err(Error::new(ErrorKind::InvalidOperation, "nested deeper than 100"));
    }
    out.push(open);
    let mut empty = true;
    for item in value.try_iter()? {
        if !empty {
            out.push(',');
        }
        match indent {
            Some(n) => {
                out.push('\n');
                out.extend(std::iter::repeat_n(' ', n.min(16) * (depth + 1)));
            }
            None if !empty => out.push(' '),
            None => (),
        }
        empty = false;
        if open == '{' {
            out.push_str(&serde_json::Value::from(item.to_string()).to_string());
            out.push_str(": ");
            write_json(&value.get_item(&item)?, indent, depth + 1, out)?;
        } else {
            write_json(&item, indent, depth + 1, out)?;
        }
    }
    if let (Some(n), false) = (indent, empty) {
        out.push('\n');
        out.extend(std::iter::repeat_n(' ', n.min(16) * depth));
    }
    out.push(close);
    Ok(())
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
/// From the day of 1 January 1970 on.
const DAYS: [&str; 7] = ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];

/// C's `strftime` in the C locale, of a time in seconds since 1970 (UTC).
fn strftime(format: &str, seconds: u64) -> Result<String, Error> {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day, of_year) = date(days);
    let (month_name, day_name) = (MONTHS[month], DAYS[(days % 7) as usize]);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    let half = (hour + 11) % 12 + 1;
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let directive = chars.next();
        // `%-d` is `%d` without a leading zero.
        let (padded, directive) = match directive {
            Some('-') => (false, chars.next()),
            d => (true, d),
        };
        let number = |n: u64| if padded { format!("{n:02}") } else { n.to_string() };
        out.push_str(&match directive {
            Some('Y') => year.to_string(),
            Some('y') => number(year % 100),
            Some('m') => number(month as u64 + 1),
            Some('d') => number(day),
            Some('e') => format!("{day:2}"),
            Some('j') if padded => format!("{:03}", of_year + 1),
            Some('j') => (of_year + 1).to_string(),
            Some('B') => month_name.to_owned(),
            Some('b' | 'h') => month_name[..3].to_owned(),
            Some('A') => day_name.to_owned(),
            Some('a') => day_name[..3].to_owned(),
            Some('H') => number(hour),
            Some('I') => number(half),
            Some('M') => number(minute),
            Some('S') => number(second % 60),
            Some('p') => if hour < 12 { "AM" } else { "PM" }.to_owned(),
            Some('F') => format!("{year}-{:02}-{day:02}", month + 1),
            Some('T') => format!("{hour:02}:{minute:02}:{:02}", second % 60),
            Some('Z') => "UTC".to_owned(),
            Some('z') => "+0000".to_owned(),
            Some('%') => "%".to_owned(),
            other => {
                let shown = other.map(String::from).unwrap_or_default();
                let message = format!("strftime_now: '%{shown}' in '{format}' is not supported");
                return Err(Error::new(ErrorKind::InvalidOperation, message));
            }
        });
    }
    Ok(out)
}

/// Year, month from 0, day of the month from 1, day of the year from 0, of a day since 1970.
fn date(mut days: u64) -> (u64, usize, u64, u64) {
    // 400 years repeat.
    let mut year = 1970 + days / 146_097 * 400;
    days %= 146_097;
    let leap = |y: u64| y.is_multiple_of(4) && (!y.is_multiple_of(100) || y.is_multiple_of(400));
    let length = |y: u64| if leap(y) { 366 } else { 365 };
    while days >= length(year) {
        days -= length(year);
        year += 1;
    }
    let of_year = days;
    let february = if leap(year) { 29 } else { 28 };
    let mut month = 0;
    for n in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < n {
            break;
        }
        days -= n;
        month += 1;
    }
    (year, month, days + 1, of_year)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let show =
            |seconds| strftime("%A %a, %d %B %b %Y %y %m %e %j %H %I %M %S %p %-d %F %T", seconds).unwrap();
        assert_eq!(
            show(0),
            "Thursday Thu, 01 January Jan 1970 70 01  1 001 00 12 00 00 AM 1 1970-01-01 00:00:00"
        );
        assert_eq!(
            show(1_709_210_096),
            "Thursday Thu, 29 February Feb 2024 24 02 29 060 12 12 34 56 PM 29 2024-02-29 12:34:56"
        );
        assert_eq!(strftime("%F", 4_102_444_800).unwrap(), "2100-01-01");
        assert_eq!(strftime("%F", 4_107_542_400).unwrap(), "2100-03-01", "2100 has no leap day");
        assert_eq!(strftime("%d%%", 951_782_400).unwrap(), "29%", "2000 has one");
        let e = strftime("%d %Q", 0).unwrap_err().to_string();
        assert!(e.contains("'%Q' in '%d %Q' is not supported"), "{e}");
        assert!(strftime("%", 0).is_err());
    }

    #[test]
    fn generation_blocks_are_taken() {
        let source = "a{% generation %}b{%- endgeneration -%}c{% if generation %}{% raw";
        assert_eq!(plain_blocks(source), "a{% if true %}b{%- endif -%}c{% if generation %}{% raw");
    }

    #[test]
    fn json_is_pythons() {
        let mut environment = Environment::new();
        add(&mut environment);
        let show = |expression: &str| environment.render_str(&format!("{{{{ {expression} }}}}"), ()).unwrap();
        assert_eq!(
            show("{'a': [1, 2.5, none, true], 'b': 'é<\"'}|tojson"),
            "{\"a\": [1, 2.5, null, true], \"b\": \"é<\\\"\"}"
        );
        assert_eq!(show("[]|tojson"), "[]");
        assert_eq!(show("{'a': [1]}|tojson(indent=2)"), "{\n  \"a\": [\n    1\n  ]\n}");
        assert_eq!(show("'a b'.split()[1].upper()"), "B");
    }
}
