//! A repeated request id is answered as the first time and changes nothing, for ten minutes of log time.

use std::collections::BTreeMap;

use super::Law;
use crate::sim::history::Fact;

/// How long a request id is remembered, in log time.
const LIFETIME_MS: u64 = 10 * 60 * 1000;

/// The first entry of a request id.
struct First {
    index: u64,
    time_ms: u64,
    outcomes: u64,
}

/// The first entry of each request id.
#[derive(Default)]
pub(super) struct Repeats {
    first: BTreeMap<Vec<u8>, First>,
}

impl Law for Repeats {
    fn name(&self) -> &'static str {
        "repeats"
    }

    fn see(&mut self, fact: &Fact<'_>) -> Result<(), String> {
        let Fact::Entry { index, time_ms, request, outcomes, changed, .. } = fact else { return Ok(()) };
        if request.is_empty() {
            return Ok(());
        }
        if let Some(first) = self.first.get(*request)
            && time_ms.saturating_sub(first.time_ms) < LIFETIME_MS
        {
            let of = format!("entry {index} repeats the request of entry {}", first.index);
            if first.outcomes != *outcomes {
                return Err(format!("{of} and is answered otherwise"));
            }
            if *changed > 0 {
                return Err(format!("{of} and changes {changed} rows"));
            }
            return Ok(());
        }
        self.first.insert(request.to_vec(), First { index: *index, time_ms: *time_ms, outcomes: *outcomes });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::verdict;
    use super::*;

    #[test]
    fn another_answer_and_a_change_break_it() {
        let entry = |time_ms, outcomes, changed| Fact::Entry {
            index: 1,
            time_ms,
            request: b"r",
            outcomes,
            changed,
            at_ms: 0,
        };
        let judge = |second| verdict(&mut Repeats::default(), &[entry(0, 7, 3), second]).is_ok();
        assert!(judge(entry(1, 7, 0)));
        assert!(judge(entry(LIFETIME_MS, 8, 3)));
        assert!(!judge(entry(1, 8, 0)));
        assert!(!judge(entry(1, 7, 1)));
    }
}
