//! Tables that are recognised, and what their rows are read as.

use super::*;
use crate::{
    detect_named,
    xlsx::{self, Record, RecordsHead, RecordsPart, Source, Value},
};
use std::io::Cursor;

fn named(name: &str, bytes: &[u8]) -> Option<Format> {
    detect_named(&mut Cursor::new(bytes), Some(name)).unwrap().format
}

fn try_read(bytes: &[u8], limits: &Limits) -> Result<(RecordsHead, Vec<Record>), FormatError> {
    let (mut head, mut records) = (None, Vec::new());
    xlsx::records(Source::from(Cursor::new(bytes)), 0, false, limits, &mut |part| {
        match part {
            RecordsPart::Head(found) => head = Some(found),
            RecordsPart::Batch(batch) => records.extend(batch),
            RecordsPart::Loose(_) | RecordsPart::End { .. } => {}
        }
        Ok(())
    })?;
    Ok((head.expect("a head comes first"), records))
}

/// The names of the columns, and the values of each record as they are shown.
fn read(bytes: impl AsRef<[u8]>) -> (Vec<String>, Vec<Vec<String>>) {
    let (head, records) = try_read(bytes.as_ref(), &Limits::default()).unwrap();
    let shown = |record: Record| record.cells.iter().map(|cell| cell.shown().to_owned()).collect();
    (
        head.tables.into_iter().flat_map(|table| table.columns).map(|column| column.header).collect(),
        records.into_iter().map(shown).collect(),
    )
}

#[test]
fn a_table_has_the_name_and_the_rows_of_one() {
    for table in [
        "name,count\nduck,72\nheron,2\n",
        "name;count;place\nduck;72;\"the mill; or\nthe pond\"\n",
        "name|count|place\nduck|72|mill",
        "name,count,\nduck,72,\nheron,2,\n",
        "1,2,3\n4,5,6\n",
        "sep=;\nname;count\nduck;72\n",
        "Ducks of the mill\nname,count\nduck,1\nheron,2\ngoose,3\nswan,4\nteal,5\n",
        "39, State-gov, 77516\n50, Self-emp, 83311\n38, Private, 215646\n53, Private, 2347\n28, Private, 3384\n",
        "duck\nheron\ngreat crested grebe\n",
        "\u{FEFF}name,count\r\nduck,72\r\n",
    ] {
        for (name, format) in [
            ("ducks.csv", Format::Csv),
            ("DUCKS.CSV", Format::Csv),
            ("ducks.tab", Format::Tsv),
            ("export.xls", Format::Tsv),
        ] {
            assert_eq!(named(name, table.as_bytes()), Some(format), "{name}: {table}");
        }
        for other in ["ducks.txt", "ducks", "csv", ""] {
            assert_eq!(named(other, table.as_bytes()), Some(Format::Text), "{other}: {table}");
        }
    }
    assert_eq!(named("ducks.tsv", b"name\tcount\nduck\t72"), Some(Format::Tsv));
    for prose in [
        "",
        "\n\n",
        "One line, with a comma.",
        "One line without",
        "Dear Ann, dear Ben,\nthe ducks are back, all of them,\nand the heron, too.\n",
        "The ducks are back.\n\nAll of them are.\n\nAnd the heron is, too.\n",
        "{\"name\": \"duck\", \"count\": 72}\n{\"name\": \"heron\", \"count\": 2}\n",
        "<html><body>a,b\n1,2</body></html>",
        "fn main() {\n    let ducks = 72;\n    println!(\"{ducks}\");\n}\n",
    ] {
        assert!(
            matches!(named("prose.csv", prose.as_bytes()), Some(Format::Text | Format::Html | Format::Json)),
            "{prose}"
        );
    }
    assert_eq!(named("archive.csv", b"PK\x05\x06\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"), Some(Format::Zip));
    assert_eq!(named("noise.csv", &[0; 100]), None);
}

#[test]
fn each_delimiter_is_found() {
    for (delimiter, value) in [(',', "1.5"), (';', "1,5"), ('\t', "a, b; c"), ('|', "a, b")] {
        let table = format!("name{delimiter}count\nduck{delimiter}{value}\nheron{delimiter}{value}\n");
        let (columns, rows) = read(&table);
        assert_eq!(columns, ["name", "count"], "{table}");
        assert_eq!(rows, [["duck", value], ["heron", value]], "{table}");
    }
    assert_eq!(read("sep=;\na,b;c\n1,2;3\n").1, [["1,2", "3"]]);
}

