//! Why a command ended early.

use std::io;

/// See the module's page.
#[derive(Debug)]
pub enum Failure {
    /// Something went wrong; one line for the user.
    Error(String),
    /// Standard output was closed by its reader.
    ClosedPipe,
    /// Ctrl-C.
    Interrupted,
}

impl From<frit::Error> for Failure {
    fn from(e: frit::Error) -> Failure {
        match e {
            frit::Error::Cancelled => Failure::Interrupted,
            e => Failure::Error(e.to_string()),
        }
    }
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
