//! The readers, and the plans where scripts do not reach.

use std::collections::BTreeSet;

use clawhive_statemachine::ids::RunId;
use clawhive_statemachine::plan::assign::AssignInput;
use clawhive_statemachine::proto::command::Kind;
use clawhive_statemachine::proto::outcome::Kind as Answer;
use clawhive_statemachine::proto::*;
use clawhive_statemachine::read::{self, RunFilter};
use clawhive_statemachine::{Touched, plan};

use crate::cluster::{Cluster, put, register, submit, task, workflow};

fn ids(page: &read::RunsPage) -> Vec<u64> {
    page.runs.iter().map(|(id, _)| id.0).collect()
}

/// Runs 1..=6: odd ones of `one`, even ones of `two`; 1 and 4 cancelled.
fn six_runs() -> Cluster {
    let mut cluster = Cluster::new();
    cluster.run(put(workflow("one", vec![task("a", &[]), task("b", &[0])])));
    cluster.run(put(workflow("two", vec![task("a", &[])])));
    for run in 1..=6 {
        cluster.run(submit(if run % 2 == 1 { "one" } else { "two" }));
    }
    for run in [1, 4] {
        cluster.run(Kind::CancelRun(CancelRun { run, reason: String::new() }));
    }
    cluster
}

#[test]
fn runs_are_listed_newest_first_with_filters() {
    let cluster = six_runs();
    let list = |filter: RunFilter| ids(&read::list_runs(&cluster.store, &filter));
    let all = RunFilter { limit: 10, ..RunFilter::default() };
    assert_eq!(list(all.clone()), [6, 5, 4, 3, 2, 1]);
    assert_eq!(list(RunFilter { workflow: "two".into(), ..all.clone() }), [6, 4, 2]);
    assert_eq!(list(RunFilter { states: vec![RunState::Cancelled], ..all.clone() }), [4, 1]);
    assert_eq!(list(RunFilter { states: vec![RunState::Pending], ..all.clone() }), [6, 5, 3, 2]);
    assert_eq!(list(RunFilter { namespace: "other".into(), ..all.clone() }), [0u64; 0]);
    assert_eq!(list(RunFilter { before: Some(RunId(3)), ..all }), [2, 1]);
}

#[test]
fn a_cursor_stays_valid_while_runs_come_and_go() {
    let mut cluster = six_runs();
    let filter = RunFilter { limit: 2, ..RunFilter::default() };
    let first = read::list_runs(&cluster.store, &filter);
    assert_eq!((ids(&first), first.next), (vec![6, 5], Some(RunId(5))));
    cluster.run(submit("one"));
    let second = read::list_runs(&cluster.store, &RunFilter { before: first.next, ..filter.clone() });
    assert_eq!(ids(&second), [4, 3]);
    let last = read::list_runs(&cluster.store, &RunFilter { before: second.next, ..filter });
    assert_eq!((ids(&last), last.next), (vec![2, 1], None));
}

#[test]
fn a_filter_that_matches_little_gives_up_and_says_where() {
    let cluster = six_runs();
    let mut filter = RunFilter { workflow: "none".into(), limit: 5, scan_limit: 4, ..RunFilter::default() };
    let page = read::list_runs(&cluster.store, &filter);
    assert_eq!((ids(&page), page.next), (vec![], Some(RunId(3))));
    filter.before = page.next;
    assert_eq!(read::list_runs(&cluster.store, &filter).next, None);
}

#[test]
fn a_run_is_shown_with_names_attempts_and_outputs() {
    let mut cluster = Cluster::new();
    cluster.run(put(workflow("etl", vec![task("extract", &[]), task("load", &[0])])));
    cluster.run(register(1, 1, 1));
    cluster.run(submit("etl"));
    let fence = cluster.log.len() as u64 + 1;
    let grant = Grant { run: 1, task: 0, attempt: 1, claw: 1, resolved: None };
    cluster.run(Kind::AssignTasks(AssignTasks { grants: vec![grant] }));
    let outputs_json = "{\"path\":\"x\"}".to_string();
    cluster.run(Kind::CompleteTask(CompleteTask { run: 1, task: 0, attempt: 1, fence, outputs_json }));
    let view = read::run_view(&cluster.store, RunId(1), false).unwrap();
    assert_eq!(view.tasks.iter().map(|task| task.name.as_str()).collect::<Vec<_>>(), ["extract", "load"]);
    assert_eq!(view.tasks[0].outputs_json, "{\"path\":\"x\"}");
    assert_eq!(view.tasks[0].attempts.len(), 1);
    assert_eq!(view.tasks[1].needs, ["extract"]);
    assert_eq!(
        view.counts.iter().map(|it| (it.state(), it.count)).collect::<Vec<_>>(),
        [(TaskState::Ready, 1), (TaskState::Succeeded, 1)]
    );
    let brief = read::run_view(&cluster.store, RunId(1), true).unwrap();
    assert_eq!((brief.tasks.len(), brief.counts), (0, view.counts));
    assert!(read::run_view(&cluster.store, RunId(2), false).is_none());
}