#[test]
fn rows_of_other_lengths_lose_nothing() {
    let (columns, rows) =
        read("name,count,note\nduck,72\nheron,2,tall, grey,\nteal,,,,\nswan,1,white\ngoose,3,x\ncrow,1,y\nrook,1,z\n");
    assert_eq!(columns, ["name", "count", "note"]);
    let expected: [&[&str]; 7] = [
        &["duck", "72"],
        &["heron", "2", "tall, grey"],
        &["teal"],
        &["swan", "1", "white"],
        &["goose", "3", "x"],
        &["crow", "1", "y"],
        &["rook", "1", "z"],
    ];
    assert_eq!(rows, expected);
}

#[test]
fn rows_may_leave_out_what_is_empty_at_their_end() {
    let table =
        "version,name,created,release,end\n1,buzz,1993,1996,1997\n2,rex,1996,1996\n3,bo,1996\n,sid,1993\n4,forky\n";
    let (columns, rows) = read(table);
    assert_eq!(columns, ["version", "name", "created", "release", "end"]);
    assert_eq!(
        (&rows[1][..], &rows[3][..]),
        (&["2", "rex", "1996", "1996"].map(str::to_owned)[..], &["sid", "1993"].map(str::to_owned)[..])
    );
}

#[test]
fn quotes_hold_delimiters_quotes_and_lines() {
    let (_, rows) = read("name,note\r\nduck,\"a, \"\"b\"\"\r\nand c\"\r\nheron,12\" tall\r\n\r\nteal,\"open,\nend");
    assert_eq!(rows, [["duck", "a, \"b\"\nand c"], ["heron", "12\" tall"], ["teal", "open,\nend"]]);
}

#[test]
fn a_quote_that_is_a_letter_takes_no_rows_into_its_value() {
    let table = "id\tname\tsize\n1\tPipe\t3\n2\t\"Best\" pipe\t4\n3\t\"open quote\t5\n4\tNext\t6\n5\tMore\t7\n";
    assert_eq!(named("pipes.tsv", table.as_bytes()), Some(Format::Tsv));
    let (columns, rows) = read(table);
    assert_eq!((columns.len(), rows.len()), (3, 5), "{rows:?}");
    assert_eq!((&*rows[1][1], &*rows[2][1], &*rows[4][1]), ("\"Best\" pipe", "\"open quote", "More"));
    // Behind the head, to the next such quote, near or far, to the end, and over more lines than are looked at.
    let plain = |count: usize| "7\tPipe\t3\r\n".repeat(count);
    let head = format!("id\tname\tsize\r\n{}", plain(7_000));
    let stray = "8\t\"open quote\t5\r\n";
    for tail in [
        format!("{stray}{}{stray}9\tlast\t6\r\n", plain(3)),
        format!("{stray}{}9\tlast\t6", plain(2)),
        format!("{stray}{}9\tlast\t6\r\n", plain(500)),
        format!("{stray}{stray}9\tlast\t6\r\n"),
        format!("{stray}{}{stray}9\tlast\t6\r\n", plain(1)),
        format!("{stray}8\t5\t\"open quote\r\n9\tlast\t6\r\n"),
        format!("{stray}9\tlast\t6\r\n"),
    ] {
        let table = format!("{head}{tail}");
        let (_, rows) = read(&table);
        assert_eq!(rows.len(), table.lines().count() - 1, "{tail:.100}");
        assert_eq!((&*rows[7_000][1], &*rows[rows.len() - 1][1]), ("\"open quote", "last"));
    }
}

#[test]
fn values_of_many_lines_stay_whole_wherever_they_stand() {
    let row = |value: &str| format!("7\t\"{value}\"\t3\n");
    for text in [
        "two\nlines".to_owned(),
        "name\tcount\nheron\t7".to_owned(),
        "if (a)\n\t\treturn;\n\t".repeat(100),
        "a line of a text\n".repeat(300),
    ] {
        let table = format!("id\tname\tsize\n{}{}{}", row(&text), row("heron").repeat(7_000), row(&text));
        let (_, rows) = read(&table);
        assert_eq!(rows.len(), 7_002);
        assert_eq!((rows[0][1].trim(), rows[7_001][1].trim()), (text.trim(), text.trim()));
        assert_eq!(rows[7_001][2], "3");
    }
}

