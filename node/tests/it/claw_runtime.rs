//! The claw's life with its cluster: leases, fencing, restarts, reports, slots, drain. No process outlives its right to
//! run.

use crate::claw_support::*;
use clawhive_node::claw::{Claw, LogQuery};
use clawhive_proto::{Output, Reason, RejectionCode, command};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

fn sleep(case: u32) -> String {
    format!("sleep {}{case:03}", std::process::id())
}

fn lines(path: &Path) -> Vec<String> {
    std::fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_hundred_tasks_leave_no_zombie() {
    let setup = setup();
    let mut keys = Vec::new();
    for n in 0..300 {
        keys.push(setup.cluster.assign(process(&[if n % 3 == 0 { "false" } else { "true" }])).await);
    }
    for (n, key) in keys.into_iter().enumerate() {
        let end = setup.cluster.end(key).await;
        assert!(setup.cluster.state().started.contains(&key), "its start is on record");
        assert_eq!(matches!(end, Ended::Failed(_)), n % 3 == 0);
    }
    // Other tests in this process have children, too: what counts is a zombie that stays.
    let limit = Instant::now() + Duration::from_secs(10);
    let mut left = zombies();
    while !left.is_empty() {
        assert!(Instant::now() < limit, "zombies: {left:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
        left = left.intersection(&zombies()).copied().collect();
    }
    let state = setup.cluster.state();
    let longest = state.reports.iter().map(Vec::len).max();
    assert!(longest > Some(1), "reports travel together");
}

fn zombies() -> BTreeSet<u32> {
    let own = std::process::id().to_string();
    let is_zombie = |stat: String| {
        let mut fields = stat.rsplit(") ").next().unwrap_or_default().split(' ');
        fields.next() == Some("Z") && fields.next() == Some(own.as_str())
    };
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries
        .filter(|entry| std::fs::read_to_string(entry.path().join("stat")).is_ok_and(is_zombie))
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_attempt_gets_term_and_is_reported_with_the_reason() {
    let setup = setup();
    let task = limits(run("trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done"), 0, 30_000);
    let key = setup.cluster.assign(task).await;
    setup.cluster.start_of(key).await;
    let query = LogQuery { run: key.0, attempt: 1, follow: true, ..LogQuery::default() };
    let mut reader = setup.claw.logs().read(query).unwrap();
    assert_eq!(reader.next().await.unwrap().unwrap().data, "up\n");
    setup.cluster.stop(key, Reason::Cancelled);
    let end = setup.cluster.end(key).await.failure();
    assert_eq!((end.reason(), end.exit_code), (Reason::Cancelled, Some(0)));
    assert!(setup.log(key).await.starts_with(b"up\n"));
    assert!(setup.log(key).await.windows(4).any(|part| part == b"bye\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_stopped_before_its_start_never_starts() {
    let setup = setup_with(|config| config.slots = 1);
    let first = setup.cluster.assign(run(&sleep(30))).await;
    setup.cluster.start_of(first).await;
    let file = setup.dir.path().join("ran");
    let second = setup.cluster.assign(run(&format!("echo x > {}", file.display()))).await;
    setup.cluster.stop(second, Reason::Cancelled);
    let end = setup.cluster.end(second).await.failure();
    assert_eq!(end.reason(), Reason::Cancelled);
    setup.cluster.stop(first, Reason::Cancelled);
    assert_eq!(setup.cluster.end(first).await.failure().signal, Some(9), "grace 0 is KILL at once");
    assert!(!file.exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_vanished_assignment_is_killed_without_a_report() {
    let setup = setup();
    let sleep = sleep(31);
    let key = setup.cluster.assign(run(&format!("trap '' TERM; {sleep}"))).await;
    setup.cluster.start_of(key).await;
    there(&sleep).await;
    setup.cluster.state().assigned.remove(&key);
    setup.cluster.touch();
    gone(&sleep).await;
    setup.cluster.run(process(&["true"])).await.1.outputs();
    assert_eq!(setup.cluster.state().ended.get(&key), None);
    assert!(setup.cluster.state().rejected.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_runs_after_the_lease() {
    let lease = Duration::from_millis(2000);
    let setup = setup_with(|config| config.lease = lease);
    let file = setup.dir.path().join("alive");
    let text = format!("trap '' TERM; while :; do date +%s%N >> {}; sleep 0.01; done", file.display());
    let key = setup.cluster.assign(limits(run(&text), 0, 60_000)).await;
    setup.cluster.start_of(key).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    setup.cluster.state().beats_fail = true;
    let last_beat = setup.cluster.state().last_beat_ns;
    tokio::time::sleep(lease + Duration::from_millis(500)).await;
    let marks = lines(&file);
    let last_mark: u128 = marks.last().unwrap().parse().unwrap();
    assert!(last_mark > last_beat + 500_000_000, "it was running well into the lease");
    assert!(
        last_mark < last_beat + lease.as_nanos(),
        "it ran {} ns too long",
        last_mark - last_beat - lease.as_nanos()
    );
    assert_eq!(setup.cluster.state().ended.get(&key), None, "nothing is reported without a lease");

    // Back again: a new incarnation, the old attempt is lost, work goes on.
    setup.cluster.state().beats_fail = false;
    assert_eq!(setup.cluster.end(key).await, Ended::Lost);
    {
        let state = setup.cluster.state();
        assert_eq!(state.registrations.len(), 2);
        assert_ne!(state.registrations[0].1.incarnation, state.registrations[1].1.incarnation);
    }
    setup.cluster.run(process(&["true"])).await.1.outputs();
    assert_eq!(lines(&file).len(), marks.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_incarnation_kills_everything_and_registers_again() {
    let setup = setup_with(|config| config.lease = Duration::from_secs(2));
    let sleep = sleep(32);
    let key = setup.cluster.assign(run(&sleep)).await;
    there(&sleep).await;
    setup.cluster.state().unknown = true;
    assert_eq!(setup.cluster.end(key).await, Ended::Lost);
    gone(&sleep).await;
    setup.cluster.run(process(&["true"])).await.1.outputs();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_is_started_once_whatever_the_replica_shows() {
    let setup = setup();
    setup.cluster.state().lagging = true;
    let file = setup.dir.path().join("count");
    let key = setup.cluster.assign(run(&format!("echo x >> {}", file.display()))).await;
    for _ in 0..50 {
        setup.cluster.touch();
        tokio::task::yield_now().await;
    }
    setup.cluster.end(key).await.outputs();
    for _ in 0..50 {
        setup.cluster.touch();
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(lines(&file), ["x"]);

    // Another process life on the same data: what was granted before its registration is not its own.
    setup.claw.drain(Duration::ZERO).await;
    let again = Claw::start(config(setup.dir.path()), setup.cluster.clone()).unwrap();
    let mut status = again.status();
    status.wait_for(|status| status.registered_at.is_some()).await.unwrap();
    setup.cluster.run(process(&["true"])).await.1.outputs();
    assert_eq!(lines(&file), ["x"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_is_repeated_unchanged_until_it_is_answered() {
    let setup = setup();
    setup.cluster.registered().await;
    setup.cluster.state().failing_reports = 4;
    setup.cluster.run(process(&["true"])).await.1.outputs();
    let reports = setup.cluster.state().reports.clone();
    assert!(reports.len() >= 5);
    let count = |kind: fn(&command::Kind) -> bool| {
        reports.iter().flatten().filter(|command| command.kind.as_ref().is_some_and(kind)).count()
    };
    assert!(count(|kind| matches!(kind, command::Kind::StartTask(_))) >= 2, "repeated");
    assert_eq!(count(|kind| matches!(kind, command::Kind::FailTask(_))), 0);
    // A batch that was not taken comes again as it was.
    for batch in &reports[..4] {
        assert!(reports.iter().filter(|other| *other == batch).count() >= 2, "{batch:?} of {reports:?}");
    }
    assert_eq!(setup.cluster.state().started.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d_02_a_late_report_is_refused_and_dropped() {
    let setup = setup();
    let go = setup.dir.path().join("go");
    let text = format!("while ! [ -e {} ]; do sleep 0.01; done; exit 9", go.display());
    let first = setup.cluster.assign(run(&text)).await;
    setup.cluster.start_of(first).await;
    // Its report waits while the attempt is replaced by one on the same claw.
    setup.cluster.state().failing_reports = u32::MAX;
    std::fs::write(&go, "").unwrap();
    setup.cluster.until("a report", |state| (state.failing_reports < u32::MAX).then_some(())).await;
    let second = {
        let mut state = setup.cluster.state();
        let (mut assignment, mut work) = state.assigned.remove(&first).unwrap();
        state.index += 1;
        (assignment.attempt, assignment.fence) = (2, state.index);
        work.task = process(&["true"]);
        let key = (assignment.run, assignment.task, 2, assignment.fence);
        state.assigned.insert(key, (assignment, work));
        state.failing_reports = 0;
        key
    };
    setup.cluster.touch();
    setup.cluster.end(second).await.outputs();
    setup.cluster.until("the refusal", |state| (!state.rejected.is_empty()).then_some(())).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let state = setup.cluster.state();
    assert_eq!(state.rejected, [RejectionCode::StaleFence]);
    assert_eq!(state.ended.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_attempts_than_slots() {
    let setup = setup_with(|config| config.slots = 3);
    let mut status = setup.claw.status();
    let watcher = tokio::spawn(async move {
        let mut most = 0;
        while status.changed().await.is_ok() {
            most = most.max(status.borrow_and_update().running);
            if status.borrow().stopped {
                break;
            }
        }
        most
    });
    let dir = setup.dir.path().join("now");
    std::fs::create_dir(&dir).unwrap();
    let text = format!("cd {}; touch $CLAWHIVE_RUN; ls | wc -l; sleep 0.05; rm $CLAWHIVE_RUN", dir.display());
    let mut keys = Vec::new();
    for _ in 0..20 {
        keys.push(setup.cluster.assign(run(&text)).await);
    }
    for key in keys {
        setup.cluster.end(key).await.outputs();
        let at_once: u32 = String::from_utf8(setup.log(key).await).unwrap().trim().parse().unwrap();
        assert!(at_once <= 3, "{at_once} at once");
    }
    setup.claw.drain(Duration::ZERO).await;
    assert_eq!(watcher.await.unwrap(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_waits_then_stops_and_gives_back_what_is_left() {
    let setup = setup();
    let sleep = sleep(33);
    let quick = setup.cluster.assign(run("sleep 0.3")).await;
    let long = setup.cluster.assign(limits(run(&format!("{sleep} & {sleep}")), 0, 60_000)).await;
    setup.cluster.start_of(quick).await;
    setup.cluster.start_of(long).await;
    there(&sleep).await;
    let start = Instant::now();
    setup.claw.drain(Duration::from_millis(1500)).await;
    assert!(start.elapsed() >= Duration::from_millis(1500));
    assert!(processes(&sleep).is_empty());
    let state = setup.cluster.state();
    assert!(matches!(state.ended[&quick], Ended::Succeeded(_)));
    assert_eq!(state.ended[&long], Ended::Lost);
    assert_eq!(state.registrations.last().unwrap().1.slots, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_drain_is_quick_and_a_dropped_claw_kills() {
    let first = setup();
    first.cluster.registered().await;
    let start = Instant::now();
    first.claw.drain(Duration::from_secs(60)).await;
    assert!(start.elapsed() < Duration::from_secs(10));

    let second = setup();
    let sleep = sleep(34);
    second.cluster.assign(run(&format!("{sleep} & {sleep}"))).await;
    there(&sleep).await;
    drop(second.claw);
    gone(&sleep).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_ends_the_attempt_not_the_claw() {
    let setup = setup();
    setup.cluster.state().panic_on_outputs = true;
    let mut task = run("echo x > \"$CLAWHIVE_OUTPUT\"");
    task.outputs.push(Output { name: "x".into(), ..Output::default() });
    let (_, end) = setup.cluster.run(task).await;
    let end = end.failure();
    assert_eq!(end.reason(), Reason::StartError);
    assert!(end.message.contains("internal error"), "{}", end.message);
    setup.cluster.run(process(&["true"])).await.1.outputs();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_ends_what_an_earlier_process_left() {
    let dir = tempfile::tempdir().unwrap();
    let left = dir.path().canonicalize().unwrap().join("work/7-0-1");
    std::fs::create_dir_all(left.join("deep")).unwrap();
    let sleep = sleep(35);
    let number = sleep.split(' ').nth(1).unwrap();
    let mut orphan = std::process::Command::new("sleep")
        .arg(number)
        .env("CLAWHIVE_OUTPUT", left.join(".clawhive-output"))
        .spawn()
        .unwrap();
    let other = dir.path().join("elsewhere/7-0-1/.clawhive-output");
    let mut stranger = std::process::Command::new("sleep")
        .arg(format!("{number}9"))
        .env("CLAWHIVE_OUTPUT", other)
        .spawn()
        .unwrap();
    let cluster = Cluster::new();
    let claw = Claw::start(config(dir.path()), cluster.clone()).unwrap();
    // Registration comes after the cleaning.
    cluster.registered().await;
    assert!(!left.exists());
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&orphan.wait().unwrap()), Some(9));
    assert!(stranger.try_wait().unwrap().is_none(), "not ours");
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    drop(claw);
}

/// Whoever runs the tests may be nice already.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_are_nicer_than_the_node_with_all_that_they_start() {
    let setup = setup_with(|config| config.task_nice = 7);
    let own = rustix::process::getpriority_process(None).unwrap();
    // Set from outside, right after the start.
    let text = "until test \"$(nice)\" -gt \"$OWN\"; do sleep 0.02; done; nice; sh -c nice; \
                test \"$GROUPED\" = 1 || exit 0; for i in $(seq 100); do \
                if grep -q ' nice 7$' /proc/self/autogroup 2>/dev/null; then echo grouped; break; fi; sleep 0.05; done";
    let grouped = std::fs::read_to_string("/proc/sys/kernel/sched_autogroup_enabled").unwrap_or_default();
    let task = env(env(run(text), "OWN", &own.to_string()), "GROUPED", grouped.trim());
    let (key, end) = setup.cluster.run(task).await;
    end.outputs();
    let log = String::from_utf8(setup.log(key).await).unwrap();
    let mut lines = log.lines();
    let wanted = (own + 7).min(19).to_string();
    assert_eq!((lines.next(), lines.next()), (Some(wanted.as_str()), Some(wanted.as_str())), "{log}");
    if grouped.trim() == "1" {
        assert_eq!(lines.next(), Some("grouped"), "{log}");
    }
}
