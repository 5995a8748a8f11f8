use super::*;

fn shown_in(code: &str, number: f64, epoch: DateEpoch) -> String {
    let format = NumberFormat::new(code);
    let mut out = String::new();
    format.show(format.read(number, epoch), number, epoch, &mut out);
    out
}

fn shown(code: &str, number: f64) -> String {
    shown_in(code, number, DateEpoch::From1900)
}

fn all(cases: &[(&str, f64, &str)]) {
    for (code, number, text) in cases {
        assert_eq!(shown(code, *number), *text, "{number} as {code}");
    }
}

/// 1 January 2021, 15:10:10.
const MOMENT: f64 = 44_197.632_060_185_185;

#[test]
fn numbers_show_as_in_a_cell() {
    all(&[
        ("General", 1234.5, "1234.5"),
        ("0", 2.5, "3"),
        ("0", -0.4, "0"),
        ("0.00", 2.675, "2.68"),
        ("0.00", -1.0, "-1.00"),
        ("#,##0", 1_234_567.0, "1,234,567"),
        ("#,##0.00", 999.995, "1,000.00"),
        ("#,##0", 0.0, "0"),
        ("#", 0.0, ""),
        ("0.0#", 1.5, "1.5"),
        ("0.0#", 1.256, "1.26"),
        ("000.0", 7.25, "007.3"),
        ("0,000", 5.0, "0,005"),
        ("#,##0,,\"M\"", 12_345_678.0, "12M"),
        ("0.0,", 1234.0, "1.2"),
        ("0%", 0.256, "26%"),
        ("0.00%", -0.5, "-50.00%"),
        ("0.00E+00", 12345.678, "1.23E+04"),
        ("0.00E+00", 0.00012, "1.20E-04"),
        ("0.0E+00", 9.99e9, "1.0E+10"),
        ("##0.0E+0", 12345.0, "12.3E+3"),
        ("0E-0", 1200.0, "1E3"),
        ("000-00-0000", 123456789.0, "123-45-6789"),
        ("\"No. \"0", 5.0, "No. 5"),
        ("0\\ \"kg\"", 5.0, "5 kg"),
        ("$#,##0.00", 1234.5, "$1,234.50"),
        ("[$€-407] #,##0.00", 1234.5, "€ 1,234.50"),
        ("#,##0 [$kr-41D]", 5.0, "5 kr"),
        ("[$-409]0.0", 5.0, "5.0"),
        ("#,##0_);(#,##0)", -5.0, "(5)"),
        ("#,##0_);(#,##0)", 5.0, "5"),
        ("_(\"$\"* #,##0.00_);_(\"$\"* \\(#,##0.00\\);_(\"$\"* \"-\"??_);_(@_)", -1234.5, "$(1,234.50)"),
        ("_(\"$\"* #,##0.00_);_(\"$\"* \\(#,##0.00\\);_(\"$\"* \"-\"??_);_(@_)", 0.0, "$-"),
        ("0;[Red]-0;\"zero\"", 0.0, "zero"),
        ("0;[Red]-0;\"zero\"", -3.0, "-3"),
        (";;;", 5.0, ""),
        ("@", 5.5, "5.5"),
        ("0.00;;", -5.0, ""),
        ("", 7.0, "7"),
        ("0.00", 1e300, &format!("1{}.00", "0".repeat(300))),
    ]);
}

#[test]
fn conditions_choose_a_section() {
    let grades = "[>=90]\"A\";[>=50]\"B\";\"C\"";
    all(&[
        (grades, 95.0, "A"),
        (grades, 50.0, "B"),
        (grades, 5.0, "C"),
        ("[<1000]0;[<1000000]0.0,\"k\";0.0,,\"M\"", 999.0, "999"),
        ("[<1000]0;[<1000000]0.0,\"k\";0.0,,\"M\"", 2500.0, "2.5k"),
        ("[<1000]0;[<1000000]0.0,\"k\";0.0,,\"M\"", 2_500_000.0, "2.5M"),
        ("[Red][<0](0);0", -7.0, "(7)"),
        ("[>100]0;0", -7.0, "-7"),
        ("[=1]\"yes\";[=0]\"no\"", 1.0, "yes"),
    ]);
}

