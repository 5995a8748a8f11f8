//! Days and times of day as spreadsheets count them.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Which day is number 1: 1 January 1900, with a 29 February that did not exist, or 2 January 1904.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum DateEpoch {
    #[default]
    #[serde(rename = "1900")]
    From1900,
    #[serde(rename = "1904")]
    From1904,
}

impl DateEpoch {
    /// 1900 or 1904.
    pub fn year(self) -> u16 {
        match self {
            Self::From1900 => 1900,
            Self::From1904 => 1904,
        }
    }
}

/// Milliseconds in a day.
pub(super) const DAY: i64 = 86_400_000;

/// A day with a time, or only a time of day, to the millisecond.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Moment {
    /// Counted from 1 January 1970; `None` for a time without a day.
    day: Option<i32>,
    milliseconds: u32,
}

/// Day 0 of either epoch, counted from 1 January 1970.
fn day_zero(epoch: DateEpoch) -> i32 {
    match epoch {
        // 30 December 1899. This is right from March 1900 on, because day 60 is a 29 February that did not exist.
        DateEpoch::From1900 => -25_569,
        DateEpoch::From1904 => -24_107,
    }
}

/// 31 December 9999, counted from 1 January 1970.
const LAST_DAY: i32 = 2_932_896;

impl Moment {
    /// Reads a stored number; `None` for what no spreadsheet shows as a date. A number below 1 is a time without a day.
    /// Day 60 of 1900 reads as 28 February.
    pub(super) fn from_serial(serial: f64, epoch: DateEpoch) -> Option<Self> {
        if !(0.0..=3_000_000.0).contains(&serial) {
            return None;
        }
        let time = (serial.fract() * DAY as f64).round() as i64;
        // The number is in range, and rounding may have completed a day.
        let days = serial.trunc() as i32 + i32::from(time == DAY);
        let milliseconds = (time % DAY) as u32;
        if days == 0 {
            return Some(Self { day: None, milliseconds });
        }
        let early = epoch == DateEpoch::From1900 && days < 60;
        let day = day_zero(epoch) + days + i32::from(early);
        (day <= LAST_DAY).then_some(Self { day: Some(day), milliseconds })
    }

    /// Reads ISO 8601: a date, a date with a time, or a time. A zone is ignored.
    pub(super) fn from_iso(text: &str) -> Option<Self> {
        let text = text.trim();
        let (date, time) = match text.split_once(['T', ' ']) {
            Some((date, time)) => (Some(date), Some(time)),
            None if text.contains(':') => (None, Some(text)),
            None => (Some(text), None),
        };
        let day = match date {
            Some(date) => Some(parse_date(date)?),
            None => None,
        };
        let milliseconds = match time {
            Some(time) => parse_time(time)?,
            None => 0,
        };
        Some(Self { day, milliseconds })
    }

    /// Rounds to the nearest multiple of `step` milliseconds; 0 changes nothing.
    pub(super) fn rounded(self, step: i64) -> Self {
        if step <= 0 {
            return self;
        }
        let time = (i64::from(self.milliseconds) + step / 2) / step * step;
        let day = self.day.map(|day| if time >= DAY { (day + 1).min(LAST_DAY) } else { day });
        Self { day, milliseconds: (time % DAY) as u32 }
    }

    /// Milliseconds since midnight.
    pub(super) fn milliseconds(self) -> u32 {
        self.milliseconds
    }

    /// Year, month and day. A time without a day is on day 0, which is 0 January 1900 or 1 January 1904.
    pub(super) fn calendar(self, epoch: DateEpoch) -> (i32, u32, u32) {
        match (self.day, epoch) {
            (Some(day), _) => civil(day),
            (None, DateEpoch::From1900) => (1900, 1, 0),
            (None, DateEpoch::From1904) => (1904, 1, 1),
        }
    }

