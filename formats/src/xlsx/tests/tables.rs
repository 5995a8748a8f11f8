//! Tables that stand anywhere on a sheet, and what is beside them.

use super::*;
use proptest::prelude::*;

/// Rows of a sheet from A1, with a number wherever a text reads as one; an empty text leaves a cell blank.
fn sheet(rows: &[Vec<String>]) -> String {
    let mut out = String::new();
    for (row, cells) in (1..).zip(rows) {
        out += &format!("<row r=\"{row}\">");
        for (column, text) in (1..).zip(cells) {
            let at = CellRef::new(row, column).unwrap();
            match text.as_str() {
                "" => {}
                text if text.parse::<f64>().is_ok() => out += &format!("<c r=\"{at}\"><v>{text}</v></c>"),
                text => match text.strip_prefix('=') {
                    Some(formula) => out += &format!("<c r=\"{at}\"><f>{formula}</f><v>9</v></c>"),
                    None => out += &format!("<c r=\"{at}\" t=\"str\"><v>{text}</v></c>"),
                },
            }
        }
        out += "</row>";
    }
    out
}

fn grid(text: &str) -> Vec<Vec<String>> {
    text.lines().map(|line| line.split('|').map(|cell| cell.trim().to_owned()).collect()).collect()
}

struct Read {
    tables: Vec<String>,
    records: Vec<String>,
    loose: Vec<String>,
    head: RecordsHead,
}

fn read_with(text: &str, merged: &[&str]) -> Read {
    let merged: String = merged.iter().map(|range| format!("<mergeCell ref=\"{range}\"/>")).collect();
    let part = format!(
        "<worksheet><sheetData>{}</sheetData><mergeCells>{merged}</mergeCells></worksheet>",
        sheet(&grid(text))
    );
    let (head, records, loose) = Book::new(&part).rows(true);
    let tables = head.tables.iter().map(|table| {
        let names: Vec<&str> = table.columns.iter().map(|column| column.header.as_str()).collect();
        format!("{} {}", table.range, names.join("/"))
    });
    let record = |record: &Record| {
        let columns = &head.tables[record.table as usize].columns;
        let cells: Vec<String> = record
            .cells
            .iter()
            .map(|cell| format!("{}={}", columns[cell.column as usize].header, cell.shown()))
            .collect();
        format!("{}: {}", record.row, cells.join(" "))
    };
    let loose_row = |loose: &LooseRow| {
        let texts: Vec<&str> = loose.cells.iter().map(|cell| cell.text.as_str()).collect();
        format!("{}: {}", loose.row, texts.join(" "))
    };
    Read {
        tables: tables.collect(),
        records: records.iter().map(record).collect(),
        loose: loose.iter().map(loose_row).collect(),
        head,
    }
}

fn read(text: &str) -> Read {
    read_with(text, &[])
}

#[test]
fn a_title_above_a_table_hides_no_record() {
    let title = "Ducks of the pond\n";
    let table = "Year | Ducks | Place\n2023 | 14 | Mill\n2024 | 17 | Lock";
    for (gap, header) in [("", 2), ("\n", 3), ("\n\n", 4)] {
        let read = read(&format!("{title}{gap}{table}"));
        assert_eq!(read.tables, [format!("A{header}:C{} Year/Ducks/Place", header + 2)]);
        assert_eq!(read.head.tables[0].titles, ["Ducks of the pond"]);
        assert_eq!(
            read.records,
            [
                format!("{}: Year=2023 Ducks=14 Place=Mill", header + 1),
                format!("{}: Year=2024 Ducks=17 Place=Lock", header + 2)
            ]
        );
        assert_eq!(read.loose, ["1: Ducks of the pond".to_owned(), format!("{header}: Year Ducks Place")]);
    }
}

#[test]
fn tables_beside_and_below_each_other_are_apart() {
    let read = read(
        "Name | Ducks | | Name | Herons
         Mill | 14 | | Lock | 2
         Lock | 17 | | Mill | 3

         Month | Visitors
         May | 120
         June | 90",
    );
    assert_eq!(read.tables, ["A1:B3 Name/Ducks", "D1:E3 Name/Herons", "A5:B7 Month/Visitors"]);
    assert_eq!(
        read.records,
        [
            "2: Name=Mill Ducks=14",
            "2: Name=Lock Herons=2",
            "3: Name=Lock Ducks=17",
            "3: Name=Mill Herons=3",
            "6: Month=May Visitors=120",
            "7: Month=June Visitors=90"
        ]
    );
}