#[test]
fn fractions_are_the_nearest_that_fit() {
    all(&[
        ("# ?/?", 2.5, "2 1/2"),
        ("# ?/?", 0.25, "1/4"),
        ("# ?/?", 3.0, "3"),
        ("# ?/?", 0.0, "0"),
        ("# ??/??", std::f64::consts::PI, "3 14/99"),
        ("# ???/???", std::f64::consts::PI, "3 16/113"),
        ("# ?/8", 1.4, "1 3/8"),
        ("?/?", 2.5, "5/2"),
        ("# ?/?", 0.99, "1"),
        ("# ?/?", -1.5, "-1 1/2"),
    ]);
}

#[test]
fn dates_and_times_show_as_in_a_cell() {
    all(&[
        ("yyyy\\-mm\\-dd", MOMENT, "2021-01-01"),
        ("m/d/yy h:mm", MOMENT, "1/1/21 15:10"),
        ("d-mmm-yy", MOMENT, "1-Jan-21"),
        ("dddd, mmmm dd, yyyy", MOMENT, "Friday, January 01, 2021"),
        ("ddd mmmmm", MOMENT, "Fri J"),
        ("h:mm AM/PM", MOMENT, "3:10 PM"),
        ("h:mm A/P", 0.25, "6:00 A"),
        ("hh:mm AM/PM", 0.0, "12:00 AM"),
        ("[$-409]h:mm:ss AM/PM;@", MOMENT, "3:10:10 PM"),
        ("mm:ss.0", MOMENT, "10:10.0"),
        ("h\"h\"mm", MOMENT, "15h10"),
        ("mmss", MOMENT, "1010"),
        ("yyyy\"年\"m\"月\"d\"日\"", MOMENT, "2021年1月1日"),
        ("[$-804]aaaa;@", MOMENT, "Friday"),
        ("[$-804]aaa;@", MOMENT, "Fri"),
        ("m/d(aaa)", MOMENT, "1/1(Fri)"),
        ("[$-411]gee.mm.dd", MOMENT, "2021.01.01"),
        ("[$-411]ggge年m月d日", MOMENT, "2021年1月1日"),
        ("h:mm a/p", MOMENT, "3:10 p"),
        ("[$-F800]dddd\\,\\ mmmm\\ dd\\,\\ yyyy", MOMENT, "Friday, January 01, 2021"),
        ("yyyy-mm-dd hh:mm:ss", 60.0, "1900-02-28 00:00:00"),
        ("m/d/yyyy", 0.5, "1/0/1900"),
        ("yyyy", -1.0, "-1"),
        ("h:mm:ss", 0.999_999, "0:00:00"),
        ("h:mm", 0.999_99, "23:59"),
    ]);
    assert_eq!(shown_in("yyyy-mm-dd", 42_735.0, DateEpoch::From1904), "2021-01-01");
}

/// Excel computed these values, in Apache POI's `DateFormatTests.xlsx`.
#[test]
fn dates_show_as_excel_showed_them() {
    let show = |code: &str, serial| shown_in(code, serial, DateEpoch::From1904);
    for (code, text) in [
        ("d-m-y", "11-10-52"),
        ("ddd-mmm-yyy", "Sat-Oct-1952"),
        ("DDDD-MMMM-YYYY", "Saturday-October-1952"),
        ("h:m:s", "14:35:27"),
        ("hh:mm:ss a/p", "02:35:27 p"),
        ("h:m:s.000 A/P", "2:35:27.000 P"),
        ("hh:mm:ss.000 am/pm", "02:35:27.000 PM"),
        ("d-m-y h:m:s", "11-10-52 14:35:27"),
        ("dddd-mmmm-yyyy H:M:S am/pm", "Saturday-October-1952 2:35:27 PM"),
        ("h:m", "14:35"),
        ("d \\d\\a\\y\\s h", "11 days 14"),
        ("d \"days\" h am/pm", "11 days 2 PM"),
    ] {
        assert_eq!(show(code, 17_816.607_951_388_887), text, "{code}");
    }
    for (code, text) in [
        ("D-M-Y", "1-2-03"),
        ("H:M:S", "4:5:6"),
        ("h:m:s.00 A/P", "4:5:6.01 A"),
        ("H:M:S.00 a/p", "4:5:6.01 a"),
        ("HH:MM:SS.000 AM/PM", "04:05:06.009 AM"),
    ] {
        assert_eq!(show(code, 36_191.170_208_437_5), text, "{code}");
    }
}

