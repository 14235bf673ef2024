//! `frit completions`: the script by which a shell completes commands and flags.

use std::io::Write;

use clap::CommandFactory;

use crate::args::{Cli, CompletionsArgs};
use crate::failure::Failure;

/// Runs the command.
pub fn run(a: &CompletionsArgs) -> Result<(), Failure> {
    // Written to memory first: the generator would panic on a closed pipe.
    let mut script = Vec::new();
    clap_complete::generate(a.shell, &mut Cli::command(), "frit", &mut script);
    let mut out = std::io::stdout().lock();
    out.write_all(&script)?;
    Ok(out.flush()?)
}
