//! Puts right-to-left text, which is on the page in its visual order, into its logical order.

use unicode_normalization::char::is_combining_mark;

/// The number of right-to-left letters minus the number of left-to-right letters.
pub(in crate::pdf) fn balance(text: &str) -> i64 {
    text.chars()
        .map(|character| match class(character) {
            Class::Left => 1,
            Class::Right => -1,
            Class::Number | Class::Neutral => 0,
        })
        .sum()
}

/// The characters of a line as they are drawn, from left to right.
pub(in crate::pdf) fn as_drawn(line: &str) -> Vec<char> {
    let characters: Vec<char> = line.chars().collect();
    if characters.iter().all(|character| class(*character) != Class::Left) {
        return characters;
    }
    let mut buffers: Vec<[u8; 4]> = vec![[0; 4]; characters.len()];
    let units: Vec<&str> =
        characters.iter().zip(&mut buffers).map(|(character, buffer)| &*character.encode_utf8(buffer)).collect();
    // What puts drawn text into its logical order puts it back, too.
    let order = logical_order(&units).into_iter();
    order.map(|(index, left)| if left { mirrored(characters[index]) } else { characters[index] }).collect()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    /// A right-to-left letter.
    Left,
    Right,
    Number,
    Neutral,
}

fn class(character: char) -> Class {
    match character {
        '\u{0660}'..='\u{0669}' | '\u{06F0}'..='\u{06F9}' => Class::Number,
        '\u{0590}'..='\u{08FF}' | '\u{FB1D}'..='\u{FDFF}' | '\u{FE70}'..='\u{FEFC}' | '\u{10800}'..='\u{10FFF}' => {
            // Their punctuation stays as it is.
            if character.is_alphanumeric() { Class::Left } else { Class::Neutral }
        }
        character if character.is_numeric() => Class::Number,
        character if character.is_alphabetic() => Class::Right,
        _ => Class::Neutral,
    }
}

/// The order in which the glyphs of a row, given from left to right, are read: their indices, and whether each is in
/// right-to-left text.
pub(super) fn logical_order(units: &[&str]) -> Vec<(usize, bool)> {
    ordered(units, units.iter().map(|unit| balance(unit)).sum::<i64>() > 0)
}

/// The order in which units of a line that is read to the left, given as they are read, stand from left to right.
pub(in crate::pdf) fn drawn_order(units: &[&str]) -> Vec<(usize, bool)> {
    ordered(units, true)
}

fn ordered(units: &[&str], base_left: bool) -> Vec<(usize, bool)> {
    let classes: Vec<Class> = units
        .iter()
        .map(|unit| unit.chars().map(class).find(|class| *class != Class::Neutral).unwrap_or(Class::Neutral))
        .collect();
    let runs_left = resolve(&classes, units, base_left);
    let mut order = Vec::with_capacity(units.len());
    let mut runs = Vec::new();
    let mut start = 0;
    while start < units.len() {
        let length = runs_left[start..].iter().take_while(|left| **left == runs_left[start]).count();
        runs.push(start..start + length);
        start += length;
    }
    if base_left {
        runs.reverse();
    }
    for run in runs {
        if runs_left[run.start] {
            // A mark belongs to the letter before it, wherever it was drawn.
            let mut marks = Vec::new();
            for index in run.rev() {
                if units[index].chars().all(is_combining_mark) {
                    marks.push((index, true));
                } else {
                    order.push((index, true));
                    order.append(&mut marks);
                }
            }
            order.append(&mut marks);
        } else {
            order.extend(run.map(|index| (index, false)));
        }
    }
    order
}

/// Which units are part of a right-to-left run.
fn resolve(classes: &[Class], units: &[&str], base_left: bool) -> Vec<bool> {
    let count = classes.len();
    let strong = |class: Class| match class {
        Class::Left => Some(true),
        Class::Right => Some(false),
        Class::Number | Class::Neutral => None,
    };
    // The nearest letter before each unit, and after it.
    let mut before = vec![None; count];
    let mut after = vec![None; count];
    let mut near = None;
    for index in 0..count {
        near = strong(classes[index]).or(near);
        before[index] = near;
    }
    near = None;
    for index in (0..count).rev() {
        near = strong(classes[index]).or(near);
        after[index] = near;
    }
    (0..count)
        .map(|index| match classes[index] {
            Class::Left => true,
            // Digits run left to right everywhere.
            Class::Right | Class::Number => false,
            Class::Neutral if joins_number(classes, units, index) => false,
            Class::Neutral => match (before[index], after[index]) {
                (Some(before), Some(after)) if before == after => before,
                (Some(one), None) | (None, Some(one)) if one == base_left => one,
                _ => base_left,
            },
        })
        .collect()
}

/// Whether it is a mark between two digits, as in `3.14` and `12/05`, or a sign directly beside one.
fn joins_number(classes: &[Class], units: &[&str], index: usize) -> bool {
    let is_number = |index: Option<usize>| index.and_then(|index| classes.get(index)) == Some(&Class::Number);
    let (before, after) = (is_number(index.checked_sub(1)), is_number(Some(index + 1)));
    match units[index] {
        "." | "," | ":" | "/" | "-" => before && after,
        "%" | "$" | "€" | "£" | "+" | "−" | "°" => before || after,
        _ => false,
    }
}

/// The character that right-to-left text means by the drawn one.
pub(in crate::pdf) fn mirrored(character: char) -> char {
    match character {
        '(' => ')',
        ')' => '(',
        '[' => ']',
        ']' => '[',
        '{' => '}',
        '}' => '{',
        '<' => '>',
        '>' => '<',
        '«' => '»',
        '»' => '«',
        '‹' => '›',
        '›' => '‹',
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn logical(visual: &str) -> String {
        let characters: Vec<String> = visual.chars().map(String::from).collect();
        let units: Vec<&str> = characters.iter().map(String::as_str).collect();
        let read = logical_order(&units).into_iter().map(|(index, left)| {
            let character = visual.chars().nth(index).unwrap();
            if left { mirrored(character) } else { character }
        });
        read.collect()
    }

    fn reversed(text: &str) -> String {
        text.chars().rev().collect()
    }

    #[test]
    fn words_turn_and_numbers_stay() {
        assert_eq!(logical(&reversed("שלום עולם")), "שלום עולם");
        // This is "בשנת 1948 קמה" as it is seen: the number keeps its digits.
        assert_eq!(logical("המק 1948 תנשב"), "בשנת 1948 קמה");
        assert_eq!(logical("3.14 אוה יפ"), "פי הוא 3.14");
        assert_eq!(logical("םלוע Latin םולש"), "שלום Latin עולם");
        assert_eq!(logical("(אב) ג"), "ג (בא)", "brackets are drawn as they open");
        assert_eq!(logical("see םולש there"), "see שלום there");
        assert_eq!(logical("plain text (here)"), "plain text (here)");
    }

    proptest! {
        #[test]
        fn every_unit_is_read_once(text in "[a-z אבגדה0-9().,%-]{0,40}") {
            let characters: Vec<String> = text.chars().map(String::from).collect();
            let units: Vec<&str> = characters.iter().map(String::as_str).collect();
            let mut read: Vec<usize> = logical_order(&units).into_iter().map(|(index, _)| index).collect();
            read.sort_unstable();
            prop_assert_eq!(read, (0..units.len()).collect::<Vec<_>>());
        }

        #[test]
        fn letters_of_one_direction_turn_whole(text in "[אבגדה]{1,20}") {
            prop_assert_eq!(logical(&text), reversed(&text));
        }
    }
}
