//! Checks a kernel's text in Metal Shading Language without a Mac: clang checks the types against a stub of Metal's
//! library in which each address space is one of clang's, and what clang does not know of Metal is read from the
//! preprocessed text. What passes here may still be refused by Apple's compiler; what fails here would be.

use std::collections::HashMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Most bytes of threadgroup memory, items of a group and buffer arguments that every Mac takes.
const MOST_SHARED: u64 = 32 << 10;
const MOST_ITEMS: u64 = 1024;
const MOST_BUFFERS: u64 = 31;

/// Names under which clang may be found, the plain one first.
const CLANGS: &[&str] =
    &["clang", "clang-21", "clang-20", "clang-19", "clang-18", "clang-17", "clang-16", "clang-15"];

/// Metal Shading Language is C++14; the target's `long` has 64 bits, as Metal's.
const FLAGS: &[&str] =
    &["-x", "c++", "-std=c++14", "--target=x86_64-unknown-linux-gnu", "-nostdinc", "-ffreestanding"];

/// Every warning is an error but these: attributes and pragmas are Metal's own, and a text holds helpers that its kernel does not use.
const WARNINGS: &[&str] = &[
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wno-unknown-attributes",
    "-Wno-unknown-pragmas",
    "-Wno-unused-function",
    "-Wno-unused-variable",
    "-Wno-unused-parameter",
    "-Wno-sign-compare",
    "-Wno-tautological-compare",
];

/// In Metal a variable of a kernel may lie in threadgroup memory; in clang's C++ it must be static for that.
const SHARED: (&str, &str) = (
    "#define SHARED(T, name, n) threadgroup T name[n]",
    "#define SHARED(T, name, n) static threadgroup T name[n]",
);

const SPACES: &[&str] = &["device", "constant", "thread", "threadgroup"];

const ATTRIBUTES: &[&str] = &[
    "buffer",
    "thread_index_in_threadgroup",
    "threadgroup_position_in_grid",
    "threadgroups_per_grid",
    "max_total_threads_per_threadgroup",
];

/// Words that Metal does not have or does not allow in kernels.
const FORBIDDEN: &[&str] =
    &["double", "goto", "asm", "new", "delete", "throw", "try", "virtual", "thread_local"];

/// Bytes of the types that arrays are made of.
const SIZES: &[(&str, u64)] = &[
    ("char", 1),
    ("uchar", 1),
    ("bool", 1),
    ("short", 2),
    ("ushort", 2),
    ("half", 2),
    ("int", 4),
    ("uint", 4),
    ("float", 4),
    ("long", 8),
    ("ulong", 8),
];

/// The checker: which clang, and where the stub lies.
pub struct Checker {
    clang: &'static str,
    stub: PathBuf,
}

impl Checker {
    /// Finds a clang that has 16-bit floats: since version 15 on x86.
    ///
    /// # Errors
    /// There is none.
    pub fn new() -> Result<Checker, String> {
        let stub = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("data/metal");
        let all = CLANGS.iter().map(|clang| Checker { clang, stub: stub.clone() });
        let fits = |c: &Checker| c.clang(&["-fsyntax-only"], "_Float16 v;").is_ok();
        let missing = "clang 15 or newer was not found: install it (Debian 12: clang-15, later: clang)";
        all.into_iter().find(fits).ok_or_else(|| missing.into())
    }

    /// Checks the text of one kernel.
    ///
    /// # Errors
    /// What is wrong with it, a line for each fault.
    pub fn check(&self, text: &str) -> Result<(), String> {
        if !text.contains(SHARED.0) {
            return Err(format!("the header does not say `{}`, which the checker replaces", SHARED.0));
        }
        let text = text.replace(SHARED.0, SHARED.1);
        let expanded = self.clang(&["-E", "-P"], &text)?;
        let own =
            expanded.split_once("struct frit_stub_ends;").ok_or("the text includes no <metal_stdlib>")?.1;
        read(&tokens(own))?;
        let flags: Vec<&str> = ["-fsyntax-only", "-DFRIT_SPACES"].iter().chain(WARNINGS).copied().collect();
        self.clang(&flags, &text).map(drop)
    }

    /// What clang prints for `text`, or its complaints.
    fn clang(&self, flags: &[&str], text: &str) -> Result<String, String> {
        let failed = |e: std::io::Error| format!("{}: {e}", self.clang);
        let mut command = Command::new(self.clang);
        command.args(FLAGS).args(flags).arg("-isystem").arg(&self.stub).arg("-");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        // Clang reads its whole input before it prints.
        let written = child.stdin.take().map_or(Ok(()), |mut to| to.write_all(text.as_bytes()));
        let out = child.wait_with_output().map_err(failed)?;
        if !out.status.success() {
            return Err(String::from_utf8_lossy(&out.stderr).trim().to_owned());
        }
        written.map_err(failed)?;
        Ok(String::from_utf8_lossy(&out.stdout).into_owned())
    }
}

/// Words and signs of `text`, which has no comments.
fn tokens(text: &str) -> Vec<&str> {
    let mut out = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let word = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
        let n = match word(first) {
            true => rest.find(|c| !word(c)).unwrap_or(rest.len()),
            false => first.len_utf8(),
        };
        out.push(&rest[..n]);
        rest = rest[n..].trim_start();
    }
    out
}

