//! The local directory (`.clawhive/`): which process has it, and where that process answers.
//!
//! The file `endpoint` in it is locked by whoever runs the nodes of the directory, for as long as it does, and holds their
//! addresses. A file without a lock is left over and counts for nothing.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

use super::failure::Failure;

/// Where local data is, unless said otherwise.
pub(super) const DIRECTORY: &str = ".clawhive";
const ENDPOINT: &str = "endpoint";
/// How long a process that has taken the directory may take until it answers.
const STARTS_WITHIN: Duration = Duration::from_secs(15);

/// This process runs the nodes of the directory.
#[derive(Debug)]
pub(super) struct Claim {
    file: File,
    directory: PathBuf,
}

/// Who has the directory.
#[derive(Debug)]
pub(super) enum Holder {
    /// This process, from now on.
    Us(Claim),
    /// Another one, which answers there.
    Other { addresses: String },
}

impl Claim {
    /// Takes the directory, or finds out who has it. Makes the directory.
    pub(super) async fn take(directory: &Path) -> Result<Holder, Failure> {
        let failed = |error: io::Error| {
            Failure::unexpected(format!("cannot use the directory {}: {error}", directory.display()))
        };
        fs::create_dir_all(directory).map_err(failed)?;
        let path = directory.join(ENDPOINT);
        let open = || OpenOptions::new().create(true).read(true).write(true).truncate(false).open(&path);
        let started = tokio::time::Instant::now();
        loop {
            let mut file = open().map_err(failed)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {
                    file.set_len(0).map_err(failed)?;
                    return Ok(Holder::Us(Self { file, directory: directory.to_owned() }));
                }
                Err(rustix::io::Errno::WOULDBLOCK) => {}
                Err(errno) => return Err(failed(errno.into())),
            }
            let mut addresses = String::new();
            file.read_to_string(&mut addresses).map_err(failed)?;
            if addresses.ends_with('\n') {
                return Ok(Holder::Other { addresses: addresses.trim().to_owned() });
            }
            if started.elapsed() > STARTS_WITHIN {
                let message =
                    format!("another clawhive process has {} and does not answer", directory.display());
                return Err(Failure::no_server(message));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Tells other processes where to ask.
    pub(super) fn publish(&mut self, addresses: &[String]) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.rewind()?;
        // In one write: the line feed says that it is complete.
        self.file.write_all(format!("{}\n", addresses.join(",")).as_bytes())
    }

    /// The data directory of the n-th node, counted from 1.
    pub(super) fn node(&self, n: u16) -> PathBuf {
        node_directory(&self.directory, n)
    }

    /// How many nodes have data here.
    pub(super) fn nodes(&self) -> u16 {
        (1..).take_while(|n| self.node(*n).is_dir()).last().unwrap_or(0)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // The next one ignores what is in an unlocked file; emptying it is only tidy.
        let _ = self.file.set_len(0);
    }
}

fn node_directory(directory: &Path, n: u16) -> PathBuf {
    directory.join(format!("node-{n}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_process_has_the_directory_and_others_find_it() {
        let temp = tempfile::tempdir().unwrap();
        let Holder::Us(mut claim) = Claim::take(temp.path()).await.unwrap() else { panic!("it is free") };
        claim.publish(&["127.0.0.1:1".into(), "127.0.0.1:2".into()]).unwrap();
        let Holder::Other { addresses } = Claim::take(temp.path()).await.unwrap() else { panic!("taken") };
        assert_eq!(addresses, "127.0.0.1:1,127.0.0.1:2");
        drop(claim);
        assert!(matches!(Claim::take(temp.path()).await.unwrap(), Holder::Us(_)));
    }

    #[tokio::test]
    async fn nodes_are_counted() {
        let temp = tempfile::tempdir().unwrap();
        let Holder::Us(claim) = Claim::take(temp.path()).await.unwrap() else { panic!("it is free") };
        assert_eq!(claim.nodes(), 0);
        for n in 1..=3 {
            fs::create_dir(claim.node(n)).unwrap();
        }
        assert_eq!(claim.nodes(), 3);
    }
}