#[test]
fn encodings_are_those_of_other_texts() {
    let table = "name;place\nżółw;Łódź\nczapla;Gdańsk\n";
    let utf_16 = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
    let (latin, _, _) = encoding_rs::WINDOWS_1250.encode(table);
    let marked = format!("\u{FEFF}{table}");
    for bytes in [table.as_bytes().to_vec(), marked.clone().into_bytes(), utf_16(&marked), latin.into_owned()] {
        assert_eq!(named("a.csv", &bytes), Some(Format::Csv));
        let (columns, rows) = read(&bytes);
        assert_eq!((columns, rows), (vec!["name".into(), "place".into()], read(table).1), "{bytes:?}");
    }
    assert_eq!(read(table).1[0], ["żółw", "Łódź"]);
}

#[test]
fn values_have_types_and_are_shown_as_they_are_written() {
    let table = "id,day,amount,done,name\n007,2026-03-04,1.50,true,duck\n";
    let (_, records) = try_read(table.as_bytes(), &Limits::default()).unwrap();
    let cells = &records[0].cells;
    let shown: Vec<_> = cells.iter().map(|cell| cell.shown()).collect();
    assert_eq!(shown, ["007", "2026-03-04", "1.50", "true", "duck"]);
    let values: Vec<_> = cells.iter().filter_map(|cell| cell.value.clone()).collect();
    let text = |text: &str| Value::Text(text.to_owned());
    let day = Value::Date("2026-03-04T00:00:00".to_owned());
    assert_eq!(values, [text("007"), day, Value::Number(1.5), Value::Boolean(true), text("duck")]);
}

#[test]
fn one_column_is_a_table_and_one_without_names_says_why_it_has_no_records() {
    assert_eq!(read("name\nduck\nheron, grey\nteal\nswan\ngoose\n").1[1], ["heron, grey"]);
    let (head, records) = try_read(b"1,duck\n2,heron\n", &Limits::default()).unwrap();
    assert!(records.is_empty() && !head.header.is_header);
    assert_eq!(head.header.reason, "column A has a value of type number, not text");
    assert_eq!(head.used_range.unwrap().to_string(), "A1:B2");
}

#[test]
fn a_profile_and_cells_are_those_of_a_sheet() {
    let table = b"name,count\nduck,72\nheron,2\nteal,x\n";
    let workbook = xlsx::workbook(Cursor::new(table), &Limits::default()).unwrap();
    assert_eq!(workbook.sheets.len(), 1);
    let profile = xlsx::profile_sheet(Source::from(Cursor::new(table)), 0, true, &Limits::default()).unwrap();
    let counts: Vec<_> = profile.columns.iter().map(|column| (column.types.text, column.types.number)).collect();
    assert_eq!((profile.nonempty_cells, counts), (8, vec![(3, 0), (1, 2)]));
    let range = "B2:B3".parse().unwrap();
    let cells = xlsx::cells(Source::from(Cursor::new(table)), 0, range, &Limits::default()).unwrap();
    let shown: Vec<_> = cells.rows.iter().flat_map(|row| &row.cells).map(|cell| cell.text.as_str()).collect();
    assert_eq!((shown, cells.merged), (vec!["72", "2"], Some(Vec::new())));
    let all = xlsx::cells(Source::from(Cursor::new(table)), 0, "A1:Z99".parse().unwrap(), &Limits::default()).unwrap();
    assert_eq!(all.rows.len(), 4);
}

#[test]
fn limits_hold() {
    let limits = Limits { cells: 5, text_bytes: 2000, ..Limits::default() };
    let refused = |table: &str| try_read(table.as_bytes(), &limits).unwrap_err().limit();
    assert_eq!(refused("a,b\n1,2\n3,4\n"), Some(Limit::Cells));
    assert_eq!(refused(&format!("a,b\n1,\"{}", "x\n".repeat(5000))), Some(Limit::TextBytes));
    assert_eq!(refused(&format!("a,b\n1,{}", "x,".repeat(5000))), Some(Limit::TextBytes));
    let small = Limits { input_bytes: 3, ..Limits::default() };
    assert_eq!(try_read(b"a,b\n", &small).unwrap_err().limit(), Some(Limit::InputBytes));
    let long = "a,b\n".to_owned() + &"1,\n".repeat(1_048_576);
    let error = try_read(long.as_bytes(), &Limits::default()).unwrap_err();
    assert!(error.is_permanent() && error.to_string().contains("split the file"), "{error}");
    let wide = vec!["x"; 20_000].join(",");
    let (head, _) = try_read(format!("{wide}\n{wide}\n").as_bytes(), &Limits::default()).unwrap();
    assert_eq!(head.used_range.unwrap().to_string(), "A1:XFD2");
}
