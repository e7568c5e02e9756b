//! `lock NAME -- COMMAND`: the command runs while the lock is held, and no longer. `lock [NAME]`: who holds what.

mod child;
mod watchdog;

use std::time::Duration;

use clawhive_client::{Error, Holder, LockGuard, Lost};
use clawhive_proto::{ListLocksRequest, LockView};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until};

use crate::cli::args::{Global, LockArgs};
use crate::cli::failure::{Exit, Failure};
use crate::cli::output::{
    Format, Hue, Output, Table, age, duration, escape, freshness_json, now_ms, rfc3339,
};
use crate::cli::session::{Local, Session};
use crate::cli::signals::Signals;

pub(crate) use watchdog::{WATCHDOG_ARGUMENT, watchdog};

/// A release that takes longer is left to the time to live.
const RELEASE_WITHIN: Duration = Duration::from_secs(3);

pub(in crate::cli) async fn run(args: &LockArgs, global: &Global, output: &Output) -> Result<u8, Failure> {
    let session = Session::open(global, Local::LOOK).await?;
    let told = match &args.name {
        Some(name) if !args.command.is_empty() => hold(name, args, &session, global, output).await,
        name => ls(name.as_deref(), args, &session, output).await.map(|exit| exit as u8),
    };
    session.close().await;
    told
}

async fn hold(
    name: &str,
    args: &LockArgs,
    session: &Session,
    global: &Global,
    output: &Output,
) -> Result<u8, Failure> {
    let mut signals = Signals::listen()?;
    let lock = session.client.lock(name, args.ttl).namespace(&args.namespace).owner(owner());
    let lock = args.wait_timeout.map_or(lock.clone(), |patience| lock.patience(patience));
    let tell = |holder: &Holder| eprintln!("{}", output.stderr.dim(&waiting(name, holder)));
    let acquired = async {
        match args.wait_timeout {
            Some(Duration::ZERO) => lock.try_acquire().await,
            _ => lock.acquire_telling(tell).await,
        }
    };
    let guard = tokio::select! {
        guard = acquired => guard.map_err(|error| not_acquired(name, args, error))?,
        signal = signals.next() => {
            // The place in the queue is being given up.
            sleep(Duration::from_millis(200)).await;
            return Ok(child::code_of_signal(signal));
        }
    };
    let server = global.server.as_deref();
    let child = match child::Running::start(&args.command, guard.token(), server, args.grace) {
        Ok(child) => child,
        Err(failure) => {
            let _kept_until_its_time_is_over = tokio::time::timeout(RELEASE_WITHIN, guard.release()).await;
            return Err(failure);
        }
    };
    follow(name, args, guard, child, &mut signals, output).await
}

