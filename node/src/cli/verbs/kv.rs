//! `kv get|put|delete|ls`: keys and values.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;

use clawhive_client::{Error, PutOptions};
use clawhive_proto::{GetKeyRequest, KeyResult, KeyView, ListKeysRequest};
use serde_json::{Value, json};

use crate::cli::args::{Global, KvConditions, KvDeleteArgs, KvGetArgs, KvLsArgs, KvPutArgs, KvVerb};
use crate::cli::failure::{Exit, Failure};
use crate::cli::output::{Format, Hue, Output, Table, base64, escape, freshness_json, shortened, stale_text};
use crate::cli::session::{Local, Session};

/// Of a value, in a table.
const VALUE_SHOWN: usize = 60;

pub(in crate::cli) async fn run(verb: &KvVerb, global: &Global, output: &Output) -> Result<Exit, Failure> {
    let session = Session::open(global, Local::LOOK).await?;
    let told = match verb {
        KvVerb::Get(args) => get(args, &session, output).await,
        KvVerb::Put(args) => put(args, &session, output).await,
        KvVerb::Delete(args) => delete(args, &session, output).await,
        KvVerb::Ls(args) => ls(args, &session, output).await,
    };
    session.close().await;
    told
}

async fn get(args: &KvGetArgs, session: &Session, output: &Output) -> Result<Exit, Failure> {
    let (namespace, key) = (args.namespace.clone(), args.key.clone());
    let answer = session.client.get_key(GetKeyRequest { namespace, key, stale: args.stale }).await?;
    let freshness = answer.freshness.as_ref();
    if output.format == Format::Table
        && let Some(freshness) = freshness.filter(|freshness| freshness.stale)
    {
        // Standard output is the value and nothing else.
        eprintln!("{}", output.stderr.paint(&stale_text(freshness), Hue::Odd));
    }
    if !answer.found {
        let failure = Failure::new(Exit::NotFound, "not_found", format!("there is no key {:?}", args.key));
        return Err(failure
            .hint("`clawhive kv ls` lists the keys that there are")
            .with("freshness", freshness_json(freshness)));
    }
    if output.format == Format::Table {
        output.bytes(&answer.value)?;
    } else {
        let (text, base64) = value_json(&answer.value);
        output.document(&json!({
            "key": args.key,
            "namespace": args.namespace,
            "value": text,
            "value_base64": base64,
            "version": answer.version,
            "created_at": answer.created_at.to_string(),
            "modified_at": answer.modified_at.to_string(),
            "freshness": freshness_json(freshness),
        }))?;
    }
    Ok(Exit::Done)
}

/// As text, or in base 64 when it is none.
fn value_json(value: &[u8]) -> (Value, Value) {
    match std::str::from_utf8(value) {
        Ok(text) => (json!(text), Value::Null),
        Err(_) => (Value::Null, json!(base64(value))),
    }
}

fn options(conditions: &KvConditions) -> PutOptions {
    let mut options = PutOptions::new();
    if conditions.if_absent {
        options = options.if_absent();
    }
    if let Some(version) = conditions.if_version {
        options = options.if_version(version);
    }
    if let Some(value) = &conditions.if_value {
        options = options.if_value(value.as_bytes());
    }
    if let Some(token) = conditions.fence {
        options = options.fence(token);
    }
    if let Some(lock) = &conditions.lock {
        options = options.lock(lock);
    }
    options
}

async fn put(args: &KvPutArgs, session: &Session, output: &Output) -> Result<Exit, Failure> {
    let value = value_of(&args.value)?;
    let kv = session.client.kv().namespace(&args.conditions.namespace);
    let result = kv.put(&args.key, value, options(&args.conditions)).await.map_err(refused)?;
    if output.format == Format::Table {
        output.print(&format!("{} version {}\n", escape(&args.key), result.version))?;
    } else {
        output.document(&written_json(&result, &args.conditions.namespace))?;
    }
    Ok(Exit::Done)
}

fn value_of(given: &OsStr) -> Result<Vec<u8>, Failure> {
    if given != "-" {
        return Ok(given.as_bytes().to_vec());
    }
    let mut value = Vec::new();
    let read = std::io::stdin().lock().read_to_end(&mut value);
    read.map_err(|error| Failure::usage(format!("cannot read standard input: {error}")))?;
    Ok(value)
}

