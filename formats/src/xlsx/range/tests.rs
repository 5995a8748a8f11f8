use super::*;
use proptest::prelude::*;

fn range(text: &str) -> Range {
    text.parse().unwrap()
}

#[test]
fn the_written_forms_read() {
    assert_eq!(range("A1").to_string(), "A1:A1");
    assert_eq!(range(" b2:a1 ").to_string(), "A1:B2");
    assert_eq!(range("$A$1:C$9"), range("A1:C9"));
    assert_eq!(range("A:C").to_string(), "A1:C1048576");
    assert_eq!(range("$3:7").to_string(), "A3:XFD7");
    assert_eq!(range("A1:XFD1048576").area(), 17_179_869_184);
    let named = |text: &str| {
        let reference: Reference = text.parse().unwrap();
        (reference.sheet.unwrap(), reference.range.to_string(), text.parse::<Reference>().unwrap().to_string())
    };
    assert_eq!(named("Sheet1!A1:B2"), ("Sheet1".into(), "A1:B2".into(), "Sheet1!A1:B2".into()));
    assert_eq!(named("Sales!A1"), ("Sales".into(), "A1:A1".into(), "Sales!A1:A1".into()));
    assert_eq!(named("'My Sheet'!A1").0, "My Sheet");
    assert_eq!(named("'It''s!'!A1"), ("It's!".into(), "A1:A1".into(), "'It''s!'!A1:A1".into()));
    let bracketed = named("'Plan [2024]'!A2:C2");
    assert_eq!(bracketed, ("Plan [2024]".into(), "A2:C2".into(), "'Plan [2024]'!A2:C2".into()));
    assert_eq!(named("[1]Sheet1!A1").0, "[1]Sheet1", "only the workbook knows whether a sheet has this name");
    assert_eq!(named("AB12!A1").2, "'AB12'!A1:A1", "else it reads as a cell");
}

#[test]
fn what_is_wrong_is_named() {
    let error = |text: &str| text.parse::<Reference>().unwrap_err().to_string();
    for (text, names) in [
        ("", "is empty"),
        ("Sheet1!", "is empty"),
        ("A", "`A` alone"),
        ("A1:C", "different kinds"),
        ("A1:3", "different kinds"),
        ("XFE1", "`XFE`"),
        ("AAAAAAAAAAAAAAAAAAAAAAA1", "XFD"),
        ("A0", "row 0"),
        ("A1048577", "row 1048577"),
        ("A99999999999999999999", "row 9999"),
        ("A1:B2:C3", "`B2:C3`"),
        ("A-1", "`A-1`"),
        ("A$", "`A$`"),
        ("$", "`$`"),
        ("'My Sheet!A1", "not closed"),
        ("'a'A1", "not closed"),
        ("!A1", "is empty"),
        ("Ä1", "`Ä1`"),
    ] {
        assert!(error(text).contains(names), "{text}: {}", error(text));
    }
}

fn cell() -> impl Strategy<Value = CellRef> {
    // Small ranges often overlap, large ones reach the edges.
    let row = prop_oneof![1..=12u32, 1..=MAX_ROW];
    let column = prop_oneof![1..=12u32, 1..=MAX_COLUMN];
    (row, column).prop_map(|(row, column)| CellRef::new(row, column).unwrap())
}

fn ranges() -> impl Strategy<Value = Range> {
    (cell(), cell()).prop_map(|(one, other)| Range::new(one, other))
}

proptest! {
    #[test]
    fn what_is_printed_reads_back(cell in cell(), range in ranges(), sheet in proptest::option::of("[^\u{0}]{1,31}")) {
        prop_assert_eq!(cell.to_string().parse(), Ok(cell));
        prop_assert_eq!(range.to_string().parse(), Ok(range));
        let reference = Reference { sheet, range };
        prop_assert_eq!(reference.to_string().parse(), Ok(reference.clone()));
        let json = serde_json::to_string(&reference).unwrap();
        prop_assert_eq!(serde_json::from_str::<Reference>(&json).unwrap(), reference);
    }

    #[test]
    fn no_text_panics(text in ".{0,40}", near in "[A-Za-z$:!'0-9 ]{0,12}") {
        for text in [text, near] {
            if let Ok(reference) = text.parse::<Reference>() {
                prop_assert_eq!(reference.to_string().parse(), Ok(reference));
            }
        }
    }

    #[test]
    fn an_intersection_is_what_both_hold(one in ranges(), other in ranges(), cell in cell()) {
        let both = one.intersect(other);
        prop_assert_eq!(both, other.intersect(one));
        prop_assert_eq!(both.is_some_and(|both| both.contains(cell)), one.contains(cell) && other.contains(cell));
        prop_assert_eq!(one.intersect(one), Some(one));
        let hull = one.hull(other);
        prop_assert_eq!(hull.intersect(one), Some(one));
        // This is inclusion and exclusion where the hull is exact: overlapping ranges of the same columns.
        if let Some(both) = both && one.first().column() == other.first().column() && one.width() == other.width() {
            prop_assert_eq!(hull.area() + both.area(), one.area() + other.area());
        }
    }

    #[test]
    fn a_range_holds_its_corners_and_its_area(range in ranges()) {
        prop_assert!(range.contains(range.first()) && range.contains(range.last()));
        prop_assert!(range.area() >= 1 && range.area() <= u64::from(MAX_ROW) * u64::from(MAX_COLUMN));
        prop_assert_eq!(range.area() == 1, range.first() == range.last());
    }
}