#[test]
fn durations_are_counted_through() {
    let span = 10.632_060_185_185;
    all(&[
        ("[hh]:mm:ss", span, "255:10:10"),
        ("[h]:mm", 1.5, "36:00"),
        ("[mm]:ss", 0.1, "144:00"),
        ("[ss].00", 0.000_01, "00.86"),
        ("[h]:mm:ss", -0.5, "-12:00:00"),
        ("[h]:mm:ss;@", 1.0, "24:00:00"),
    ]);
}

#[test]
fn the_code_decides_what_a_number_is() {
    let kind = |code: &str, number: f64| match NumberFormat::new(code).read(number, DateEpoch::From1900) {
        Reading::Number(_) => "number",
        Reading::Moment(_) => "date",
        Reading::Duration(_) => "duration",
    };
    for code in
        ["General", "0", "\"day\"0", "[Red]0", "[$-409]0", "0\\d", "[Magenta]0.0", "_d0", "#,##0 \"h\"", "@", "0.0E+0"]
    {
        assert_eq!(kind(code, 5.0), "number", "{code}");
    }
    for code in [
        "d",
        "[$-409]mmm\\-yy",
        "[Red]yyyy",
        "h:mm AM/PM",
        "m/d/yy;@",
        "\"am\" h",
        "[DBNum1]d",
        "mm:ss",
        "[$-804]aaa;@",
        "[$-411]gee",
    ] {
        assert_eq!(kind(code, 5.0), "date", "{code}");
    }
    for code in ["[h]:mm", "[HH]:MM", "[mm]:ss", "[s]", "[Red][h]:mm"] {
        assert_eq!(kind(code, 5.0), "duration", "{code}");
    }
    // The section that applies decides.
    assert_eq!(
        (kind("0;yyyy", 5.0), kind("[>100]yyyy;0", 500.0), kind("[>100]yyyy;0", 5.0)),
        ("number", "date", "number")
    );
    assert_eq!((kind("yyyy", -1.0), kind("yyyy", 1e9), kind("[h]", 1e15)), ("number", "number", "number"));
}

#[test]
fn texts_have_a_section_of_their_own() {
    let shown = |code: &str, text: &str| NumberFormat::new(code).show_text(text).into_owned();
    assert_eq!(shown("General", " a "), " a ");
    assert_eq!(shown("0;0;0;\"<\"@\">\"", "a"), "<a>");
    assert_eq!(shown("@\" pieces\"", "five"), "five pieces");
    assert_eq!(shown("0;@", "a"), "a");
    assert_eq!(shown(";;;", "a"), "");
    assert_eq!(shown("yyyy", "a"), "a");
}

#[test]
fn builtin_formats_stand_for_their_codes() {
    assert_eq!(builtin(14).unwrap().code, "mm-dd-yy");
    let format = builtin(14).unwrap();
    let mut out = String::new();
    format.show(format.read(MOMENT, DateEpoch::From1900), MOMENT, DateEpoch::From1900, &mut out);
    assert_eq!(out, "1/1/2021");
    for id in (0..=22).chain(27..=58) {
        let format = builtin(id);
        assert_eq!(format.is_some(), id != 59, "{id}");
        let is_number = matches!(format.unwrap().read(5.0, DateEpoch::From1900), Reading::Number(_));
        assert_eq!(is_number, !matches!(id, 14..=22 | 27..=36 | 45..=47 | 50..=58), "{id}");
    }
    assert!(builtin(163).is_none());
}

mod no_code_panics {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn nor_grows(code in "[0#?.,%/@;:\\\\_*\"\\[\\]<>=ymdhsAaPpMEeGgnral$ é-]{0,24}", number in proptest::num::f64::ANY) {
            let number = if number.is_finite() { number } else { 1e308 };
            prop_assert!(shown(&code, number).len() < 4096);
            prop_assert!(NumberFormat::new(&code).show_text("text").len() < 4096);
        }
    }
}
