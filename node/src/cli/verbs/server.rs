//! `server`: one node of a cluster, as a process of its own.

use std::io::Read;
use std::time::Duration;

use clawhive_node::Node;
use clawhive_node::config::{LogFormat, Partial, Role};
use tokio::sync::oneshot;

use crate::cli::GUARD;
use crate::cli::args::{LogFormatArg, RoleArg, ServerArgs};
use crate::cli::failure::{Exit, Failure};
use crate::cli::output::{Format, Output};
use crate::cli::signals::Interrupts;
use crate::cli::trace;

pub(in crate::cli) async fn run(args: &ServerArgs) -> Result<Exit, Failure> {
    let mut builder = Node::builder().guard(GUARD).settings(flags(args)).settings(environment()?);
    if let Some(path) = &args.config {
        builder = builder.settings(file(path)?);
    }
    if args.bootstrap {
        builder = builder.bootstrap();
    } else if !args.join.is_empty() {
        builder = builder.join(args.join.clone());
    }
    let settings = builder.clone().complete()?;
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
                end(node, settings.shutdown_grace, &mut interrupts).await;
                return Ok(Exit::Done);
            }
            failed = serving => match failed? {},
            reason = node.diverged() => reason,
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

/// Ends the node well, unless a second signal says that it takes too long.
pub(super) async fn end(node: Node, grace: Duration, interrupts: &mut Interrupts) {
    tokio::select! {
        () = node.shutdown(grace) => {}
        () = interrupts.next() => tracing::warn!("stopped at once, by a second signal"),
    }
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
