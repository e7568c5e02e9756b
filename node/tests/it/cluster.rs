//! Three nodes: any of them answers, and one may go.

use std::collections::BTreeSet;

use clawhive_proto::{ClusterStatusRequest, ListNodesRequest, RunState};

use crate::support::*;

const QUICK: &str = "name: quick\ntasks: {a: {run: 'true'}, b: {needs: [a], run: 'true'}}\n";

#[tokio::test(flavor = "multi_thread")]
async fn any_node_answers_and_work_spreads() {
    let hive = Hive::start(3).await;
    let mut claws = BTreeSet::new();
    for index in 0..3 {
        let mut client = hive.client(index).await;
        let wide = "name: wide\ntasks:\n  a: {run: sleep 0.2}\n  b: {run: sleep 0.2}\n  c: {run: sleep 0.2}\n  d: {run: sleep 0.2}\n";
        let run = submit(&mut client, wide).await.run;
        let view = end_of(&mut client, run).await;
        assert_eq!(state(&view), RunState::Succeeded);
        claws.extend(view.tasks.iter().map(|task| task.attempts[0].row.as_ref().unwrap().claw));
    }
    assert!(claws.len() >= 2, "{claws:?}");
    // Read your writes, on any node.
    let run = submit(&mut hive.client(0).await, QUICK).await.run;
    for index in 0..3 {
        assert_eq!(get(&mut hive.client(index).await, run).await.id, run);
    }
    let nodes =
        hive.client(1).await.list_nodes(ListNodesRequest::default()).await.unwrap().into_inner().nodes;
    assert_eq!(nodes.len(), 3);
    assert!(
        nodes.iter().all(|node| node.role == "voter" && node.state == "active" && node.slots == 4),
        "{nodes:?}"
    );
    assert_eq!(nodes.iter().filter(|node| node.leader).count(), 1);
    let ids: BTreeSet<u64> = nodes.iter().map(|node| node.id).collect();
    assert_eq!(ids, (0..3).map(|index| hive.node(index).id()).collect());
    hive.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_leader_goes_and_work_goes_on() {
    let mut hive = Hive::start(3).await;
    let leader = hive.leader().await;
    let other = (leader + 1) % 3;
    let mut client = hive.client(other).await;
    let chain: String = (0..12)
        .map(|at| {
            let needs = if at == 0 { String::new() } else { format!("needs: [t{}], ", at - 1) };
            format!("  t{at}: {{{needs}run: sleep 0.1}}\n")
        })
        .collect();
    let run = submit(&mut client, &format!("name: chain\ntasks:\n{chain}")).await.run;
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    hive.stop(leader).await;
    let second = submit(&mut client, QUICK).await.run;
    for run in [run, second] {
        assert_eq!(state(&end_of(&mut client, run).await), RunState::Succeeded);
    }
    let status = client.cluster_status(ClusterStatusRequest {}).await.unwrap().into_inner();
    assert!(status.quorum && status.leader != 0, "{status:?}");
    assert_eq!((status.voters, status.reachable), (3, 2));
    assert_eq!(status.nodes.iter().filter(|node| node.state == "down").count(), 1);
    // It comes back, at other addresses, and belongs to the cluster as before.
    hive.restart_elsewhere(leader).await;
    hive.ready(3).await;
    let mut client = hive.client(leader).await;
    let third = submit(&mut client, QUICK).await.run;
    assert_eq!(state(&end_of(&mut client, third).await), RunState::Succeeded);
    hive.shutdown().await;
}

/// D-05, as far as it fits here: the leader goes between dispatch and acknowledgement, again and again; each task has one
/// effect and is acknowledged to whoever leads then.
#[tokio::test(flavor = "multi_thread")]
async fn leaders_change_under_running_tasks_and_each_runs_once() {
    let mut hive = Hive::start(3).await;
    let counter = tempfile::NamedTempFile::new().unwrap();
    let path = counter.path().display().to_string();
    let mut runs = Vec::new();
    let mut crashes = 0;
    for round in 0..4 {
        let leader = hive.leader().await;
        let other = (leader + 1) % 3;
        let mut client = hive.client(other).await;
        let run = submit(
            &mut client,
            &format!("name: effect\ntasks: {{t: {{run: 'sleep 0.6; echo {round} >> {path}'}}}}\n"),
        )
        .await
        .run;
        runs.push(run);
        let started = || async {
            let view = get(&mut hive.client(other).await, run).await;
            !task(&view, "t").attempts.is_empty()
        };
        eventually("the task is dispatched", started).await;
        // The leader's own claw comes last, so the task is elsewhere; unless a claw was not heard of for a while.
        let view = get(&mut client, run).await;
        let claw = task(&view, "t").attempts[0].row.as_ref().unwrap().claw;
        if claw == hive.node(leader).id() {
            end_of(&mut client, run).await;
            continue;
        }
        crashes += 1;
        hive.crash(leader).await;
        hive.restart(leader).await;
        hive.ready(3).await;
        // The next leader to go may be the one that runs this task.
        end_of(&mut client, run).await;
    }
    let mut client = hive.client(0).await;
    for run in runs {
        let view = end_of(&mut client, run).await;
        assert_eq!(state(&view), RunState::Succeeded);
        let attempts = &task(&view, "t").attempts;
        assert_eq!(attempts.len(), 1, "{attempts:?}");
    }
    assert!(crashes > 0, "the leader's own claw got every task");
    let effects = std::fs::read_to_string(counter.path()).unwrap();
    assert_eq!(effects.lines().collect::<Vec<_>>(), ["0", "1", "2", "3"]);
    hive.shutdown().await;
}
