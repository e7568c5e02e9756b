//! From a task to a program that can be spawned: argv, the search along the task's PATH, and what to say when it does not
//! start.

use super::super::executor::StartError;
use clawhive_proto::task::Executor as Kind;
use rustix::fs::Access;
use rustix::io::Errno;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The shell of `run`.
const SHELL: &str = "/bin/sh";

/// One argument or variable may have this many bytes, its end included (Linux: MAX_ARG_STRLEN).
const LONGEST_ARGUMENT: usize = 128 * 1024;

/// What a task asks to be run.
pub(super) struct Command {
    /// As the user wrote it, or the shell.
    name: String,
    pub(super) argv: Vec<CString>,
    /// The one that the task names; else the attempt's own.
    pub(super) working_dir: Option<PathBuf>,
}

impl Command {
    pub(super) fn of(kind: &Kind) -> Result<Self, StartError> {
        match kind {
            Kind::Run(text) => {
                let argv = ["sh", "-eu", "-c", text].into_iter().map(argument).collect::<Result<_, _>>()?;
                Ok(Self { name: SHELL.to_owned(), argv, working_dir: None })
            }
            Kind::Process(process) => {
                let Some(name) = process.command.first().filter(|name| !name.is_empty()) else {
                    return Err(StartError("the command is empty".to_owned()));
                };
                let argv = process.command.iter().map(|text| argument(text)).collect::<Result<_, _>>()?;
                let working_dir = match process.working_dir.as_str() {
                    "" => None,
                    dir if dir.starts_with('/') => Some(PathBuf::from(dir)),
                    dir => return Err(StartError(format!("working directory {dir:?} is not absolute"))),
                };
                Ok(Self { name: name.clone(), argv, working_dir })
            }
        }
    }

    /// The file to run: as it is when it holds a slash, else the first along PATH that can be run. The task's PATH
    /// counts, not the server's; its relative parts are relative to the working directory.
    pub(super) fn resolve(&self, path: &str, dir: &Path) -> Result<PathBuf, Errno> {
        if self.name.contains('/') {
            return Ok(dir.join(&self.name));
        }
        let mut errno = Errno::NOENT;
        for part in path.split(':') {
            let candidate = dir.join(part).join(&self.name);
            if !candidate.is_file() {
                continue;
            }
            match rustix::fs::access(&candidate, Access::EXEC_OK) {
                Ok(()) => return Ok(candidate),
                Err(error) => errno = error,
            }
        }
        Err(errno)
    }

    /// What to tell people about a start that failed.
    pub(super) fn explain(&self, errno: Errno, file: Option<&Path>, host: &str) -> StartError {
        let code = errno.raw_os_error();
        if let Some(dir) = &self.working_dir
            && let Some(what) = working_dir_fault(dir)
        {
            return StartError(format!(
                "cannot start {:?} on {host}: working directory {dir:?} {what}",
                self.name
            ));
        }
        let what = match errno {
            Errno::NOENT => match file.and_then(interpreter) {
                Some(interpreter) => format!("its interpreter {interpreter:?} is not found"),
                None if file.is_none() => "not found along PATH".to_owned(),
                None => "not found".to_owned(),
            },
            Errno::ACCESS => "permission denied".to_owned(),
            Errno::NOEXEC => {
                "exec format error: neither a program for this machine nor a script with #!".to_owned()
            }
            Errno::TOOBIG => match self.argv.iter().map(|text| text.as_bytes_with_nul().len()).max() {
                Some(longest) if longest > LONGEST_ARGUMENT => format!(
                    "argument list too long: one argument has {} bytes, {} is the limit; hand large input over in a file",
                    longest - 1,
                    LONGEST_ARGUMENT - 1
                ),
                _ => "argument list too long: hand large input over in a file".to_owned(),
            },
            other => std::io::Error::from(other).to_string(),
        };
        StartError(format!("cannot start {:?} on {host}: {what} (errno {code})", self.name))
    }
}

fn argument(text: &str) -> Result<CString, StartError> {
    CString::new(text).map_err(|_| StartError("an argument holds a NUL byte".to_owned()))
}

/// A path as the system takes it.
pub(super) fn c_path(path: &Path) -> Result<CString, StartError> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| StartError(format!("path {path:?} holds a NUL byte")))
}

fn working_dir_fault(dir: &Path) -> Option<String> {
    let text = match std::fs::metadata(dir) {
        Err(error) => {
            let errno = error.raw_os_error().unwrap_or_default();
            match Errno::from_io_error(&error) {
                Some(Errno::NOENT) => "does not exist (errno 2)".to_owned(),
                _ => format!("cannot be used (errno {errno})"),
            }
        }
        Ok(data) if !data.is_dir() => "is not a directory (errno 20)".to_owned(),
        Ok(_) => match rustix::fs::access(dir, Access::EXEC_OK) {
            Ok(()) => return None,
            Err(errno) => format!("cannot be entered (errno {})", errno.raw_os_error()),
        },
    };
    Some(text)
}

/// The interpreter that a script names in its first line.
fn interpreter(file: &Path) -> Option<String> {
    use std::io::Read;
    let mut head = Vec::new();
    std::fs::File::open(file).ok()?.take(256).read_to_end(&mut head).ok()?;
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let line = line.trim_ascii_start();
    // A carriage return belongs to the name: that is the usual fault.
    let name = line.split(|byte| *byte == b' ' || *byte == b'\t').next()?;
    Some(String::from_utf8_lossy(name).into_owned())
}
