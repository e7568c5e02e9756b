//! Schedules on real nodes: elections at and between the fire instants (D-06, F-16), overlap with a lost claw (D-13), a next
//! occurrence that does not move forward (D-17), and names that only an older version would take (F-10).

use std::collections::BTreeSet;
use std::process::Command as Process;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ::clawhive_client::Client;
use ::clawhive_client::proto::command::Kind;
use ::clawhive_client::proto::peer_client::PeerClient;
use ::clawhive_client::proto::prost::Message;
use ::clawhive_client::proto::schedule::When;
use ::clawhive_client::proto::*;
use clawhive_jepsen::cluster::Cluster;

use super::support::{alone, binary, cluster, ended};

const PATIENCE: Duration = Duration::from_secs(60);

fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    u64::try_from(since.as_millis()).unwrap()
}

/// Stores a definition with its schedules.
async fn apply(client: &Client, definition: &str) {
    client.put_workflow(definition.as_bytes().to_vec()).await.expect("the definition is stored");
}

/// Waits until a condition on a schedule holds.
async fn until(
    client: &Client,
    name: &str,
    what: &str,
    holds: impl Fn(&ScheduleView) -> bool,
) -> ScheduleView {
    let limit = Instant::now() + PATIENCE;
    loop {
        if let Ok(view) = client.get_schedule(name, 1_000).await
            && holds(&view)
        {
            return view;
        }
        assert!(Instant::now() < limit, "{name}: not within {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn row(view: &ScheduleView) -> ScheduleRow {
    view.row.clone().unwrap_or_default()
}

/// Every occurrence of a schedule, oldest first, with the run it has. One record covers each, none is left out.
fn every_second(view: &ScheduleView) -> Vec<(u64, OccurrenceRow)> {
    let mut found: Vec<(u64, OccurrenceRow)> =
        view.occurrences.iter().map(|one| (one.nominal_ms, one.row.clone().unwrap_or_default())).collect();
    found.reverse();
    for pair in found.windows(2) {
        let ((_, earlier), (later, _)) = (&pair[0], &pair[1]);
        assert_eq!(earlier.last_ms + 1_000, *later, "a second is missing or twice: {pair:?}");
    }
    found
}

/// All runs of a workflow by the occurrence they were made for.
async fn runs_of(client: &Client, workflow: &str) -> Vec<(u64, u64)> {
    let (mut found, mut cursor) = (Vec::new(), String::new());
    loop {
        let message =
            ListRunsRequest { workflow: workflow.into(), limit: 500, cursor, ..ListRunsRequest::default() };
        let page = client.list_runs(message).await.expect("runs");
        found.extend(page.runs.iter().map(|view| (view.run.as_ref().unwrap().nominal_ms, view.id)));
        cursor = page.next_cursor;
        if cursor.is_empty() {
            found.sort_unstable();
            return found;
        }
    }
}

fn clawhive(cluster: &Cluster, arguments: &[&str]) -> (Option<i32>, String) {
    let servers: Vec<&str> = cluster.members.iter().map(|member| member.listen.as_str()).collect();
    let done = Process::new(binary())
        .args(arguments)
        .env("CLAWHIVE_SERVER", servers.join(","))
        .output()
        .expect("the binary runs");
    let said = [done.stdout, done.stderr].concat();
    (done.status.code(), String::from_utf8_lossy(&said).into_owned())
}

/// Lets another member lead.
async fn hand_over(client: &Client) {
    let limit = Instant::now() + PATIENCE;
    while let Err(error) = client.transfer_leader(None).await {
        assert!(Instant::now() < limit, "the leadership is not handed over: {error}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Takes the leadership away from whoever has it: the leader stands still until another one leads.
async fn another_leader(cluster: &Cluster) {
    let leader = cluster.wait_leader(PATIENCE).await.unwrap();
    cluster.pause(leader).unwrap();
    let limit = Instant::now() + PATIENCE;
    'elected: loop {
        for number in (0..3).filter(|number| *number != leader) {
            let id = cluster.members[number].id;
            if cluster.status_of(number).await.is_some_and(|status| status.leader == id) {
                break 'elected;
            }
        }
        assert!(Instant::now() < limit, "nobody else leads");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    cluster.resume(leader).unwrap();
}

/// D-06: the leader is killed just before a fire instant; the run is made once, under its nominal time, when someone leads
/// again. F-16: after election upon election every second has exactly one run, and the leader's scheduler is alive.
/// `CLAWHIVE_TEST_ELECTIONS` says how many.
#[test]
fn every_second_has_one_run_whoever_leads() {
    alone(|| async {
        let elections: usize =
            std::env::var("CLAWHIVE_TEST_ELECTIONS").ok().and_then(|text| text.parse().ok()).unwrap_or(50);
        let mut cluster = cluster(3, Some(Duration::from_secs(2))).await;
        let client = cluster.client().unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().display();
        let text = format!(
            "name: tick\nschedule: {{cron: '* * * * * *', timezone: Europe/Paris}}\ntasks:\n  t: {{run: 'echo \"$CLAWHIVE_NOMINAL_TIME\" >> {path}'}}\n"
        );
        apply(&client, &text).await;
        let view = until(&client, "tick", "it fires", |view| row(view).fired >= 1).await;
        assert_eq!(row(&view).fired, view.occurrences.len() as u64);

        let leader = cluster.wait_leader(PATIENCE).await.unwrap();
        let instant = (wall_ms() / 1_000 + 2) * 1_000;
        tokio::time::sleep(Duration::from_millis(instant.saturating_sub(wall_ms() + 300))).await;
        cluster.kill(leader).unwrap();
        let killed = wall_ms();
        let view = until(&client, "tick", "the occurrence at the kill", |view| {
            view.occurrences.iter().any(|one| one.nominal_ms == instant)
        })
        .await;
        let (_, fired) = every_second(&view).into_iter().find(|(nominal, _)| *nominal == instant).unwrap();
        println!(
            "killed {} ms before the instant, fired {} ms after it",
            instant.saturating_sub(killed),
            fired.recorded_at_ms - instant
        );
        assert!(fired.run > 0, "{fired:?}");
        let run = client.get_run(fired.run).await.unwrap().run.unwrap();
        assert_eq!((run.nominal_ms, run.workflow.as_str()), (instant, "tick"));
        cluster.restart(leader).await.unwrap();

        for election in 0..elections {
            match election % 10 {
                0 => another_leader(&cluster).await,
                _ => hand_over(&client).await,
            }
        }
        let done = until(&client, "tick", "it goes on firing", |view| {
            row(view).next_ms > wall_ms() && row(view).fired > view.occurrences.len() as u64 / 2
        })
        .await;
        let all = every_second(&done);
        assert!(all.iter().all(|(_, record)| record.run > 0), "{all:?}");
        let made = runs_of(&client, "tick").await;
        let seconds: BTreeSet<u64> = made.iter().map(|(nominal, _)| *nominal).collect();
        assert_eq!(seconds.len(), made.len(), "two runs of one second");
        assert!(all.iter().all(|(nominal, record)| made.contains(&(*nominal, record.run))));
        println!("{} seconds, {} runs, over {elections} elections and a kill", all.len(), made.len());

        let limit = Instant::now() + PATIENCE;
        while !client.cluster_status().await.is_ok_and(|status| status.scheduler) {
            assert!(Instant::now() < limit, "the leader's scheduler is not alive");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        ended(&client, all[0].1.run, PATIENCE).await;
        let nominal = jiff_text(all[0].0);
        let written = std::fs::read_to_string(file.path()).unwrap();
        assert!(written.lines().any(|line| line == nominal), "{nominal} in {written}");
    });
}

fn jiff_text(ms: u64) -> String {
    clawhive_statemachine::names::time(ms)
}

/// D-13: while a run has not ended the next seconds are recorded as skipped, also when its claw is killed; the lost run ends
/// elsewhere when the lease is over, and then the schedule fires again. By hand it is refused, unless forced.
#[test]
fn overlap_is_skipped_and_a_lost_claw_does_not_wedge_it() {
    alone(|| async {
        let mut cluster = cluster(3, Some(Duration::from_secs(2))).await;
        let client = cluster.client().unwrap();
        let text = "name: slow\nschedule: {every: 1s}\noverlap: skip\ntasks: {t: {run: sleep 2.4}}\n";
        apply(&client, text).await;
        let running = until(&client, "slow", "a run", |view| row(view).active == 1).await;
        let first = row(&running).last_run;
        let (code, said) = clawhive(&cluster, &["schedule", "trigger", "slow"]);
        assert_eq!(code, Some(6), "{said}");
        assert!(said.contains("error: schedule default/slow skips what overlaps, and run"), "{said}");
        assert!(said.contains("hint: `--force`"), "{said}");
        let (code, said) = clawhive(&cluster, &["schedule", "trigger", "slow", "--force"]);
        assert_eq!(code, Some(0), "{said}");
        let by_hand: u64 = said.trim().parse().unwrap();

        // The claw of a later run dies in the middle.
        let view = until(&client, "slow", "another run", |view| {
            row(view).last_run > first.max(by_hand) && row(view).active > 0
        })
        .await;
        let lost = row(&view).last_run;
        let claws =
            |view: &RunView| view.tasks[0].attempts.first().and_then(|it| Some(it.row.as_ref()?.claw));
        let view =
            super::support::until(&client, lost, "it is dispatched", |view| claws(view).is_some()).await;
        let claw = claws(&view).unwrap();
        let victim = cluster.members.iter().position(|member| member.id == claw).unwrap();
        cluster.kill(victim).unwrap();
        let view = ended(&client, lost, PATIENCE).await;
        assert_eq!(view.tasks[0].attempts.len(), 2, "lost, and run elsewhere: {view:?}");
        let view = until(&client, "slow", "it fires again", |view| row(view).last_run > lost).await;
        let all = every_second(&view);
        let skipped: Vec<_> = all.iter().filter(|(_, record)| record.run == 0).collect();
        assert!(skipped.iter().all(|(_, record)| record.skipped() == SkipReason::Overlap), "{skipped:?}");
        let during = skipped.iter().filter(|(_, record)| record.detail.contains(&format!("run {lost} ")));
        assert!(during.count() >= 3, "{all:?}");
        let made = runs_of(&client, "slow").await;
        assert_eq!(made.iter().filter(|(nominal, _)| *nominal == 0).count(), 1, "one by hand: {made:?}");
        let seconds: BTreeSet<u64> = made.iter().map(|(nominal, _)| *nominal).collect();
        assert_eq!(seconds.len(), made.len(), "two runs of one second");
    });
}

/// Proposes over the peer port, as another version of the program could.
async fn propose(cluster: &Cluster, kind: Kind) -> Option<outcome::Kind> {
    let status = cluster.status_of(0).await.expect("it answers");
    let cluster_id: Vec<u8> = (0..status.cluster_id.len() / 2)
        .map(|at| u8::from_str_radix(&status.cluster_id[at * 2..at * 2 + 2], 16).unwrap())
        .collect();
    let proposal = Proposal {
        request_id: Vec::new(),
        actor: "test".into(),
        commands: vec![Command { kind: Some(kind) }],
    };
    let mut peer = PeerClient::connect(format!("http://{}", cluster.members[0].peer_listen)).await.unwrap();
    let frame = Frame {
        cluster_id,
        from: status.node + 1_000_000,
        to: status.node,
        kind: FrameKind::Propose.into(),
        payload: forward(&proposal.encode_to_vec()).into(),
    };
    let answer = peer.call(frame).await.unwrap().into_inner();
    match ProposeReply::decode(answer.payload).unwrap().result.unwrap() {
        propose_reply::Result::Applied(applied) => {
            Outcomes::decode(applied.outcomes).unwrap().outcomes.remove(0).kind
        }
        other => panic!("not applied: {other:?}"),
    }
}

/// The raft crate's frame around a proposal: the proposal is field 1, field 2 a deadline in milliseconds.
fn forward(proposal: &[u8]) -> Vec<u8> {
    use prost::encoding::{bytes, uint64};
    let mut frame = Vec::new();
    bytes::encode(1, &proposal.to_vec(), &mut frame);
    uint64::encode(2, &5_000, &mut frame);
    frame
}

/// F-10: the schedule of a workflow whose name only an older version took goes on after an upgrade, and the log says so.
/// D-17: a next occurrence that is not later than the one that fires: one run, an alarm, and others go on.
#[test]
fn what_is_odd_is_neither_silent_nor_endless() {
    alone(|| async {
        let mut cluster = cluster(1, None).await;
        let client = cluster.client().unwrap();
        let task = Task {
            name: "t".into(),
            executor: Some(task::Executor::Run("true".into())),
            timeout: Some(Timeouts::default()),
            ..Task::default()
        };
        let every = Schedule { when: Some(When::EveryMs(1_000)), ..Schedule::default() };
        let old = Workflow {
            namespace: "default".into(),
            name: "Nightly ETL".into(),
            tasks: vec![task],
            schedules: vec![every],
            ..Workflow::default()
        };
        let put = PutWorkflow { workflow: Some(old), hash: vec![7; 32], set_schedules: true };
        let answer = propose(&cluster, Kind::PutWorkflow(put)).await;
        assert!(matches!(answer, Some(outcome::Kind::WorkflowPut(_))), "{answer:?}");
        until(&client, "Nightly ETL", "the old name fires", |view| row(view).fired >= 1).await;
        cluster.stop(0, PATIENCE).await.unwrap();
        cluster.restart(0).await.unwrap();
        let before = row(&client.get_schedule("Nightly ETL", 0).await.unwrap()).fired;
        until(&client, "Nightly ETL", "it goes on", |view| row(view).fired > before).await;
        let log = cluster.log_text(0);
        assert!(log.contains("default/Nightly ETL") && log.contains("breaks the rule"), "{log}");
        let (code, said) = clawhive(&cluster, &["schedule", "ls"]);
        assert!(code == Some(0) && said.contains("default/Nightly ETL"), "{said}");

        apply(&client, "name: stuck\nschedule: {every: 1s}\ntasks: {t: {run: 'true'}}\n").await;
        until(&client, "stuck", "it is planned", |view| row(view).next_ms > 0).await;
        // The node fires at the same instant: only one of the two is taken, and some time it is this one.
        let limit = Instant::now() + PATIENCE;
        let nominal = 'won: loop {
            assert!(Instant::now() < limit, "never first");
            let row = row(&client.get_schedule("stuck", 0).await.unwrap());
            tokio::time::sleep(Duration::from_millis(row.next_ms.saturating_sub(wall_ms() + 4))).await;
            for _ in 0..20 {
                let fire = FireSchedule {
                    of: Some(ScheduleRef {
                        namespace: "default".into(),
                        workflow: "stuck".into(),
                        schedule: String::new(),
                    }),
                    revision: row.revision,
                    nominal_ms: row.next_ms,
                    next_ms: row.next_ms,
                    version: 1,
                    ..FireSchedule::default()
                };
                let answer = propose(&cluster, Kind::FireSchedule(fire)).await;
                if matches!(answer, Some(outcome::Kind::ScheduleFired(_))) {
                    break 'won row.next_ms;
                }
            }
        };
        let other = row(&client.get_schedule("Nightly ETL", 0).await.unwrap()).fired;
        until(&client, "Nightly ETL", "the other goes on", |view| row(view).fired >= other + 2).await;
        let stuck = client.get_schedule("stuck", 1_000).await.unwrap();
        assert_eq!(row(&stuck).state(), ScheduleState::Suspended, "{stuck:?}");
        let made = runs_of(&client, "stuck").await;
        assert_eq!(made.iter().filter(|(of, _)| *of == nominal).count(), 1, "{made:?}");
        assert_eq!(made.iter().map(|(of, _)| *of).max(), Some(nominal), "nothing fired after it");
        let (_, said) = clawhive(&cluster, &["schedule", "show", "stuck"]);
        assert!(said.contains("suspended: the occurrence after") && said.contains("not later"), "{said}");
        let (code, said) = clawhive(&cluster, &["schedule", "resume", "stuck"]);
        assert_eq!((code, said.as_str()), (Some(0), "default/stuck is active\n"));
        until(&client, "stuck", "it fires again", |view| row(view).cursor_ms > nominal).await;
    });
}
