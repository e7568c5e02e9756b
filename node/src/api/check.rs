//! Shape and limits of requests. No business decision here.

use std::collections::BTreeMap;
use std::time::Duration;

use tonic::metadata::MetadataMap;

use super::error::ApiError;
use crate::env;

/// How long a call may take when the caller sets no deadline. Also the longest that a write waits for a quorum.
const DEFAULT_DEADLINE: Duration = Duration::from_millis(4_500);

/// Kept back from the caller's deadline for the way back.
const WAY_BACK: Duration = Duration::from_millis(20);

const MAX_KEY_BYTES: usize = 512;
const MAX_LABELS: usize = 64;
const MAX_LABEL_BYTES: usize = 256;
const MAX_REASON_BYTES: usize = 1024;

/// How long this call may take.
pub(super) fn deadline(metadata: &MetadataMap) -> Duration {
    let asked = metadata.get("grpc-timeout").and_then(|value| value.to_str().ok()).and_then(grpc_timeout);
    asked.map_or(DEFAULT_DEADLINE, |asked| asked.saturating_sub(WAY_BACK).min(DEFAULT_DEADLINE))
}

/// Up to 8 digits and a unit.
fn grpc_timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.len() > 8 {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(number * 3_600)),
        "M" => Some(Duration::from_secs(number * 60)),
        "S" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_millis(number)),
        "u" => Some(Duration::from_micros(number)),
        "n" => Some(Duration::from_nanos(number)),
        _ => None,
    }
}

/// The caller's request id, or one made here: such a call is not repeatable, but still one entry.
pub(super) fn request_id(given: Vec<u8>) -> Result<Vec<u8>, ApiError> {
    match given.len() {
        0 => Ok(env::request_id().to_vec()),
        16 => Ok(given),
        bytes => Err(ApiError::invalid(format!("request_id must have 16 bytes, not {bytes}"))),
    }
}

/// The id of a run.
pub(super) fn run_id(run: u64) -> Result<u64, ApiError> {
    if run == 0 { Err(ApiError::invalid("run must be the id of a run; ids count from 1")) } else { Ok(run) }
}

/// `[namespace/]name` of a stored workflow.
pub(super) fn workflow_name(text: &str) -> Result<(String, String), ApiError> {
    let (namespace, name) = text.split_once('/').unwrap_or(("default", text));
    name_of("namespace", namespace)?;
    name_of("workflow", name)?;
    Ok((namespace.to_owned(), name.to_owned()))
}

/// A name of a workflow or a namespace.
pub(super) fn name_of(what: &str, name: &str) -> Result<(), ApiError> {
    let bytes = name.as_bytes();
    let first = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let next = |byte: u8| first(byte) || matches!(byte, b'.' | b'_' | b'-');
    let good = bytes.first().is_some_and(|byte| first(*byte))
        && bytes.len() <= 63
        && bytes.iter().all(|byte| next(*byte));
    if good {
        return Ok(());
    }
    Err(ApiError::invalid(format!("{what} name {:?} must match [a-z0-9][a-z0-9._-]{{0,62}}", short(name))))
}

/// A task's name, as a filter of a read.
pub(super) fn task_name(name: &str) -> Result<(), ApiError> {
    let bytes = name.as_bytes();
    let first = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let next = |byte: u8| first(byte) || matches!(byte, b'.' | b'-' | b':');
    let good = bytes.first().is_some_and(|byte| first(*byte))
        && bytes.len() <= 128
        && bytes.iter().all(|byte| next(*byte));
    if good {
        return Ok(());
    }
    Err(ApiError::invalid(format!(
        "task name {:?} must match [A-Za-z0-9_][A-Za-z0-9._:-]{{0,127}}",
        short(name)
    )))
}

/// A key of any kind: text that people chose. Kept exactly as it is, or refused.
pub(super) fn key(what: &str, key: &str) -> Result<(), ApiError> {
    if key.len() > MAX_KEY_BYTES {
        return Err(ApiError::invalid(format!(
            "{what} has {} bytes; at most {MAX_KEY_BYTES} are allowed",
            key.len()
        )));
    }
    if key.contains('\0') {
        return Err(ApiError::invalid(format!("{what} holds a NUL character")));
    }
    Ok(())
}

/// Labels of a run.
pub(super) fn labels(labels: &BTreeMap<String, String>) -> Result<(), ApiError> {
    if labels.len() > MAX_LABELS {
        return Err(ApiError::invalid(format!("{} labels; at most {MAX_LABELS} are allowed", labels.len())));
    }
    for (name, value) in labels {
        if name.is_empty() || name.len() > MAX_LABEL_BYTES || value.len() > MAX_LABEL_BYTES {
            let text =
                format!("label {:?}: name and value have at most {MAX_LABEL_BYTES} bytes each", short(name));
            return Err(ApiError::invalid(text));
        }
    }
    Ok(())
}

/// The reason of a cancel, for people.
pub(super) fn reason(reason: &str) -> Result<(), ApiError> {
    if reason.len() > MAX_REASON_BYTES {
        return Err(ApiError::invalid(format!(
            "the reason has {} bytes; at most {MAX_REASON_BYTES}",
            reason.len()
        )));
    }
    Ok(())
}

/// Enough of a bad name to recognise it.
fn short(name: &str) -> &str {
    &name[..name.floor_char_boundary(80)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kept_or_refused_with_the_rule() {
        for good in ["a", "0", "nightly-etl", "a.b_c-d", &"a".repeat(63)] {
            name_of("workflow", good).unwrap();
        }
        let long = "a".repeat(4_096);
        for bad in
            ["", "naïve-作业", "a b", "a%2Fb", "A", ".", "-a", "a ", "\u{200f}a", "../../x", "x\0y", &long]
        {
            let error = name_of("workflow", bad).unwrap_err();
            let text = tonic::Status::from(error).message().to_owned();
            assert!(text.contains("must match [a-z0-9][a-z0-9._-]{0,62}") && text.len() < 300, "{text}");
        }
        assert_eq!(workflow_name("data/etl").unwrap(), ("data".into(), "etl".into()));
        assert_eq!(workflow_name("etl").unwrap(), ("default".into(), "etl".into()));
        assert!(workflow_name("a/b/c").is_err());
    }

    #[test]
    fn task_names_follow_their_own_rule() {
        task_name("Extract_1:part-2.x").unwrap();
        for bad in ["", "a/b", "..", "../x", "a b", "作业", "x\0"] {
            assert!(task_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn deadlines_follow_the_caller_up_to_the_default() {
        let of = |text: &str| {
            let mut metadata = MetadataMap::new();
            metadata.insert("grpc-timeout", text.parse().unwrap());
            deadline(&metadata)
        };
        assert_eq!(of("500m"), Duration::from_millis(480));
        assert_eq!(of("2S"), Duration::from_millis(1_980));
        assert_eq!(of("1H"), DEFAULT_DEADLINE);
        assert_eq!(of("99999999H"), DEFAULT_DEADLINE);
        assert_eq!(of("soon"), DEFAULT_DEADLINE);
        assert_eq!(deadline(&MetadataMap::new()), DEFAULT_DEADLINE);
    }

    #[test]
    fn request_ids_have_16_bytes_or_are_made() {
        assert_eq!(request_id(vec![3; 16]).unwrap(), vec![3; 16]);
        assert_eq!(request_id(Vec::new()).unwrap().len(), 16);
        assert!(request_id(vec![3; 15]).is_err());
    }
}
