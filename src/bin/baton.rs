//! `baton`, the lab.

use std::process::ExitCode;

fn main() -> ExitCode {
    scx_baton::cli::run(std::env::args_os())
}
