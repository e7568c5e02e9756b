//! A directory of its own per test, and the binary run in it.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

pub const HELLO: &str = r#"
name: hello
tasks:
  parts: {run: "echo part"}
  count:
    needs: [parts]
    run: 'echo "{\"words\": 12}" > "$CLAWHIVE_OUTPUT"'
    outputs: {words: integer}
  report:
    needs: [count]
    env: {WORDS: "{{ tasks.count.outputs.words }}"}
    run: 'echo "there are $WORDS words"; echo aside >&2'
"#;

pub const BAD: &str = r#"
name: bad
tasks:
  fine: {run: "true"}
  breaks:
    needs: [fine]
    retries: {max_attempts: 2, delay: 50ms}
    run: 'for i in $(seq 1 20); do echo line $i; done; echo no such table >&2; exit 3'
  never: {needs: [breaks], run: "echo never"}
"#;

pub const SLEEPS: &str = r#"
name: sleeps
tasks:
  long: {run: "sleep 60", timeout: {grace: 1s}}
  after: {needs: [long], run: "true"}
"#;

/// What a call of the binary did.
#[derive(Debug)]
pub struct Done {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Done {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The standard output of a call that went well.
    pub fn ok(self) -> String {
        assert_eq!(self.code, 0, "{self:?}");
        self.stdout
    }
}

impl From<Output> for Done {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("our output is text");
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }
}

/// A place to call it in.
pub struct Place {
    pub dir: TempDir,
}

impl Place {
    pub fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("a temporary directory") }
    }

    pub fn file(&self, name: &str, text: &str) -> &Self {
        std::fs::write(self.dir.path().join(name), text).expect("a file in it");
        self
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_clawhive"));
        command.args(line.split_whitespace()).current_dir(self.path()).stdin(Stdio::null());
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("CLAWHIVE_") {
                command.env_remove(name);
            }
        }
        command
    }

    pub fn call(&self, line: &str) -> Done {
        self.command(line).output().expect("the binary starts").into()
    }

    /// Starts it and waits for a line on its standard output that begins like this.
    pub fn start(&self, line: &str, until: &str) -> Running {
        let mut command = self.command(line);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let (send, lines) = mpsc::channel();
        let stdout = child.stdout.take().expect("piped");
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        let mut running = Running { child: Some(child), lines, seen: Vec::new() };
        if !until.is_empty() {
            running.wait_for(until);
        }
        running
    }
}

/// A process that is killed with the value.
pub struct Running {
    child: Option<Child>,
    lines: mpsc::Receiver<String>,
    pub seen: Vec<String>,
}

impl Running {
    pub fn wait_for(&mut self, start: &str) {
        loop {
            match self.lines.recv_timeout(Duration::from_secs(60)) {
                Ok(line) => {
                    let found = line.starts_with(start);
                    self.seen.push(line);
                    if found {
                        return;
                    }
                }
                Err(error) => {
                    let seen = self.seen.clone();
                    let end = self.end(Signal::KILL);
                    panic!("no line {start:?} ({error}); seen {seen:?}, then {end:?}");
                }
            }
        }
    }

    pub fn signal(&self, signal: Signal) {
        let child = self.child.as_ref().expect("running");
        let pid = Pid::from_raw(child.id() as i32).expect("a pid");
        kill_process(pid, signal).expect("it runs");
    }

    /// Signals it and waits for its end.
    pub fn end(&mut self, signal: Signal) -> Done {
        self.signal(signal);
        self.wait()
    }

    pub fn wait(&mut self) -> Done {
        let mut done: Done = self.child.take().expect("running").wait_with_output().expect("it ends").into();
        done.stdout = self.lines.iter().map(|line| format!("{line}\n")).collect();
        done
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Two free ports next to each other, with room for more nodes above.
pub fn port() -> u16 {
    for _ in 0..100 {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let free = |port| std::net::TcpListener::bind(("127.0.0.1", port)).is_ok();
        if port < 60_000 && [1, 10, 11, 20, 21].iter().all(|above| free(port + above)) {
            return port;
        }
    }
    panic!("no free ports");
}
