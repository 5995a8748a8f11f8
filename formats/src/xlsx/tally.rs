//! Counts what is in one column.

use super::{
    moment::Moment,
    sheet::{ColumnProfile, ColumnSketch, TypeCounts},
    sketch::Distinct,
    value::{Duration, Interpreter, Seen, Value},
    worksheet::RawCell,
};
use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
};

/// How many characters of a text a profile repeats.
const SHOWN_CHARACTERS: usize = 100;

/// Counts of one column.
#[derive(Default)]
pub(super) struct Tally {
    filled: u64,
    formulas: u64,
    types: TypeCounts,
    /// Cells by format index. The present format is counted outside the map, because a column seldom changes it.
    formats: HashMap<u32, u64>,
    current: (u32, u64),
    sketch: Option<Sketch>,
}

#[derive(Default)]
struct Sketch {
    distinct: Distinct,
    numbers: Extent<f64>,
    dates: Extent<Moment>,
    durations: Extent<i64>,
    texts: Extent<String>,
    booleans: Extent<bool>,
    examples: Vec<String>,
}

/// The least and the greatest value.
struct Extent<T>(Option<(T, T)>);

impl<T> Default for Extent<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: PartialOrd> Extent<T> {
    fn add<B: ?Sized + PartialOrd + ToOwned<Owned = T>>(&mut self, value: &B)
    where
        T: std::borrow::Borrow<B>,
    {
        match &mut self.0 {
            None => self.0 = Some((value.to_owned(), value.to_owned())),
            Some((least, greatest)) => {
                if value < (*least).borrow() {
                    *least = value.to_owned();
                } else if value > (*greatest).borrow() {
                    *greatest = value.to_owned();
                }
            }
        }
    }

    fn values(self, of: impl Fn(T) -> Value) -> (Option<Value>, Option<Value>) {
        match self.0 {
            Some((least, greatest)) => (Some(of(least)), Some(of(greatest))),
            None => (None, None),
        }
    }
}

impl Tally {
    pub(super) fn new(sketch: bool) -> Self {
        Self { sketch: sketch.then(Sketch::default), ..Self::default() }
    }

    /// Counts a filled cell.
    pub(super) fn add(&mut self, raw: &RawCell, interpreter: &Interpreter) {
        self.filled += 1;
        self.formulas += u64::from(raw.formula.is_some());
        let format = interpreter.format_of(raw);
        if self.current.0 != format {
            let (before, cells) = std::mem::replace(&mut self.current, (format, 0));
            *self.formats.entry(before).or_default() += cells;
        }
        self.current.1 += 1;
        let Some(value) = interpreter.value(raw) else { return };
        let count = match value {
            Seen::Text(_) => &mut self.types.text,
            Seen::Number(_) => &mut self.types.number,
            Seen::Boolean(_) => &mut self.types.boolean,
            Seen::Date(_) => &mut self.types.date,
            Seen::Duration(_) => &mut self.types.duration,
            Seen::Error(_) => &mut self.types.error,
        };
        *count += 1;
        if let Some(sketch) = &mut self.sketch {
            sketch.add(&value, || interpreter.shown(raw, &value).into_owned());
        }
    }

    /// The column's profile, given the number of rows.
    pub(super) fn profile(
        mut self,
        column: String,
        header: Option<String>,
        rows: u64,
        interpreter: &Interpreter,
    ) -> ColumnProfile {
        *self.formats.entry(self.current.0).or_default() += self.current.1;
        // Ids of different styles may share a code.
        let mut codes: HashMap<&str, u64> = HashMap::new();
        for (&format, &cells) in &self.formats {
            *codes.entry(&interpreter.styles.format(format).code).or_default() += cells;
        }
        let mut number_formats: Vec<(String, u64)> =
            codes.into_iter().filter(|(_, cells)| *cells > 0).map(|(code, cells)| (code.to_owned(), cells)).collect();
        number_formats.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
        number_formats.truncate(ColumnProfile::MAX_FORMATS);
        let types = self.types;
        ColumnProfile {
            column,
            header,
            filled: self.filled,
            fill_ratio: if rows == 0 { 0.0 } else { self.filled as f64 / rows as f64 },
            formulas: self.formulas,
            types,
            number_formats,
            sketch: self.sketch.map(|sketch| sketch.finish(types)),
        }
    }
}

impl Sketch {
    fn add(&mut self, value: &Seen<'_>, shown: impl Fn() -> String) {
        let mut hasher = DefaultHasher::new();
        std::mem::discriminant(value).hash(&mut hasher);
        match value {
            Seen::Text(text) => {
                text.hash(&mut hasher);
                self.texts.add(*text);
            }
            Seen::Number(number) => {
                // Zero has two representations.
                (number + 0.0).to_bits().hash(&mut hasher);
                self.numbers.add(number);
            }
            Seen::Boolean(truth) => {
                truth.hash(&mut hasher);
                self.booleans.add(truth);
            }
            Seen::Date(moment) => {
                moment.hash(&mut hasher);
                self.dates.add(moment);
            }
            Seen::Duration(span) => {
                span.hash(&mut hasher);
                self.durations.add(span);
            }
            Seen::Error(code) => code.hash(&mut hasher),
        }
        self.distinct.add(hasher.finish());
        if self.examples.len() < ColumnSketch::MAX_EXAMPLES {
            let example = cut(&shown());
            if !example.is_empty() && !self.examples.contains(&example) {
                self.examples.push(example);
            }
        }
    }

    fn finish(self, types: TypeCounts) -> ColumnSketch {
        let (distinct, distinct_exact) = self.distinct.count();
        let most = [types.number, types.date, types.duration, types.text, types.boolean]
            .into_iter()
            .enumerate()
            // Of equal counts the first wins.
            .max_by_key(|&(at, count)| (count, std::cmp::Reverse(at)))
            .map_or(0, |(at, _)| at);
        let (min, max) = match most {
            0 => self.numbers.values(Value::Number),
            1 => self.dates.values(|moment| Value::Date(moment.to_string())),
            2 => self.durations.values(|milliseconds| Value::Duration(Duration { milliseconds })),
            3 => self.texts.values(|text| Value::Text(cut(&text))),
            _ => self.booleans.values(Value::Boolean),
        };
        ColumnSketch { min, max, distinct, distinct_exact, examples: self.examples }
    }
}

fn cut(text: &str) -> String {
    text.chars().take(SHOWN_CHARACTERS).collect()
}
