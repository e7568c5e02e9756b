//! The `clawhive` binary: a thin shell over the library and the command line.
#![forbid(unsafe_code)]

mod cli;

fn main() -> std::process::ExitCode {
    // Before anything else: a guard is small and reads no arguments of people.
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|first| first == clawhive_node::claw::GUARD_ARGUMENT) {
        clawhive_node::claw::guard(std::path::Path::new(&arguments.next().unwrap_or_default()));
        return std::process::ExitCode::SUCCESS;
    }
    if std::env::args_os().nth(1).is_some_and(|first| first == cli::WATCHDOG_ARGUMENT) {
        cli::watchdog(std::env::args().skip(2));
        return std::process::ExitCode::SUCCESS;
    }
    cli::main()
}
