//! What the tests of real clusters share: the binary, one cluster at a time, and how to ask for a run.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use clawhive_client::proto::{RunState, RunView};
use clawhive_client::{Client, Submit};
use clawhive_jepsen::blackbox::check::{self, Counter, Findings};
use clawhive_jepsen::blackbox::flow::Flow;
use clawhive_jepsen::cluster::{Cluster, Options};

/// The `clawhive` binary: named by CLAWHIVE_BIN, or built once beside the test executable. It is always built anew
/// unless named, so that no test judges an old one.
pub fn binary() -> PathBuf {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(find_or_build).clone()
}

fn find_or_build() -> PathBuf {
    if let Some(named) = std::env::var_os("CLAWHIVE_BIN") {
        return PathBuf::from(named);
    }
    // target/debug/deps/it-0123: the profile's folder is two up.
    let test = std::env::current_exe().expect("the path of the test");
    let folder = test.parent().and_then(Path::parent).expect("the target folder").to_owned();
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "-q", "-p", "clawhive-node", "--bin", "clawhive"]);
    if folder.ends_with("release") {
        cargo.arg("--release");
    }
    let built = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).status().expect("cargo runs");
    assert!(built.success(), "the clawhive binary does not build");
    folder.join("clawhive")
}

/// Runs a test with real clusters; one such test at a time, so that two cores are enough.
pub fn alone<F: Future<Output = ()>>(test: impl FnOnce() -> F) {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(2).enable_all().build().expect("a runtime").block_on(test());
}

/// A cluster with four slots per node; its logs stay when CLAWHIVE_TEST_LOGS names a folder.
pub async fn cluster(nodes: usize, lease: Option<Duration>) -> Cluster {
    let mut options = Options::new(nodes, binary());
    options.slots = vec![4];
    options.lease = lease;
    options.out = std::env::var_os("CLAWHIVE_TEST_LOGS")
        .map(|folder| PathBuf::from(folder).join(format!("{}-{nodes}", std::process::id())));
    Cluster::start(options).await.expect("the cluster starts")
}

/// The recorded executions: a made-up one, and the public ones where they stand beside the repository, or
/// where CLAWHIVE_CASES says.
pub fn recordings() -> Vec<(String, String)> {
    use clawhive_jepsen::blackbox::flow::recordings;
    let mut all = recordings(None).expect("the built-in recording");
    let beside = std::env::var_os("CLAWHIVE_CASES").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/cases/wfcommons"),
        PathBuf::from,
    );
    if beside.is_dir() {
        all.extend(recordings(Some(&beside)).expect("the public recordings"));
    }
    all
}

/// Submits a definition.
pub async fn submit(client: &Client, definition: impl Into<Vec<u8>>) -> u64 {
    let submit = Submit::definition(definition);
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        match client.submit(submit.clone()).await {
            Ok(answer) => return answer.run,
            Err(error) if error.may_have_been_applied() || clawhive_client::is_no_server(&error) => {
                assert!(Instant::now() < until, "not acknowledged within 30 s: {error}");
            }
            Err(error) => panic!("refused: {error}"),
        }
    }
}

/// Waits for the end of a run.
pub async fn ended(client: &Client, run: u64, patience: Duration) -> RunView {
    match tokio::time::timeout(patience, client.wait(run)).await {
        Ok(view) => view.expect("the run is there"),
        Err(_) => {
            let view = client.get_run(run).await.map(|view| view.counts);
            panic!("run {run} did not end within {patience:?}: {view:?}")
        }
    }
}

/// The state of a run.
pub fn state(view: &RunView) -> RunState {
    view.run.as_ref().map_or(RunState::Unspecified, |run| run.state())
}

/// Judges a run against its flow and the counter file, and asserts that nothing is broken.
pub fn assert_kept(flow: &Flow, view: &RunView, counter: &Path) -> Findings {
    let lines: Counter = check::read_counter(counter).expect("the counter file");
    let findings = check::judge(flow, view, &lines);
    assert!(findings.broken.is_empty(), "{}: {:#?}", flow.name, findings.broken);
    findings
}

/// Waits until a condition on a run holds.
pub async fn until(client: &Client, run: u64, what: &str, holds: impl Fn(&RunView) -> bool) -> RunView {
    let limit = Instant::now() + Duration::from_secs(30);
    loop {
        if let Ok(view) = client.get_run(run).await
            && holds(&view)
        {
            return view;
        }
        assert!(Instant::now() < limit, "run {run}: not within 30 s: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
