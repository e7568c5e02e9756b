//! The acceptance cases of group C that concern processes: signals, timeouts, start errors, arguments, environment.

use crate::claw_support::*;
use clawhive_proto::Reason;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

/// A command line that no other test has; the number is a sleep that nobody waits out.
fn sleep(case: u32) -> String {
    format!("sleep {}{case:03}", std::process::id())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c_01_a_timeout_ends_the_whole_group() {
    let setup = setup();
    let sleep = sleep(1);
    let start = Instant::now();
    let task = limits(run(&format!("{sleep} & {sleep}")), 500, 500);
    let (_, end) = setup.cluster.run(task).await;
    let end = end.failure();
    assert_eq!(end.reason(), Reason::Timeout);
    assert_eq!(end.signal, Some(15));
    assert!(start.elapsed() >= Duration::from_millis(500) && start.elapsed() < Duration::from_secs(10));
    gone(&sleep).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c_02_a_child_that_left_the_session_does_not_hold_the_task() {
    let setup = setup();
    let sleep = sleep(2);
    let start = Instant::now();
    let task = limits(run(&format!("setsid {sleep} & {sleep}")), 700, 200);
    let (key, end) = setup.cluster.run(task).await;
    assert_eq!(end.failure().reason(), Reason::Timeout);
    assert!(start.elapsed() < Duration::from_secs(10));
    gone(&sleep).await;
    let notes = setup.notes(key).await;
    assert!(notes.contains("had left its session") && notes.contains(&sleep), "{notes}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_background_child_does_not_outlive_a_task_that_succeeded() {
    let setup = setup();
    let sleep = sleep(20);
    let (key, end) = setup.cluster.run(run(&format!("{sleep} & echo done"))).await;
    end.outputs();
    assert_eq!(setup.log(key).await, b"done\n");
    gone(&sleep).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c_03_term_comes_first_and_kill_after_the_grace() {
    let setup = setup();
    let start = Instant::now();
    let deaf = limits(run(&format!("trap '' TERM; {}", sleep(3))), 400, 600);
    let (_, end) = setup.cluster.run(deaf).await;
    let end = end.failure();
    assert_eq!((end.reason(), end.signal, end.exit_code), (Reason::Timeout, Some(9), None));
    assert!(start.elapsed() >= Duration::from_secs(1));

    let start = Instant::now();
    let polite = limits(run("trap 'echo bye; exit 0' TERM; while :; do sleep 0.05; done"), 500, 30_000);
    let (key, end) = setup.cluster.run(polite).await;
    let end = end.failure();
    assert_eq!((end.reason(), end.signal, end.exit_code), (Reason::Timeout, None, Some(0)));
    // The shell may add, before or after, that its sleep was terminated.
    let log = setup.log(key).await;
    assert!(log.windows(4).any(|part| part == b"bye\n"), "{log:?}");
    assert!(start.elapsed() < Duration::from_secs(20), "no KILL was waited for");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c_12_codes_and_signals_are_told_apart() {
    let setup = setup();
    for (text, reason, code, signal) in [
        ("exit 137", Reason::Exit, Some(137), None),
        ("kill -9 $$", Reason::Signal, None, Some(9)),
        ("sh -c 'exit 300'", Reason::Exit, Some(44), None),
        ("exit 255", Reason::Exit, Some(255), None),
        ("kill -TERM $$", Reason::Signal, None, Some(15)),
        // -e and -u
        ("false; exit 0", Reason::Exit, Some(1), None),
        ("echo $NO_SUCH_VARIABLE", Reason::Exit, Some(2), None),
    ] {
        let (_, end) = setup.cluster.run(run(text)).await;
        let end = end.failure();
        assert_eq!((end.reason(), end.exit_code, end.signal), (reason, code, signal), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c_15_what_does_not_start_says_why_and_where() {
    let setup = setup();
    let file = |name: &str, text: &str, mode: u32| {
        let path = setup.dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let plain = file("plain", "#!/bin/sh\n", 0o644);
    let crlf = file("crlf", "#!/bin/sh\r\necho x\r\n", 0o755);
    let bare = file("bare", "echo x\n", 0o755);
    for (command, parts) in [
        ("/no/such/bin", vec!["/no/such/bin", "not found", "errno 2"]),
        ("no-such-command", vec!["no-such-command", "not found along PATH", "errno 2"]),
        (&plain, vec![&plain, "permission denied", "errno 13"]),
        (&crlf, vec![&crlf, "interpreter \"/bin/sh\\r\"", "errno 2"]),
        (&bare, vec![&bare, "exec format error", "errno 8"]),
    ] {
        let (_, end) = setup.cluster.run(process(&[command])).await;
        let end = end.failure();
        assert_eq!((end.reason(), end.exit_code, end.signal), (Reason::StartError, None, None));
        for part in parts.into_iter().chain(["testhost"]) {
            assert!(end.message.contains(part), "{command}: {part:?} is not in {:?}", end.message);
        }
    }
    let (key, end) = setup.cluster.run(process(&["sh", "-c", "nosuchcmd"])).await;
    assert_eq!(end.failure().exit_code, Some(127));
    assert!(!setup.log(key).await.is_empty());
    // The claw lives.
    setup.cluster.run(process(&["true"])).await.1.outputs();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c_16_a_list_never_passes_through_a_shell() {
    let setup = setup();
    let (key, end) = setup.cluster.run(process(&["printf", "%s\\n", "a b", "$HOME", "*", "; echo x"])).await;
    end.outputs();
    assert_eq!(setup.log(key).await, b"a b\n$HOME\n*\n; echo x\n");
    let (key, end) = setup.cluster.run(run("echo a | tr a b")).await;
    end.outputs();
    assert_eq!(setup.log(key).await, b"b\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c_19_a_missing_working_directory_is_an_error_that_names_it() {
    let setup = setup();
    let file = setup.dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    for (dir, what) in [
        ("/no/such/dir", "does not exist (errno 2)"),
        ("relative", "is not absolute"),
        (file.to_str().unwrap(), "is not a directory (errno 20)"),
    ] {
        let (_, end) = setup.cluster.run(process_in(dir, &["true"])).await;
        let end = end.failure();
        assert_eq!(end.reason(), Reason::StartError);
        assert!(end.message.contains(dir) && end.message.contains(what), "{}", end.message);
    }
    let dir = setup.dir.path().join("given");
    std::fs::create_dir(&dir).unwrap();
    let dir = dir.canonicalize().unwrap();
    let (key, end) = setup.cluster.run(process_in(dir.to_str().unwrap(), &["pwd"])).await;
    end.outputs();
    assert_eq!(String::from_utf8(setup.log(key).await).unwrap().trim(), dir.to_str().unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c_20_standard_input_is_empty() {
    let setup = setup();
    let (key, end) = setup.cluster.run(run("cat; echo rc=$?; readlink /proc/self/fd/0")).await;
    end.outputs();
    assert_eq!(setup.log(key).await, b"rc=0\n/dev/null\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c_26_an_argument_that_is_too_long_is_a_start_error() {
    let setup = setup();
    let longest = "x".repeat(131_071);
    let (_, end) = setup.cluster.run(process(&["true", &longest])).await;
    end.outputs();
    let too_long = format!("{longest}x");
    for task in
        [process(&["true", &too_long]), run(&format!(": {too_long}")), env(process(&["true"]), "V", &longest)]
    {
        let (_, end) = setup.cluster.run(task).await;
        let end = end.failure();
        assert_eq!(end.reason(), Reason::StartError);
        assert!(
            end.message.contains("argument list too long") && end.message.contains("errno 7"),
            "{}",
            end.message
        );
    }
    let (_, end) = setup.cluster.run(process(&["true", "a\0b"])).await;
    assert!(end.failure().message.contains("NUL"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_environment_is_this_and_nothing_else() {
    let setup = setup();
    let task =
        limits(env(env(process(&["env", "-0"]), "MINE", "a=b c"), "CLAWHIVE_FENCE", "forged"), 60_000, 0);
    let (key, end) = setup.cluster.run(task).await;
    end.outputs();
    let log = String::from_utf8(setup.log(key).await).unwrap();
    let mut variables: BTreeMap<&str, &str> =
        log.split_terminator('\0').map(|variable| variable.split_once('=').unwrap()).collect();
    let deadline = variables.remove("CLAWHIVE_DEADLINE").unwrap();
    assert!(deadline.len() == 24 && deadline.ends_with('Z'), "{deadline}");
    let output = variables.remove("CLAWHIVE_OUTPUT").unwrap();
    let work = setup.dir.path().canonicalize().unwrap().join("work");
    assert!(std::path::Path::new(output).starts_with(&work), "{output}");
    let id = key.0.to_string();
    let expected = BTreeMap::from([
        ("PATH", "/usr/bin:/bin"),
        ("HOME", "/nowhere"),
        ("LANG", "C"),
        ("MINE", "a=b c"),
        ("CLAWHIVE_RUN", &id),
        ("CLAWHIVE_WORKFLOW", "flow"),
        ("CLAWHIVE_TASK", "t"),
        ("CLAWHIVE_INDEX", ""),
        ("CLAWHIVE_ATTEMPT", "1"),
        ("CLAWHIVE_FENCE", &id),
        ("CLAWHIVE_SERVER", "127.0.0.1:7400"),
    ]);
    assert_eq!(variables, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_leads_its_own_session_with_clean_signals_and_descriptors() {
    let setup = setup();
    // stat: pid (comm) state ppid pgrp session
    let text = "read -r pid comm state ppid group session rest < /proc/self/stat
        [ $pid = $group ] && [ $pid = $session ] && echo leader
        grep -E '^Sig(Blk|Ign)' /proc/self/status
        ls /proc/self/fd";
    let (key, end) = setup.cluster.run(process(&["sh", "-c", text])).await;
    end.outputs();
    // glibc leaves its own two signals (32 and 33) ignored in whatever it spawns.
    let log = String::from_utf8(setup.log(key).await)
        .unwrap()
        .replace("SigIgn:\t0000000180000000", "SigIgn:\t0000000000000000");
    // 3 is the directory that ls reads.
    let expected = "leader\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n0\n1\n2\n3\n";
    assert_eq!(log, expected);
}
