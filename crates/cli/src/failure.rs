//! Why a command ended early.

use std::io;

/// See the module's page.
#[derive(Debug)]
pub enum Failure {
    /// Something went wrong; one line for the user.
    Error(String),
    /// The same with its causes, the nearest first, for `--verbose`.
    Caused(String, Vec<String>),
    /// Standard output was closed by its reader.
    ClosedPipe,
    /// Ctrl-C.
    Interrupted,
}

impl From<frit::Error> for Failure {
    fn from(e: frit::Error) -> Failure {
        match e {
            frit::Error::Cancelled => Failure::Interrupted,
            e => Failure::Caused(one_line(&e.to_string()), causes(&e)),
        }
    }
}

fn causes(e: &dyn std::error::Error) -> Vec<String> {
    std::iter::successors(e.source(), |e| e.source()).map(|e| one_line(&e.to_string())).collect()
}

/// `text` with line ends and other control characters escaped: names in a hostile file must not forge a line.
fn one_line(text: &str) -> String {
    let escape = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(escape).collect()
}

/// For writing results; any other I/O error must say what it concerned.
impl From<io::Error> for Failure {
    fn from(e: io::Error) -> Failure {
        match e.kind() {
            io::ErrorKind::BrokenPipe => Failure::ClosedPipe,
            _ => Failure::Error(format!("cannot write the result: {e}")),
        }
    }
}

impl From<String> for Failure {
    fn from(e: String) -> Failure {
        Failure::Error(e)
    }
}
