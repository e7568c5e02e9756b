//! Recorded executions replayed on real nodes: cases G-14, G-15 and G-16.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clawhive_client::proto::{RunState, TaskState};
use clawhive_jepsen::blackbox::check;
use clawhive_jepsen::blackbox::faults::{Faults, inject};
use clawhive_jepsen::blackbox::flow::Flow;
use clawhive_jepsen::blackbox::load::{Journal, submit as submit_until_told};

use super::support::{alone, assert_kept, cluster, ended, recordings, state, submit};

/// Every task once, in order, within the bounds of critical path and slots; then with one root made to fail.
async fn replay_all(nodes: usize) {
    let cluster = cluster(nodes, None).await;
    let client = cluster.client().unwrap();
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in recordings() {
        let counter = folder.path().join(&name);
        let flow = Flow::recorded(&text, &name, 1_000.0).unwrap();
        let definition = flow.definition(&counter);
        let begun = Instant::now();
        let run = submit(&client, definition).await;
        let took = begun.elapsed();
        // A second in an optimised build; unoptimised code is given more.
        let most = if cfg!(debug_assertions) { 5 } else { 1 };
        assert!(took < Duration::from_secs(most), "{name}: the submit took {took:?}");

        let view = ended(&client, run, Duration::from_secs(120)).await;
        assert_eq!(state(&view), RunState::Succeeded, "{name}");
        let findings = assert_kept(&flow, &view, &counter);
        assert_eq!(findings.attempts, flow.steps.len(), "{name}: one attempt for each task");
        assert_eq!((findings.repeats, findings.lost), (0, 0), "{name}");
        let slots = client.nodes().await.unwrap().into_iter().map(|node| (node.id, node.slots)).collect();
        assert_eq!(check::judge_slots(std::slice::from_ref(&view), &slots), Vec::<String>::new());

        let row = view.run.unwrap();
        let makespan = row.ended_at_ms - row.created_at_ms;
        let work: u64 = flow.steps.iter().map(|step| step.sleep_ms).sum();
        let all_slots: u64 = slots.values().map(|slots| u64::from(*slots)).sum();
        assert!(makespan >= flow.critical_path_ms(), "{name}: {makespan} ms beat the critical path");
        assert!(makespan >= work / all_slots, "{name}: {makespan} ms beat {all_slots} slots");
    }
    for (name, text) in recordings() {
        fails_exactly_below_a_root(&client, &name, &text, &folder.path().join(format!("{name}-failing")))
            .await;
    }
}

async fn fails_exactly_below_a_root(
    client: &clawhive_client::Client,
    name: &str,
    text: &str,
    counter: &std::path::Path,
) {
    let mut flow = Flow::recorded(text, &format!("{name}-failing"), 5_000.0).unwrap();
    // The root that most depends on.
    let roots = (0..flow.steps.len()).filter(|task| flow.steps[*task].needs.is_empty());
    let root = roots.max_by_key(|root| flow.descendants(&BTreeSet::from([*root])).len()).unwrap();
    flow.steps[root].fails = true;
    let run = submit(client, flow.definition(counter)).await;
    let view = ended(client, run, Duration::from_secs(120)).await;
    assert_eq!(state(&view), RunState::Failed, "{name}");
    assert_kept(&flow, &view, counter);
    let blocked = flow.descendants(&flow.failing());
    assert!(!blocked.is_empty(), "{name}: the root has no descendants");
    for (place, task) in view.tasks.iter().enumerate() {
        let expected = match place {
            _ if place == root => TaskState::Failed,
            _ if blocked.contains(&place) => TaskState::UpstreamFailed,
            _ => TaskState::Succeeded,
        };
        let row = task.row.as_ref().unwrap();
        assert_eq!(row.state(), expected, "{name}: {}", task.name);
        assert_eq!(task.attempts.is_empty(), blocked.contains(&place), "{name}: {}", task.name);
    }
}

#[test]
fn recorded_executions_on_one_node() {
    alone(|| replay_all(1));
}

#[test]
fn recorded_executions_on_three_nodes() {
    alone(|| replay_all(3));
}

#[test]
fn recorded_executions_while_the_leader_is_killed_every_five_seconds() {
    alone(|| async {
        let mut cluster = cluster(3, Some(Duration::from_secs(2))).await;
        let client = cluster.client().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let counter = folder.path().join("counter");
        let journal = Arc::new(Journal::default());
        // All at once, slowed down so that the longest chain of each takes about eleven seconds.
        for (name, text) in recordings() {
            let real = Flow::recorded(&text, &name, 1.0).unwrap();
            let divisor = (real.critical_path_ms() as f64 / 11_000.0).max(1.0);
            let mut flow = Flow::recorded(&text, &name, divisor).unwrap();
            flow.max_attempts = 2;
            submit_until_told(&client, &Arc::new(flow), &counter, &journal)
                .await
                .expect("an acknowledged submit");
        }
        let until = Instant::now() + Duration::from_secs(16);
        let kills = inject(&mut cluster, Faults::KillLeader, 16, until).await.unwrap();
        assert!(kills.leaders >= 2 && kills.changes >= 2, "{kills:?}");
        let (mut repeats, mut lost) = (0, 0);
        for (run, flow) in journal.take().acknowledged {
            let view = ended(&client, run, Duration::from_secs(120)).await;
            assert_eq!(state(&view), RunState::Succeeded, "{}", flow.name);
            let findings = assert_kept(&flow, &view, &counter);
            repeats += findings.repeats;
            lost += findings.lost;
        }
        println!("{kills:?}; {lost} attempts lost, {repeats} effects repeated by lost attempts");
    });
}
