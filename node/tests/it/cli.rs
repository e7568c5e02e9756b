//! The command line as people use it: the real binary, real nodes, real exit codes.

mod dev;
mod run;
mod schedules;
mod server;
mod settings;
mod snapshot;
mod support;
mod verbs;
