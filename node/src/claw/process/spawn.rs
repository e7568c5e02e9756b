//! The only unsafe code of the node: one call of posix_spawn with all that it needs, and the registration of descriptors
//! with the runtime. A process starts in a session of its own with clean signals, standard input from /dev/null and two
//! pipes; this process's memory is never forked.

#![allow(unsafe_code)]

use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::process::{Pid, PidfdFlags};
use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// What to start. The path is absolute or relative to `working_dir`; no search is made.
pub(crate) struct Program<'a> {
    pub(crate) path: &'a CStr,
    pub(crate) argv: &'a [CString],
    pub(crate) env: &'a [CString],
    pub(crate) working_dir: Option<&'a CStr>,
}

/// A child in its own session and group. Whoever holds this must reap it.
pub(crate) struct Spawned {
    pub(crate) pid: Pid,
    /// Becomes readable when the child has ended.
    pub(crate) pidfd: OwnedFd,
    /// Our ends, non-blocking.
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
}

/// Starts a program. The error is that of the first thing that failed in the child before it ran: working directory,
/// then the program itself.
pub(crate) fn spawn(program: &Program<'_>) -> Result<Spawned, Errno> {
    let (stdout, stdout_child) = pipe()?;
    let (stderr, stderr_child) = pipe()?;

    let mut actions = Actions::new()?;
    actions.open(0, c"/dev/null", libc::O_RDONLY)?;
    actions.dup2(&stdout_child, 1)?;
    actions.dup2(&stderr_child, 2)?;
    // Ours are all close-on-exec; an embedding process may have others.
    actions.close_from(3)?;
    if let Some(dir) = program.working_dir {
        actions.chdir(dir)?;
    }
    let attributes = Attributes::new()?;
    let pid = posix_spawn(program, &actions, &attributes)?;
    // The child is not reaped yet, so its pid cannot belong to another process. Not NONBLOCK: waitid would not wait.
    match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => Ok(Spawned { pid, pidfd, stdout, stderr }),
        Err(errno) => {
            let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
            let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
            Err(errno)
        }
    }
}

/// What can be registered with the runtime.
///
/// # Safety
/// `as_raw_fd` gives the same open descriptor until the value is dropped.
pub(super) unsafe trait Steady: AsRawFd {}

// SAFETY: an OwnedFd has one descriptor, which it closes when it is dropped.
unsafe impl Steady for OwnedFd {}
// SAFETY: a child gives its pidfd, an OwnedFd that it never replaces.
unsafe impl Steady for super::child::Child {}

/// Has the runtime tell when the descriptor can be read. Dropped and unwatched on an error.
pub(super) fn watch<T: Steady>(inner: T) -> io::Result<AsyncFd<T>> {
    // SAFETY: `Steady` is what register_with_interest asks for.
    unsafe { AsyncFd::register_with_interest(inner, Interest::READABLE) }
        .map_err(|error| error.into_parts().1)
}

/// A pipe: our end to read from, the child's to write to. Neither has the number of a standard stream, whatever the
/// process was started with.
fn pipe() -> Result<(OwnedFd, OwnedFd), Errno> {
    let (ours, child) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    let above =
        |fd: OwnedFd| if fd.as_raw_fd() > 2 { Ok(fd) } else { rustix::io::fcntl_dupfd_cloexec(&fd, 3) };
    let (ours, child) = (above(ours)?, above(child)?);
    rustix::fs::fcntl_setfl(&ours, OFlags::NONBLOCK)?;
    Ok((ours, child))
}

fn check(code: libc::c_int) -> Result<(), Errno> {
    if code == 0 { Ok(()) } else { Err(Errno::from_raw_os_error(code)) }
}

fn posix_spawn(program: &Program<'_>, actions: &Actions<'_>, attributes: &Attributes) -> Result<Pid, Errno> {
    let argv = pointers(program.argv);
    let env = pointers(program.env);
    let mut pid: libc::pid_t = 0;
    // SAFETY: `actions` and `attributes` are initialised (their types say so) and live through the call, as do the
    // strings behind both null-terminated arrays. posix_spawn copies nothing that outlives it and does not write
    // through the string pointers.
    let code = unsafe {
        libc::posix_spawn(
            &mut pid,
            program.path.as_ptr(),
            &actions.raw,
            &attributes.raw,
            argv.as_ptr(),
            env.as_ptr(),
        )
    };
    check(code)?;
    Pid::from_raw(pid).ok_or(Errno::SRCH)
}

