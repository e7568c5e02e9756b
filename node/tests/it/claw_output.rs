//! What attempts write: logs as bytes (C-06, C-07, C-09, C-11) and declared outputs.

use crate::claw_support::*;
use clawhive_node::claw::LogQuery;
use clawhive_proto::{LogStream, Output, Reason, Task};
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c_06_every_byte_that_was_written_is_kept() {
    let setup = setup();
    let mut keys = Vec::new();
    for _ in 0..50 {
        keys.push(setup.cluster.assign(run("head -c 200000 /dev/zero | tr '\\0' x; echo LAST")).await);
    }
    for key in keys {
        setup.cluster.end(key).await.outputs();
        let log = setup.log(key).await;
        assert_eq!(log.len(), 200_005);
        assert!(log.ends_with(b"xLAST\n"));
        assert_eq!(setup.read(key, 1).await.0.len(), 200_005, "it is one line");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c_07_c_09_bytes_are_bytes() {
    let setup = setup();
    for (text, bytes) in [
        ("printf 'caf\\351 \\377\\376 end\\n'", &b"caf\xe9 \xff\xfe end\n"[..]),
        ("printf 'a\\000b\\n'", b"a\0b\n"),
        ("printf '\\033[31mred\\033[0m\\033]0;t\\a\\n'", b"\x1b[31mred\x1b[0m\x1b]0;t\x07\n"),
    ] {
        let (key, end) = setup.cluster.run(run(text)).await;
        end.outputs();
        assert_eq!(setup.log(key).await, bytes, "{text}");
    }
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c_11_a_hundred_megabytes_do_not_pass_through_memory() {
    let setup = setup();
    let text = "yes 0123456789abcde | head -c 104857600; echo; echo END-MARKER";
    let before = resident_kib();
    let mut peak = before;
    let key = setup.cluster.assign(run(text)).await;
    let end = loop {
        tokio::select! {
            end = setup.cluster.end(key) => break end,
            () = tokio::time::sleep(Duration::from_millis(5)) => peak = peak.max(resident_kib()),
        }
    };
    end.outputs();

    let (start, tail) = (Instant::now(), setup.read(key, 1).await.0);
    assert_eq!(tail, b"END-MARKER\n");
    assert!(start.elapsed() < Duration::from_secs(1));

    let mut reader = setup
        .claw
        .logs()
        .read(LogQuery { run: key.0, attempt: 1, follow: true, ..LogQuery::default() })
        .unwrap();
    let (mut hash, mut bytes) = (Sha256::new(), 0);
    while let Some(piece) = reader.next().await.unwrap() {
        assert!(!piece.note);
        bytes += piece.data.len();
        hash.update(&piece.data);
        peak = peak.max(resident_kib());
    }
    assert!(reader.complete());
    assert_eq!(bytes, 104_857_612);
    let hex = hash.finalize().iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").unwrap();
        hex
    });
    assert_eq!(hex, "8c60fcad6266b1234d889d85edd331061eabd7abfd5670f9427c78e1c0142c1c");
    assert!(peak - before < 50 * 1024, "grew by {} KiB", peak - before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn output_is_seen_while_the_task_runs_and_streams_are_told_apart() {
    let setup = setup();
    let go = setup.dir.path().join("go");
    let text =
        format!("echo out; echo err >&2; while ! [ -e {} ]; do sleep 0.02; done; echo end", go.display());
    let key = setup.cluster.assign(run(&text)).await;
    setup.cluster.start_of(key).await;
    let query = LogQuery { run: key.0, attempt: 1, follow: true, ..LogQuery::default() };
    let mut reader = setup.claw.logs().read(query).unwrap();
    let mut seen = std::collections::BTreeMap::new();
    while seen.len() < 2 {
        let piece = reader.next().await.unwrap().expect("the log is open");
        assert!(piece.time_ms > 1_600_000_000_000);
        seen.insert(piece.stream as i32, piece.data.to_vec());
    }
    assert_eq!(seen[&(LogStream::Stdout as i32)], b"out\n");
    assert_eq!(seen[&(LogStream::Stderr as i32)], b"err\n");
    std::fs::write(&go, "").unwrap();
    assert_eq!(reader.next().await.unwrap().unwrap().data, "end\n");
    assert_eq!(reader.next().await.unwrap(), None);
    assert!(reader.complete());
}

fn with_output(text: &str) -> Task {
    let mut task = run(text);
    task.outputs.push(Output { name: "x".into(), ..Output::default() });
    task
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn declared_outputs_are_read_after_success_and_checked() {
    let setup = setup();
    let (_, end) = setup.cluster.run(with_output("echo '{\"x\": 1}' > \"$CLAWHIVE_OUTPUT\"")).await;
    assert_eq!(end.outputs(), "{\"x\": 1}\n");
    let full = "head -c 65536 /dev/zero | tr '\\0' x > \"$CLAWHIVE_OUTPUT\"";
    assert_eq!(setup.cluster.run(with_output(full)).await.1.outputs().len(), 65_536);
    for (text, part) in [
        ("true", "\"x\" is missing"),
        ("head -c 65537 /dev/zero > \"$CLAWHIVE_OUTPUT\"", "larger than 65536 bytes"),
        ("ln -s /etc/passwd \"$CLAWHIVE_OUTPUT\"", "cannot read the file of CLAWHIVE_OUTPUT"),
        ("mkfifo \"$CLAWHIVE_OUTPUT\"", "not a regular file"),
        ("printf '\\377' > \"$CLAWHIVE_OUTPUT\"", "utf-8"),
    ] {
        let (_, end) = setup.cluster.run(with_output(text)).await;
        let end = end.failure();
        assert_eq!((end.reason(), end.exit_code), (Reason::OutputError, Some(0)), "{text}");
        assert!(end.message.contains(part), "{}", end.message);
    }
    // A failed task's output counts for nothing.
    let (_, end) = setup.cluster.run(with_output("echo x > \"$CLAWHIVE_OUTPUT\"; exit 3")).await;
    assert_eq!(end.failure().reason(), Reason::Exit);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_working_directory_is_the_attempts_own_and_gone_after_it() {
    let setup = setup();
    let (key, end) = setup.cluster.run(run("pwd; ls -A; mkdir -p a/b; echo x > a/b/c; ln -s / root")).await;
    end.outputs();
    let work = setup.dir.path().canonicalize().unwrap().join("work");
    let expected = work.join(format!("{}-0-1", key.0));
    assert_eq!(String::from_utf8(setup.log(key).await).unwrap().trim(), expected.to_str().unwrap());
    assert_eq!(std::fs::read_dir(&work).unwrap().count(), 0);

    // One that was left empty is used again, empty, under the next attempt's name.
    for text in ["true", "pwd; ls -A; chmod 777 .", "pwd; ls -A; stat -c %a ."] {
        let (key, end) = setup.cluster.run(run(text)).await;
        end.outputs();
        assert!(!work.join(format!("{}-0-1", key.0)).exists());
        let log = String::from_utf8(setup.log(key).await).unwrap();
        let name = work.join(format!("{}-0-1", key.0));
        assert!(text == "true" || log.starts_with(&format!("{}\n", name.display())), "{log}");
        assert!(!log.contains("777") && !log.contains("clawhive-output"), "{log}");
    }
}
