//! A number as the 15 significant decimal digits with which spreadsheets calculate and round.

/// `0.d1 d2 d3 ... * 10^exponent`, without its sign; zero has no digits. The first and the last digit are not 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Decimal {
    digits: Vec<u8>,
    exponent: i32,
}

const SIGNIFICANT: usize = 15;

impl Decimal {
    /// The magnitude of a finite number.
    pub(super) fn new(number: f64) -> Self {
        let text = format!("{:.*e}", SIGNIFICANT - 1, number.abs());
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let digits = mantissa.bytes().filter(u8::is_ascii_digit).map(|digit| digit - b'0').collect();
        Self { digits, exponent: exponent.parse::<i32>().unwrap_or(0) + 1 }.trimmed()
    }

    fn trimmed(mut self) -> Self {
        while self.digits.last() == Some(&0) {
            self.digits.pop();
        }
        if self.digits.is_empty() {
            self.exponent = 0;
        }
        self
    }

    pub(super) fn is_zero(&self) -> bool {
        self.digits.is_empty()
    }

    /// The power of ten of the first digit; 0 for zero.
    pub(super) fn magnitude(&self) -> i32 {
        if self.is_zero() { 0 } else { self.exponent - 1 }
    }

    /// Multiplies by ten to the `power`.
    #[must_use]
    pub(super) fn shifted(mut self, power: i32) -> Self {
        if !self.is_zero() {
            self.exponent += power;
        }
        self
    }

    /// Rounds to this many decimal places, halves away from zero.
    #[must_use]
    pub(super) fn rounded(mut self, places: i32) -> Self {
        let kept = i64::from(self.exponent) + i64::from(places);
        if kept < 0 {
            return Self { digits: Vec::new(), exponent: 0 };
        }
        let kept = usize::try_from(kept).unwrap_or(usize::MAX);
        if kept >= self.digits.len() {
            return self;
        }
        let up = self.digits[kept] >= 5;
        self.digits.truncate(kept);
        if up {
            let mut at = kept;
            loop {
                if at == 0 {
                    self.digits.insert(0, 1);
                    self.exponent += 1;
                    break;
                }
                at -= 1;
                if self.digits[at] == 9 {
                    self.digits[at] = 0;
                } else {
                    self.digits[at] += 1;
                    break;
                }
            }
        }
        self.trimmed()
    }

    /// The digits before the point; empty for a number below 1.
    pub(super) fn whole(&self) -> String {
        (0..self.exponent.max(0) as usize).map(|place| self.digit(place)).collect()
    }

    /// The digits after the point, without trailing zeros.
    pub(super) fn fraction(&self) -> String {
        if self.is_zero() {
            return String::new();
        }
        let zeros = (-self.exponent).max(0) as usize;
        let from = self.exponent.max(0) as usize;
        std::iter::repeat_n('0', zeros).chain((from..self.digits.len()).map(|place| self.digit(place))).collect()
    }

    fn digit(&self, place: usize) -> char {
        char::from(b'0' + self.digits.get(place).copied().unwrap_or(0))
    }
}

/// Appends a number without a format. Whole numbers keep up to 15 digits, whereas a cell would cut an identifier to 11
/// characters; others have at most 11 characters, as a wide cell shows them.
pub(super) fn general(number: f64, out: &mut String) {
    const WIDTH: i32 = 11;
    let decimal = Decimal::new(number);
    if number < 0.0 && !decimal.is_zero() {
        out.push('-');
    }
    let magnitude = decimal.magnitude();
    let is_whole = decimal.exponent >= 0 && decimal.digits.len() <= decimal.exponent as usize;
    // The point and a leading zero take a character each.
    let places = if magnitude >= 0 { (WIDTH - 2 - magnitude).max(0) } else { WIDTH - 2 };
    let fits = match magnitude {
        // A small number shows its zeros only if no digit after them is lost.
        ..-4 => magnitude >= -places && decimal.fraction().len() <= places as usize,
        -4..WIDTH => magnitude < WIDTH - 1 || is_whole,
        _ => is_whole && magnitude < SIGNIFICANT as i32,
    };
    if fits {
        point(&decimal.rounded(places), out);
        return;
    }
    let mantissa = decimal.shifted(-magnitude).rounded(5);
    // Rounding may have carried into a new digit.
    let (mantissa, magnitude) = match mantissa.magnitude() {
        0 => (mantissa, magnitude),
        carried => (mantissa.shifted(-carried), magnitude + carried),
    };
    point(&mantissa, out);
    out.push_str(&format!("E{}{:02}", if magnitude < 0 { '-' } else { '+' }, magnitude.abs()));
}

fn point(decimal: &Decimal, out: &mut String) {
    let (whole, fraction) = (decimal.whole(), decimal.fraction());
    out.push_str(if whole.is_empty() { "0" } else { &whole });
    if !fraction.is_empty() {
        out.push('.');
        out.push_str(&fraction);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(number: f64) -> String {
        let mut out = String::new();
        general(number, &mut out);
        out
    }

    #[test]
    fn general_shows_what_a_wide_cell_shows() {
        for (number, text) in [
            (0.0, "0"),
            (-0.0, "0"),
            (2019.0, "2019"),
            (-1.5, "-1.5"),
            (0.1 + 0.2, "0.3"),
            (1.0 / 3.0, "0.333333333"),
            (100.0 / 3.0, "33.33333333"),
            (12345678901.0, "12345678901"),
            (4006381333931.0, "4006381333931"),
            (123456789012345.0, "123456789012345"),
            (1e15, "1E+15"),
            (1.5e300, "1.5E+300"),
            (0.00001, "0.00001"),
            (0.000001234, "0.000001234"),
            (0.00012345678, "0.000123457"),
            (0.00000123456, "1.23456E-06"),
            (1234567.891, "1234567.891"),
            (999999999.99, "1000000000"),
            (9.999999999e-7, "1E-06"),
        ] {
            assert_eq!(shown(number), text, "{number:e}");
        }
    }

    #[test]
    fn halves_round_away_from_zero_in_decimal() {
        let rounded = |number: f64, places| {
            let decimal = Decimal::new(number).rounded(places);
            (decimal.whole(), decimal.fraction())
        };
        assert_eq!(rounded(2.675, 2), ("2".into(), "68".into()), "though the nearest double is below");
        assert_eq!(rounded(0.5, 0), ("1".into(), String::new()));
        assert_eq!(rounded(0.49, 0), (String::new(), String::new()));
        assert_eq!(rounded(99.995, 2), ("100".into(), String::new()));
        assert_eq!(rounded(0.004, 2), (String::new(), String::new()));
        assert_eq!(rounded(0.006, 2), (String::new(), "01".into()));
        assert_eq!(rounded(1234.5, -2), ("1200".into(), String::new()));
    }
}
