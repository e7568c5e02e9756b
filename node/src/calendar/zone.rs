//! From wall times to instants. A zone is a row of stretches with one offset each; an expression is searched in the wall
//! time of each stretch, so what is found is a real instant, and later ones come later.

use std::sync::LazyLock;

use jiff::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};

use super::{Cron, HORIZON_YEARS, Note};

/// A change of more than this is a correction (a date line moved), not daylight saving.
const MOST: i64 = 3 * 3_600;

/// A time zone.
#[derive(Clone, Debug)]
pub(super) struct Zone(TimeZone);

impl Zone {
    /// From the data in the binary: every node of a version knows the same zones.
    pub(super) fn named(name: &str) -> Result<Zone, String> {
        static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);
        let unknown = || format!("there is no time zone {name:?}; write an IANA name like \"Europe/Paris\"");
        ZONES.get(name).map(Zone).map_err(|_| unknown())
    }

    fn offset(&self, at: i64) -> Option<i64> {
        let at = Timestamp::from_second(at).ok()?;
        Some(i64::from(self.0.to_offset(at).seconds()))
    }

    /// The stretch that holds an instant.
    fn stretch(&self, at: i64) -> Option<Stretch> {
        let offset = self.offset(at)?;
        // The instant itself may be a change; one before the next second is at it or before it.
        let mut start = None;
        let mut before = offset;
        for change in self.0.preceding(Timestamp::from_second(at + 1).ok()?) {
            let instant = change.timestamp().as_second();
            before = self.offset(instant - 1)?;
            // A change of the name only is none.
            if before != offset {
                start = Some(instant);
                break;
            }
        }
        let mut end = None;
        let mut after = offset;
        for change in self.0.following(Timestamp::from_second(at).ok()?) {
            after = i64::from(change.offset().seconds());
            if after != offset {
                end = Some(change.timestamp().as_second());
                break;
            }
        }
        Some(Stretch { start, before, offset, end, after })
    }
}

/// A time with one offset.
#[derive(Debug)]
struct Stretch {
    start: Option<i64>,
    /// The offset of the stretch before; the same when there is none.
    before: i64,
    offset: i64,
    /// Not part of it.
    end: Option<i64>,
    /// The offset of the stretch after it.
    after: i64,
}

impl Stretch {
    /// Wall times before this one came in the stretch before already.
    fn repeated_until(&self) -> Option<i64> {
        let back = self.before - self.offset;
        self.start.filter(|_| back > 0 && back <= MOST).map(|start| start + self.before)
    }

    /// Wall times from this one on come in the stretch after it again.
    fn repeated_from(&self) -> Option<i64> {
        let back = self.offset - self.after;
        self.end.filter(|_| back > 0 && back <= MOST).map(|end| end + self.after)
    }

    /// The wall times that the change at its start skips.
    fn skipped(&self) -> Option<(i64, i64, i64)> {
        let ahead = self.offset - self.before;
        let start = self.start.filter(|_| ahead > 0 && ahead <= MOST)?;
        Some((start, start + self.before, start + self.offset))
    }
}

/// The first instant after `after` (seconds), and what is to be said about it.
pub(super) fn next(cron: &Cron, zone: &Zone, after: i64) -> Option<(i64, Option<Note>)> {
    let mut from = after + 1;
    let horizon = from + HORIZON_YEARS * 366 * 86_400;
    while from < horizon {
        let stretch = zone.stretch(from)?;
        if let Some((start, first, end)) = stretch.skipped()
            && start == from
            && cron.is_fixed()
            && cron.next_wall(first).is_some_and(|wall| wall < end)
        {
            return Some((start, Some(Note::Gap)));
        }
        let mut wall = cron.next_wall(from + stretch.offset)?;
        if let Some(until) = stretch.repeated_until()
            && cron.is_fixed()
            && wall < until
        {
            wall = cron.next_wall(until)?;
        }
        let instant = wall - stretch.offset;
        match stretch.end {
            Some(end) if instant >= end => from = end,
            _ => {
                let twice = stretch.repeated_until().is_some_and(|until| wall < until)
                    || stretch.repeated_from().is_some_and(|from| wall >= from);
                return Some((instant, twice.then_some(Note::Overlap)));
            }
        }
    }
    None
}
