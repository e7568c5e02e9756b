//! Starts that must not happen, each with an error that says what and where.

use std::time::Duration;

use clawhive_node::{Node, StartError};

use crate::support::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_is_used_once_and_only_as_what_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let empty = builder(dir.path()).start().await.unwrap_err();
    assert!(empty.to_string().contains("--bootstrap") && empty.to_string().contains("--join"), "{empty}");
    let node = builder(dir.path()).bootstrap().start().await.unwrap();
    let used = builder(dir.path()).start().await.unwrap_err().to_string();
    assert!(used.contains("is in use by process"), "{used}");
    node.ready().await;
    let id = node.id();
    let cluster = node.cluster_id();
    node.shutdown(Duration::ZERO).await;
    let again = builder(dir.path()).bootstrap().start().await.unwrap_err();
    assert!(matches!(again, StartError::NotEmpty { .. }), "{again}");
    let node = builder(dir.path()).start().await.unwrap();
    assert_eq!((node.id(), node.cluster_id()), (id, cluster));
    node.ready().await;
    node.shutdown(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_in_use_is_named() {
    let taken = tokio::net::TcpListener::bind(loopback()).await.unwrap();
    let address = taken.local_addr().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let error = builder(dir.path()).listen(address).bootstrap().start().await.unwrap_err().to_string();
    assert!(error.contains(&address.to_string()) && error.contains("for clients"), "{error}");
    let error = builder(dir.path()).peer_listen(address).bootstrap().start().await.unwrap_err().to_string();
    assert!(error.contains(&address.to_string()) && error.contains("for peers"), "{error}");
    // Nothing was left behind: the directory is still a new one.
    let node = builder(dir.path()).bootstrap().start().await.unwrap();
    node.shutdown(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_directory_of_another_cluster_is_refused_with_both_ids() {
    let (dir_a, dir_b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let a = builder(dir_a.path()).bootstrap().start().await.unwrap();
    let b = builder(dir_b.path()).bootstrap().start().await.unwrap();
    let cluster_b = b.cluster_id();
    b.shutdown(Duration::ZERO).await;
    let peer = a.peer_listen().to_string();
    let error = builder(dir_b.path()).join([peer]).start().await.unwrap_err().to_string();
    assert!(error.contains(&a.cluster_id()) && error.contains(&cluster_b), "{error}");
    a.shutdown(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_lost_its_log_does_not_vote_again() {
    let dir = tempfile::tempdir().unwrap();
    let node = builder(dir.path()).bootstrap().start().await.unwrap();
    node.ready().await;
    node.shutdown(Duration::ZERO).await;
    // The state alone is no better than nothing: what was acknowledged after it was made is in the log.
    let log = dir.path().join("raft/log");
    for segment in std::fs::read_dir(&log).unwrap() {
        std::fs::remove_file(segment.unwrap().path()).unwrap();
    }
    for lost in [log.clone(), log, dir.path().join("raft")] {
        let error = builder(dir.path()).start().await.unwrap_err();
        assert!(matches!(error, StartError::LogLost { .. }), "{error}");
        if lost.exists() {
            std::fs::remove_dir_all(lost).unwrap();
        }
    }
    let error = builder(dir.path()).start().await.unwrap_err();
    assert!(matches!(error, StartError::LogLost { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claw_joins_without_a_vote_and_works() {
    let (dir_a, dir_b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let founder = builder(dir_a.path()).slots(0).bootstrap().start().await.unwrap();
    let claw = builder(dir_b.path())
        .join([founder.peer_listen().to_string()])
        .role(clawhive_node::config::Role::Claw)
        .label("zone", "b")
        .start()
        .await
        .unwrap();
    founder.ready().await;
    claw.ready().await;
    let mut api = client(claw.listen()).await;
    let run = submit(&mut api, "name: there\ntasks: {t: {run: 'true'}}\n").await.run;
    let view = end_of(&mut api, run).await;
    assert_eq!(task(&view, "t").attempts[0].row.as_ref().unwrap().claw, claw.id());
    assert_eq!((founder.voters(), claw.voters()), (1, 1));
    let nodes = api.list_nodes(clawhive_proto::ListNodesRequest::default()).await.unwrap().into_inner().nodes;
    let shown = nodes.iter().find(|node| node.id == claw.id()).unwrap();
    assert_eq!((shown.role.as_str(), shown.labels["zone"].as_str()), ("claw", "b"));
    claw.shutdown(Duration::ZERO).await;
    founder.shutdown(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_there_to_join_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let settings = builder(dir.path()).join(Vec::<String>::new()).complete();
    assert!(settings.is_ok(), "the builder takes what a file would be refused for");
    let bad = Node::builder().data(dir.path()).slots(5_000).start().await.unwrap_err().to_string();
    assert!(bad.contains("`slots` is 5000"), "{bad}");
}
