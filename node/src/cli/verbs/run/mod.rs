//! `run FILE`: submits, follows to the end, reports.

mod board;
mod live;
mod report;

use std::time::Duration;

use clawhive_client::Submit;
use clawhive_proto::ListEventsRequest;
use futures::StreamExt;
use serde_json::json;

use super::definition::{File, with_options};
use crate::cli::args::{Global, RunArgs};
use crate::cli::embedded::Work;
use crate::cli::failure::{Exit, Failure};
use crate::cli::output::{Format, Output};
use crate::cli::session::{Local, Session};
use crate::cli::signals::Interrupts;
use board::Board;
use live::Screen;

/// How often a terminal is drawn.
const TICK: Duration = Duration::from_millis(80);

pub(in crate::cli) async fn run(args: &RunArgs, global: &Global, output: &Output) -> Result<Exit, Failure> {
    let file = File::read(&args.file)?;
    file.check(output)?;
    let local = Local { work: Work::Tasks, create: !args.detach, ephemeral: args.ephemeral };
    let mut interrupts = Interrupts::listen()?;
    let mut session = tokio::select! {
        session = Session::open(global, local) => session?,
        () = interrupts.next() => return Ok(Exit::Cancelled),
    };
    if args.detach && session.is_own_node() {
        session.close().await;
        let failure = Failure::usage("--detach leaves the run to a server, and none is running");
        return Err(failure.hint("start one: clawhive dev, or name one with --server"));
    }
    let submit = with_options(Submit::definition(file.text.clone()), &args.submit);
    let submitted = session.client.submit(submit).await;
    let submitted = submitted.map_err(|error| file.explain(Failure::from(error), output))?;
    let run = submitted.run;
    if args.detach {
        match output.format {
            Format::Table => output.print(&format!("{run}\n"))?,
            _ => output.document(&json!({ "run": run.to_string(), "replayed": submitted.replayed }))?,
        }
        session.close().await;
        return Ok(Exit::Done);
    }
    let talks = output.format == Format::Table || output.stderr.terminal;
    if submitted.replayed && talks {
        eprintln!("run {run} was there already, by its idempotency key");
    }
    let total = session.client.get_run_with(report::brief(run)).await?.run.unwrap_or_default().tasks;
    let mut screen = Screen::new(Board::new(run, total), output.stderr, talks);
    let left = loop {
        match follow(&session, &mut screen, &mut interrupts).await {
            Ok(left) => break left,
            // The process whose node we used has ended: from here the run goes on in ours.
            Err(failure) if session.borrowed && global.server.is_none() && failure.is_no_server() => {
                session = Session::open(global, local).await?;
            }
            Err(failure) => {
                screen.clear();
                return Err(failure);
            }
        }
    };
    screen.clear();
    if left == Left::Early {
        eprintln!("left run {run} before its end");
        return Ok(Exit::Cancelled);
    }
    let exit = report::tell(&session, run, screen.board(), output).await?;
    session.close().await;
    Ok(exit)
}

#[derive(Debug, PartialEq, Eq)]
enum Left {
    AtTheEnd,
    Early,
}

/// Follows the run to its end; the first Ctrl-C cancels it, the second leaves it.
async fn follow(
    session: &Session,
    screen: &mut Screen,
    interrupts: &mut Interrupts,
) -> Result<Left, Failure> {
    let run = screen.board().run;
    let request = ListEventsRequest {
        run,
        after_log_index: screen.board().seen,
        follow: true,
        ..ListEventsRequest::default()
    };
    let mut events = session.client.events(request);
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    let mut cancelled = false;
    loop {
        tokio::select! {
            event = events.next() => match event {
                Some(event) => screen.take(&event?),
                None => return Ok(Left::AtTheEnd),
            },
            _ = ticks.tick() => screen.draw(),
            () = interrupts.next() => {
                if cancelled {
                    return Ok(Left::Early);
                }
                cancelled = true;
                screen.say(&format!("cancelling run {run}; Ctrl-C again leaves it"));
                session.client.cancel(run, "interrupted by Ctrl-C").await?;
            }
        }
    }
}
