//! Every procedure of docs/operations.md, run as it is written: each `##` chapter is one script in an empty folder, in a
//! network namespace of its own that has the addresses of the text. After a line that starts a server the script waits
//! until that one is ready, as a person would.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::support::{alone, binary};

/// A chapter with at least one block to run.
struct Procedure {
    title: String,
    /// The lines of its `sh` blocks, in order.
    lines: Vec<String>,
    /// What the blocks marked `text` show: fragments that must come out.
    shown: Vec<String>,
}

fn procedures(text: &str) -> Vec<Procedure> {
    let (mut all, mut block): (Vec<Procedure>, Option<&str>) = (Vec::new(), None);
    for line in text.lines() {
        match (block, line) {
            (None, line) if line.starts_with("## ") => {
                all.push(Procedure { title: line[3..].to_owned(), lines: Vec::new(), shown: Vec::new() });
            }
            (None, line) if line.starts_with("```") => block = Some(&line[3..]),
            (Some(_), "```") => block = None,
            (Some("sh"), line) => all.last_mut().expect("a chapter").lines.push(line.to_owned()),
            (Some("text"), line) if !line.trim().is_empty() => {
                all.last_mut().expect("a chapter").shown.push(line.trim().to_owned());
            }
            _ => {}
        }
    }
    all.retain(|procedure| !procedure.lines.is_empty());
    all
}

/// The lines of the first chapter and of this one as a script.
fn script<'a>(lines: impl Iterator<Item = &'a String>) -> String {
    let mut script = String::from(
        "set -eu\nip link set lo up\n\
         for host in 1 2 3 4 5 11 12 13; do ip addr add 10.0.0.$host/32 dev lo; done\n\
         ready() { for _ in $(seq 300); do grep -q '^ready ' \"$1\" 2>/dev/null && return; sleep 0.1; done; \
         echo \"not ready: $1\"; cat \"$1\".log; exit 99; }\n\
         trap 'kill -9 $(jobs -p) 2>/dev/null || true' EXIT\n",
    );
    let (mut servers, mut waits) = (0, String::new());
    for line in lines {
        let command = line.split(" #").next().unwrap_or_default().trim_end();
        if let Some(server) = command.strip_suffix('&') {
            // Servers that stand together may need each other to get ready.
            servers += 1;
            let out = format!("server-{servers}.out");
            script += &format!("{server} >{out} 2>{out}.log &\n");
            waits += &format!("ready {out}\n");
            continue;
        }
        script += &std::mem::take(&mut waits);
        script += &format!("echo '$ {}'\n{line}\n", command.replace('\'', "'\\''"));
    }
    script += &waits;
    script
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn book() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/operations.md")
}

#[test]
fn every_procedure_works_as_it_is_written() {
    if !is_root() {
        println!("skipped: network namespaces need root");
        return;
    }
    alone(|| async {
        let text = std::fs::read_to_string(book()).unwrap();
        let procedures = procedures(&text);
        assert!(procedures.len() >= 6, "{} procedures", procedures.len());
        let programs = binary().parent().unwrap().to_owned();
        for (number, procedure) in procedures.iter().enumerate() {
            let first = procedures[..number.min(1)].iter().flat_map(|first| &first.lines);
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join("procedure.sh"), script(first.chain(&procedure.lines))).unwrap();
            let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
            let out = std::fs::File::create(folder.path().join("procedure.out")).unwrap();
            let mut child = Command::new("unshare")
                .args(["--net", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "procedure.sh"])
                .current_dir(folder.path())
                .env_clear()
                .env("PATH", path)
                .env("HOME", folder.path())
                .stdin(Stdio::null())
                .stderr(out.try_clone().unwrap())
                .stdout(out)
                .spawn()
                .unwrap();
            let until = Instant::now() + Duration::from_secs(120);
            let status = loop {
                if let Some(status) = child.try_wait().unwrap() {
                    break status;
                }
                if Instant::now() > until {
                    child.kill().unwrap();
                    break child.wait().unwrap();
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            };
            let said = std::fs::read_to_string(folder.path().join("procedure.out")).unwrap();
            assert!(status.success(), "{}: {status}\n{said}", procedure.title);
            for shown in &procedure.shown {
                assert!(said.contains(shown), "{}: no {shown:?} in\n{said}", procedure.title);
            }
        }
    });
}

#[test]
fn a_chapter_becomes_a_script() {
    let text = "# Book\n## One\nText.\n```sh\nserver --a &\nclient x   # why\n```\n```text\n  ok\n```\n## Two\nNothing.\n";
    let procedures = procedures(text);
    assert_eq!(procedures.len(), 1);
    assert_eq!((procedures[0].title.as_str(), procedures[0].shown.as_slice()), ("One", &["ok".to_owned()][..]));
    let script = script(procedures[0].lines.iter());
    assert!(script.contains("server --a  >server-1.out 2>server-1.out.log &\nready server-1.out\necho"), "{script}");
    assert!(script.contains("echo '$ client x'\nclient x   # why\n"), "{script}");
}