    /// The day of the week, 0 for Sunday. Before March 1900 it is a day early, as in spreadsheets.
    pub(super) fn weekday(self, epoch: DateEpoch) -> usize {
        let day = self.day.unwrap_or(day_zero(epoch));
        let early = epoch == DateEpoch::From1900 && day < day_zero(epoch) + 61;
        // 1 January 1970 was a Thursday.
        (day - i32::from(early && self.day.is_some()) + 4).rem_euclid(7) as usize
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(day) = self.day {
            let (year, month, day) = civil(day);
            write!(f, "{year:04}-{month:02}-{day:02}T")?;
        }
        let seconds = self.milliseconds / 1000;
        write!(f, "{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)?;
        match self.milliseconds % 1000 {
            0 => Ok(()),
            rest => write!(f, ".{rest:03}"),
        }
    }
}

/// Reads a span of time as ISO 8601 writes it, `PT15H10M10.5S`, in milliseconds. Years and months have no length.
pub(super) fn span_from_iso(text: &str) -> Option<i64> {
    let text = text.trim();
    let (sign, text) = text.strip_prefix('-').map_or((1.0, text), |rest| (-1.0, rest));
    let (mut rest, mut in_time, mut total) = (text.strip_prefix('P')?, false, 0.0);
    while !rest.is_empty() {
        if let Some(time) = rest.strip_prefix('T') {
            (rest, in_time) = (time, true);
            continue;
        }
        let end = rest.find(|character: char| !(character.is_ascii_digit() || matches!(character, '.' | ',')))?;
        let count: f64 = rest[..end].replace(',', ".").parse().ok()?;
        let unit = match (rest.as_bytes()[end], in_time) {
            (b'D', false) => DAY as f64,
            (b'H', true) => 3_600_000.0,
            (b'M', true) => 60_000.0,
            (b'S', true) => 1_000.0,
            (b'Y' | b'M', false) if count == 0.0 => 0.0,
            _ => return None,
        };
        total += count * unit;
        rest = &rest[end + 1..];
    }
    // The bound is that of spreadsheets: the last day of the year 9999.
    (total < 2_958_466.0 * DAY as f64).then_some((sign * total).round() as i64)
}

fn parse_date(text: &str) -> Option<i32> {
    let mut parts = text.splitn(3, '-');
    let mut next = |digits: usize| -> Option<i32> {
        let part = parts.next()?;
        (part.len() == digits && part.bytes().all(|byte| byte.is_ascii_digit())).then(|| part.parse().ok())?
    };
    let (year, month, day) = (next(4)?, next(2)?, next(2)?);
    let days = days_from_civil(year, month.try_into().ok()?, day.try_into().ok()?);
    // A date that does not convert back is not in the calendar.
    (civil(days) == (year, month as u32, day as u32)).then_some(days)
}

fn parse_time(text: &str) -> Option<u32> {
    let end = text.find(['Z', '+', '-']).unwrap_or(text.len());
    let mut parts = text[..end].splitn(3, ':');
    let hours: u32 = parts.next()?.parse().ok()?;
    let minutes: u32 = parts.next()?.parse().ok()?;
    let seconds: f64 = parts.next().unwrap_or("0").parse().ok()?;
    if hours > 23 || minutes > 59 || !(0.0..60.0).contains(&seconds) {
        return None;
    }
    let milliseconds = (hours * 60 + minutes) * 60_000 + (seconds * 1000.0).round() as u32;
    Some(milliseconds.min(DAY as u32 - 1))
}

/// The Gregorian date, after Howard Hinnant's `civil_from_days`.
fn civil(day: i32) -> (i32, u32, u32) {
    let shifted = day + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i32::from(month <= 2), month as u32, day as u32)
}