#[test]
fn events_go_on_from_where_a_reader_was() {
    let cluster = six_runs();
    let all = read::events(&cluster.store, 0, 100);
    let indexes: Vec<u64> = all.iter().map(|(index, _)| *index).collect();
    assert_eq!(indexes, (1..=10).collect::<Vec<u64>>());
    assert_eq!(read::events(&cluster.store, 8, 100), all[8..]);
    assert_eq!(read::events(&cluster.store, 0, 3), all[..3]);
    let of_four = read::run_events(&cluster.store, RunId(4), 0, 100);
    let kinds: Vec<EventKind> =
        of_four.iter().flat_map(|(_, batch)| batch.events.iter().map(Event::kind)).collect();
    assert_eq!(
        kinds,
        [EventKind::RunSubmitted, EventKind::RunStopping, EventKind::TaskCancelled, EventKind::RunCancelled]
    );
    assert_eq!(read::run_events(&cluster.store, RunId(4), of_four[0].0, 100).len(), 1);
}

#[test]
fn touched_says_where_to_look() {
    let mut cluster = Cluster::new();
    cluster.run(put(workflow("etl", vec![task("a", &[])])));
    let command = |kind| vec![Command { kind: Some(kind) }];
    let applied = cluster.entry(&[], command(register(1, 1, 1)));
    assert!(applied.touched.any(Touched::CLAWS) && !applied.touched.any(Touched::RUNS));
    let applied = cluster.entry(&[7; 16], command(submit("etl")));
    assert!(applied.touched.any(Touched::READY) && applied.touched.any(Touched::EXPIRY));
    let again = cluster.entry(&[7; 16], command(submit("etl")));
    assert_eq!((again.outcomes, again.touched), (applied.outcomes, Touched::NONE));
    let grant = Grant { run: 1, task: 0, attempt: 1, claw: 1, resolved: None };
    let applied = cluster.entry(&[], command(Kind::AssignTasks(AssignTasks { grants: vec![grant] })));
    assert!(applied.touched.any(Touched::ASSIGNMENTS) && !applied.touched.any(Touched::BACKLOG));
    let stale = cluster.entry(&[], command(Kind::Advance(Advance { limit: 5 })));
    assert_eq!(stale.touched, Touched::NONE);
}

#[test]
fn keys_are_kept_with_the_indexes_that_wrote_them() {
    let mut cluster = Cluster::new();
    let put_key = |value: &'static [u8]| {
        Kind::PutKey(PutKey { namespace: "n".into(), key: "k".into(), value: value.into() })
    };
    cluster.run(put_key(b"one"));
    cluster.run(put_key(b"two"));
    let row = read::key(&cluster.store, "n", "k").unwrap();
    assert_eq!((&row.value[..], row.created_at, row.modified_at), (&b"two"[..], 1, 2));
    cluster.run(Kind::DeleteKey(DeleteKey { namespace: "n".into(), key: "k".into() }));
    assert_eq!(read::key(&cluster.store, "n", "k"), None);
    cluster.run(Kind::DeleteKey(DeleteKey { namespace: "n".into(), key: "k".into() }));
    let nul = cluster.run(Kind::PutKey(PutKey { namespace: "a\0b".into(), ..PutKey::default() }));
    assert!(matches!(nul, Answer::Rejected(it) if it.code() == RejectionCode::Invalid));
}

