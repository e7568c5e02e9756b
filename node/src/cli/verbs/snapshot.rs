//! `snapshot save`, `snapshot inspect` and `snapshot restore`: backups as files.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clawhive_node::backup::{self, Contents, RestoreError};
use clawhive_raft::BackupError;
use futures::StreamExt;
use serde_json::{Value, json};

use crate::cli::args::{Global, SnapshotRestoreArgs, SnapshotSaveArgs};
use crate::cli::failure::{Exit, Failure};
use crate::cli::output::{Format, Hue, Output, Table, rfc3339};
use crate::cli::session::{Local, Session};

/// How often a long save says how far it is.
const TELL_EVERY: Duration = Duration::from_secs(2);
/// A transfer that breaks off is begun again, on the next server, so many times in all.
const TRIES: usize = 3;

pub(in crate::cli) async fn save(
    args: &SnapshotSaveArgs,
    global: &Global,
    output: &Output,
) -> Result<Exit, Failure> {
    let file = &args.file;
    if file.exists() && !args.force {
        let failure = Failure::new(Exit::Conflict, "conflict", format!("{} exists already", file.display()));
        return Err(failure.hint("name another file, or replace it with --force"));
    }
    let part = part_of(file);
    // Where it can't be written is told before a node does the work.
    drop(File::create(&part).map_err(|error| cannot_write(&part, &error))?);
    let session = Session::open(global, Local::LOOK).await?;
    let mut tries = 1;
    let saved = loop {
        match receive(&session, &part).await {
            Err(failure) if failure.is_no_server() && tries < TRIES => tries += 1,
            done => break done,
        }
    };
    let kept = saved.and_then(|()| keep(&part, file));
    session.close().await;
    if kept.is_err() {
        // A part is no backup.
        let _left_for_people = fs::remove_file(&part);
    }
    let contents = kept?;
    match output.format {
        Format::Table => output.print(&format!(
            "saved {} to {}: cluster {}, log index {}, {} rows, checksum verified\n",
            size(contents.info.bytes),
            file.display(),
            clawhive_node::identity::format_id(&contents.info.cluster_id),
            contents.info.index,
            contents.info.rows,
        ))?,
        _ => output.document(&document(file, &contents))?,
    }
    Ok(Exit::Done)
}

pub(in crate::cli) fn inspect(file: &Path, output: &Output) -> Result<Exit, Failure> {
    let contents = backup::inspect(file).map_err(|error| refused(&error))?;
    match output.format {
        Format::Table => output.print(&text(file, &contents, output))?,
        _ => output.document(&document(file, &contents))?,
    }
    Ok(Exit::Done)
}

pub(in crate::cli) fn restore(args: &SnapshotRestoreArgs, output: &Output) -> Result<Exit, Failure> {
    let restored = backup::restore(&args.file, &args.data).map_err(|error| refused(&error))?;
    let old = clawhive_node::identity::format_id(&restored.contents.info.cluster_id);
    let data = args.data.display();
    match output.format {
        Format::Table => output.print(&format!(
            "restored log index {} of cluster {old} as a new cluster\n\
             Cluster  {}\nNode     {}\nData     {data}\n\n\
             Start it:     clawhive server --data {data}\n\
             Let it work:  clawhive cluster resume   (before, no task starts and no timer fires)\n\
             More nodes:   clawhive server --data DIR --join ADDR, each with an empty directory\n",
            restored.contents.info.index, restored.cluster_id, restored.node,
        ))?,
        _ => output.document(&json!({
            "cluster_id": restored.cluster_id,
            "node": restored.node.to_string(),
            "data": args.data,
            "suspended": true,
            "restored_from": document(&args.file, &restored.contents),
        }))?,
    }
    Ok(Exit::Done)
}

/// The whole snapshot into a file, from its beginning.
async fn receive(session: &Session, part: &Path) -> Result<(), Failure> {
    let failed = |error: &io::Error| cannot_write(part, error);
    let mut chunks = session.client.save_snapshot().await?;
    let mut file = File::create(part).map_err(|error| failed(&error))?;
    let (mut total, mut done, mut told) = (0, 0, Instant::now());
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk?;
        total = total.max(chunk.total_bytes);
        done += chunk.data.len() as u64;
        file.write_all(&chunk.data).map_err(|error| failed(&error))?;
        if told.elapsed() >= TELL_EVERY {
            told = Instant::now();
            eprintln!("{} of {}", size(done), size(total));
        }
    }
    if done != total {
        return Err(Failure::no_server(format!("the transfer broke off at byte {done} of {total}")));
    }
    file.sync_all().map_err(|error| failed(&error))
}

/// Checks what came, and only then gives it its name.
fn keep(part: &Path, file: &Path) -> Result<Contents, Failure> {
    let contents = backup::inspect(part).map_err(|error| refused(&error))?;
    let named = fs::rename(part, file).and_then(|()| {
        let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
    });
    named.map_err(|error| cannot_write(file, &error))?;
    Ok(contents)
}