/// The inverse of [`civil`].
fn days_from_civil(year: i32, month: u32, day: u32) -> i32 {
    let year = year - i32::from(month <= 2);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month_from_march = (month as i32 + 9) % 12;
    let of_year = (153 * month_from_march + 2) / 5 + day as i32 - 1;
    let of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + of_year;
    era * 146_097 + of_era - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    fn iso(serial: f64, epoch: DateEpoch) -> String {
        Moment::from_serial(serial, epoch).map_or("none".into(), |moment| moment.to_string())
    }

    #[test]
    fn serials_are_days_of_either_epoch() {
        use DateEpoch::{From1900, From1904};
        for (serial, epoch, text) in [
            (1.0, From1900, "1900-01-01T00:00:00"),
            (59.0, From1900, "1900-02-28T00:00:00"),
            (60.0, From1900, "1900-02-28T00:00:00"),
            (61.0, From1900, "1900-03-01T00:00:00"),
            (44197.0, From1900, "2021-01-01T00:00:00"),
            (44197.632060185, From1900, "2021-01-01T15:10:10"),
            (0.5, From1900, "12:00:00"),
            (0.0, From1904, "00:00:00"),
            (42735.0, From1904, "2021-01-01T00:00:00"),
            (2_958_465.0, From1900, "9999-12-31T00:00:00"),
            (44196.9999999999, From1900, "2021-01-01T00:00:00"),
            (0.0000115741, From1900, "00:00:01"),
            (1.0000000029, From1900, "1900-01-01T00:00:00"),
            (2_958_466.0, From1900, "none"),
            (-1.0, From1900, "none"),
            (f64::NAN, From1900, "none"),
        ] {
            assert_eq!(iso(serial, epoch), text, "{serial} of {epoch:?}");
        }
    }

    #[test]
    fn iso_texts_read_back() {
        for text in ["2021-01-01T00:00:00", "1904-02-29T23:59:59.999", "15:10:10"] {
            assert_eq!(Moment::from_iso(text).unwrap().to_string(), text);
        }
        assert_eq!(Moment::from_iso("2021-03-04").unwrap().to_string(), "2021-03-04T00:00:00");
        assert_eq!(Moment::from_iso("2021-03-04T05:06:07.5Z").unwrap().to_string(), "2021-03-04T05:06:07.500");
        for text in ["", "2021", "2021-02-30", "2021-13-01", "25:00:00", "1:2", "x", "20210304", "99999-01-01"] {
            let read = Moment::from_iso(text);
            assert_eq!(read.map(|moment| moment.to_string()), (text == "1:2").then(|| "01:02:00".into()), "{text}");
        }
    }

    #[test]
    fn spans_read_in_milliseconds() {
        for (text, milliseconds) in [
            ("PT15H10M10S", Some(54_610_000)),
            ("PT00H00M00.5S", Some(500)),
            ("-PT1H", Some(-3_600_000)),
            ("P1DT2H", Some(93_600_000)),
            ("P0Y0M0DT0H1M", Some(60_000)),
            ("P1Y", None),
            ("PT1é", None),
            ("15:10", None),
            ("PT99999999999999H", None),
            ("PT1.1.1S", None),
        ] {
            assert_eq!(span_from_iso(text), milliseconds, "{text}");
        }
    }

    #[test]
    fn weekdays_are_the_spreadsheets() {
        let weekday = |serial| Moment::from_serial(serial, DateEpoch::From1900).unwrap().weekday(DateEpoch::From1900);
        assert_eq!(weekday(1.0), 0, "1 January 1900 is a Sunday there, and was a Monday");
        assert_eq!(weekday(61.0), 4, "1 March 1900 was a Thursday");
        assert_eq!(weekday(44197.0), 5, "1 January 2021 was a Friday");
    }

    #[test]
    fn every_day_comes_back() {
        for day in (-800_000..LAST_DAY).step_by(97) {
            let (year, month, of_month) = civil(day);
            assert_eq!(days_from_civil(year, month, of_month), day);
        }
        assert_eq!(civil(LAST_DAY), (9999, 12, 31));
    }
}
