//! Nodes that come, go, die and lose their disks: real processes, and what a person sees.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clawhive_client::proto::{ClusterStatusResponse, RunState};
use clawhive_jepsen::cable::Proxy;
use clawhive_jepsen::cluster::Cluster;
use clawhive_jepsen::growth::{self, grow_and_shrink};
use serde_json::Value;

use crate::support::*;

const LONG: Duration = Duration::from_secs(60);

/// What a verb said and how it ended.
#[derive(Debug)]
struct Said {
    code: i32,
    out: String,
    err: String,
    took: Duration,
}

impl Said {
    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// It went well and said this.
    fn says(&self, text: &str) {
        assert!(self.code == 0 && self.out.contains(text), "not {text:?}: {self:?}");
    }

    /// It was refused with this exit code and these words, within five seconds.
    fn refused(&self, code: i32, text: &str) {
        assert!(self.code == code && self.err.contains(text), "not {text:?}: {self:?}");
        assert!(self.took < Duration::from_millis(5_500), "{self:?}");
    }
}

/// Runs a verb against one node.
fn verb(cluster: &Cluster, number: usize, line: &str) -> Said {
    let begun = Instant::now();
    let server = &cluster.members[number].listen;
    let mut command = Command::new(binary());
    let output =
        command.args(line.split(' ')).args(["--server", server]).stdin(Stdio::null()).output().unwrap();
    said(output, begun)
}

/// Starts a member that must not start, and what it says.
fn refused_start(cluster: &Cluster, number: usize) -> Said {
    let begun = Instant::now();
    said(cluster.command(number).output().unwrap(), begun)
}

fn said(output: std::process::Output, begun: Instant) -> Said {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Said {
        code: output.status.code().unwrap_or(-1),
        out: text(output.stdout),
        err: text(output.stderr),
        took: begun.elapsed(),
    }
}

