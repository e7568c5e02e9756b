//! The `clawhive` binary: a thin shell over the library and the command line.
#![forbid(unsafe_code)]

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