#[test]
fn totals_are_marked_and_notes_are_none_of_the_rows() {
    let read = read(
        "Counts
         Place | Adults | Young
         Mill | 14 | 3
         Lock | 17 | 5
         Total | =SUM(B3:B4) | =SUM(C3:C4)
         Source: the keeper's book",
    );
    assert_eq!(read.tables, ["A2:C5 Place/Adults/Young"]);
    assert_eq!(read.head.tables[0].totals_row, Some(5));
    assert_eq!(read.records.len(), 3);
    assert_eq!(read.loose, ["1: Counts", "2: Place Adults Young", "6: Source: the keeper's book"]);
    for (row, expected) in
        [("Gesamt: | 3 | 4", true), ("Totality | 3 | 4", false), ("| =SUM(A1) | =subtotal(9,A1)", true)]
    {
        let read = self::read(&format!("T\nPlace | Adults | Young\nMill | 14 | 3\n{row}"));
        assert_eq!(read.head.tables[0].totals_row.is_some(), expected, "{row}");
    }
}

#[test]
fn rows_behind_a_blank_one_keep_their_names() {
    let read = read("Counts\nPlace | Adults | Young\nMill | 14 | 3\n\nLock | 17 | 5\n\n\n\n\nFar | 1 | 2");
    assert_eq!(read.records, ["3: Place=Mill Adults=14 Young=3", "5: Place=Lock Adults=17 Young=5"]);
    assert_eq!(read.loose.last().unwrap(), "10: Far 1 2", "a block further away is its own");
}

#[test]
fn years_and_days_may_name_columns_and_a_corner_may_be_blank() {
    let read = read("Revenue\n | 2021 | 2022 | 2023\nNorth | 5 | 6 | 7\nSouth | 8 | 9 | 10");
    assert_eq!(read.tables, ["A2:D4 Column A/2021/2022/2023"]);
    assert_eq!(read.head.tables[0].renamed, ["A"]);
    assert_eq!(read.records[0], "3: Column A=North 2021=5 2022=6 2023=7");
    let numbers = self::read("Points\nNorth | 5 | 6 | 7\nSouth | 8 | 9 | 10");
    assert!(numbers.tables.is_empty(), "a row of values names nothing: {:?}", numbers.tables);
    assert_eq!(numbers.loose.len(), 3);
}

#[test]
fn names_over_several_columns_join_those_below() {
    let text = "Report\nRegion | 2023 | | 2024 |\n | Q1 | Q2 | Q1 | Q2\nNorth | 1 | 2 | 3 | 4";
    let joined = read_with(text, &["A1:E1", "B2:C2", "D2:E2", "A2:A3"]);
    assert_eq!(joined.tables, ["A2:E4 Region/2023 Q1/2023 Q2/2024 Q1/2024 Q2"]);
    assert_eq!(joined.head.tables[0].header_rows, [2, 3]);
    let apart = read(text);
    assert_eq!(apart.tables, ["A3:E4 Column A/Q1/Q2/Q1 (D)/Q2 (E)"]);
    assert_eq!(apart.loose[1], "2: Region 2023 2024", "what is in no record is not lost");
}

#[test]
fn what_has_no_sound_header_stays_a_grid() {
    for (text, reason) in [
        ("Title\nName | Bo\nAge | five", "row 2 looks like any other row"),
        ("Title | of\n7 | a\n8 | b\n9 | c", "row 2 has values, and no row above it names the columns"),
        ("only\none\ncolumn", "it is a single column"),
        ("a | a", "it is a single row"),
        ("x | y | x\nu | v | w\nr | s | t", "row 1 looks like any other row"),
    ] {
        let read = read(text);
        if read.head.header.is_header {
            continue;
        }
        assert!(read.records.is_empty(), "{text}: {:?}", read.records);
        assert_eq!(read.head.others[0].reason, reason, "{text}");
        assert_eq!(read.loose.len(), text.lines().count());
    }
}

