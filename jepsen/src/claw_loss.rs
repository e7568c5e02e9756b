//! How soon the tasks of a killed claw run elsewhere, and that they never do before its lease has ended. When the lease
//! ended is told by the claw's own log (when it sent its last confirmed beat), when tasks ran by the tasks' own stamps; all
//! processes are on one machine, so all times are of one clock.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clawhive_client::Submit;
use clawhive_client::proto::AttemptState;
use serde_json::{Value, json};

use crate::cluster::{Cluster, Options as ClusterOptions};
use crate::verdict::Exit;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many claws are killed, one after the other.
    pub kills: u32,
    /// Their lease.
    pub lease: Duration,
    /// The `clawhive` binary.
    pub binary: PathBuf,
    /// Folder for the output of the nodes.
    pub out: Option<PathBuf>,
}

/// One longest election timeout and a tenth of a second: with the lease, what may pass from the kill on. (Not from the end of
/// the lease as the claw knew it: a beat may be committed whose answer the claw did not live to see.)
const BOUND_MS: i64 = 300 + 100;

/// What became of the task of one claw. Times are in milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug)]
pub struct Loss {
    /// When the claw sent its last confirmed beat, plus the lease.
    pub lease_ended_ms: i64,
    /// When it was killed or stopped.
    pub killed_ms: i64,
    /// The last stamp of the first attempt.
    pub last_seen_ms: i64,
    /// The first stamp of the second attempt.
    pub elsewhere_ms: i64,
}

/// Settings of a cluster whose claws say when their leases end.
pub fn cluster_options(lease: Duration, binary: PathBuf) -> ClusterOptions {
    let said = "error,clawhive=info,clawhive_node=info,clawhive_node::claw=debug,clawhive_raft=info";
    ClusterOptions {
        lease: Some(lease),
        env: vec![("CLAWHIVE_LOG".to_owned(), said.to_owned())],
        ..ClusterOptions::new(3, binary)
    }
}

/// A task that stamps a file all the time in its first attempt, and once in later ones.
pub fn stamping(file: &Path, delivery: &str) -> String {
    let text = "while :; do echo \"$CLAWHIVE_ATTEMPT $(date +%s%3N)\" >> \"$FILE\"; test \"$CLAWHIVE_ATTEMPT\" = 1 || \
                exit 0; sleep 0.01; done";
    let task = json!({"run": text, "env": {"FILE": file}, "delivery": delivery});
    json!({"name": "stamps", "tasks": {"stamp": task}}).to_string()
}

/// The stamps of an attempt.
pub fn stamps(file: &Path, attempt: u32) -> Vec<i64> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let of = |line: &str| {
        let (number, at) = line.split_once(' ')?;
        (number == attempt.to_string()).then(|| at.parse().ok()).flatten()
    };
    text.lines().filter_map(of).collect()
}

/// When the claw of a node sent the last beat that was confirmed, by its log.
pub fn last_beat_ms(log: &str) -> Option<i64> {
    let line = log.lines().rev().find(|line| line.contains("a beat is confirmed"))?;
    line.split_whitespace().find_map(|word| word.strip_prefix("sent_ms="))?.parse().ok()
}

fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// How the claw goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// kill -9 of its node.
    Kill,
    /// SIGSTOP; it stands still until someone continues it.
    Stop,
}

