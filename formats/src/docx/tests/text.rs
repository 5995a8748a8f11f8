use super::*;

#[test]
fn headings_go_by_name_through_based_on() {
    let body = [
        styled("Titel", "Name"),
        styled("Own", "One"),
        styled("Toc", "Contents"),
        styled("Seven", "Deep"),
        styled("Nine", "Deeper"),
        styled("LoopA", "x"),
        styled("Heading1", "y"),
    ];
    let read = read(&body.concat());
    assert_eq!(read.text, "# Name\n\n# One\n\nContents\n\n###### Deep\n\n###### Deeper\n\nx\n\ny");
    let levels: Vec<_> = read.headings.iter().map(|heading| (heading.level, heading.start)).collect();
    assert_eq!(levels, [(1, 0), (1, 8), (7, 25), (9, 38)]);
    assert_eq!(read.headings_from.as_deref(), Some("styles"));
}

#[test]
fn headings_go_by_outline_level_where_no_name_says_so() {
    let with = |style: &str, level: u8, text: &str| {
        paragraph(&format!(r#"<w:pStyle w:val="{style}"/><w:outlineLvl w:val="{level}"/>"#), text)
    };
    let body = [
        styled("Clause", "Nests"),
        styled("Inner", "Boats"),
        styled("Plain", "text"),
        with("none", 0, "Ducks"),
        with("none", 9, "more text"),
        with("none", 10, "no level"),
        styled("Seven", "Deep"),
    ];
    let read = read(&body.concat());
    assert_eq!(read.text, "## Nests\n\n## Boats\n\ntext\n\n# Ducks\n\nmore text\n\nno level\n\n###### Deep");
    let levels: Vec<_> = read.headings.iter().map(|heading| heading.level).collect();
    assert_eq!(levels, [2, 2, 1, 7]);
}

#[test]
fn tracked_changes_read_as_accepted() {
    let body = r#"<w:p><w:pPr><w:pPrChange><w:pPr><w:pStyle w:val="Own"/></w:pPr></w:pPrChange></w:pPr>
        <w:ins><w:r><w:t>new </w:t></w:r></w:ins><w:del><w:r><w:delText>old</w:delText><w:t>old</w:t></w:r></w:del>
        <w:moveFrom><w:r><w:t>gone</w:t></w:r></w:moveFrom><w:moveTo><w:r><w:t>here &amp; now</w:t></w:r></w:moveTo>
        <w:r><w:instrText>PAGE</w:instrText></w:r></w:p>"#;
    assert_eq!(read(body).text, "new here & now");
}

#[test]
fn a_paragraph_without_its_mark_goes_on_in_the_next() {
    let open = |text: &str| paragraph("<w:rPr><w:del/></w:rPr>", text);
    let body = [open("one "), open("two "), styled("Own", "three"), open("four"), "<w:tbl><w:tr><w:tc>".to_owned()];
    let cell = [open("in "), open("cell"), "</w:tc></w:tr></w:tbl>".to_owned(), open("last")];
    let read = read(&[body.concat(), cell.concat()].concat());
    assert_eq!(read.text, "# one two three\n\nfour\n\n| in cell |\n| --- |\n\nlast");
    assert_eq!(read.facts["docx.paragraphs"], 5);
}

#[test]
fn hidden_text_is_not_read() {
    let hidden = |properties: &str, text: &str| format!("<w:r><w:rPr>{properties}</w:rPr><w:t>{text}</w:t></w:r>");
    let body = [
        "<w:p>".to_owned(),
        run("seen "),
        hidden("<w:vanish/>", "hidden"),
        hidden(r#"<w:rStyle w:val="Secret"/>"#, "hidden"),
        hidden(r#"<w:vanish w:val="0"/>"#, "shown"),
        hidden("<w:webHidden/>", " on paper"),
        "</w:p>".to_owned(),
        r#"<w:p><w:pPr><w:pStyle w:val="Secret"/></w:pPr>"#.to_owned(),
        run("hidden"),
        hidden(r#"<w:vanish w:val="false"/>"#, "but this"),
        "</w:p>".to_owned(),
        // A hidden paragraph mark hides no text.
        paragraph("<w:rPr><w:vanish/></w:rPr>", "kept"),
    ];
    assert_eq!(read(&body.concat()).text, "seen shown on paper\n\nbut this\n\nkept");
}

#[test]
fn fields_show_their_results_alone() {
    let part = |kind: &str| format!(r#"<w:r><w:fldChar w:fldCharType="{kind}"/></w:r>"#);
    let body = [
        "<w:p>".to_owned(),
        run("see "),
        part("begin"),
        run("IF "),
        part("begin"),
        "<w:r><w:instrText>MERGEFIELD x</w:instrText></w:r>".to_owned(),
        part("separate"),
        run("not shown"),
        part("end"),
        part("separate"),
        run("page 3"),
        part("end"),
        run("."),
        r#"<w:fldSimple w:instr=" DATE "><w:r><w:t> today</w:t></w:r></w:fldSimple>"#.to_owned(),
        "</w:p>".to_owned(),
        format!("<w:p>{}{}</w:p>", part("begin"), run("never ended")),
        paragraph("", "the rest is read"),
    ];
    assert_eq!(read(&body.concat()).text, "see page 3. today\n\nthe rest is read");
}

#[test]
fn containers_are_entered() {
    let body = format!(
        "<w:p><w:hyperlink>{}</w:hyperlink><w:smartTag><w:smartTagPr/>{}</w:smartTag><w:sdt><w:sdtPr><w:text/></w:sdtPr>\
         <w:sdtContent>{}</w:sdtContent></w:sdt><w:customXml>{}</w:customXml><w:bdo w:val=\"rtl\">{}</w:bdo></w:p>\
         <w:sdt><w:sdtContent>{}</w:sdtContent></w:sdt>",
        run("a "),
        run("b "),
        run("c "),
        run("d "),
        run("שלום"),
        paragraph("", "block"),
    );
    assert_eq!(read(&body).text, "a b c d שלום\n\nblock");
}

#[test]
fn characters_that_are_elements_are_read() {
    let body = r#"<w:p><w:pPr><w:tabs><w:tab w:val="left"/></w:tabs></w:pPr><w:r><w:t>a</w:t><w:tab/><w:t>b</w:t><w:noBreakHyphen/><w:t>c</w:t>
        <w:softHyphen/><w:t>d</w:t><w:br/><w:t>e</w:t><w:cr/><w:t>f</w:t><w:sym w:font="Symbol" w:char="F061"/><w:lastRenderedPageBreak/></w:r></w:p>"#;
    assert_eq!(read(body).text, "a\tb-cd\ne\nfα");
}

#[test]
fn glyphs_emoji_and_raised_numbers_are_read_as_they_are_shown() {
    let emoji = r#"<w:p><w:r><w:t>Hi </w:t></w:r><w:r><mc:AlternateContent><mc:Choice Requires="w16se"><w16se:symEx w16se:char="1F60F"/></mc:Choice>
        <mc:Fallback><w:t>😏</w:t></mc:Fallback></mc:AlternateContent></w:r></w:p>"#;
    assert_eq!(read(emoji).text, "Hi 😏");
    let symbol = "<w:p><w:r><w:rPr><w:rFonts w:ascii=\"Symbol\" w:hAnsi=\"Symbol\"/></w:rPr><w:t>\u{F061}</w:t></w:r><w:r><w:t>\u{F061}</w:t></w:r></w:p>";
    assert_eq!(read(symbol).text, "α\u{F061}");
    let raised =
        |text: &str| format!(r#"<w:r><w:rPr><w:vertAlign w:val="superscript"/></w:rPr><w:t>{text}</w:t></w:r>"#);
    let body = [run("10"), raised("6"), run(" in 2019"), raised("3"), run(" m"), raised("2"), run(" 1"), raised("st")];
    assert_eq!(read(&format!("<w:p>{}</w:p>", body.concat())).text, "10^6 in 2019^3 m2 1st");
    let body = [run("10"), raised("1"), raised("2"), run(" in 2019"), raised("3,"), raised("4")];
    assert_eq!(read(&format!("<w:p>{}</w:p>", body.concat())).text, "10^12 in 2019^3,4");
    // Word keeps a minus that was inserted as a symbol in a run of its own.
    let minus = r#"<w:r><w:rPr><w:vertAlign w:val="superscript"/></w:rPr><w:sym w:font="Symbol" w:char="F02D"/></w:r>"#;
    let formula = "<m:oMath><m:r><m:t>10</m:t></m:r></m:oMath>";
    let body = [run("10"), minus.to_owned(), raised("6"), run(" of "), formula.to_owned(), raised("3")];
    assert_eq!(read(&format!("<w:p>{}</w:p>", body.concat())).text, "10^−6 of 10^3");
    let by_style = |own: &str| format!(r#"<w:r><w:rPr><w:rStyle w:val="Mark"/>{own}</w:rPr><w:t>3</w:t></w:r>"#);
    let body = [run("2019"), by_style(""), run(" H"), run("2"), by_style(r#"<w:vertAlign w:val="baseline"/>"#)];
    assert_eq!(read(&format!("<w:p>{}</w:p>", body.concat())).text, "2019^3 H23");
}

#[test]
fn what_is_ticked_or_chosen_in_a_form_is_text() {
    let field = |data: &str, result: &str| {
        let begin = format!(
            r#"<w:r><w:fldChar w:fldCharType="begin"><w:ffData><w:name w:val="x"/>{data}</w:ffData></w:fldChar></w:r>"#
        );
        let result = if result.is_empty() {
            String::new()
        } else {
            format!(r#"<w:r><w:fldChar w:fldCharType="separate"/></w:r>{}"#, run(result))
        };
        format!(
            r#"{begin}<w:r><w:instrText>FORM</w:instrText></w:r>{result}<w:r><w:fldChar w:fldCharType="end"/></w:r>"#
        )
    };
    let list = |result: &str| {
        format!(r#"<w:ddList>{result}<w:listEntry w:val="Red"/><w:listEntry w:val="Green"/></w:ddList>"#)
    };
    for (data, result, shown) in [
        (r#"<w:checkBox><w:default w:val="0"/><w:checked/></w:checkBox>"#.to_owned(), "", "☒"),
        (r#"<w:checkBox><w:default w:val="1"/><w:checked w:val="0"/></w:checkBox>"#.to_owned(), "", "☐"),
        (r#"<w:checkBox><w:default w:val="1"/></w:checkBox>"#.to_owned(), "", "☒"),
        (list(r#"<w:result w:val="1"/>"#), "", "Green"),
        (list(""), "", "Red"),
        (list(r#"<w:result w:val="1"/>"#), "Green", "Green"),
        (list(r#"<w:result w:val="7"/>"#), "", ""),
        ("<w:textInput/>".to_owned(), "typed", "typed"),
    ] {
        let body = format!("<w:p>{}{}{}</w:p>", run("a "), field(&data, result), run(" b"));
        assert_eq!(read(&body).text, format!("a {shown} b"), "{data} {result}");
    }
}

#[test]
fn texts_in_many_open_fields_are_read_one_by_one() {
    let part = |kind: &str| format!(r#"<w:fldChar w:fldCharType="{kind}"/>"#);
    let open = (part("begin") + &part("separate")).repeat(50_000);
    let ticked =
        r#"<w:fldChar w:fldCharType="begin"><w:ffData><w:checkBox><w:checked/></w:checkBox></w:ffData></w:fldChar>"#;
    let body = [
        "<w:p><w:r>".to_owned(),
        open,
        "<w:t>a</w:t>".repeat(200_000),
        format!("{ticked}{}{ticked}{}<w:t>typed</w:t>{}", part("end"), part("separate"), part("end")),
        "</w:r></w:p>".to_owned(),
    ];
    assert_eq!(read(&body.concat()).text, "a".repeat(200_000) + "☒typed");
}

#[test]
fn mathematics_and_ruby_are_text() {
    let body = "<w:p><m:oMathPara><m:oMath><m:r><m:rPr/><w:rPr/><m:t>x=1</m:t></m:r></m:oMath></m:oMathPara>\
        <w:r><w:ruby><w:rubyPr/><w:rt><w:r><w:t>かん</w:t></w:r></w:rt><w:rubyBase><w:r><w:t>漢</w:t></w:r></w:rubyBase></w:ruby></w:r></w:p>";
    assert_eq!(read(body).text, "x=1漢");
}

#[test]
fn formulas_are_linear_text() {
    let r = |text: &str| format!("<m:r><m:rPr/><w:rPr/><m:t>{text}</m:t></m:r>");
    let arg = |name: &str, inner: &str| format!("<m:{name}>{inner}</m:{name}>");
    let object = |name: &str, properties: &str, inner: &str| {
        format!("<m:{name}><m:{name}Pr>{properties}<m:ctrlPr/></m:{name}Pr>{inner}</m:{name}>")
    };
    let sup = |base: &str, above: &str| object("sSup", "", &(arg("e", base) + &arg("sup", above)));
    let paren = |inner: &str| object("d", "", &arg("e", inner));
    let binomial = object("f", r#"<m:type m:val="noBar"/>"#, &(arg("num", &r("n")) + &arg("den", &r("k"))));
    let sum = object(
        "nary",
        r#"<m:chr m:val="∑"/>"#,
        &[
            arg("sub", &r("k=0")),
            arg("sup", &r("n")),
            arg("e", &(paren(&binomial) + &sup(&r("x"), &r("k")) + &sup(&r("a"), &r("n-k")))),
        ]
        .concat(),
    );
    let row = |a: &str, b: &str| arg("mr", &(arg("e", &r(a)) + &arg("e", &r(b))));
    for (formula, expected) in [
        (sup(&paren(&r("x+a")), &r("n")) + &r("=") + &sum, "(x+a)^n=∑_(k=0)^n (n¦k)x^k a^(n-k)"),
        (object("f", "", &(arg("num", &r("a+b")) + &arg("den", &r("2c")))) + &r("d"), "(a+b)/2c d"),
        (object("rad", "", &(arg("deg", "") + &arg("e", &r("x+1")))), "√(x+1)"),
        (object("rad", "", &(arg("deg", &r("3")) + &arg("e", &r("x")))), "√(3&x)"),
        (object("sSubSup", "", &(arg("e", &r("x")) + &arg("sub", &r("i")) + &arg("sup", &r("2")))), "x_i^2"),
        (r("2") + &object("f", "", &(arg("num", &r("1")) + &arg("den", &r("2")))), "2 1/2"),
        (r("5") + &sup(&r("10"), &r("6")), "5 10^6"),
        (sup(&r("2"), &sup(&r("10"), &r("3"))), "2^(10^3)"),
        (
            r("x") + &object("sPre", "", &(arg("sub", &r("6")) + &arg("sup", &r("14")) + &arg("e", &r("C")))),
            "x _6^14 C",
        ),
        (object("func", "", &(arg("fName", &r("sin")) + &arg("e", &r("x")))), "sin x"),
        (object("limLow", "", &(arg("e", &r("lim")) + &arg("lim", &r("x→0")))), "lim_(x→0)"),
        (object("limUpp", "", &(arg("e", &r("=")) + &arg("lim", &r("def")))), "=^def"),
        (
            object(
                "d",
                r#"<m:begChr m:val="["/><m:sepChr m:val=","/><m:endChr m:val=""/>"#,
                &(arg("e", &r("a")) + &arg("e", &r("b"))),
            ),
            "[a,b",
        ),
        (object("m", "", &(row("a", "b") + &row("c", "d"))), "[a, b; c, d]"),
        (object("acc", "", &arg("e", &r("x"))), "x\u{302}"),
        (object("nary", "", &(arg("sub", "") + &arg("sup", "") + &arg("e", &r("f")))), "∫ f"),
        (object("eqArr", "", &(arg("e", &r("a=b")) + &arg("e", &r("c=d")))), "a=b; c=d"),
    ] {
        let body =
            format!("<w:p>{}<m:oMathPara><m:oMath>{formula}</m:oMath></m:oMathPara>{}</w:p>", run("so "), run(" then"));
        assert_eq!(read(&body).text, format!("so {expected} then"));
    }
    // Numbers that are typed beside a formula are no part of its own.
    let half = object("f", "", &(arg("num", &r("1")) + &arg("den", &r("2"))));
    let root = object("rad", "", &(arg("deg", "") + &arg("e", &r("3"))));
    for (formula, expected) in [
        (r("3x"), "2 3x4"),
        (half, "2 1/2 4"),
        (sup(&r("x"), &r("2")), "2x^2 4"),
        (root, "2√3 4"),
        (r("=3") + &r("5"), "2=35 4"),
    ] {
        let body = format!("<w:p>{}<m:oMath>{formula}</m:oMath>{}</w:p>", run("2"), run("4"));
        assert_eq!(read(&body).text, expected);
    }
}

#[test]
fn one_branch_of_an_alternate_is_read() {
    let text_box = |text: &str| format!("<w:pict><w:txbxContent>{}</w:txbxContent></w:pict>", paragraph("", text));
    let body = format!(
        "<w:p><w:r><w:t>around</w:t><mc:AlternateContent><mc:Choice>{}</mc:Choice><mc:Fallback>{}</mc:Fallback></mc:AlternateContent></w:r></w:p>",
        text_box("boxed"),
        text_box("boxed"),
    );
    assert_eq!(read(&body).text, "around\n\nboxed");
}

#[test]
fn a_text_box_holds_what_a_body_holds() {
    let inner = [
        styled("Own", "in a box"),
        numbered(4, 0, "item"),
        "<w:tbl><w:tr><w:tc>".to_owned() + &paragraph("", "cell") + "</w:tc></w:tr></w:tbl>",
    ];
    let body = format!("<w:p>{}<w:r><w:txbxContent>{}</w:txbxContent></w:r></w:p>", run("around"), inner.concat());
    assert_eq!(read(&body).text, "around\n\n# in a box\n\n- item\n\n| cell |\n| --- |");
}
