//! Numbers as a section shows them: placed digits, grouping, percent, exponents, fractions.

use super::{
    code::{Section, Token},
    decimal::Decimal,
};

/// The most digits of an exponent or a denominator that a code may demand.
const MAX_PLACES: usize = 30;

/// Appends the number. `signed` is true if the section does not show the sign itself.
pub(super) fn number(section: &Section, number: f64, signed: bool, out: &mut String) {
    let tokens = &section.tokens;
    let start = out.len();
    let shows_digits = if let Some(slash) = tokens.iter().position(|token| *token == Token::Slash)
        && let Some(parts) = Fraction::of(tokens, slash)
    {
        parts.show(number, out)
    } else if let Some(at) = tokens.iter().position(|token| matches!(token, Token::Exponent { .. })) {
        scientific(tokens, at, number, out)
    } else {
        let places = Places::of(tokens);
        let power = 2 * places.percents - 3 * places.thousands;
        let decimal = Decimal::new(number).shifted(power).rounded(places.fraction as i32);
        places.show(tokens, &decimal, out)
    };
    if signed && number < 0.0 && shows_digits {
        out.insert(start, '-');
    }
}

/// Appends the literals, and in the value's place what `inner` appends.
pub(super) fn around(tokens: &[Token], out: &mut String, inner: impl Fn(&mut String)) {
    for token in tokens {
        match token {
            Token::General | Token::Text => inner(out),
            other => literal(other, out),
        }
    }
}

fn literal(token: &Token, out: &mut String) {
    match token {
        Token::Literal(text) => out.push_str(text),
        Token::Percent => out.push('%'),
        Token::Slash => out.push('/'),
        Token::Point => out.push('.'),
        Token::Comma => out.push(','),
        Token::Numeral(digit) => out.push(char::from(*digit)),
        _ => {}
    }
}

/// What the digits of a section demand.
#[derive(Debug, Default)]
struct Places {
    /// Placeholders before the point and after it.
    whole: usize,
    fraction: usize,
    grouped: bool,
    /// Commas after the last digit; each divides by a thousand.
    thousands: i32,
    percents: i32,
}

impl Places {
    fn of(tokens: &[Token]) -> Self {
        let mut places = Self::default();
        let (mut behind, mut commas) = (false, 0);
        for token in tokens {
            match token {
                Token::Digit(_) if behind => places.fraction += 1,
                Token::Digit(_) => {
                    places.grouped |= commas > 0 && places.whole > 0;
                    commas = 0;
                    places.whole += 1;
                }
                Token::Point => behind = true,
                Token::Comma => commas += i32::from(behind || places.whole > 0),
                Token::Percent => places.percents += 1,
                _ => {}
            }
        }
        places.thousands = commas;
        places
    }

    /// Appends the digits among the literals of `tokens`; returns whether any digit but 0 was shown.
    fn show(&self, tokens: &[Token], decimal: &Decimal, out: &mut String) -> bool {
        let (whole, fraction) = (decimal.whole(), decimal.fraction());
        let (whole, fraction) = (whole.as_bytes(), fraction.as_bytes());
        let (mut placed, mut behind, mut fraction_at) = (0, false, 0);
        for token in tokens {
            match token {
                Token::Digit(kind) if !behind => {
                    // Leading digits without a placeholder of their own go to the first placeholder.
                    let from = if placed == 0 { self.whole.max(whole.len()) } else { self.whole - placed };
                    let to = self.whole - placed - 1;
                    for position in (to..from).rev() {
                        self.whole_digit(*kind, whole, position, out);
                    }
                    placed += 1;
                }
                Token::Digit(kind) => {
                    match (fraction.get(fraction_at), kind) {
                        (Some(digit), _) => out.push(char::from(*digit)),
                        (None, b'0') => out.push('0'),
                        (None, b'?') => out.push(' '),
                        (None, _) => {}
                    }
                    fraction_at += 1;
                }
                Token::Point if behind => out.push('.'),
                Token::Point => {
                    // A code that begins with its point has no place for them.
                    if self.whole == 0 {
                        out.push_str(std::str::from_utf8(whole).unwrap_or_default());
                    }
                    behind = true;
                    out.push('.');
                }
                Token::Comma => {}
                other => literal(other, out),
            }
        }
        !decimal.is_zero()
    }

    /// Appends the digit this many places left of the point.
    fn whole_digit(&self, kind: u8, whole: &[u8], position: usize, out: &mut String) {
        let digit = whole.len().checked_sub(position + 1).map(|at| char::from(whole[at]));
        let shown = match (digit, kind) {
            (Some(digit), _) => digit,
            (None, b'0') => '0',
            (None, b'?') => ' ',
            (None, _) => return,
        };
        out.push(shown);
        if self.grouped && position > 0 && position.is_multiple_of(3) && shown != ' ' {
            out.push(',');
        }
    }
}

