//! Numbers that another file keeps of a workbook.

use super::{
    moment::DateEpoch,
    number_format::{NumberFormat, Reading},
    value::{Duration, serial},
};

/// What numbers that have one format mean.
pub(crate) struct CachedNumbers {
    format: NumberFormat,
    epoch: DateEpoch,
}

impl CachedNumbers {
    pub(crate) fn new(code: &str, epoch: DateEpoch) -> Self {
        Self { format: NumberFormat::new(code), epoch }
    }

    /// The value of a stored number: digits, or a day, a time or a span in ISO 8601. What is no number stays as it is.
    pub(crate) fn text(&self, stored: &str) -> String {
        let Some(number) = serial(stored) else { return stored.to_owned() };
        match self.format.read(number, self.epoch) {
            Reading::Moment(moment) => {
                let text = moment.to_string();
                text.strip_suffix("T00:00:00").unwrap_or(&text).to_owned()
            }
            Reading::Duration(milliseconds) => Duration { milliseconds }.to_string(),
            Reading::Number(number) => digits(number).unwrap_or_else(|| stored.to_owned()),
        }
    }
}

/// A number in as many digits as are exact in every cell; `None` if it needs an exponent.
fn digits(number: f64) -> Option<String> {
    const DIGITS: usize = 15;
    let size = number.abs();
    if size >= 1e15 || (size > 0.0 && size < 1e-6) {
        return None;
    }
    let decimals = DIGITS.saturating_sub(format!("{:.0}", size.trunc()).len());
    let written = format!("{number:.decimals$}");
    let short: &str = match written.contains('.') {
        true => written.trim_end_matches('0').trim_end_matches('.'),
        false => &written,
    };
    Some(if short == "-0" { "0".to_owned() } else { short.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_values_by_their_format() {
        let text = |code: &str, stored: &str| CachedNumbers::new(code, DateEpoch::From1900).text(stored);
        for (stored, expected) in [
            ("120", "120"),
            ("-0", "0"),
            ("0.30000000000000004", "0.3"),
            ("0.33333333333333331", "0.33333333333333"),
            ("1.2E3", "1200"),
            ("-12.50", "-12.5"),
            ("123456789012345", "123456789012345"),
            ("1e300", "1e300"),
            ("1e-300", "1e-300"),
            ("inf", "inf"),
            ("#N/A", "#N/A"),
        ] {
            assert_eq!(text("General", stored), expected, "{stored}");
        }
        assert_eq!(text("0.0%", "0.125"), "0.125");
        assert_eq!(text("d.m.yyyy", "44197"), "2021-01-01");
        assert_eq!(text("d.m.yyyy hh:mm", "44197.5"), "2021-01-01T12:00:00");
        assert_eq!(text("[h]:mm", "1.5"), "P1DT12H");
        assert_eq!(CachedNumbers::new("yyyy", DateEpoch::From1904).text("42735"), "2021-01-01");
    }
}
