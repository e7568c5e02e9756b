//! A throwaway cluster for the bench: `clawhive dev --ephemeral` as a child, and the memory of its processes.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

/// Real server processes that end with this value.
pub struct Throwaway {
    child: Child,
    /// The API addresses of its nodes.
    pub servers: Vec<String>,
}

impl Throwaway {
    /// Starts `nodes` nodes on ports from `port` on and waits until a leader serves.
    ///
    /// # Errors
    /// When the processes do not start or none of them serves.
    pub fn start(nodes: usize, port: u16) -> Result<Throwaway> {
        let program = std::env::current_exe().context("where is this program?")?;
        let mut child = Command::new(program)
            .args(["dev", "--ephemeral", "--nodes", &nodes.to_string(), "--port", &port.to_string()])
            .env_remove("CLAWHIVE_SERVER")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .context("cannot start `clawhive dev`")?;
        let output = child.stdout.take().context("its output is piped")?;
        let servers = (0..nodes).map(|node| format!("127.0.0.1:{}", usize::from(port) + 10 * node)).collect();
        let throwaway = Throwaway { child, servers };
        for line in BufReader::new(output).lines() {
            if line?.starts_with("ready") {
                return Ok(throwaway);
            }
        }
        bail!("`clawhive dev` ended before it was ready (is port {port} in use?)")
    }

    /// Resident memory of all processes of the nodes together, in bytes. With several nodes the first process only
    /// supervises and does not count.
    pub fn resident_bytes(&self) -> u64 {
        let root = self.child.id();
        let mut tree = vec![root];
        let parents = parents();
        // Children of children too: each node has a guard.
        let mut next = 0;
        while let Some(parent) = tree.get(next).copied() {
            tree.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
            next += 1;
        }
        let counted = tree.iter().filter(|pid| self.servers.len() == 1 || **pid != root);
        counted.map(|pid| resident(*pid).unwrap_or(0)).sum()
    }
}

impl Drop for Throwaway {
    fn drop(&mut self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.child.id() as i32) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = self.child.wait();
    }
}

/// Every process with its parent.
fn parents() -> Vec<(u32, u32)> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid| Some((pid, parent_of(pid)?))).collect()
}

fn parent_of(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may hold spaces and brackets; the fields follow its last bracket.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

fn resident(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_its_own_process() {
        assert!(resident(std::process::id()).is_some_and(|bytes| bytes > 100_000));
        assert_eq!(parent_of(std::process::id()), Some(std::os::unix::process::parent_id()));
    }
}
