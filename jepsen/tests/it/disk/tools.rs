//! Disks that are full, hang or fail: a small volume where the caller is root, a library in front of the C library where
//! there is a C compiler. Without, a test says why it tests nothing.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A file system of its own in memory, unmounted with the value.
pub struct Volume {
    dir: tempfile::TempDir,
}

impl Volume {
    /// None, with the reason printed, where nothing can be mounted.
    pub fn new(mib: u32) -> Option<Volume> {
        let dir = tempfile::Builder::new().prefix("clawhive-volume-").tempdir().expect("a directory");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={mib}m"), "clawhive-test"])
            .arg(dir.path())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success());
        if mounted {
            return Some(Volume { dir });
        }
        eprintln!("skipped: a small volume cannot be mounted here (it takes root)");
        None
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn remount(&self, options: &str) {
        let status =
            Command::new("mount").args(["-o", &format!("remount,{options}")]).arg(self.path()).status();
        assert!(status.is_ok_and(|status| status.success()), "remount,{options}");
    }

    pub fn free(&self) -> u64 {
        let volume = rustix::fs::statvfs(self.path()).expect("a volume");
        volume.f_bavail * volume.f_frsize
    }

    /// Another program takes all but so many bytes.
    pub fn fill(&self, left: u64) {
        use std::io::Write;
        let mut file =
            std::fs::File::options().create(true).append(true).open(self.filler()).expect("a file");
        let step = vec![7; 64 << 10];
        while self.free() > left {
            let bytes = (self.free() - left).min(step.len() as u64) as usize;
            if file.write_all(&step[..bytes]).is_err() {
                return;
            }
        }
    }

    /// Gives back what [`Volume::fill`] took.
    pub fn empty(&self) {
        // Never filled is as good.
        let _ = std::fs::remove_file(self.filler());
    }

    fn filler(&self) -> PathBuf {
        self.path().join("filler")
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

/// A library that lets the syncs of nodes hang or fail.
pub struct Faults {
    dir: tempfile::TempDir,
}

impl Faults {
    /// None, with the reason printed, where there is no C compiler.
    pub fn new() -> Option<Faults> {
        let dir = tempfile::tempdir().expect("a directory");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/disk/shim.c");
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .arg(dir.path().join("shim.so"))
            .arg(source)
            .arg("-ldl")
            .status()
            .is_ok_and(|status| status.success());
        if built {
            return Some(Faults { dir });
        }
        eprintln!("skipped: there is no C compiler for a disk that fails");
        None
    }

    /// For the nodes of a cluster.
    pub fn env(&self) -> Vec<(String, String)> {
        let path = |name: &str| self.dir.path().join(name).display().to_string();
        vec![("LD_PRELOAD".to_owned(), path("shim.so")), ("FAULTY_DISK".to_owned(), path("order-{node}"))]
    }

    /// From now on: `hang`, `eio`, `slow N`.
    pub fn order(&self, number: usize, what: &str) {
        let file = self.dir.path().join(format!("order-{}", number + 1));
        // Whole at once: a sync looks at any moment.
        let draft = self.dir.path().join("draft");
        std::fs::write(&draft, what).and_then(|()| std::fs::rename(draft, file)).expect("an order");
    }

    /// The disk is well again.
    pub fn heal(&self, number: usize) {
        let _ = std::fs::remove_file(self.dir.path().join(format!("order-{}", number + 1)));
    }
}