fn part_of(file: &Path) -> PathBuf {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(".part");
    file.with_file_name(name)
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    let failure = Failure::unexpected(format!("cannot write {}: {error}", path.display()));
    match error.kind() {
        io::ErrorKind::StorageFull => failure.hint("make room, or save to another disk"),
        io::ErrorKind::NotFound => failure.hint("the directory must exist"),
        _ => failure,
    }
}

fn refused(error: &RestoreError) -> Failure {
    let message = error.to_string();
    match error {
        RestoreError::File { source: BackupError::Damaged(_), .. } => {
            Failure::new(Exit::Usage, "damaged", message)
                .hint("use another backup; nothing was made of this one")
        }
        RestoreError::File { source: BackupError::Format(_), .. } => {
            Failure::new(Exit::Usage, "format", message)
                .hint("use the version of clawhive that wrote it, or a newer one")
        }
        RestoreError::File { source: BackupError::Io(error), .. } => match error.kind() {
            io::ErrorKind::NotFound => Failure::new(Exit::NotFound, "not_found", message),
            _ => Failure::unexpected(message),
        },
        RestoreError::Data(_) | RestoreError::NotEmpty { .. } => {
            Failure::new(Exit::Conflict, "conflict", message)
                .hint("restore into a directory that is empty or not there yet")
        }
    }
}

fn text(file: &Path, contents: &Contents, output: &Output) -> String {
    let info = &contents.info;
    let mut tables = Table::new(&["TABLE", "ROWS", "BYTES"]);
    for (name, rows, bytes) in &contents.tables {
        tables.row([
            (name.clone(), Hue::Plain),
            (rows.to_string(), Hue::Plain),
            (bytes.to_string(), Hue::Plain),
        ]);
    }
    let nodes: Vec<String> = contents
        .nodes
        .iter()
        .map(|(id, row)| match row.peer_listen.as_str() {
            "" => id.to_string(),
            peers => format!("{id} ({peers})"),
        })
        .collect();
    format!(
        "File      {}, {}, checksum verified\nCluster   {}\nCovers    log index {}, term {}\nTime      {}\nNodes     {}\nDigest    {}\nRows      {}\n\n{}",
        file.display(),
        size(info.bytes),
        clawhive_node::identity::format_id(&info.cluster_id),
        info.index,
        info.term,
        time(contents).as_str().unwrap_or("unknown"),
        if nodes.is_empty() { "none".to_owned() } else { nodes.join(", ") },
        info.digest.map_or_else(|| "none".to_owned(), |digest| clawhive_node::identity::format_id(&digest)),
        info.rows,
        tables.text(output.stdout),
    )
}

fn time(contents: &Contents) -> Value {
    rfc3339(contents.time_ms)
}

fn document(file: &Path, contents: &Contents) -> Value {
    let info = &contents.info;
    let tables = contents.tables.iter();
    json!({
        "file": file,
        "bytes": info.bytes.to_string(),
        "checksum": "verified",
        "cluster_id": clawhive_node::identity::format_id(&info.cluster_id),
        "log_index": info.index.to_string(),
        "term": info.term.to_string(),
        "time": time(contents),
        "digest": info.digest.map(|digest| clawhive_node::identity::format_id(&digest)),
        "voters": info.voters.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "nodes": contents.nodes.iter().map(|(id, row)| json!({
            "id": id.to_string(),
            "listen": row.listen,
            "peer_listen": row.peer_listen,
        })).collect::<Value>(),
        "rows": info.rows.to_string(),
        "tables": tables.map(|(name, rows, bytes)| json!({
            "table": name,
            "rows": rows.to_string(),
            "bytes": bytes.to_string(),
        })).collect::<Value>(),
    })
}

/// Bytes as people read them.
fn size(bytes: u64) -> String {
    match bytes {
        0..1_024 => format!("{bytes} B"),
        1_024..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1_024.0),
        1_048_576..1_073_741_824 => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
        _ => format!("{:.2} GiB", bytes as f64 / 1_073_741_824.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_parts_are_named() {
        assert_eq!(size(1_023), "1023 B");
        assert_eq!(size(1_536), "1.5 KiB");
        assert_eq!(size(3 << 30), "3.00 GiB");
        assert_eq!(part_of(Path::new("a/b.snap")), Path::new("a/b.snap.part"));
    }

    #[test]
    fn a_damaged_file_is_refused_with_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("x.snap");
        fs::write(&file, b"CLAWSNAP and then nothing sensible").unwrap();
        let failure = refused(&backup::inspect(&file).unwrap_err());
        let text = failure.document().to_string();
        assert!(text.contains("x.snap: damaged: the length of the header"), "{text}");
    }
}
