//! Locks and the watch on three real nodes: a holder killed, a leader killed, nodes started again.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use clawhive_client::proto::{GetKeyRequest, ListEventsRequest};
use clawhive_client::{Client, PutOptions};
use clawhive_jepsen::cluster::Cluster;
use futures::StreamExt;
use rustix::process::{Pid, Signal, kill_process};

use super::support::{alone, binary, cluster};

const PATIENCE: Duration = Duration::from_secs(60);

/// Calls the binary, with the whole cluster to choose from.
fn clawhive(cluster: &Cluster, line: &[&str]) -> Command {
    let servers: Vec<&str> = cluster.members.iter().map(|member| member.listen.as_str()).collect();
    let mut command = Command::new(binary());
    command.args(line).env("CLAWHIVE_SERVER", servers.join(",")).stdin(Stdio::null());
    command
}

fn call(cluster: &Cluster, line: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = clawhive(cluster, line).output().expect("the binary starts");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (status.code(), text(stdout), text(stderr))
}

/// `clawhive lock` in a terminal of its own.
struct Terminal {
    process: Child,
    lines: mpsc::Receiver<String>,
}

impl Terminal {
    fn open(cluster: &Cluster, line: &[&str]) -> Terminal {
        let mut command = clawhive(cluster, line);
        let mut process =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts");
        let (told, lines) = mpsc::channel();
        let pipes: [Box<dyn std::io::Read + Send>; 2] = [
            Box::new(process.stdout.take().expect("piped")),
            Box::new(process.stderr.take().expect("piped")),
        ];
        for pipe in pipes {
            let told = told.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                    if told.send(line).is_err() {
                        return;
                    }
                }
            });
        }
        Terminal { process, lines }
    }

    /// The next line that begins like this, from after that on.
    fn line(&self, start: &str) -> String {
        let until = Instant::now() + PATIENCE;
        let mut seen = Vec::new();
        while let Ok(line) = self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            if let Some(rest) = line.strip_prefix(start) {
                return rest.to_owned();
            }
            seen.push(line);
        }
        panic!("no line {start:?}; seen {seen:?}");
    }

    fn number(&self, start: &str) -> u64 {
        let text = self.line(start);
        text.parse().unwrap_or_else(|_| panic!("{start:?} {text:?}"))
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.process.id() as i32).expect("a number");
        kill_process(pid, signal).expect("it runs");
    }

    fn code(&mut self) -> Option<i32> {
        self.process.wait().expect("it ends").code()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A process is there and not only waiting to be reaped.
fn lives(pid: u64) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

#[test]
fn the_holder_is_killed_and_the_other_gets_a_larger_token() {
    alone(|| async {
        let cluster = cluster(3, None).await;
        let work = "echo child $$; echo token $CLAWHIVE_FENCE; sleep 120";
        let line = ["lock", "deploy", "--ttl", "3s", "--", "sh", "-c", work];
        let mut first = Terminal::open(&cluster, &line);
        let child = first.number("child ");
        let old = first.number("token ");
        let guarded = |token: u64, value: &str| {
            let token = token.to_string();
            call(&cluster, &["kv", "put", "deployed", value, "--fence", &token, "--lock", "deploy"])
        };
        assert_eq!(guarded(old, "v1").0, Some(0));

        let second = Terminal::open(&cluster, &line);
        let waits = second.line("waiting for lock deploy: held by ");
        assert!(waits.ends_with(&format!("(token {old})")), "{waits}");
        let (code, _, said) =
            call(&cluster, &["lock", "deploy", "--wait-timeout", "300ms", "--", "echo", "never"]);
        assert_eq!(code, Some(4), "{said}");
        assert!(said.contains("lock deploy was not free within 300ms"), "{said}");

        first.signal(Signal::KILL);
        first.process.wait().expect("killed");
        let new = second.number("token ");
        assert!(new > old, "{new} after {old}");
        let until = Instant::now() + PATIENCE;
        while lives(child) {
            assert!(Instant::now() < until, "the command of the killed holder goes on");
            std::thread::sleep(Duration::from_millis(20));
        }
        let (code, _, said) = guarded(old, "v0");
        assert_eq!(code, Some(6), "{said}");
        assert!(
            said.contains(&format!("token {old} is not the current one of lock default/deploy")),
            "{said}"
        );
        assert_eq!(guarded(new, "v2").0, Some(0));
        // Also without the name of the lock: the key remembers.
        let (code, _, said) = call(&cluster, &["kv", "put", "deployed", "v0", "--fence", &old.to_string()]);
        assert_eq!(code, Some(6), "{said}");
        assert_eq!(call(&cluster, &["kv", "get", "deployed"]), (Some(0), "v2".into(), String::new()));
        let (code, held, _) = call(&cluster, &["lock", "-o", "json"]);
        assert!(code == Some(0) && held.contains(&format!("\"token\": \"{new}\"")), "{held}");

        // A signal is passed on, and the code of the command is ours.
        let mut third = Terminal::open(&cluster, &["lock", "other", "--", "sh", "-c", "echo up; sleep 120"]);
        third.line("up");
        third.signal(Signal::TERM);
        assert_eq!(third.code(), Some(128 + 15));
        assert_eq!(call(&cluster, &["lock", "other", "--", "sh", "-c", "exit 42"]).0, Some(42));
        assert_eq!(call(&cluster, &["lock", "other", "--", "/no/such/program"]).0, Some(127));
        assert_eq!(call(&cluster, &["lock", "other"]).0, Some(5), "it was given up each time");
    });
}

#[test]
fn without_a_quorum_the_command_is_stopped_and_stale_reads_say_so() {
    alone(|| async {
        let mut cluster = cluster(3, None).await;
        let client = cluster.client().unwrap();
        client.kv().put("k", "v", PutOptions::new()).await.unwrap();
        let line = ["lock", "l", "--ttl", "2s", "--grace", "500ms", "--"];
        // It does not want to go.
        let stubborn = "trap '' TERM; echo up; while :; do sleep 0.1; done";
        let mut holder = Terminal::open(&cluster, &[&line[..], &["sh", "-c", stubborn]].concat());
        holder.line("up");
        cluster.kill(0).unwrap();
        cluster.kill(1).unwrap();
        let lost = holder.line("error: lock l is lost: ");
        assert!(lost.ends_with("; stopping the command"), "{lost}");
        let last = holder.line("error: lock l was lost: ");
        assert!(last.contains("the command was stopped"), "{last}");
        assert_eq!(holder.code(), Some(6));

        let server = cluster.members[2].listen.clone();
        let (code, value, said) = call(&cluster, &["kv", "get", "k", "--stale", "--server", &server]);
        assert_eq!((code, value.as_str()), (Some(0), "v"), "{said}");
        assert!(said.starts_with("stale: applied ") && said.contains(" s old"), "{said}");
        let (code, table, said) = call(&cluster, &["node", "ls", "--stale", "--server", &server]);
        assert_eq!(code, Some(0), "{said}");
        assert!(table.starts_with("stale: applied ") && table.contains("down"), "{table}");
        let (code, _, said) = call(&cluster, &["kv", "get", "k", "--server", &server]);
        assert!(code == Some(7) && said.contains("no quorum: 1 of 3 reachable"), "{said}");
    });
}

/// Makes an event each time; answers with its log index.
async fn ring(client: &Client, n: usize) -> u64 {
    let guard =
        client.lock(format!("bell{n}"), Duration::from_secs(30)).acquire().await.expect("a free lock");
    let token = guard.token();
    guard.release().await.expect("released");
    token
}

#[test]
fn the_watch_goes_on_over_a_killed_leader_and_a_restart_without_gap_or_repeat() {
    alone(|| async {
        let mut cluster = cluster(3, None).await;
        let client = cluster.client().unwrap();
        let kinds = vec!["lock_acquired".to_owned()];
        let request =
            ListEventsRequest { follow: true, kinds, namespace: "default".into(), ..Default::default() };
        let (told, mut heard) = tokio::sync::mpsc::unbounded_channel();
        let mut events = cluster.client().unwrap().events(request);
        let watch = tokio::spawn(async move {
            while let Some(event) = events.next().await {
                if told.send(event.map(|event| event.log_index)).is_err() {
                    return;
                }
            }
        });
        let mut rung = Vec::new();
        for round in 0..3 {
            for n in 0..20 {
                rung.push(ring(&client, n).await);
                if n == 10 && round < 2 {
                    let leader = cluster.wait_leader(PATIENCE).await.unwrap();
                    cluster.kill(leader).unwrap();
                    rung.push(ring(&client, 99).await);
                    cluster.restart(leader).await.unwrap();
                }
            }
        }
        let mut seen = Vec::new();
        while seen.len() < rung.len() {
            let event = tokio::time::timeout(PATIENCE, heard.recv()).await;
            let event = event.unwrap_or_else(|_| panic!("{} of {} events", seen.len(), rung.len()));
            seen.push(event.expect("the watch goes on").expect("an event"));
        }
        assert_eq!(seen, rung, "each once, in order");
        watch.abort();
        // Every node tells the same, from any place.
        let place = rung[rung.len() / 2];
        let mut told: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
        for number in 0..3 {
            let kinds = vec!["lock_acquired".to_owned()];
            let request = ListEventsRequest { after_log_index: place, kinds, ..Default::default() };
            let events: Vec<_> = cluster.client_of(number).unwrap().events(request).collect().await;
            let rest = events.into_iter().map(|event| event.expect("kept").log_index).collect();
            told.insert(number, rest);
        }
        let rest: Vec<u64> = rung.iter().copied().filter(|index| *index > place).collect();
        assert!(told.values().all(|found| *found == rest), "{told:?}");
        let get = GetKeyRequest { key: "none".into(), stale: true, ..Default::default() };
        assert!(!client.get_key(get).await.unwrap().found);
    });
}