fn pointers(strings: &[CString]) -> Vec<*mut libc::c_char> {
    strings.iter().map(|s| s.as_ptr().cast_mut()).chain([ptr::null_mut()]).collect()
}

/// Initialised file actions. Holds what they point to.
struct Actions<'a> {
    raw: libc::posix_spawn_file_actions_t,
    /// glibc copies paths, POSIX does not promise it: kept until the actions are destroyed.
    _strings: std::marker::PhantomData<&'a CStr>,
    _fds: std::marker::PhantomData<BorrowedFd<'a>>,
}

impl<'a> Actions<'a> {
    fn new() -> Result<Self, Errno> {
        let mut raw = MaybeUninit::uninit();
        // SAFETY: init writes a whole value when it answers 0, which is checked before it is assumed.
        let raw = unsafe {
            check(libc::posix_spawn_file_actions_init(raw.as_mut_ptr()))?;
            raw.assume_init()
        };
        Ok(Self { raw, _strings: std::marker::PhantomData, _fds: std::marker::PhantomData })
    }

    fn open(&mut self, fd: i32, path: &'a CStr, flags: i32) -> Result<(), Errno> {
        // SAFETY: `raw` is initialised; the path is null-terminated and outlives the actions.
        check(unsafe { libc::posix_spawn_file_actions_addopen(&mut self.raw, fd, path.as_ptr(), flags, 0) })
    }

    fn dup2(&mut self, from: &OwnedFd, to: i32) -> Result<(), Errno> {
        // SAFETY: `raw` is initialised; a wrong number would only be an error in the child.
        check(unsafe { libc::posix_spawn_file_actions_adddup2(&mut self.raw, from.as_raw_fd(), to) })
    }

    fn close_from(&mut self, from: i32) -> Result<(), Errno> {
        // SAFETY: `raw` is initialised.
        check(unsafe { libc::posix_spawn_file_actions_addclosefrom_np(&mut self.raw, from) })
    }

    fn chdir(&mut self, dir: &'a CStr) -> Result<(), Errno> {
        // SAFETY: `raw` is initialised; the path is null-terminated and outlives the actions.
        check(unsafe { libc::posix_spawn_file_actions_addchdir_np(&mut self.raw, dir.as_ptr()) })
    }
}

impl Drop for Actions<'_> {
    fn drop(&mut self) {
        // SAFETY: initialised in `new` and destroyed only here.
        unsafe { libc::posix_spawn_file_actions_destroy(&mut self.raw) };
    }
}

/// Own session (and with it own group), no signal blocked, none ignored.
struct Attributes {
    raw: libc::posix_spawnattr_t,
}

impl Attributes {
    fn new() -> Result<Self, Errno> {
        let mut raw = MaybeUninit::uninit();
        // SAFETY: init writes a whole value when it answers 0, which is checked before it is assumed.
        let raw = unsafe {
            check(libc::posix_spawnattr_init(raw.as_mut_ptr()))?;
            raw.assume_init()
        };
        let mut this = Self { raw };
        let flags =
            i32::from(libc::POSIX_SPAWN_SETSID) | libc::POSIX_SPAWN_SETSIGDEF | libc::POSIX_SPAWN_SETSIGMASK;
        let mut none = MaybeUninit::uninit();
        let mut all = MaybeUninit::uninit();
        // SAFETY: both sets are written whole by sigemptyset and sigfillset, which cannot fail on a valid pointer;
        // `this.raw` is initialised.
        unsafe {
            libc::sigemptyset(none.as_mut_ptr());
            libc::sigfillset(all.as_mut_ptr());
            check(libc::posix_spawnattr_setflags(&mut this.raw, flags as libc::c_short))?;
            check(libc::posix_spawnattr_setsigmask(&mut this.raw, none.as_ptr()))?;
            check(libc::posix_spawnattr_setsigdefault(&mut this.raw, all.as_ptr()))?;
        }
        Ok(this)
    }
}

impl Drop for Attributes {
    fn drop(&mut self) {
        // SAFETY: initialised in `new` and destroyed only here.
        unsafe { libc::posix_spawnattr_destroy(&mut self.raw) };
    }
}
