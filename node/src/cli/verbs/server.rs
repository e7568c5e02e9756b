//! `server`: one node of a cluster, as a process of its own.

use std::io::Read;
use std::time::Duration;

use clawhive_node::config::{LogFormat, Partial, Role, Shown, shown};
use clawhive_node::{Node, StartError};
use serde_json::json;
use tokio::sync::oneshot;

use crate::cli::GUARD;
use crate::cli::args::{LogFormatArg, RoleArg, ServerArgs};
use crate::cli::failure::{Exit, Failure};
use crate::cli::output::{Format, Output};
use crate::cli::signals::Interrupts;
use crate::cli::trace;

pub(in crate::cli) async fn run(args: &ServerArgs, output: &Output) -> Result<Exit, Failure> {
    let (flags, environment) = (flags(args), environment()?);
    let file = args.config.as_deref().map(file).transpose()?;
    let mut builder = Node::builder().guard(GUARD).settings(flags.clone()).settings(environment.clone());
    if let Some(file) = &file {
        builder = builder.settings(file.clone());
    }
    if args.bootstrap {
        builder = builder.bootstrap();
    } else if !args.join.is_empty() {
        builder = builder.join(args.join.clone());
    }
    let settings = builder.clone().complete()?;
    trace::check(&settings.log_level)?;
    if args.check || args.print_settings {
        // What a flag says of the beginning goes another way, past what a file says.
        let flags = Partial {
            bootstrap: args.bootstrap.then_some(true),
            join: (!args.join.is_empty()).then(|| args.join.clone()),
            ..flags
        };
        let mut sources = vec![("flags".to_owned(), &flags), ("environment".to_owned(), &environment)];
        if let (Some(path), Some(file)) = (&args.config, &file) {
            sources.push((path.display().to_string(), file));
        }
        return tell(args, &shown(&settings, &sources), output);
    }
    trace::server(settings.log_format, &settings.log_level)?;
    let mut interrupts = Interrupts::listen()?;
    let parent = parent(args.exit_with_parent);
    let mut stop = std::pin::pin!(async move {
        tokio::select! {
            () = interrupts.next() => {}
            () = parent => tracing::warn!("the parent is gone"),
        }
        interrupts
    });
    loop {
        // Not dropped by the select: half started, it cannot be.
        let mut start = std::pin::pin!(builder.clone().start());
        let node = tokio::select! {
            node = &mut start => node?,
            // Half started: what is on disk is whole at any moment, and nothing has been promised to anyone.
            _ = &mut stop => std::process::exit(Exit::Done as i32),
        };
        let serving = async {
            node.ready().await;
            let ready = format!("ready listen={} node={}\n", node.listen(), node.id());
            Output::of_process(Format::Table).print(&ready)?;
            std::future::pending::<Result<std::convert::Infallible, Failure>>().await
        };
        let reason = tokio::select! {
            interrupts = &mut stop => {
                let mut interrupts = interrupts;
                if end(node, settings.shutdown_grace, &mut interrupts).await == Ended::AtOnce {
                    // What hangs, such as a disk that does not answer, is not waited for.
                    std::process::exit(Exit::Done as i32);
                }
                return Ok(Exit::Done);
            }
            failed = serving => match failed? {},
            reason = node.diverged() => reason,
            reason = node.removed() => {
                let path = node.data_dir().to_owned();
                // What it runs, it may not run any more.
                node.shutdown(Duration::ZERO).await;
                return Err(StartError::Removed { path, reason }.into());
            }
        };
        tracing::error!(
            node = node.id(),
            reason,
            "the state of this node is wrong: it stops serving and voting, and rebuilds"
        );
        builder = builder.listen(node.listen()).peer_listen(node.peer_listen()).restart();
        node.crash().await;
    }
}

/// How a node ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    Well,
    AtOnce,
}

/// Ends the node well, unless a second signal says that it takes too long. What it does is told on standard error.
pub(super) async fn end(node: Node, grace: Duration, interrupts: &mut Interrupts) -> Ended {
    match node.running() {
        0 => eprintln!("draining: no task runs here"),
        1 => eprintln!("draining: 1 task running, up to {grace:?}; a second signal stops it at once"),
        more => {
            eprintln!("draining: {more} tasks running, up to {grace:?}; a second signal stops them at once")
        }
    }
    tokio::select! {
        () = node.shutdown(grace) => {
            eprintln!("stopped");
            Ended::Well
        }
        () = interrupts.next() => {
            eprintln!("stopped at once, by a second signal");
            Ended::AtOnce
        }
    }
}

/// The settings as lines of a settings file, or as a document; for a check only that they are right.
fn tell(args: &ServerArgs, all: &[Shown], output: &Output) -> Result<Exit, Failure> {
    if output.format != Format::Table {
        let one = |one: &Shown| json!({ "name": one.name, "value": one.value, "origin": one.origin });
        output.document(&json!({ "settings": all.iter().map(one).collect::<Vec<_>>() }))?;
    } else if args.print_settings {
        let one = |one: &Shown| match one.value.as_str() {
            "" => format!("# {} is not set\n", one.name),
            value => format!("{} = {value}  # {}\n", one.name, one.origin),
        };
        output.print(&all.iter().map(one).collect::<String>())?;
    } else {
        output.print("the settings are valid\n")?;
    }
    Ok(Exit::Done)
}

fn flags(args: &ServerArgs) -> Partial {
    Partial {
        data: args.data.clone(),
        listen: args.listen,
        peer_listen: args.peer_listen,
        role: args.role.map(|role| match role {
            RoleArg::Voter => Role::Voter,
            RoleArg::Claw => Role::Claw,
        }),
        labels: (!args.labels.is_empty()).then(|| args.labels.iter().cloned().collect()),
        slots: args.slots,
        log_format: args.log_format.map(|format| match format {
            LogFormatArg::Text => LogFormat::Text,
            LogFormatArg::Json => LogFormat::Json,
        }),
        ..Partial::default()
    }
}

fn environment() -> Result<Partial, Failure> {
    let variables = std::env::vars_os().filter_map(|(name, value)| {
        // What is no text cannot be one of ours.
        Some((name.into_string().ok()?, value.into_string().ok()?))
    });
    Partial::from_env(variables).map_err(|error| Failure::new(Exit::Usage, "invalid", error.to_string()))
}

fn file(path: &std::path::Path) -> Result<Partial, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::usage(format!("cannot read {}: {error}", path.display())))?;
    Partial::from_toml(path, &text).map_err(|error| Failure::new(Exit::Usage, "invalid", error.to_string()))
}

/// Returns when standard input is closed; never when nobody watches it.
async fn parent(watched: bool) {
    if !watched {
        return std::future::pending().await;
    }
    let (gone, told) = oneshot::channel::<()>();
    std::thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        let mut byte = [0];
        // Nothing is ever sent: the end or an error is the message.
        while matches!(input.read(&mut byte), Ok(1)) {}
        drop(gone);
    });
    let _closed = told.await;
}
