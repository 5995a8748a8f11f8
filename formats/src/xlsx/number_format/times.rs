//! Dates, times of day and durations as a section shows them, in English.

use super::{
    super::moment::{DAY, DateEpoch, Moment},
    code::{Token, Unit},
};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

const HOUR: i64 = 3_600_000;
const MINUTE: i64 = 60_000;
const SECOND: i64 = 1_000;

/// Appends a moment.
pub(super) fn date(tokens: &[Token], moment: Moment, epoch: DateEpoch, out: &mut String) {
    let rounded = moment.rounded(step(tokens));
    let (year, month, day) = rounded.calendar(epoch);
    let time = i64::from(rounded.milliseconds());
    let twelve = tokens.iter().any(|token| matches!(token, Token::HalfDay | Token::HalfDayLetter { .. }));
    for token in tokens {
        match *token {
            Token::Year(1 | 2) => number(i64::from(year.rem_euclid(100)), 2, out),
            Token::Year(_) => number(i64::from(year), 4, out),
            Token::Month(count @ (1 | 2)) => number(i64::from(month), count, out),
            Token::Month(count) => {
                let name = MONTHS[(month as usize).clamp(1, 12) - 1];
                out.push_str(match count {
                    3 => &name[..3],
                    5 => &name[..1],
                    _ => name,
                });
            }
            Token::Day(count @ (1 | 2)) => number(i64::from(day), count, out),
            Token::Day(count) => {
                let name = DAYS[rounded.weekday(epoch)];
                out.push_str(if count == 3 { &name[..3] } else { name });
            }
            Token::Hour(count) => {
                let hour = time / HOUR;
                let hour = match hour % 12 {
                    0 if twelve => 12,
                    of_half if twelve => of_half,
                    _ => hour,
                };
                number(hour, count.min(2), out);
            }
            Token::HalfDay => out.push_str(if time < 12 * HOUR { "AM" } else { "PM" }),
            Token::HalfDayLetter { lower } => {
                let letter = if time < 12 * HOUR { 'A' } else { 'P' };
                out.push(if lower { letter.to_ascii_lowercase() } else { letter });
            }
            ref other => clock(other, time, out),
        }
    }
}

/// Appends a span in milliseconds.
pub(super) fn duration(tokens: &[Token], span: i64, out: &mut String) {
    let step = step(tokens);
    let span = if step > 0 { (span + span.signum() * step / 2) / step * step } else { span };
    if span < 0 {
        out.push('-');
    }
    let span = span.abs();
    for token in tokens {
        match *token {
            Token::Elapsed(unit, count) => {
                let unit = match unit {
                    Unit::Hours => HOUR,
                    Unit::Minutes => MINUTE,
                    Unit::Seconds => SECOND,
                };
                number(span / unit, count.min(20), out);
            }
            Token::Day(count) => number(span / DAY, count.min(2), out),
            Token::Hour(count) => number(span / HOUR % 24, count.min(2), out),
            ref other => clock(other, span, out),
        }
    }
}

/// Appends what a time of day and a span have in common.
fn clock(token: &Token, time: i64, out: &mut String) {
    match token {
        Token::Minute(count) => number(time / MINUTE % 60, (*count).min(2), out),
        Token::Second(count) => number(time / SECOND % 60, (*count).min(2), out),
        Token::Subsecond(count) => {
            let digits = format!(".{:03}", time % SECOND);
            out.push_str(&digits[..1 + (*count).min(3)]);
            out.extend(std::iter::repeat_n('0', count.saturating_sub(3).min(6)));
        }
        Token::Literal(text) => out.push_str(text),
        Token::Slash => out.push('/'),
        Token::Point => out.push('.'),
        Token::Comma => out.push(','),
        Token::Percent => out.push('%'),
        Token::Digit(digit) | Token::Numeral(digit) => out.push(char::from(*digit)),
        _ => {}
    }
}

/// The unit, in milliseconds, to which a time is rounded: the smallest one shown. If only hours and minutes are shown,
/// the time is truncated instead.
fn step(tokens: &[Token]) -> i64 {
    let digits = tokens.iter().filter_map(|token| match token {
        Token::Subsecond(count) => Some((*count).min(3) as u32),
        _ => None,
    });
    match digits.max() {
        Some(digits) => 10i64.pow(3 - digits),
        None if tokens.iter().any(|token| matches!(token, Token::Second(_) | Token::Elapsed(Unit::Seconds, _))) => {
            SECOND
        }
        None => 0,
    }
}

fn number(number: i64, digits: usize, out: &mut String) {
    out.push_str(&format!("{number:0digits$}"));
}
