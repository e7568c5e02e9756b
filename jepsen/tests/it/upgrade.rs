//! Case F-09: the data of the release before goes on; nothing new gets into the log before every node can read it; an
//! older version refuses what it cannot read, and changes nothing.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use clawhive_client::Client;
use clawhive_client::proto::RunState;
use clawhive_jepsen::cluster::{Cluster, Options};
use rustix::process::{Pid, Signal, kill_process};

use super::support::{alone, binary, ended, state, submit};

const HELLO: &str = r#"{"name": "hello", "tasks": {"greet": {"run": "echo hello"}}}"#;

fn clawhive(binary: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(binary);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CLAWHIVE_")) {
        command.env_remove(name);
    }
    command.args(arguments).stdin(Stdio::null()).output().expect("the binary starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The data directory of a node of release 0.1 that was killed while run 3 was under way.
fn unpack(into: &Path) {
    let packed = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/release-0.1.tar.gz");
    std::fs::create_dir_all(into).unwrap();
    let done = Command::new("tar").arg("-xzf").arg(packed).arg("-C").arg(into).status().unwrap();
    assert!(done.success());
}

/// A server of this version over a directory that has its data, and where clients reach it once it is ready.
fn serve(data: &Path) -> (Child, String) {
    let mut command = Command::new(binary());
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CLAWHIVE_")) {
        command.env_remove(name);
    }
    let mut server = command
        .args(["server", "--listen", "127.0.0.1:0", "--peer-listen", "127.0.0.1:0", "--data"])
        .arg(data)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let listen = line.split_whitespace().find_map(|word| word.strip_prefix("listen=")).expect("a ready line");
    (server, listen.to_owned())
}

fn format_of(data: &Path) -> u64 {
    let identity = std::fs::read_to_string(data.join("identity.json")).unwrap();
    serde_json::from_str::<serde_json::Value>(&identity).unwrap()["format"].as_u64().unwrap()
}

/// The release before, where its binary is at hand.
fn old_binary() -> Option<PathBuf> {
    std::env::var_os("CLAWHIVE_OLD_BIN").map(PathBuf::from)
}

#[test]
fn data_of_release_0_1_goes_on_and_that_release_refuses_it_afterwards() {
    alone(|| async {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        unpack(&data);
        assert_eq!(format_of(&data), 1);
        let (mut server, listen) = serve(&data);
        let client = Client::builder().servers([listen.as_str()]).connect_lazy().unwrap();
        // What was unfinished goes on: its attempt is lost, the next one runs.
        let view = client.get_run(3).await.unwrap();
        assert_eq!(view.run.as_ref().unwrap().workflow, "unfinished");
        let view = super::support::until(&client, 3, "the lost attempt is followed by another", |view| {
            view.tasks[0].attempts.len() == 2
        })
        .await;
        assert_eq!(state(&view), RunState::Running);
        client.cancel(3, "seen enough").await.unwrap();
        // What was stored is there, and ids go on where they were.
        let again = client.submit(clawhive_client::Submit::workflow("kept")).await.unwrap();
        assert_eq!((again.run, again.version), (4, 1));
        assert_eq!(state(&ended(&client, 4, Duration::from_secs(30)).await), RunState::Succeeded);
        assert_eq!(client.cluster_status().await.unwrap().level, 2);
        let pid = Pid::from_raw(i32::try_from(server.id()).unwrap()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        assert!(server.wait().unwrap().success());
        assert_eq!(format_of(&data), 2);

        if let Some(old) = old_binary() {
            let before = std::fs::read(data.join("identity.json")).unwrap();
            let refused = clawhive(&old, &["server", "--data", data.to_str().unwrap()]);
            let said = text(&refused.stderr);
            assert!(!refused.status.success());
            assert!(
                said.contains("has format 2, this version reads format 1; nothing was changed"),
                "{said}"
            );
            assert_eq!(std::fs::read(data.join("identity.json")).unwrap(), before);
        }
    });
}

#[test]
fn a_format_of_a_later_version_is_refused_with_both_named() {
    let folder = tempfile::tempdir().unwrap();
    unpack(folder.path());
    let identity = folder.path().join("identity.json");
    let later = std::fs::read_to_string(&identity).unwrap().replace("\"format\": 1", "\"format\": 3");
    std::fs::write(&identity, &later).unwrap();
    let refused = clawhive(&binary(), &["server", "--data", folder.path().to_str().unwrap()]);
    let said = text(&refused.stderr);
    assert!(!refused.status.success());
    assert!(said.contains("has format 3, this version reads formats 1 to 2; nothing was changed"), "{said}");
    assert_eq!(std::fs::read_to_string(&identity).unwrap(), later);
}

#[test]
fn a_rolling_upgrade_holds_new_things_back_until_every_node_can_do_them() {
    alone(|| async {
        let old = old_binary();
        let mut options = Options::new(3, old.clone().unwrap_or_else(binary));
        if old.is_none() {
            // The new version as careful as the old one: it says that it knows no more than level 1.
            options.env.push(("CLAWHIVE_LEVEL".to_owned(), "1".to_owned()));
        }
        let mut cluster = Cluster::start(options).await.unwrap();
        let client = cluster.client().unwrap();
        let mut runs = vec![submit(&client, HELLO).await];
        cluster.set_binary(binary());
        for node in 0..3 {
            let server = cluster.members[node].listen.clone();
            assert!(cluster.stop(node, Duration::from_secs(30)).await.unwrap());
            runs.push(submit(&client, HELLO).await);
            cluster.members[node].env = vec![("CLAWHIVE_LEVEL".to_owned(), "2".to_owned())];
            cluster.restart(node).await.unwrap();
            if node < 2 {
                // A mixed cluster refuses what the older nodes could not read, and says why.
                let refused = clawhive(&binary(), &["lock", "--server", &server, "upgrade", "--", "true"]);
                let said = text(&refused.stderr);
                assert_eq!(refused.status.code(), Some(6), "{said}");
                assert!(said.contains("needs level 2, the cluster is at level 1"), "{said}");
                let status = client.cluster_status().await.unwrap();
                // A node of the release before says nothing of levels.
                assert_eq!(status.level.max(1), 1);
            }
        }
        let server = cluster.members[0].listen.clone();
        let until = std::time::Instant::now() + Duration::from_secs(30);
        while client.cluster_status().await.unwrap().level < 2 {
            assert!(std::time::Instant::now() < until, "the level is not raised");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let taken = clawhive(&binary(), &["lock", "--server", &server, "upgrade", "--", "true"]);
        assert!(taken.status.success(), "{}", text(&taken.stderr));
        runs.push(submit(&client, HELLO).await);
        for run in runs {
            assert_eq!(state(&ended(&client, run, Duration::from_secs(30)).await), RunState::Succeeded);
        }
    });
}