/// `0.00E+00`; with more than one digit before the point, the exponent is a multiple of their number.
fn scientific(tokens: &[Token], at: usize, number: f64, out: &mut String) -> bool {
    let (mantissa, exponent) = (&tokens[..at], &tokens[at + 1..]);
    let places = Places::of(mantissa);
    let step = i32::try_from(places.whole.clamp(1, MAX_PLACES)).unwrap_or(1);
    let decimal = Decimal::new(number);
    let power_of = |decimal: &Decimal| decimal.magnitude().div_euclid(step) * step;
    let mut power = power_of(&decimal);
    let mut shifted = decimal.shifted(-power).rounded(places.fraction as i32);
    // Rounding may carry into a new digit.
    if shifted.magnitude() >= step {
        shifted = shifted.shifted(-step);
        power += step;
    }
    let shows = places.show(mantissa, &shifted, out);
    out.push('E');
    let plus = matches!(tokens[at], Token::Exponent { plus: true });
    if power < 0 {
        out.push('-');
    } else if plus {
        out.push('+');
    }
    let digits = exponent.iter().filter(|token| matches!(token, Token::Digit(_))).count().min(MAX_PLACES);
    out.push_str(&format!("{:0digits$}", power.abs()));
    for token in exponent {
        literal(token, out);
    }
    shows
}

/// `# ?/?`: a whole number, if the code has a place for it, and the nearest fraction with a denominator that fits.
struct Fraction<'a> {
    before: &'a [Token],
    has_whole: bool,
    denominator: Denominator,
    after: &'a [Token],
}

enum Denominator {
    Fixed(u64),
    UpTo(u64),
}

impl<'a> Fraction<'a> {
    fn of(tokens: &'a [Token], slash: usize) -> Option<Self> {
        let numerator = tokens[..slash].iter().rposition(|token| !matches!(token, Token::Digit(_)));
        let before = &tokens[..numerator.map_or(0, |last| last + 1)];
        if before.len() == slash {
            return None;
        }
        let below = &tokens[slash + 1..];
        let length = below.iter().take_while(|token| matches!(token, Token::Digit(_) | Token::Numeral(_))).count();
        let digits = &below[..length];
        let numeral = |token: &Token| match token {
            Token::Numeral(digit) | Token::Digit(digit @ b'0') => Some(u64::from(digit - b'0')),
            _ => None,
        };
        let denominator = if digits.iter().any(|token| matches!(token, Token::Numeral(_))) {
            let fixed = digits.iter().take(9).filter_map(numeral).fold(0u64, |number, digit| number * 10 + digit);
            Denominator::Fixed(fixed.max(1))
        } else if digits.is_empty() {
            return None;
        } else {
            Denominator::UpTo(10u64.pow(length.min(7) as u32) - 1)
        };
        let has_whole = before.iter().any(|token| matches!(token, Token::Digit(_)));
        Some(Self { before, has_whole, denominator, after: &below[length..] })
    }

    fn show(&self, number: f64, out: &mut String) -> bool {
        let number = number.abs();
        let (whole, rest) = if self.has_whole { (number.trunc(), number.fract()) } else { (0.0, number) };
        let (above, below) = match self.denominator {
            Denominator::Fixed(below) => ((rest * below as f64).round(), below as f64),
            Denominator::UpTo(most) => nearest(rest, most as f64),
        };
        // The nearest fraction may be a whole.
        let (whole, above) = if self.has_whole && above == below { (whole + 1.0, 0.0) } else { (whole, above) };
        let start = out.len();
        if self.has_whole && (whole > 0.0 || above == 0.0) {
            let decimal = Decimal::new(whole);
            Places::of(self.before).show(self.before, &decimal, out);
            if decimal.is_zero() && !out[start..].contains('0') {
                out.push('0');
            }
        } else {
            for token in self.before {
                literal(token, out);
            }
        }
        if above > 0.0 || !self.has_whole {
            out.push_str(&format!("{above}/{below}"));
        }
        for token in self.after {
            literal(token, out);
        }
        whole > 0.0 || above > 0.0
    }
}

/// The fraction nearest to `number` with a denominator of at most `most`, by continued fractions.
fn nearest(number: f64, most: f64) -> (f64, f64) {
    let (mut above, mut above_before) = (1.0f64, 0.0f64);
    let (mut below, mut below_before) = (0.0f64, 1.0f64);
    let mut rest = number;
    // Two steps at least double the denominator, and a double has 52 bits.
    for _ in 0..64 {
        let whole = rest.floor();
        let (next_above, next_below) = (whole * above + above_before, whole * below + below_before);
        if next_below > most {
            // This is the best of the fractions between this step and the one before.
            let room = ((most - below_before) / below).floor();
            let (semi_above, semi_below) = (room * above + above_before, room * below + below_before);
            let error = |above: f64, below: f64| (above / below - number).abs();
            if semi_below > 0.0 && error(semi_above, semi_below) < error(above, below) {
                return (semi_above, semi_below);
            }
            break;
        }
        (above_before, below_before) = (above, below);
        (above, below) = (next_above, next_below);
        let fraction = rest - whole;
        if fraction < 1e-12 || (above / below - number).abs() < 1e-15 {
            break;
        }
        rest = 1.0 / fraction;
    }
    (above, below)
}