async fn delete(args: &KvDeleteArgs, session: &Session, output: &Output) -> Result<Exit, Failure> {
    let kv = session.client.kv().namespace(&args.conditions.namespace);
    let result = kv.delete(&args.key, options(&args.conditions)).await.map_err(refused)?;
    if output.format != Format::Table {
        output.document(&written_json(&result, &args.conditions.namespace))?;
    } else if result.found {
        output.print(&format!("{} deleted\n", escape(&args.key)))?;
    } else {
        output.print(&format!("there was no key {:?}\n", args.key))?;
    }
    Ok(Exit::Done)
}

/// A condition that does not hold. What the hint of other verbs says of runs does not help here.
fn refused(error: Error) -> Failure {
    let failure = Failure::from(error.clone());
    match error {
        Error::Conflict { message } if message.contains("token") => {
            failure.hint("whoever had this token has lost the lock; it must not write any more")
        }
        _ => failure,
    }
}

fn written_json(result: &KeyResult, namespace: &str) -> Value {
    json!({
        "key": result.key,
        "namespace": namespace,
        "found": result.found,
        "version": result.version,
        "created_at": result.created_at.to_string(),
        "modified_at": result.modified_at.to_string(),
    })
}

async fn ls(args: &KvLsArgs, session: &Session, output: &Output) -> Result<Exit, Failure> {
    let request = ListKeysRequest {
        prefix: args.prefix.clone(),
        limit: args.limit,
        cursor: args.cursor.clone().unwrap_or_default(),
        stale: args.stale,
        keys_only: !args.values,
        ..ListKeysRequest::default()
    };
    let page = session.client.kv().namespace(&args.namespace).list(request).await?;
    if output.format == Format::Table {
        output.stale(page.freshness.as_ref())?;
        output.table(&table(&page.keys, args.values), "no keys")?;
        if !page.next_cursor.is_empty() {
            eprintln!("{}", output.stderr.dim(&format!("more: --cursor {:?}", page.next_cursor)));
        }
        return Ok(Exit::Done);
    }
    let keys = page.keys.iter().map(|key| {
        let mut document = json!({
            "key": key.key,
            "version": key.version,
            "size": key.size,
            "created_at": key.created_at.to_string(),
            "modified_at": key.modified_at.to_string(),
        });
        if args.values
            && let Some(fields) = document.as_object_mut()
        {
            let (text, base64) = value_json(&key.value);
            fields.insert("value".into(), text);
            fields.insert("value_base64".into(), base64);
        }
        document
    });
    let next = if page.next_cursor.is_empty() { Value::Null } else { json!(page.next_cursor) };
    output.document(&json!({
        "keys": keys.collect::<Vec<_>>(),
        "next_cursor": next,
        "freshness": freshness_json(page.freshness.as_ref()),
    }))?;
    Ok(Exit::Done)
}

fn table(keys: &[KeyView], values: bool) -> Table {
    let heading = ["KEY", "VERSION", "SIZE", "MODIFIED AT", "VALUE"];
    let mut table = Table::new(if values { &heading } else { &heading[..4] });
    for key in keys {
        let plain = |text: String| (text, Hue::Plain);
        let mut cells = vec![
            (escape(&key.key), Hue::Bold),
            plain(key.version.to_string()),
            plain(key.size.to_string()),
            (key.modified_at.to_string(), Hue::Dim),
        ];
        if values {
            let text = String::from_utf8_lossy(&key.value);
            cells.push(plain(shortened(&escape(&text), VALUE_SHOWN)));
        }
        table.row(cells);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn keys_stand_in_columns() {
        let key = |key: &str, value: &[u8]| KeyView {
            key: key.into(),
            value: value.to_vec().into(),
            size: value.len() as u64,
            version: 2,
            created_at: 7,
            modified_at: 42,
        };
        let keys = [key("config/limit", b"10"), key("odd", b"a\nb\xff")];
        let text = table(&keys, true).text(Output::plain(Format::Table).stdout);
        expect![[r"
            KEY           VERSION  SIZE  MODIFIED AT  VALUE
            config/limit  2        2     42           10
            odd           2        4     42           a\x0ab�
        "]]
        .assert_eq(&text);
        assert!(!table(&keys, false).text(Output::plain(Format::Table).stdout).contains("VALUE"));
    }
}
