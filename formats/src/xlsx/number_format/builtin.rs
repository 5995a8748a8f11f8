//! The formats that files refer to only by number.

use super::NumberFormat;

/// The format of a builtin number, if there is one.
pub(in super::super) fn builtin(id: u32) -> Option<NumberFormat> {
    let code = match id {
        0 => "General",
        1 => "0",
        2 => "0.00",
        3 => "#,##0",
        4 => "#,##0.00",
        5 => r##""$"#,##0_);\("$"#,##0\)"##,
        6 => r##""$"#,##0_);[Red]\("$"#,##0\)"##,
        7 => r##""$"#,##0.00_);\("$"#,##0.00\)"##,
        8 => r##""$"#,##0.00_);[Red]\("$"#,##0.00\)"##,
        9 => "0%",
        10 => "0.00%",
        11 => "0.00E+00",
        12 => "# ?/?",
        13 => "# ??/??",
        // The short date of the user's country, whatever the standard says.
        14 => return Some(NumberFormat::shown_as("mm-dd-yy", "m/d/yyyy")),
        15 => "d-mmm-yy",
        16 => "d-mmm",
        17 => "mmm-yy",
        18 => "h:mm AM/PM",
        19 => "h:mm:ss AM/PM",
        20 => "h:mm",
        21 => "h:mm:ss",
        22 => return Some(NumberFormat::shown_as("m/d/yy h:mm", "m/d/yyyy h:mm")),
        // Dates and times of East Asian versions.
        27..=31 | 36 | 50..=58 => "m/d/yyyy",
        32..=35 => "h:mm:ss",
        37 => "#,##0_);(#,##0)",
        38 => "#,##0_);[Red](#,##0)",
        39 => "#,##0.00_);(#,##0.00)",
        40 => "#,##0.00_);[Red](#,##0.00)",
        41 => r##"_(* #,##0_);_(* \(#,##0\);_(* "-"_);_(@_)"##,
        42 => r##"_("$"* #,##0_);_("$"* \(#,##0\);_("$"* "-"_);_(@_)"##,
        43 => r##"_(* #,##0.00_);_(* \(#,##0.00\);_(* "-"??_);_(@_)"##,
        44 => r##"_("$"* #,##0.00_);_("$"* \(#,##0.00\);_("$"* "-"??_);_(@_)"##,
        45 => "mm:ss",
        46 => "[h]:mm:ss",
        47 => "mmss.0",
        48 => "##0.0E+0",
        49 => "@",
        _ => return None,
    };
    Some(NumberFormat::new(code))
}
