//! The bound that W2 is measured against: nothing but spawning.

use super::process::spawn::{Program, spawn};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::process::{WaitId, WaitIdOptions};
use std::ffi::CString;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// Spawns `/bin/true` so many times, `lanes` at a time, with output pipes that are read to their end, each reaped; says
/// how long that took. Blocking.
pub fn bare_spawn_loop(count: u32, lanes: u32) -> io::Result<Duration> {
    let left = AtomicU32::new(count);
    let start = Instant::now();
    let one_lane = || {
        while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
            one()?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..lanes).map(|_| scope.spawn(one_lane)).collect();
        let panicked = |_| Err(io::Error::other("a lane of the spawn loop panicked"));
        lanes.into_iter().try_for_each(|lane| lane.join().unwrap_or_else(panicked))
    })?;
    Ok(start.elapsed())
}

fn one() -> io::Result<()> {
    let argv = [CString::from(c"true")];
    let child = spawn(&Program { path: c"/bin/true", argv: &argv, env: &[], working_dir: None })?;
    read_to_end(&child.stdout)?;
    read_to_end(&child.stderr)?;
    use rustix::fd::AsFd;
    rustix::process::waitid(WaitId::PidFd(child.pidfd.as_fd()), WaitIdOptions::EXITED)?;
    Ok(())
}

fn read_to_end(fd: &OwnedFd) -> io::Result<()> {
    let mut buffer = [0; 4096];
    loop {
        match rustix::io::read(fd, &mut buffer) {
            Ok(0) => return Ok(()),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => {
                poll(&mut [PollFd::new(fd, PollFlags::IN)], None)?;
            }
            Err(errno) => return Err(errno.into()),
        }
    }
}
