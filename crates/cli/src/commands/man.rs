//! `frit man`: manual pages, made from the same descriptions as `--help`.

use std::io::{self, Write};

use clap::{Command, CommandFactory};
use clap_mangen::Man;

use crate::args::{Cli, ManArgs};
use crate::failure::Failure;

/// What holds for every command.
const COMMON: &str = "\
.SH \"EXIT STATUS\"
0 success; 1 failure, with one line on standard error; 2 wrong usage; 130 interrupted.
.SH ENVIRONMENT
.TP
FRIT_CACHE_DIR
where fetched models are kept; else frit in XDG_CACHE_HOME, else ~/.cache/frit
.TP
HF_TOKEN
a token for repositories of the hub that ask for one
.TP
FRIT_LOG
writes traces to standard error: error, warn, info, debug or trace
";

/// Runs the command.
pub fn run(a: &ManArgs) -> Result<(), Failure> {
    let mut root = Cli::command();
    // Gives every command its full name and the flags that all share.
    root.build();
    let command = match &a.command {
        None => root,
        Some(name) => root.find_subcommand(name).cloned().ok_or_else(|| {
            let known: Vec<&str> = root.get_subcommands().map(Command::get_name).collect();
            Failure::Error(format!("there is no command `{name}`; there are: {}", known.join(", ")))
        })?,
    };
    let page = page(command)?;
    let mut out = io::stdout().lock();
    out.write_all(&page)?;
    Ok(out.flush()?)
}

fn page(command: Command) -> io::Result<Vec<u8>> {
    let example = command.get_before_help().map(|e| e.to_string());
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    let mut page = Vec::new();
    Man::new(command).title(name).render(&mut page)?;
    if let Some(e) = example.as_deref().and_then(|e| e.strip_prefix("Example: ")) {
        writeln!(page, ".SH EXAMPLE\n.nf\n{}\n.fi", e.replace('\\', "\\e").replace('-', "\\-"))?;
    }
    page.write_all(COMMON.as_bytes())?;
    Ok(page)
}
