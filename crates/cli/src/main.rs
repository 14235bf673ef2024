//! The `frit` command. Results go to standard output, all else to standard error; exit status 0 is success, 1 failure, 2 wrong
//! usage, 130 interruption.

mod args;
mod commands;
mod env;
mod failure;
mod fetch;
mod interrupt;
mod known;
mod models;
mod output;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};
use failure::Failure;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = env::start_log().map_err(Failure::Error).and_then(|()| run(&cli.command));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read our output has gone: there is nobody to tell.
        Err(Failure::ClosedPipe) => ExitCode::SUCCESS,
        Err(Failure::Interrupted) => ExitCode::from(130),
        Err(Failure::Error(e)) => {
            eprintln!("frit: {e}");
            ExitCode::FAILURE
        }
        Err(Failure::Caused(e, causes)) => {
            eprintln!("frit: {e}");
            for cause in causes.iter().filter(|_| cli.verbose) {
                eprintln!("  caused by: {cause}");
            }
            ExitCode::FAILURE
        }
    }
}

fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Generate(a) => commands::generate::run(a),
        Command::Chat(a) => commands::chat::run(a),
        Command::Embed(a) => commands::embed::run(a),
        Command::Inspect(a) => commands::inspect::run(a),
        Command::Bench(a) => commands::bench::run(a),
        Command::Pull(a) => commands::pull::run(a),
        Command::Devices(a) => commands::devices::run(a),
        Command::Completions(a) => commands::completions::run(a),
        Command::Man(a) => commands::man::run(a),
    }
}
