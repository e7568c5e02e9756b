//! One run per idempotency key within its lifetime, the same run in every answer, and never for another body.

use std::collections::BTreeMap;

use super::Law;
use crate::sim::history::Fact;

/// How long a key is remembered, in log time.
const LIFETIME_MS: u64 = 72 * 3600 * 1000;

/// The newest run of each key, when it was made, and the body of its first answer.
#[derive(Default)]
pub(super) struct OneRunPerKey {
    runs: BTreeMap<(String, String), (u64, u64)>,
    bodies: BTreeMap<u64, Vec<u8>>,
}

impl Law for OneRunPerKey {
    fn name(&self) -> &'static str {
        "one-run-per-key"
    }

    fn see(&mut self, fact: &Fact<'_>) -> Result<(), String> {
        match fact {
            Fact::RunCreated { run, key: Some(key), time_ms, .. } => {
                let earlier = self.runs.insert(key.clone(), (*run, *time_ms));
                if let Some((first, made)) = earlier
                    && time_ms.saturating_sub(made) < LIFETIME_MS
                {
                    return Err(format!("key {} made run {run}, and run {first} before", key.1));
                }
            }
            Fact::Acknowledged { run, key: Some(key), body, .. } => {
                let made = self.runs.get(key).map(|made| made.0);
                if made != Some(*run) {
                    return Err(format!("key {} was answered with run {run}, its run is {made:?}", key.1));
                }
                if self.bodies.entry(*run).or_insert_with(|| body.clone()) != body {
                    return Err(format!("key {} took another body for run {run}", key.1));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{graph, verdict};
    use super::*;

    fn key() -> Option<(String, String)> {
        Some(("default".to_owned(), "k".to_owned()))
    }

    fn created(run: u64, time_ms: u64) -> Fact<'static> {
        Fact::RunCreated { run, graph: graph(&[&[]]), key: key(), time_ms }
    }

    fn answered(run: u64, body: u8) -> Fact<'static> {
        Fact::Acknowledged { run, index: 1, key: key(), body: vec![body] }
    }

    #[test]
    fn a_second_run_another_answer_and_another_body_break_it() {
        let judge = |facts: &[Fact<'static>]| verdict(&mut OneRunPerKey::default(), facts).is_ok();
        assert!(judge(&[created(1, 0), answered(1, 7), answered(1, 7), created(2, LIFETIME_MS)]));
        assert!(!judge(&[created(1, 0), created(2, LIFETIME_MS - 1)]));
        assert!(!judge(&[created(1, 0), answered(2, 7)]));
        assert!(!judge(&[created(1, 0), answered(1, 7), answered(1, 8)]));
    }
}
