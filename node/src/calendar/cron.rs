//! Cron expressions, as cron itself reads them: what they match in wall time. Knows no zone.
//!
//! Weekdays are 0 to 7 (0 and 7 are Sunday). When both day fields are restricted a day matches either; when one of them
//! starts with `*` (also `*/2`) it must match both. Ranges do not wrap. Six fields begin with the seconds.

use super::HORIZON_YEARS;

const DAY: i64 = 86_400;
const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const ALIASES: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

/// A cron expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cron {
    second: Set,
    minute: Set,
    hour: Set,
    day: Set,
    month: Set,
    weekday: Set,
    /// `L`, `L-3`, `LW`, `15W` of the days; `5L`, `1#2` of the weekdays.
    days: Vec<Day>,
    weekdays: Vec<Weekday>,
}

/// Values of a field, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Set {
    bits: u64,
    /// The text starts with `*`.
    star: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Day {
    /// So many days before the last one.
    BeforeLast(u8),
    /// The last day from Monday to Friday.
    LastWorkday,
    /// The day from Monday to Friday nearest to this one, in the same month.
    NearestWorkday(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weekday {
    Last(u8),
    Nth(u8, u8),
}

/// A field: its name, its values, its words.
struct Field {
    name: &'static str,
    low: u8,
    high: u8,
    words: &'static [&'static str],
}

const SECOND: Field = Field { name: "second", low: 0, high: 59, words: &[] };
const MINUTE: Field = Field { name: "minute", low: 0, high: 59, words: &[] };
const HOUR: Field = Field { name: "hour", low: 0, high: 23, words: &[] };
const DAY_OF_MONTH: Field = Field { name: "day of month", low: 1, high: 31, words: &[] };
const MONTH: Field = Field { name: "month", low: 1, high: 12, words: &MONTHS };
const DAY_OF_WEEK: Field = Field { name: "day of week", low: 0, high: 7, words: &WEEKDAYS };

impl Cron {
    /// Reads an expression.
    ///
    /// # Errors
    /// What is wrong with it; also when it can never match.
    pub fn parse(text: &str) -> Result<Cron, String> {
        let text = text.trim();
        if text.starts_with('@') {
            let known = ALIASES.iter().find(|(alias, _)| *alias == text);
            let aliases = || ALIASES.map(|(alias, _)| alias).join(", ");
            return match known {
                Some((_, meaning)) => Cron::parse(meaning),
                None if text == "@reboot" => {
                    Err("`@reboot` is not supported: a cluster has no boot of its own".to_owned())
                }
                None => Err(format!("`{text}` is no alias; there are {}", aliases())),
            };
        }
        let fields: Vec<&str> = text.split_ascii_whitespace().collect();
        let (second, fields) = match fields.len() {
            5 => ("0", &fields[..]),
            6 => (fields[0], &fields[1..]),
            count => return Err(format!("{count} fields instead of five (six with seconds first)")),
        };
        let (mut days, mut weekdays) = (Vec::new(), Vec::new());
        let none = |_: &str| Ok(false);
        let cron = Cron {
            second: SECOND.read(second, none)?,
            minute: MINUTE.read(fields[0], none)?,
            hour: HOUR.read(fields[1], none)?,
            day: DAY_OF_MONTH.read(fields[2], |item| special_day(item, &mut days))?,
            month: MONTH.read(fields[3], none)?,
            weekday: DAY_OF_WEEK.read(fields[4], |item| special_weekday(item, &mut weekdays))?,
            days,
            weekdays,
        };
        // The calendar repeats after 28 years, but for a century that is no leap year.
        match cron.next_wall(0) {
            Some(_) => Ok(cron),
            None => Err(format!("`{text}` never comes: no month has such a day")),
        }
    }

    /// At fixed times of the day: a change of the clock does not make it lose or repeat a run.
    pub(super) fn is_fixed(&self) -> bool {
        !(self.second.star || self.minute.star || self.hour.star)
    }

    /// The first wall time at or after one (seconds, as if it were UTC).
    pub(super) fn next_wall(&self, from: i64) -> Option<i64> {
        let mut day = from.div_euclid(DAY);
        let mut time = from.rem_euclid(DAY);
        let last = day + HORIZON_YEARS * 366;
        while day <= last {
            let date = Date::of(day);
            if !self.month.has(date.month) {
                day += i64::from(date.last - date.day) + 1;
                time = 0;
                continue;
            }
            if self.has_day(&date)
                && let Some(found) = self.next_time(time)
            {
                return Some(day * DAY + found);
            }
            day += 1;
            time = 0;
        }
        None
    }

    /// The first time of a day at or after one.
    fn next_time(&self, from: i64) -> Option<i64> {
        let (hour, minute, second) = (from / 3_600, from / 60 % 60, from % 60);
        for h in self.hour.from(hour) {
            let minutes = if h == hour { minute } else { 0 };
            for m in self.minute.from(minutes) {
                let seconds = if h == hour && m == minute { second } else { 0 };
                if let Some(s) = self.second.from(seconds).next() {
                    return Some(h * 3_600 + m * 60 + s);
                }
            }
        }
        None
    }

    fn has_day(&self, date: &Date) -> bool {
        let day = self.day.has(date.day) || self.days.iter().any(|special| special.is(date));
        let weekday = self.weekday.has(date.weekday) || self.weekdays.iter().any(|special| special.is(date));
        if self.day.star || self.weekday.star { day && weekday } else { day || weekday }
    }
}

impl Set {
    fn has(self, value: u8) -> bool {
        self.bits & (1 << value) != 0
    }

    fn from(self, first: i64) -> impl Iterator<Item = i64> {
        (first.clamp(0, 63)..64).filter(move |value| self.bits & (1 << value) != 0)
    }
}

impl Field {
    /// Reads a field; `special` takes the items that only this field knows.
    fn read(&self, text: &str, mut special: impl FnMut(&str) -> Result<bool, String>) -> Result<Set, String> {
        let mut set = Set { bits: 0, star: text.starts_with('*') };
        for item in text.split(',') {
            if item == "?" {
                let help = "write `*`; weekdays are 0 to 7, Sunday is 0 and 7";
                return Err(format!("`?` is not supported yet: {help}"));
            }
            if !special(item)? {
                set.bits |= self.item(item)?;
            }
        }
        Ok(set)
    }

    fn item(&self, item: &str) -> Result<u64, String> {
        let (range, step) = match item.split_once('/') {
            None => (item, None),
            Some((range, step)) => (range, Some(self.step(item, step)?)),
        };
        let (low, high) = match range.split_once('-') {
            _ if range == "*" => (self.low, self.high),
            None if step.is_some() => {
                let help = format!("a step needs a range: `{range}-{}/..` or `*/..`", self.high);
                return Err(self.wrong(item, &help));
            }
            None => {
                let value = self.value(item, range)?;
                (value, value)
            }
            Some((low, high)) => (self.value(item, low)?, self.value(item, high)?),
        };
        if low > high {
            return Err(self.wrong(item, "the range runs backwards; write it as two: `FRI-SAT,SUN-MON`"));
        }
        let values = (low..=high).step_by(usize::from(step.unwrap_or(1)));
        // Sunday is 0 and 7; no other field has 7 as its highest value.
        let bit = |value: u8| if self.high == 7 { 1 << (value % 7) } else { 1 << value };
        Ok(values.fold(0, |bits, value| bits | bit(value)))
    }

    fn step(&self, item: &str, text: &str) -> Result<u8, String> {
        let most = self.high - self.low + 1;
        match number(text) {
            Some(step) if step > 0 && step <= most => Ok(step),
            _ => Err(self.wrong(item, &format!("a step is a number from 1 to {most}"))),
        }
    }

    fn value(&self, item: &str, text: &str) -> Result<u8, String> {
        let lower = text.to_ascii_lowercase();
        let word = self.words.iter().position(|word| *word == lower);
        let value = match word {
            Some(position) => u8::try_from(position).ok().map(|position| position + self.low),
            None => number(text),
        };
        value
            .filter(|value| (self.low..=self.high).contains(value))
            .ok_or_else(|| self.wrong(item, &format!("it takes {} to {}", self.low, self.high)))
    }

    fn wrong(&self, item: &str, why: &str) -> String {
        format!("`{item}` is no {}: {why}", self.name)
    }
}

fn number(text: &str) -> Option<u8> {
    let digits = !text.is_empty() && text.len() <= 3 && text.bytes().all(|byte| byte.is_ascii_digit());
    if digits { text.parse().ok() } else { None }
}

fn special_day(item: &str, days: &mut Vec<Day>) -> Result<bool, String> {
    let upper = item.to_ascii_uppercase();
    let found = match upper.as_str() {
        "L" => Day::BeforeLast(0),
        "LW" => Day::LastWorkday,
        _ => {
            let before = upper.strip_prefix("L-").map(|text| number(text).filter(|before| *before <= 30));
            let nearest =
                upper.strip_suffix('W').map(|text| number(text).filter(|day| (1..=31).contains(day)));
            match (before, nearest) {
                (Some(Some(before)), _) => Day::BeforeLast(before),
                (_, Some(Some(day))) => Day::NearestWorkday(day),
                (None, None) => return Ok(false),
                _ => return Err(DAY_OF_MONTH.wrong(item, "there are `L`, `L-3`, `LW` and `15W`")),
            }
        }
    };
    days.push(found);
    Ok(true)
}

fn special_weekday(item: &str, weekdays: &mut Vec<Weekday>) -> Result<bool, String> {
    let upper = item.to_ascii_uppercase();
    let found = if let Some((day, nth)) = upper.split_once('#') {
        let nth = number(nth).filter(|nth| (1..=5).contains(nth));
        let help = "`1#2` is the second Monday; there are five at most";
        Weekday::Nth(DAY_OF_WEEK.value(item, day)? % 7, nth.ok_or_else(|| DAY_OF_WEEK.wrong(item, help))?)
    } else if let Some(day) = upper.strip_suffix('L') {
        Weekday::Last(DAY_OF_WEEK.value(item, day)? % 7)
    } else {
        return Ok(false);
    };
    weekdays.push(found);
    Ok(true)
}

impl Day {
    fn is(self, date: &Date) -> bool {
        let workday = |weekday: u8| (1..=5).contains(&weekday);
        match self {
            Day::BeforeLast(before) => date.day.checked_add(before) == Some(date.last),
            Day::LastWorkday => Day::nearest(date, date.last) == date.day && workday(date.weekday),
            Day::NearestWorkday(day) => day <= date.last && Day::nearest(date, day) == date.day,
        }
    }

    /// The workday nearest to a day of the month of `date`.
    fn nearest(date: &Date, day: u8) -> u8 {
        let ahead = i64::from(day) - i64::from(date.day);
        match (i64::from(date.weekday) + ahead).rem_euclid(7) {
            6 if day == 1 => 3,
            6 => day - 1,
            0 if day == date.last => day - 2,
            0 => day + 1,
            _ => day,
        }
    }
}

impl Weekday {
    fn is(self, date: &Date) -> bool {
        match self {
            Weekday::Last(weekday) => date.weekday == weekday && date.day + 7 > date.last,
            Weekday::Nth(weekday, nth) => date.weekday == weekday && date.day.div_ceil(7) == nth,
        }
    }
}

/// A day of the calendar.
struct Date {
    month: u8,
    day: u8,
    /// The last day of its month.
    last: u8,
    /// From Sunday, 0.
    weekday: u8,
}

impl Date {
    /// Of days since 1970-01-01.
    fn of(days: i64) -> Date {
        // Years that begin in March, in cycles of 400.
        let shifted = days + 719_468;
        let (cycle, day) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
        let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let index = (5 * day + 2) / 153;
        let month = if index < 10 { index + 3 } else { index - 9 };
        let year = cycle * 400 + year + i64::from(month <= 2);
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let last = match month {
            2 if leap => 29,
            2 => 28,
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        };
        let small = |value: i64| u8::try_from(value).unwrap_or(0);
        Date {
            month: small(month),
            day: small(day - (153 * index + 2) / 5 + 1),
            last,
            weekday: small((days + 4).rem_euclid(7)),
        }
    }
}
