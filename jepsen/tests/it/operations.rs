//! Runs `docs/operations.md` as it is written. Each block of commands is run in order, with the ports of the text replaced
//! by free ones; what stands behind `#>` must be in what is printed.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use clawhive_jepsen::cluster::free_port;

use crate::support::{alone, binary};

const DOCUMENT: &str = include_str!("../../../docs/operations.md");

/// A verb that looks may come a moment before what it looks for.
const PATIENCE: Duration = Duration::from_secs(60);

/// The machines of the text, and its shell.
struct Stage {
    home: tempfile::TempDir,
    ports: BTreeMap<String, u16>,
    servers: BTreeMap<String, Child>,
    variables: BTreeMap<String, String>,
    ran: usize,
}

/// Servers that are still on their way.
type Starting = Vec<(String, mpsc::Receiver<String>)>;

impl Drop for Stage {
    fn drop(&mut self) {
        for server in self.servers.values_mut() {
            // Already dead is as good.
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

impl Stage {
    /// The line with other ports and with the variables of the text.
    fn real(&mut self, line: &str) -> String {
        let mut real = String::new();
        let mut rest = line;
        while let Some(at) = rest.find("127.0.0.1:") {
            let (before, after) = rest.split_at(at + "127.0.0.1:".len());
            let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
            let port = *self.ports.entry(digits.clone()).or_insert_with(|| free_port().unwrap());
            real += &format!("{before}{port}");
            rest = &after[digits.len()..];
        }
        real += rest;
        for (name, value) in &self.variables {
            real = real.replace(&format!("${name}"), value);
        }
        real
    }

    fn command(&self, line: &str) -> Command {
        let mut words = line.split_whitespace();
        assert_eq!(words.next(), Some("clawhive"), "{line}");
        let mut command = Command::new(binary());
        command.args(words).current_dir(self.home.path()).stdin(Stdio::null());
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("CLAWHIVE_") {
                command.env_remove(name);
            }
        }
        if let Some(server) = self.variables.get("CLAWHIVE_SERVER") {
            command.env("CLAWHIVE_SERVER", server);
        }
        command
    }

    fn serve(&mut self, line: &str) -> (String, mpsc::Receiver<String>) {
        let name = line.split_whitespace().skip_while(|word| *word != "--data").nth(1).unwrap().to_owned();
        let log = std::fs::File::create(self.home.path().join(format!("{name}.log"))).unwrap();
        let mut command = self.command(line);
        command.env_remove("CLAWHIVE_SERVER");
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let (tell, told) = mpsc::channel();
        let out = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                if tell.send(line).is_err() {
                    return;
                }
            }
        });
        self.servers.insert(name.clone(), child);
        (name, told)
    }

    /// Notes the ids of servers that got ready, by which the text calls them.
    fn ready(&mut self, starting: Starting) {
        for (name, told) in starting {
            let line = told.recv_timeout(PATIENCE).unwrap_or_else(|_| {
                let log = std::fs::read_to_string(self.home.path().join(format!("{name}.log")));
                panic!("{name} is not ready: {log:?}")
            });
            let id = line.split("node=").nth(1).unwrap_or_else(|| panic!("{line}")).trim().to_owned();
            let called = match name.as_str() {
                "n3" => "DEAD",
                "n4" => "NEW",
                _ => continue,
            };
            self.variables.insert(called.to_owned(), id);
        }
    }

    fn end(&mut self, signal: rustix::process::Signal, name: &str) {
        let mut child = self.servers.remove(name).unwrap_or_else(|| panic!("no server {name}"));
        let pid = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
        child.wait().unwrap();
    }

    /// Runs a verb until it does what the text says.
    fn verb(&mut self, line: &str, expected: Option<&str>, fails: bool) {
        let begun = Instant::now();
        loop {
            let Output { status, stdout, stderr } = self.command(line).output().unwrap();
            let (out, err) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
            let said = expected.is_none_or(|text| out.contains(text));
            if status.success() != fails && said {
                self.ran += 1;
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "`{line}` does not print {expected:?}: {status}\n{out}{err}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn block(&mut self, kind: &str, lines: &[&str]) {
        let mut starting = Starting::new();
        for line in lines {
            let line = self.real(line);
            let (line, expected) = match line.split_once("#>") {
                Some((line, expected)) => (line.to_owned(), Some(expected.trim().to_owned())),
                None => (line.split(" # ").next().unwrap_or_default().to_owned(), None),
            };
            let line = line.trim();
            if let Some((name, value)) = line.strip_prefix("export ").and_then(|set| set.split_once('=')) {
                self.variables.insert(name.to_owned(), value.to_owned());
            } else if line.starts_with("clawhive server ") {
                starting.push(self.serve(line));
                self.ran += 1;
                if kind != "background" {
                    self.ready(std::mem::take(&mut starting));
                }
            } else {
                self.verb(line, expected.as_deref(), kind == "fails");
            }
        }
        self.ready(starting);
    }
}

#[test]
fn every_procedure_works_as_it_is_written() {
    alone(|| async {
        let home = tempfile::tempdir().unwrap();
        assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/operations.md").is_file());
        let mut stage = Stage {
            home,
            ports: BTreeMap::new(),
            servers: BTreeMap::new(),
            variables: BTreeMap::new(),
            ran: 0,
        };
        tokio::task::block_in_place(|| play(&mut stage));
        assert!(stage.ran >= 20, "only {} commands were run", stage.ran);
    });
}

fn play(stage: &mut Stage) {
    let mut lines = DOCUMENT.lines();
    while let Some(line) = lines.next() {
        if let Some(directive) = line.strip_prefix("<!-- test: ") {
            let words: Vec<&str> = directive.trim_end_matches("-->").split_whitespace().collect();
            match words[..] {
                ["kill", name] => stage.end(rustix::process::Signal::KILL, name),
                ["stop", name] => stage.end(rustix::process::Signal::TERM, name),
                _ => panic!("no directive {directive}"),
            }
        }
        if let Some(kind) = line.strip_prefix("```sh") {
            let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            stage.block(kind.trim(), &block);
        }
    }
}
