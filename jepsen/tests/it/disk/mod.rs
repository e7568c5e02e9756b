//! Real nodes on disks that are full, hang, fail, or have changed bytes; and what people see of it.

mod damaged;
mod fails;
mod full;
mod tools;

use std::process::{Command, Stdio};

use super::support::binary;

/// Calls the binary; its exit code, standard output, standard error.
fn call(line: &[&str]) -> (i32, String, String) {
    let output = Command::new(binary()).args(line).stdin(Stdio::null()).output().expect("it starts");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}
