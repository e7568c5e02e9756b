//! `logs RUN [TASK]`: what tasks wrote.

mod lines;

use clawhive_proto::{LogChunk, LogStream, ReadLogsRequest};
use futures::StreamExt;
use serde_json::{Value, json};

use crate::cli::args::{Global, LogsArgs};
use crate::cli::failure::{Exit, Failure};
use crate::cli::output::{Format, Output, rfc3339};
use crate::cli::session::{Local, Session};
use lines::Lines;

pub(in crate::cli) async fn run(args: &LogsArgs, global: &Global, output: &Output) -> Result<Exit, Failure> {
    let local = if args.follow { Local::WORK } else { Local::LOOK };
    let session = Session::open(global, local).await?;
    let mut chunks = session.client.logs(ReadLogsRequest {
        run: args.run.0,
        task: args.task.clone().unwrap_or_default(),
        attempt: args.attempt.unwrap_or(0),
        follow: args.follow,
        tail_lines: args.tail.unwrap_or(0),
        resume_from: Vec::new(),
    });
    let mut lines = Lines::new(args.task.is_none(), output.stdout);
    let mut items = Vec::new();
    let mut unavailable = Vec::new();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk?;
        if output.format != Format::Table {
            match args.follow {
                true => output.item(&chunk_json(&chunk))?,
                false => items.push(chunk_json(&chunk)),
            }
        } else if !chunk.unavailable.is_empty() {
            unavailable.push(chunk);
        } else if args.raw {
            output.bytes(&chunk.data)?;
        } else {
            output.bytes(&lines.take(&chunk))?;
        }
    }
    output.bytes(&lines.rest())?;
    if output.format != Format::Table && !args.follow {
        output.document(&Value::Array(items))?;
    }
    drop(chunks);
    session.close().await;
    if unavailable.is_empty() {
        return Ok(Exit::Done);
    }
    let places: Vec<String> = (unavailable.iter())
        .map(|one| format!("{} attempt {}: {}", one.task, one.attempt, one.unavailable))
        .collect();
    Err(Failure::no_server(format!("not all logs can be read: {}", places.join("; "))))
}

fn chunk_json(chunk: &LogChunk) -> Value {
    let unavailable = Some(&chunk.unavailable).filter(|reason| !reason.is_empty());
    let stream = match chunk.stream() {
        LogStream::Stderr => "stderr",
        LogStream::Stdout => "stdout",
        LogStream::Unspecified => "",
    };
    json!({
        "task": chunk.task,
        "attempt": chunk.attempt,
        "stream": stream,
        "time": rfc3339(chunk.time_ms),
        "text": String::from_utf8_lossy(&chunk.data),
        "next_offset": chunk.next_offset.to_string(),
        "unavailable": unavailable,
    })
}
