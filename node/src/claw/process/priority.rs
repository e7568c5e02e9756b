//! Work gets less of the CPU than the node that runs it: every attempt is made nicer than the node, so that burning all
//! cores delays no heartbeat. Done from outside right after the spawn: nothing is forked for it.
//!
//! Two numbers, since kernels differ in what they heed: the nice value of the processes counts where all share one group of
//! the scheduler (a container, a service); with autogroups each session is a group of its own, and only the nice value of
//! the group counts between sessions. Both are inherited by what the attempt starts.

use rustix::io::Errno;
use rustix::process::Pid;
use std::fs;
use std::sync::OnceLock;
use std::time::Duration;

/// How often the kernel takes the value of a group from someone who is not root; asked again a little later.
const GROUP_PAUSE: Duration = Duration::from_millis(150);

/// After so many tries the group stays as it is.
const GROUP_TRIES: u32 = 20;

/// Makes a just started session nicer. Must be called on the runtime. A process that has ended is no fault.
pub(super) fn lower(pid: Pid, nice: u8) {
    if nice == 0 {
        return;
    }
    // Nicer than this process, whatever that was started with.
    let own = rustix::process::getpriority_process(None).unwrap_or(0);
    match rustix::process::setpriority_pgrp(Some(pid), (own + i32::from(nice)).min(19)) {
        Ok(()) | Err(Errno::SRCH) => {}
        Err(errno) => tracing::debug!(%errno, "the priority of a process stays as it is"),
    }
    if has_groups() && !lower_group(pid, nice) {
        tokio::spawn(async move {
            for _ in 0..GROUP_TRIES {
                tokio::time::sleep(GROUP_PAUSE).await;
                if lower_group(pid, nice) {
                    return;
                }
            }
        });
    }
}

/// True when there is nothing more to do.
fn lower_group(pid: Pid, nice: u8) -> bool {
    let written = fs::write(format!("/proc/{}/autogroup", pid.as_raw_nonzero()), nice.to_string());
    // The kernel does this at most ten times a second for others than root.
    !matches!(written, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
}

/// Whether sessions are groups of the scheduler on this machine.
fn has_groups() -> bool {
    static ENABLED: OnceLock<bool> = OnceLock::new();
    *ENABLED.get_or_init(|| {
        fs::read_to_string("/proc/sys/kernel/sched_autogroup_enabled").is_ok_and(|text| text.trim() == "1")
    })
}
