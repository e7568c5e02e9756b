//! The public cases, laws that hold for every expression, and what is refused with which words.

use jiff::Timestamp;
use proptest::prelude::*;

use super::{Calendar, Note};

fn ms(text: &str) -> u64 {
    u64::try_from(text.parse::<Timestamp>().unwrap().as_millisecond()).unwrap()
}

fn text(ms: u64) -> String {
    Timestamp::from_millisecond(i64::try_from(ms).unwrap()).unwrap().to_string()
}

fn between(calendar: &Calendar, from: &str, until: &str) -> Vec<(String, Option<Note>)> {
    let mut found = Vec::new();
    let mut at = ms(from);
    while let Some((next, note)) = calendar.next(at).filter(|(next, _)| *next <= ms(until)) {
        assert!(next > at, "{next} is not after {at}");
        found.push((text(next), note));
        at = next;
    }
    found
}

/// `testdata/cron.json`: times of other people's bug reports, by cron's own convention.
#[test]
fn the_cases() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/cron.json");
    let cases: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let cases = cases.as_array().unwrap();
    assert_eq!(cases.len(), 72);
    let (mut right, mut refused, mut wrong) = (0, 0, Vec::new());
    for case in cases {
        let field = |name: &str| case[name].as_str().unwrap();
        let (id, expect) = (field("id"), field("expect"));
        // Quartz counts weekdays from 1 and marks that with a `?`, which is refused.
        let may_refuse = field("dialect") == "quartz" || expect != "times";
        let started = std::time::Duration::from_millis(50);
        match Calendar::cron(field("expr"), field("tz")) {
            Err(_) if may_refuse => refused += 1,
            Err(error) => wrong.push(format!("{id}: refused: {error}")),
            Ok(_) if expect == "reject" => wrong.push(format!("{id}: accepted")),
            Ok(calendar) => {
                let expected: Vec<String> = case["expected_utc"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|time| time.as_str().unwrap().to_owned())
                    .collect();
                let clock = crate::env::monotonic();
                let found: Vec<String> = between(&calendar, field("from_utc"), field("until_utc"))
                    .into_iter()
                    .map(|(time, _)| time)
                    .collect();
                assert!(clock.elapsed() < started * 20, "{id} took {:?}", clock.elapsed());
                if found == expected { right += 1 } else { wrong.push(format!("{id}: {found:?}")) }
            }
        }
    }
    assert!(wrong.is_empty(), "{} right, {refused} refused\n{}", right, wrong.join("\n"));
    assert_eq!((right, refused), (58, 14));
}

#[test]
fn changes_of_the_clock_are_noted() {
    let calendar = Calendar::cron("30 2 * * *", "America/New_York").unwrap();
    let found = between(&calendar, "2025-03-08T12:00:00Z", "2025-03-10T12:00:00Z");
    let gap = ("2025-03-09T07:00:00Z".to_owned(), Some(Note::Gap));
    assert_eq!(found, [gap, ("2025-03-10T06:30:00Z".to_owned(), None)]);
    let calendar = Calendar::cron("*/30 1 * * *", "America/New_York").unwrap();
    let found = between(&calendar, "2025-11-02T04:00:00Z", "2025-11-03T07:00:00Z");
    assert_eq!(found.iter().filter(|(_, note)| *note == Some(Note::Overlap)).count(), 4, "{found:?}");
    let calendar = Calendar::cron("30 1 * * *", "America/New_York").unwrap();
    let found = between(&calendar, "2025-11-02T04:00:00Z", "2025-11-03T07:00:00Z");
    let first = ("2025-11-02T05:30:00Z".to_owned(), Some(Note::Overlap));
    assert_eq!(found, [first, ("2025-11-03T06:30:00Z".to_owned(), None)]);
}

#[test]
fn what_is_refused_says_why() {
    for (expression, part) in [
        ("* * * *", "4 fields instead of five"),
        ("61 * * * *", "`61` is no minute: it takes 0 to 59"),
        ("* * * * FRI-MON", "runs backwards"),
        ("*/0 * * * *", "a step is a number from 1 to 60"),
        ("5/15 * * * *", "a step needs a range: `5-59/..`"),
        ("0 0 ? * 1", "`?` is not supported yet"),
        ("0 0 30 2 *", "never comes"),
        ("@reboot", "not supported"),
        ("@fortnightly", "no alias"),
        ("0 0 * * 1#6", "five at most"),
        ("0 0 0W * *", "`15W`"),
        ("0 0 * * ", "4 fields"),
        ("- * * * *", "no minute"),
        (", * * * *", "no minute"),
    ] {
        let error = Calendar::cron(expression, "UTC").unwrap_err();
        assert!(error.contains(part), "{expression}: {error}");
    }
    let error = Calendar::cron("0 0 * * *", "Mars/Olympus").unwrap_err();
    assert!(error.contains("no time zone \"Mars/Olympus\""), "{error}");
}

#[test]
fn six_fields_begin_with_the_seconds() {
    let calendar = Calendar::cron("*/20 0 12 1 1 *", "UTC").unwrap();
    let found = between(&calendar, "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z");
    let times: Vec<&str> = found.iter().map(|(time, _)| time.as_str()).collect();
    assert_eq!(times, ["2026-01-01T12:00:00Z", "2026-01-01T12:00:20Z", "2026-01-01T12:00:40Z"]);
}

fn field(low: u8, high: u8) -> impl Strategy<Value = String> {
    prop_oneof![
        Just("*".to_owned()),
        (low..=high).prop_map(|value| value.to_string()),
        (1..=(high - low)).prop_map(|step| format!("*/{step}")),
        (low..=high, low..=high).prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Every occurrence is later than the one before, whatever the clocks do.
    #[test]
    fn occurrences_only_move_forward(
        minute in field(0, 59),
        hour in field(0, 23),
        zone in prop::sample::select(vec![
            "America/New_York", "Australia/Lord_Howe", "America/Sao_Paulo", "Africa/Casablanca", "Pacific/Apia", "Asia/Gaza",
        ]),
        start in 631_152_000_000u64..2_208_988_800_000,
    ) {
        let calendar = Calendar::cron(&format!("{minute} {hour} * * *"), zone).unwrap();
        let mut at = start;
        for _ in 0..400 {
            let (next, _) = calendar.next(at).unwrap();
            prop_assert!(next > at);
            // Nothing lies between: asked from anywhere before it, the answer is the same.
            prop_assert_eq!(calendar.next(at + (next - at) / 2).unwrap().0, next);
            at = next;
        }
    }
}