/// Starts a task, lets the claw that runs it go, and waits until it runs elsewhere. Answers with the member that went, too.
///
/// # Errors
/// A cluster that does not answer, or a task that does not run again within a minute.
pub async fn lose(cluster: &mut Cluster, lease: Duration, file: &Path, how: How) -> Result<(usize, Loss)> {
    let client = cluster.client()?;
    let run = client.submit(Submit::definition(stamping(file, "strict_single"))).await?.run;
    let attempt = |number: usize| {
        let client = client.clone();
        async move {
            let view = client.get_run(run).await.ok()?;
            view.tasks.first()?.attempts.get(number)?.row.clone()
        }
    };
    let claw = 'found: {
        for _ in 0..600 {
            if let Some(row) = attempt(0).await.filter(|row| row.state() == AttemptState::Running)
                && !stamps(file, 1).is_empty()
            {
                break 'found row.claw;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        bail!("the task does not run");
    };
    // At any moment between two beats.
    tokio::time::sleep(lease / 5 * (run as u32 % 5) / 4).await;
    let victim = cluster.member_of(claw)?;
    let killed_ms = now_ms();
    match how {
        How::Kill => cluster.kill(victim)?,
        How::Stop => cluster.pause(victim)?,
    }
    for _ in 0..1_200 {
        if !stamps(file, 2).is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let beat_ms =
        last_beat_ms(&cluster.log_text(victim)).context("the claw's log names no confirmed beat")?;
    let lease_ms = i64::try_from(lease.as_millis())?;
    let loss = Loss {
        lease_ended_ms: beat_ms + lease_ms,
        killed_ms,
        last_seen_ms: *stamps(file, 1).last().context("no stamp of the first attempt")?,
        elsewhere_ms: *stamps(file, 2).first().context("the task does not run elsewhere")?,
    };
    Ok((victim, loss))
}

/// Measures, prints one JSON document, and says whether a lease was cut short or an attempt came late.
///
/// # Errors
/// A cluster that does not start, or does not come back after a kill.
pub async fn run(options: &Options) -> Result<Exit> {
    let folder = tempfile::Builder::new().prefix("clawhive-stamps-").tempdir()?;
    let cluster_options =
        ClusterOptions { out: options.out.clone(), ..cluster_options(options.lease, options.binary.clone()) };
    let mut cluster = Cluster::start(cluster_options).await?;
    let (mut after_lease, mut after_kill, mut early) = (Vec::new(), Vec::new(), 0);
    for kill in 1..=options.kills {
        let file = folder.path().join(format!("kill-{kill}"));
        let (victim, loss) = lose(&mut cluster, options.lease, &file, How::Kill).await?;
        let past_lease = loss.elsewhere_ms - loss.lease_ended_ms;
        let past_kill = loss.elsewhere_ms - loss.killed_ms;
        eprintln!(
            "kill {kill}: elsewhere {past_lease} ms after the lease ended, {past_kill} ms after the kill"
        );
        early += u32::from(past_lease < 0 || loss.elsewhere_ms <= loss.last_seen_ms);
        after_lease.push(past_lease);
        after_kill.push(past_kill);
        cluster.restart(victim).await?;
        cluster.voters(3, Duration::from_secs(30)).await?;
    }
    let bound_ms = i64::try_from(options.lease.as_millis())? + BOUND_MS;
    let late = after_kill.iter().filter(|ms| **ms > bound_ms).count();
    let report = json!({
        "kills": options.kills,
        "lease_ms": u64::try_from(options.lease.as_millis())?,
        "bound_after_kill_ms": bound_ms,
        "after_lease": figures(&mut after_lease),
        "after_kill": figures(&mut after_kill),
        "early": early,
        "late": late,
    });
    println!("{}", serde_json::to_string_pretty(&report)?);
    Ok(if early > 0 || late > 0 { Exit::Invalid } else { Exit::Valid })
}

fn figures(values: &mut [i64]) -> Value {
    values.sort_unstable();
    let at = |percent: usize| values[(values.len() * percent).div_ceil(100).max(1) - 1];
    json!({"min_ms": at(0), "median_ms": at(50), "p99_ms": at(99), "max_ms": at(100)})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beats_and_stamps_are_read() {
        let log = "x a beat is confirmed sent_ms=5\ny a beat is confirmed sent_ms=17\nz other sent_ms=99\n";
        assert_eq!(last_beat_ms(log), Some(17));
        assert_eq!(last_beat_ms("nothing"), None);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("stamps");
        std::fs::write(&file, "1 10\n1 20\n2 30\n1 2").unwrap();
        assert_eq!((stamps(&file, 1), stamps(&file, 2)), (vec![10, 20, 2], vec![30]));
        assert_eq!(figures(&mut [3, 1, 2])["median_ms"], 2);
    }
}