#[test]
fn a_node_id_is_never_used_twice() {
    let mut cluster = Cluster::new();
    let add = |join: u8, node: u64, listen: &str| {
        Kind::AddNode(AddNode { join_id: vec![join; 16], node, listen: listen.into(), ..AddNode::default() })
    };
    cluster.run(submit("filler"));
    // The first node of a cluster has its id before there is a log.
    assert_eq!(cluster.run(add(1, 1, "a")), Answer::NodeAdded(NodeAdded { node: 1 }));
    assert_eq!(cluster.run(add(2, 0, "b")), Answer::NodeAdded(NodeAdded { node: 3 }));
    assert_eq!(cluster.run(add(2, 0, "c")), Answer::NodeAdded(NodeAdded { node: 3 }));
    assert_eq!(cluster.run(add(2, 3, "d")), Answer::NodeAdded(NodeAdded { node: 3 }));
    assert_eq!(read::node(&cluster.store, 3.into()).unwrap().listen, "d");
    assert_eq!(read::node_of_join(&cluster.store, &[2; 16]), Some(3.into()));
    for (command, code) in [
        (add(3, 1, "x"), RejectionCode::Conflict),
        (add(2, 1, "x"), RejectionCode::Conflict),
        (add(3, 99, "x"), RejectionCode::Invalid),
    ] {
        assert!(matches!(cluster.run(command), Answer::Rejected(it) if it.code() == code));
    }
    assert_eq!(read::nodes(&cluster.store).len(), 2);
}

#[test]
fn expiry_is_planned_ahead() {
    let mut cluster = Cluster::new();
    cluster.run(put(workflow("w", vec![task("a", &[])])));
    cluster.run(register(1, 1, 1));
    cluster.run(submit("w"));
    let mut leases = plan::leases::Leases::default();
    leases.look(&cluster.store, 100);
    assert_eq!(leases.next_due_ms(), None);
    let live = BTreeSet::from([1]);
    let grants = plan::assign::plan(&cluster.store, &AssignInput { live: &live, leader: 1, limit: 9 });
    cluster.run(Kind::AssignTasks(AssignTasks { grants }));
    leases.look(&cluster.store, 200);
    assert_eq!(leases.next_due_ms(), Some(1_450), "a quarter of the lease after it was seen");
    assert_eq!(leases.checkpoint(1_449), None);
    let quarter = leases.checkpoint(1_450).unwrap();
    assert_eq!(quarter.leases[0].remaining_ms, 3_750);
    cluster.run(Kind::CheckpointLeases(quarter));
    leases.look(&cluster.store, 1_460);
    assert_eq!((leases.checkpoint(1_460), leases.next_due_ms()), (None, Some(2_700)));
    assert_eq!(leases.expired(5_199).len(), 0);
    assert_eq!(leases.expired(5_200).len(), 1);
    assert_eq!(leases.checkpoint(5_200), None, "there is nothing left to write down");
}

#[test]
fn handover_never_overtakes_what_waits() {
    let mut cluster = Cluster::new();
    cluster.run(put(workflow("chain", vec![task("a", &[]), task("b", &[0])])));
    cluster.run(register(1, 1, 1));
    cluster.run(submit("chain"));
    cluster.run(submit("chain"));
    let live = BTreeSet::from([1]);
    let input = AssignInput { live: &live, leader: 1, limit: 9 };
    let grants = plan::assign::plan(&cluster.store, &input);
    assert_eq!(grants.iter().map(|grant| (grant.run, grant.task)).collect::<Vec<_>>(), [(1, 0)]);
    cluster.run(Kind::AssignTasks(AssignTasks { grants }));
    let fence = cluster.log.len() as u64;
    let report = |fence| Command {
        kind: Some(Kind::CompleteTask(CompleteTask {
            run: 1,
            task: 0,
            attempt: 1,
            fence,
            ..CompleteTask::default()
        })),
    };
    // The one slot that comes free goes to the run that has waited longer.
    let grants = plan::handover::plan(&cluster.store, &[report(fence)], &input);
    assert_eq!(grants.iter().map(|grant| (grant.run, grant.task)).collect::<Vec<_>>(), [(2, 0)]);
    // A report that will be refused frees nothing.
    assert_eq!(plan::handover::plan(&cluster.store, &[report(fence + 1)], &input), []);
    cluster.run(Kind::CancelRun(CancelRun { run: 2, reason: String::new() }));
    let grants = plan::handover::plan(&cluster.store, &[report(fence)], &input);
    assert_eq!(grants.iter().map(|grant| (grant.run, grant.task)).collect::<Vec<_>>(), [(1, 1)]);
    let grants = Command { kind: Some(Kind::AssignTasks(AssignTasks { grants })) };
    let applied = cluster.entry(&[], vec![report(fence), grants]);
    assert_eq!(applied.outcomes[1].kind, Some(Answer::Granted(Granted { granted: 1, stale: 0 })));
}