/// What clang does not know of Metal, over the tokens of an expanded text.
fn read(t: &[&str]) -> Result<(), String> {
    let mut types: HashMap<&str, u64> = SIZES.iter().copied().collect();
    let (mut shared, mut buffers, mut kernels) = (0, Vec::new(), 0);
    for (i, word) in t.iter().enumerate() {
        let next = |n: usize| t.get(i + n).copied().unwrap_or("");
        match *word {
            w if FORBIDDEN.contains(&w) => return Err(format!("`{w}` is not Metal's")),
            "kernel" => kernels += 1,
            "typedef" => {
                let end = t[i..].iter().position(|w| *w == ";").unwrap_or(1);
                let bytes = types.get(t[i + end - 2]).copied();
                types.insert(t[i + end - 1], bytes.ok_or_else(|| format!("a type of {}", t[i + end - 2]))?);
            }
            "struct" => {
                types.entry(next(1)).or_insert(0);
            }
            "static" if next(1) == "threadgroup" => {
                let end = t[i..].iter().position(|w| *w == ";").ok_or("a declaration without an end")?;
                let size = types.get(next(2)).copied().filter(|n| *n > 0);
                let size =
                    size.ok_or_else(|| format!("{} of unknown size in threadgroup memory", next(2)))?;
                let count = t.get(i + 5..i + end - 1).and_then(evaluate);
                shared +=
                    size * count.ok_or_else(|| format!("the length of `{}` is no constant", next(3)))?;
            }
            "[" if next(1) == "[" => attribute(&t[i + 2..], &mut buffers)?,
            "*" | "&" if i > 0 => pointer(&t[..i], &types)?,
            _ => {}
        }
    }
    if kernels != 1 {
        return Err(format!("{kernels} kernels, a text has one"));
    }
    if shared > MOST_SHARED {
        return Err(format!("{shared} bytes of threadgroup memory, at most {MOST_SHARED} may be"));
    }
    Ok(())
}

/// An attribute, whose name comes first in `t`.
fn attribute(t: &[&str], buffers: &mut Vec<u64>) -> Result<(), String> {
    let name = t.first().copied().unwrap_or("");
    if !ATTRIBUTES.contains(&name) {
        return Err(format!("[[{name}]] is no attribute that kernels use"));
    }
    let value =
        || t.get(2).and_then(|n| n.parse::<u64>().ok()).ok_or_else(|| format!("[[{name}]] has no number"));
    match name {
        "buffer" => {
            let n = value()?;
            if n >= MOST_BUFFERS || buffers.contains(&n) {
                return Err(format!("buffer({n}): numbers are below {MOST_BUFFERS}, each once"));
            }
            buffers.push(n);
        }
        "max_total_threads_per_threadgroup" if value()? > MOST_ITEMS => {
            return Err(format!("groups of {} items, at most {MOST_ITEMS} may be", value()?));
        }
        _ => {}
    }
    Ok(())
}

/// A star or ampersand after `before`: after a type it makes a pointer or reference, which must name its address space.
fn pointer(before: &[&str], types: &HashMap<&str, u64>) -> Result<(), String> {
    let mut back = before.iter().rev().skip_while(|w| **w == "const").peekable();
    let Some(of) = back.next_if(|w| types.contains_key(**w) || **w == "void") else { return Ok(()) };
    let space = back.find(|w| !["const", "struct", "volatile"].contains(*w));
    match space {
        Some(s) if SPACES.contains(s) => Ok(()),
        _ => Err(format!("a pointer to {of} without an address space")),
    }
}

/// The value of a constant expression of numbers, `+`, `-`, `*` and parentheses.
fn evaluate(t: &[&str]) -> Option<u64> {
    let (value, rest) = sum(t)?;
    rest.is_empty().then_some(value)
}

type Parsed<'a> = Option<(u64, &'a [&'a str])>;

fn sum<'a>(t: &'a [&'a str]) -> Parsed<'a> {
    let (mut value, mut rest) = product(t)?;
    while let Some((sign @ (&"+" | &"-"), more)) = rest.split_first() {
        let (v, r) = product(more)?;
        value = if *sign == "+" { value.checked_add(v)? } else { value.checked_sub(v)? };
        rest = r;
    }
    Some((value, rest))
}

fn product<'a>(t: &'a [&'a str]) -> Parsed<'a> {
    let (mut value, mut rest) = atom(t)?;
    while let Some((sign @ (&"*" | &"/"), more)) = rest.split_first() {
        let (v, r) = atom(more)?;
        value = if *sign == "*" { value.checked_mul(v)? } else { value.checked_div(v)? };
        rest = r;
    }
    Some((value, rest))
}

fn atom<'a>(t: &'a [&'a str]) -> Parsed<'a> {
    let (first, rest) = t.split_first()?;
    if *first == "(" {
        let (value, rest) = sum(rest)?;
        return rest.split_first().filter(|(end, _)| **end == ")").map(|(_, rest)| (value, rest));
    }
    first.parse().ok().map(|v| (v, rest))
}