/// Waits until some node that is up says so.
async fn until(cluster: &Cluster, what: &str, holds: impl Fn(&ClusterStatusResponse) -> bool) {
    let begun = Instant::now();
    let mut last = None;
    while begun.elapsed() < LONG {
        for number in 0..cluster.members.len() {
            last = cluster.status_of(number).await.or(last);
            if last.as_ref().is_some_and(&holds) {
                return;
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("not within {LONG:?}: {what}: {last:#?}");
}

async fn put(cluster: &Cluster, number: usize, key: &str) {
    cluster.client_of(number).unwrap().put_key("default", key, "v").await.unwrap();
}

/// Must show 5, short; the long version is `clawhive-jepsen growth --rounds 20`.
#[test]
fn one_three_five_three_under_load_with_kills_loses_nothing() {
    alone(|| async {
        let options = growth::Options {
            binary: binary(),
            out: None,
            seed: 5,
            clients: 2,
            pause: Duration::from_millis(300),
            rounds: 1,
        };
        let report = grow_and_shrink(&options).await.unwrap();
        println!("{report:?}");
        assert!(report.broken.is_empty(), "{:?}", report.broken);
        assert!(report.acknowledged > 100 && report.kills >= 4, "{report:?}");
    });
}

/// F-04.
#[test]
fn a_wiped_node_is_told_what_to_do_and_joins_as_a_new_one() {
    alone(|| async {
        let mut cluster = cluster(3, None).await;
        put(&cluster, 0, "before").await;
        let old = cluster.members[2].id;
        // The log alone is lost.
        cluster.kill(2).unwrap();
        std::fs::remove_dir_all(cluster.members[2].data.join("raft")).unwrap();
        let lost = refused_start(&cluster, 2);
        lost.refused(6, &format!("clawhive node remove {old}"));
        lost.refused(6, "has lost its log; this node must not vote again under its old id");
        // All of it is lost. Neither flag: nothing to restart. --join: the address is known as somebody else's.
        let seed = cluster.members[2].peer_listen.clone();
        cluster.wipe(2).unwrap();
        let mut bare = cluster.command(2);
        let args: Vec<_> = bare.get_args().map(ToOwned::to_owned).collect();
        bare = {
            let mut command = Command::new(binary());
            command.args(&args[..args.len() - 2]).env_remove("CLAWHIVE_BIN");
            command
        };
        said(bare.output().unwrap(), Instant::now()).refused(2, "is empty: start with --bootstrap");
        let refused = refused_start(&cluster, 2);
        refused.refused(6, &format!("{seed} is the address of node {old}, which has another data directory"));
        refused.refused(6, &format!("`clawhive node remove {old}`"));
        // The others noticed nothing, and nothing was counted twice.
        let status = cluster.status_of(0).await.unwrap();
        assert_eq!((status.voters, status.reachable, status.nodes.len()), (3, 2, 3), "{status:?}");
        // As it was told. The cluster is idle all the time.
        verb(&cluster, 0, &format!("node remove {old}")).says(&format!("node {old} is removed"));
        cluster.spawn(2).unwrap();
        cluster.ready(2).await.unwrap();
        let new = cluster.members[2].id;
        assert!(new > old, "{new} is not a new id");
        until(&cluster, "three voters that have everything", |status| {
            status.voters == 3 && status.reachable == 3 && status.nodes.iter().all(|node| node.lag == 0)
        })
        .await;
        let client = cluster.client_of(2).unwrap();
        let request = clawhive_client::proto::GetKeyRequest {
            namespace: "default".into(),
            key: "before".into(),
            stale: true,
        };
        assert!(client.get_key(request).await.unwrap().found);
    });
}

/// F-06 and F-08: five nodes lose one after the other.
#[test]
fn what_would_lose_the_majority_is_refused_and_dead_nodes_leave() {
    alone(|| async {
        let mut cluster = cluster(5, None).await;
        let ids: Vec<u64> = cluster.members.iter().map(|member| member.id).collect();
        for dead in [3, 4] {
            cluster.kill(dead).unwrap();
        }
        cluster.wait_leader(LONG).await.unwrap();
        until(&cluster, "two are down", |status| status.reachable == 3 && status.leader != 0).await;
        // The leader takes a silent node for dead only after two election timeouts.
        tokio::time::sleep(Duration::from_secs(2)).await;
        for doing in ["remove", "demote"] {
            let refused = verb(&cluster, 0, &format!("node {doing} {}", ids[2]));
            let doing = doing.trim_end_matches('e').to_owned() + "ing";
            let text =
                format!("{doing} node {} would lose the quorum: 2 of 4 voters reachable, 3 needed", ids[2]);
            refused.refused(6, &text);
            refused.refused(6, "hint: `clawhive cluster health`");
        }
        let health = verb(&cluster, 0, "cluster health -o json").json();
        assert_eq!((&health["health"], &health["tolerates"]), (&"at_risk".into(), &0.into()), "{health}");
        // The dead go, and are left alone from then on.
        for dead in [3, 4] {
            verb(&cluster, 0, &format!("node remove {}", ids[dead]))
                .says(&format!("node {} is removed", ids[dead]));
        }
        let again = verb(&cluster, 0, &format!("node remove {}", ids[4]));
        again.refused(5, &format!("there is no node {}; it was removed", ids[4]));
        let listener = std::net::TcpListener::bind(&cluster.members[4].peer_listen).unwrap();
        listener.set_nonblocking(true).unwrap();
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        assert!(listener.accept().is_err(), "a removed node is still contacted");
        drop(listener);
        // It comes back, hears that it is not one of them any more, and keeps quiet.
        let term = cluster.status_of(0).await.unwrap().term;
        cluster.spawn(3).unwrap();
        let (code, log) = cluster.end(3, LONG).await.unwrap();
        assert_eq!(code, 6, "{log}");
        let text = format!("node {} was removed from cluster ", ids[3]);
        assert_eq!(log.matches(&text).count(), 1, "{log}");
        assert!(log.contains("to bring the machine back, empty it and start with --join"), "{log}");
        assert_eq!(cluster.status_of(0).await.unwrap().term, term, "it disturbed the others");
        // Three are left: one may die.
        cluster.kill(2).unwrap();
        cluster.wait_leader(LONG).await.unwrap();
        put(&cluster, 0, "two of three").await;
        // Two may not: within five seconds every verb says who is there and who is not.
        cluster.kill(1).unwrap();
        let who = format!(
            "no quorum: 1 of 3 reachable (node {} yes; node {} at {}, node {} at {} not)",
            ids[0], ids[1], cluster.members[1].peer_listen, ids[2], cluster.members[2].peer_listen
        );
        for line in [&format!("node remove {}", ids[2]), "cancel 1", "ls", "cluster transfer-leader"] {
            verb(&cluster, 0, line).refused(7, &who);
        }
        let health = verb(&cluster, 0, "cluster health");
        assert!(health.code == 7 && health.out.contains(&who), "{health:?}");
        let health = verb(&cluster, 0, "cluster health -o json");
        assert_eq!((health.code, &health.json()["error"]["code"]), (7, &"no_quorum".into()), "{health:?}");
        let nodes = verb(&cluster, 0, "node ls");
        assert!(nodes.code == 0 && nodes.err.contains("stale: there is no quorum"), "{nodes:?}");
        assert_eq!(verb(&cluster, 0, "node ls -o json").json()["stale"], true);
        // The first request after it is over succeeds.
        cluster.restart(1).await.unwrap();
        put(&cluster, 0, "two again").await;
    });
}

/// F-07: a node is added whose network is cut half way.
#[test]
fn a_node_that_is_cut_off_while_it_catches_up_holds_nothing_up() {
    alone(|| async {
        let mut cluster = cluster(3, None).await;
        let client = cluster.client().unwrap();
        let big = vec![b'x'; 256 * 1024];
        for number in 0..120 {
            client.put_key("default", format!("big/{number}"), big.clone()).await.unwrap();
        }
        let number = cluster.place().unwrap();
        let proxy = Proxy::start(cluster.members[number].peer_listen.clone(), Some(15 << 20)).await.unwrap();
        cluster.members[number].env.push(("CLAWHIVE_PEER_ADVERTISE".to_owned(), proxy.addr.clone()));
        cluster.spawn(number).unwrap();
        let begun = Instant::now();
        while !proxy.is_cut() {
            assert!(begun.elapsed() < LONG, "only {} bytes passed", proxy.passed());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        until(&cluster, "the new node is not reachable while it catches up", |status| {
            let shown = status.nodes.iter().find(|node| node.role == "learner");
            shown.is_some_and(|node| node.note.starts_with("not reachable while catching up: it lacks "))
        })
        .await;
        let status = cluster.status_of(0).await.unwrap();
        let new = status.nodes.iter().find(|node| node.role == "learner").unwrap().clone();
        assert!(status.voters == 3 && new.lag > 20, "{status:?}");
        let health = verb(&cluster, 0, "cluster health");
        health.says(&format!("clawhive node remove {}", new.id));
        // Another node dies: the new one is not counted, writes go on.
        cluster.kill(2).unwrap();
        cluster.wait_leader(LONG).await.unwrap();
        put(&cluster, 0, "with two of three").await;
        assert_eq!(cluster.status_of(0).await.unwrap().voters, 3);
        cluster.restart(2).await.unwrap();
        // It is given up.
        verb(&cluster, 0, &format!("node remove {}", new.id)).says(&format!("node {} is removed", new.id));
        until(&cluster, "it is gone", |status| status.nodes.len() == 3 && status.health == "ok").await;
        cluster.kill(number).unwrap();
    });
}

/// All nodes come back at other addresses, and find each other by what they were told.
#[test]
fn after_a_cold_start_at_other_addresses_the_nodes_find_each_other() {
    alone(|| async {
        let mut cluster = cluster(3, None).await;
        put(&cluster, 0, "before").await;
        for number in 0..3 {
            cluster.stop(number, LONG).await.unwrap();
            cluster.move_away(number).unwrap();
        }
        // The first two know each other; the third only knows the first.
        let seeds: Vec<String> = cluster.members.iter().map(|member| member.peer_listen.clone()).collect();
        for (number, seeds) in [(0, &seeds[1..2]), (1, &seeds[..1]), (2, &seeds[..1])] {
            cluster.members[number].flags = vec!["--join".to_owned(), seeds.join(",")];
            cluster.spawn(number).unwrap();
        }
        for number in 0..3 {
            cluster.ready(number).await.unwrap();
        }
        let moved = |status: &ClusterStatusResponse| {
            let table = |addr: &String| {
                let at = |node: &clawhive_client::proto::NodeView| {
                    node.row.as_ref().is_some_and(|row| row.peer_listen == *addr)
                };
                status.nodes.iter().any(at)
            };
            status.reachable == 3 && status.leader != 0 && seeds.iter().all(table)
        };
        until(&cluster, "the table has the new addresses", moved).await;
        put(&cluster, 0, "after").await;
        // From here on each knows where the others are.
        for member in &mut cluster.members {
            member.flags.clear();
        }
        cluster.kill(1).unwrap();
        cluster.restart(1).await.unwrap();
        until(&cluster, "all are there", |status| status.reachable == 3 && status.health == "ok").await;
    });
}

/// The verbs on a healthy cluster, as a person and as a program see them.
#[test]
fn nodes_are_drained_demoted_and_promoted_and_the_leadership_moves() {
    alone(|| async {
        let mut cluster = cluster(3, None).await;
        let client = cluster.client().unwrap();
        verb(&cluster, 0, "cluster health")
            .says("Health     ok\nQuorum     yes, 3 of 3 voters reachable, 1 more may be lost");
        let leader = cluster.wait_leader(LONG).await.unwrap();
        let (led, other) = (cluster.members[leader].id, (leader + 1) % 3);
        let id = cluster.members[other].id;
        let moved = verb(&cluster, (leader + 2) % 3, &format!("cluster transfer-leader {id} -o json")).json();
        assert_eq!(
            (&moved["from"], &moved["to"]),
            (&led.to_string().into(), &id.to_string().into()),
            "{moved}"
        );
        until(&cluster, "it leads", |status| status.leader == id).await;
        verb(&cluster, other, &format!("cluster transfer-leader {id}"))
            .says(&format!("node {id} leads already"));
        verb(&cluster, 0, "cluster transfer-leader 999").refused(5, "there is no node 999");
        // The leader is drained while it runs something: it leads no more, gets nothing new, and what it runs ends well.
        let flow = r#"{"name": "long", "tasks": {"a": {"run": "sleep 3"}, "b": {"run": "sleep 3"}, "c": {"run": "sleep 3"},
            "d": {"run": "sleep 3"}, "e": {"run": "sleep 3"}, "f": {"run": "sleep 3"}, "g": {"run": "sleep 3"},
            "h": {"run": "sleep 3"}, "i": {"run": "sleep 3"}, "j": {"run": "sleep 3"}}}"#;
        let run = submit(&client, flow).await;
        until(&cluster, "it runs something", |status| {
            status.nodes.iter().any(|node| node.id == id && node.running > 0)
        })
        .await;
        let drained = verb(&cluster, 0, &format!("node drain {id} -o json")).json();
        assert_eq!(
            (&drained["node"], &drained["settled"]),
            (&id.to_string().into(), &false.into()),
            "{drained}"
        );
        until(&cluster, "another leads", |status| status.leader != 0 && status.leader != id).await;
        let nodes = verb(&cluster, 0, "node ls -o json").json();
        let text = id.to_string();
        let shown =
            nodes["nodes"].as_array().unwrap().iter().find(|node| node["id"] == text.as_str()).unwrap();
        assert_eq!((&shown["state"], &shown["health"]), (&"draining".into(), &"draining".into()), "{shown}");
        verb(&cluster, 0, &format!("node drain {id} --wait 30s"))
            .says(&format!("node {id} is drained: nothing runs on it"));
        let view = ended(&client, run, LONG).await;
        assert_eq!(state(&view), RunState::Succeeded);
        assert!(view.tasks.iter().all(|task| task.attempts.len() == 1), "{view:?}");
        let quick = submit(&client, r#"{"name": "quick", "tasks": {"a": {"run": "true"}}}"#).await;
        let view = ended(&client, quick, LONG).await;
        assert_ne!(view.tasks[0].attempts[0].row.as_ref().unwrap().claw, id, "it was given work");
        // A restart does not undo it.
        cluster.kill(other).unwrap();
        cluster.restart(other).await.unwrap();
        until(&cluster, "it drains still", |status| {
            status.nodes.iter().any(|node| node.id == id && node.state == "draining")
        })
        .await;
        verb(&cluster, 0, &format!("node activate {id}")).says(&format!("node {id} takes work again"));
        // Without its vote it goes on as a claw, also after a restart as what it was.
        verb(&cluster, 0, &format!("node demote {id} --wait 30s"))
            .says(&format!("node {id} has no vote any more"));
        cluster.kill(other).unwrap();
        cluster.restart(other).await.unwrap();
        until(&cluster, "a claw", |status| {
            status.voters == 2
                && status.nodes.iter().any(|node| node.id == id && node.role == "claw" && node.health == "ok")
        })
        .await;
        let hint = verb(&cluster, 0, "cluster health");
        hint.says("no-spare: two voters: the cluster stops when either does");
        verb(&cluster, 0, &format!("node join {id} --wait 30s")).says(&format!("node {id} votes"));
        verb(&cluster, 0, "node join").says(&format!("--join {}", cluster.members[0].peer_listen));
        // A fourth voter helps nobody.
        let fourth = cluster.add().await.unwrap();
        until(&cluster, "four voters", |status| status.voters == 4).await;
        verb(&cluster, 0, "cluster health")
            .says("even-voters: 4 voters tolerate the loss of 1, no more than 3 do");
        // The leader removes itself: it hands over first, and ends.
        let leader = cluster.wait_leader(LONG).await.unwrap();
        let led = cluster.members[leader].id;
        verb(&cluster, fourth, &format!("node remove {led} --wait 30s"));
        let (code, log) = cluster.end(leader, LONG).await.unwrap();
        assert!(code == 6 && log.contains("was removed from cluster"), "{code}: {log}");
        until(&cluster, "three voters", |status| {
            status.voters == 3 && status.leader != 0 && status.health == "ok"
        })
        .await;
    });
}