#[test]
fn statements_with_blank_columns_between_are_one_table() {
    let read = read("Assets\nItem | | 2023 | | 2024\nCash | | 5 | | 6\nLand | | 7 | | 8\nShips | | 1 | | 2");
    assert_eq!(read.tables, ["A2:E5 Item/2023/2024"]);
    assert_eq!(read.records[2], "5: Item=Ships 2023=1 2024=2");
}

#[test]
fn a_sheet_whose_first_row_is_a_header_is_one_table_as_ever() {
    let text = "Name | Count\nMill | 1\n\nTotal | 1\nnote";
    let read = read(text);
    assert_eq!((read.tables, read.records.len(), read.loose.len()), (vec!["A1:B5 Name/Count".to_owned()], 3, 0));
    let (head, records) = Book::new(&sheet(&grid(&format!("Title\n{text}")))).records();
    assert!(head.tables.is_empty() && records.is_empty(), "tables are looked for only if they are asked for");
}

#[test]
fn scattered_cells_and_rows_out_of_order_stay_a_grid() {
    let mut rows = vec![vec![String::new(); 60]; 60];
    for (row, cells) in rows.iter_mut().enumerate().step_by(2) {
        cells.iter_mut().skip(row % 4).step_by(2).for_each(|cell| *cell = "x".to_owned());
    }
    let cells: usize = rows.iter().flatten().filter(|cell| !cell.is_empty()).count();
    let (head, records, loose) = Book::new(&sheet(&rows)).rows(true);
    assert!(head.unsearched.unwrap().contains("256 blocks") && records.is_empty());
    assert_eq!(loose.iter().map(|row| row.cells.len()).sum::<usize>(), cells);
    let twisted = "<row r=\"3\"><c r=\"A3\" t=\"str\"><v>a</v></c></row><row r=\"2\"><c r=\"A2\"><v>1</v></c></row>";
    let (head, _, loose) = Book::new(twisted).rows(true);
    assert_eq!((head.unsearched.as_deref(), loose.len()), (Some("row 2 comes after row 3"), 2));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever stands on a sheet, each value is in one record or beside them all, and no column has two names.
    #[test]
    fn every_value_is_read_once(
        rows in prop::collection::vec(prop::collection::vec(prop_oneof![
            4 => Just(String::new()), 3 => "[a-c]{1,2}", 3 => "[0-9]{1,3}", 1 => Just("Total".to_owned()), 1 => Just("2020".to_owned()),
        ], 0..9), 0..24),
        merged in prop::collection::vec((1u32..9, 1u32..9, 1u32..4), 0..3),
    ) {
        let merged: String = merged.iter().map(|(row, column, width)| {
            let cell = |column| CellRef::new(*row, column).unwrap();
            format!("<mergeCell ref=\"{}\"/>", Range::new(cell(*column), cell(column + width)))
        }).collect();
        let part = format!("<worksheet><sheetData>{}</sheetData><mergeCells>{merged}</mergeCells></worksheet>", sheet(&rows));
        let (head, records, loose) = Book::new(&part).rows(true);
        let by_rule = head.header.is_header;
        let mut seen = Vec::new();
        for record in &records {
            let table = &head.tables[record.table as usize];
            prop_assert!(record.row > *table.header_rows.last().unwrap() && record.row <= table.range.last().row());
            for cell in &record.cells {
                let letters = &table.columns[cell.column as usize].column;
                seen.push((record.row, letters.clone(), cell.shown().to_owned()));
            }
        }
        for row in &loose {
            seen.extend(row.cells.iter().map(|cell| (row.row, column_letters(cell.column), cell.text.clone())));
        }
        let mut filled = Vec::new();
        for (row, cells) in (1..).zip(&rows) {
            for (column, text) in (1..).zip(cells).filter(|(_, text)| !text.is_empty()) {
                let shown = text.parse::<f64>().map_or_else(|_| text.clone(), |number| number.to_string());
                if !by_rule || head.header.row != Some(row) {
                    filled.push((row, column_letters(column), shown));
                }
            }
        }
        seen.sort();
        filled.sort();
        prop_assert_eq!(seen, filled);
        for (at, table) in head.tables.iter().enumerate() {
            let names: std::collections::HashSet<_> = table.columns.iter().map(|column| &column.header).collect();
            prop_assert_eq!(names.len(), table.columns.len());
            for other in &head.tables[at + 1..] {
                prop_assert!(table.range.intersect(other.range).is_none(), "{} {}", table.range, other.range);
            }
        }
    }
}