/// Until the command has ended, one way or the other.
async fn follow(
    name: &str,
    args: &LockArgs,
    guard: LockGuard,
    mut child: child::Running,
    signals: &mut Signals,
    output: &Output,
) -> Result<u8, Failure> {
    let mut lost: Option<Lost> = None;
    let mut kill_at: Option<Instant> = None;
    let code = loop {
        let kill = async {
            match kill_at {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            code = child.ended() => break code?,
            why = guard.lost(), if lost.is_none() => {
                eprintln!("{} lock {name} is lost: {why}; stopping the command", output.stderr.red("error:"));
                child.terminate();
                kill_at = Some(Instant::now() + args.grace);
                lost = Some(why);
            }
            signal = signals.next() => child.forward(signal),
            () = kill => {
                child.kill();
                kill_at = None;
            }
        }
    };
    if let Some(why) = lost {
        return Err(lost_failure(name, guard.token(), &why, "the command was stopped"));
    }
    let token = guard.token();
    match tokio::time::timeout(RELEASE_WITHIN, guard.release()).await {
        Ok(Err(Error::Conflict { message })) => {
            let why = Lost::Ended(message);
            Err(lost_failure(name, token, &why, "that was before the command ended"))
        }
        Ok(Ok(())) => Ok(code),
        Ok(Err(_)) | Err(_) => {
            let ttl = duration(u64::try_from(args.ttl.as_millis()).unwrap_or(u64::MAX));
            let text = format!("lock {name} could not be given up; it comes free within {ttl}");
            eprintln!("{}", output.stderr.dim(&text));
            Ok(code)
        }
    }
}

fn lost_failure(name: &str, token: u64, why: &Lost, then: &str) -> Failure {
    let failure = Failure::new(Exit::Conflict, "lock_lost", format!("lock {name} was lost: {why}; {then}"));
    failure.with("lock", json!(name)).with("token", json!(token.to_string()))
}

fn not_acquired(name: &str, args: &LockArgs, error: Error) -> Failure {
    match error {
        // Not the deadline of a call, which has an answer of its own.
        Error::Timeout { message, .. } if args.wait_timeout.is_some() && message.starts_with("lock ") => {
            timed_out(name, args, message)
        }
        Error::Conflict { message } if args.wait_timeout == Some(Duration::ZERO) => {
            timed_out(name, args, message)
        }
        error => error.into(),
    }
}

fn timed_out(name: &str, args: &LockArgs, message: String) -> Failure {
    let waited = args.wait_timeout.unwrap_or_default();
    let waited = duration(u64::try_from(waited.as_millis()).unwrap_or(u64::MAX));
    let text = match message.starts_with("lock ") && message.contains(" is held") {
        true => message,
        false => format!("lock {name} was not free within {waited}"),
    };
    let failure = Failure::new(Exit::TimedOut, "timeout", text);
    failure.with("lock", json!(name)).hint(format!("`clawhive lock {name}` shows who holds it"))
}

fn waiting(name: &str, holder: &Holder) -> String {
    let by = if holder.owner.is_empty() { "somebody".to_owned() } else { escape(&holder.owner) };
    let place = match holder.position {
        0 | 1 => String::new(),
        position => format!(", {} wait before us", position - 1),
    };
    format!("waiting for lock {name}: held by {by} (token {}){place}", holder.token)
}

/// Who we are, for those who wait.
fn owner() -> String {
    let user = std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_else(|_| "?".to_owned());
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let text = format!("{user}@{} pid {}", host.trim(), std::process::id());
    text[..text.floor_char_boundary(200)].to_owned()
}

async fn ls(
    name: Option<&str>,
    args: &LockArgs,
    session: &Session,
    output: &Output,
) -> Result<Exit, Failure> {
    let mut request = ListLocksRequest {
        namespace: args.namespace.clone(),
        name: name.unwrap_or_default().to_owned(),
        limit: 1_000,
        stale: args.stale,
        ..ListLocksRequest::default()
    };
    let mut page = session.client.locks(request.clone()).await?;
    let freshness = page.freshness.take();
    let mut locks = std::mem::take(&mut page.locks);
    while !page.next_cursor.is_empty() {
        request.cursor = std::mem::take(&mut page.next_cursor);
        page = session.client.locks(request.clone()).await?;
        locks.append(&mut page.locks);
    }
    if let Some(name) = name.filter(|_| locks.is_empty()) {
        let failure = Failure::new(Exit::NotFound, "not_found", format!("nobody holds lock {name}"));
        return Err(failure.with("freshness", freshness_json(freshness.as_ref())));
    }
    if output.format == Format::Table {
        output.stale(freshness.as_ref())?;
        output.table(&table(&locks, now_ms()), "no locks are held")?;
    } else {
        let locks = locks.iter().map(|lock| lock_json(lock, &args.namespace)).collect::<Vec<_>>();
        output.document(&json!({ "locks": locks, "freshness": freshness_json(freshness.as_ref()) }))?;
    }
    Ok(Exit::Done)
}

fn lock_json(lock: &LockView, namespace: &str) -> Value {
    json!({
        "name": lock.name,
        "namespace": namespace,
        "token": lock.token.to_string(),
        "owner": lock.owner,
        "ttl_ms": lock.ttl_ms,
        "acquired_at": rfc3339(lock.acquired_at_ms),
        "renewed_at": rfc3339(lock.renewed_at_ms),
        "waiters": lock.waiters,
    })
}

fn table(locks: &[LockView], now_ms: u64) -> Table {
    let mut table = Table::new(&["LOCK", "TOKEN", "HELD BY", "FOR", "TTL", "WAITING"]);
    for lock in locks {
        let plain = |text: String| (text, Hue::Plain);
        table.row([
            (escape(&lock.name), Hue::Bold),
            plain(lock.token.to_string()),
            plain(escape(&lock.owner)),
            plain(age(lock.acquired_at_ms, now_ms)),
            plain(duration(lock.ttl_ms)),
            plain(lock.waiters.to_string()),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn locks_stand_in_columns_and_waiting_names_the_holder() {
        let lock = LockView {
            name: "deploy".into(),
            token: 42,
            owner: "ann@host pid 7".into(),
            ttl_ms: 10_000,
            acquired_at_ms: 1_000,
            renewed_at_ms: 4_000,
            waiters: 2,
        };
        let text = table(&[lock], 65_000).text(Output::plain(Format::Table).stdout);
        expect![[r"
            LOCK    TOKEN  HELD BY         FOR  TTL    WAITING
            deploy  42     ann@host pid 7  1m   10.0s  2
        "]]
        .assert_eq(&text);
        let holder = Holder { owner: "ann@host pid 7".into(), token: 42, position: 2 };
        let text = waiting("deploy", &holder);
        assert_eq!(text, "waiting for lock deploy: held by ann@host pid 7 (token 42), 1 wait before us");
    }
}
