use super::*;
use crate::{LeftOut, MemberPart, detect};
use std::io::Cursor;

fn read(bytes: impl AsRef<[u8]>) -> Extraction {
    assert_eq!(detect(&mut Cursor::new(bytes.as_ref())).unwrap().format, Some(Format::Eml));
    extract(Cursor::new(bytes.as_ref()), &Limits::default()).unwrap()
}

/// A message with these lines after the usual ones.
fn message(rest: &str) -> String {
    format!(
        "From: Ann Onym <ann@example.org>\r\nTo: ben@example.org, \"Gray, C.\" <gray@example.org>\r\n\
         Date: Wed, 4 Mar 2026 05:06:07 +0100\r\nMessage-ID: <1@example.org>\r\nMIME-Version: 1.0\r\n{}",
        rest.replace('\n', "\r\n")
    )
}

#[test]
fn fields_and_text_are_read() {
    let read =
        read(message("Subject: =?utf-8?Q?Ducks_of_the_M=C3=BChle?=\nCc: dan@example.org\n\nSeventy ducks.\n\nAnn\n"));
    assert_eq!(
        read.text,
        "# Ducks of the Mühle\n\nFrom: Ann Onym <ann@example.org>\nTo: ben@example.org, Gray, C. <gray@example.org>\n\
         Cc: dan@example.org\nDate: 2026-03-04T05:06:07+01:00\n\nSeventy ducks.\n\nAnn"
    );
    let facts = ["subject", "from", "cc", "date", "messages"].map(|name| read.facts[name].clone());
    let expected: [serde_json::Value; 5] = [
        "Ducks of the Mühle".into(),
        "Ann Onym <ann@example.org>".into(),
        "dan@example.org".into(),
        "2026-03-04T05:06:07+01:00".into(),
        1.into(),
    ];
    assert_eq!(facts, expected);
    assert_eq!((read.headings.len(), read.headings_from.as_deref()), (1, Some("mail")));
}

#[test]
fn the_best_form_of_the_body_is_taken() {
    let both = |plain: &str, html: &str| {
        message(&format!(
            "Subject: Ducks\nContent-Type: multipart/alternative; boundary=b\n\n--b\nContent-Type: text/plain\n\n{plain}\n\
             --b\nContent-Type: text/html\n\n{html}\n--b--\n"
        ))
    };
    let page = "<html><body><h2>Counts</h2><p>Seventy ducks were <b>counted</b> at the mill pond.</p></body></html>";
    let plain = read(both("Seventy ducks were counted at the pond", page));
    assert!(plain.text.ends_with("\n\nSeventy ducks were counted at the pond"), "{}", plain.text);
    for stub in ["See the page.", ""] {
        let html = read(both(stub, page));
        assert!(html.text.contains("Seventy ducks were **counted** at the mill pond."), "{}", html.text);
        assert!(!html.text.contains("See the page"), "{}", html.text);
        let headings: Vec<_> = html.headings.iter().map(|one| (one.level, one.title.as_str(), one.start)).collect();
        let start = html.text.find("## Counts").unwrap();
        assert_eq!(headings, [(1, "Ducks", 0), (3, "Counts", start)]);
    }
}

#[test]
fn a_footer_beside_the_body_takes_nothing_of_it() {
    let footer = "Mailing list of the duck counters\nhttps://ducks.example.org/unsubscribe";
    let html = "<html><body><p>Seventy ducks, see you tomorrow!</p></body></html>";
    let mixed = |body: &str| {
        message(&format!(
            "Subject: Ducks\nContent-Type: multipart/mixed; boundary=m\n\n{body}--m\nContent-Type: text/plain\n\n{footer}\n--m--\n"
        ))
    };
    let alone = mixed(&format!("--m\nContent-Type: text/html\n\n{html}\n"));
    let both = mixed(&format!(
        "--m\nContent-Type: multipart/alternative; boundary=a\n\n--a\nContent-Type: text/plain\n\nSeventy ducks, see you tomorrow!\n\
         --a\nContent-Type: text/html\n\n{html}\n--a--\n"
    ));
    for (form, bytes) in [("HTML alone", alone), ("both", both)] {
        let read = read(bytes).text;
        assert!(read.ends_with(&format!("\n\nSeventy ducks, see you tomorrow!\n\n{footer}")), "{form}: {read}");
    }
}

#[test]
fn headers_are_read_in_whatever_encoding_they_are() {
    let sent = message("Subject: Bestätigung für Müller, die Enten am großen Mühlteich\n\nSeventy ducks.\n");
    let sent: Vec<u8> = sent.chars().map(|character| u8::try_from(u32::from(character)).unwrap()).collect();
    let read = read(sent).text;
    assert!(read.starts_with("# Bestätigung für Müller, die Enten am großen Mühlteich\n"), "{read}");
}

#[test]
fn a_page_that_nobody_can_read_keeps_neither_its_text_nor_other_messages_out() {
    let deep = "<b>".repeat(20_000);
    let both = message(&format!(
        "Subject: Ducks\nContent-Type: multipart/alternative; boundary=b\n\n--b\nContent-Type: text/plain\n\nSeventy ducks.\n\
         --b\nContent-Type: text/html\n\n{deep}\n--b--\n"
    ));
    assert!(read(&both).text.ends_with("\n\nSeventy ducks."));
    let page = message(&format!("Subject: Deep\nContent-Type: text/html\n\n{deep}\n"));
    assert!(matches!(extract(Cursor::new(&page), &Limits::default()), Err(FormatError::Unsupported { .. })));
    let mailbox = format!(
        "From ann@example.org Wed Mar  4 05:06:07 2026\n{page}\n\nFrom ann@example.org Wed Mar  4 05:06:08 2026\n{both}"
    );
    let read = read(mailbox).text;
    assert!(read.contains("# Deep\n") && read.ends_with("\n\nSeventy ducks."), "{read}");
}

#[test]
fn attachments_are_listed_and_messages_within_are_opened() {
    let read = read(message(
        "Subject: Fwd: Ducks\nContent-Type: multipart/mixed; boundary=b\n\n--b\n\nSee below.\n--b\n\
         Content-Type: application/pdf; name=\"counts.pdf\"\nContent-Disposition: attachment\n\
         Content-Transfer-Encoding: base64\n\nJVBERi0xLjQKJSBkdWNrcw==\n--b\nContent-Type: message/rfc822\n\n\
         From: dan@example.org\nTo: ann@example.org\nSubject: Ducks\nMessage-ID: <2@example.org>\n\nTwo herons.\n--b\n\
         Content-Type: text/x-log\nContent-Disposition: attachment; filename=log\n\nabc\n--b--\n",
    ));
    let end = "See below.\n\nAttachments:\n\n- counts.pdf (application/pdf, 16 bytes)\n- log (text/x-log, 3 bytes)\n\n\
               ## Ducks\n\nFrom: dan@example.org\nTo: ann@example.org\n\nTwo herons.";
    assert!(read.text.ends_with(end), "{}", read.text);
    assert_eq!(read.headings.iter().map(|heading| heading.level).collect::<Vec<_>>(), [1, 2]);
    assert_eq!((&read.facts["messages"], &read.facts["eml.attachments"][0]["name"]), (&2.into(), &"counts.pdf".into()));
}

#[test]
fn images_within_the_text_are_listed() {
    let image = "Content-Type: image/png; name=duck.png\nContent-Transfer-Encoding: base64\n\niVBORw0KGgo=\n";
    let within = format!(
        "Subject: x\nContent-Type: multipart/mixed; boundary=b\n\n--b\nContent-Type: text/plain\n\nA duck:\n\n--b\n\
         Content-Disposition: inline\n{image}--b--\n"
    );
    for (text, end) in [
        (within, "A duck:\n\nAttachments:\n\n- duck.png (image/png, 8 bytes)"),
        (format!("Subject: x\n{image}"), "+01:00\n\nAttachments:\n\n- duck.png (image/png, 8 bytes)"),
    ] {
        let read = read(message(&text));
        assert!(read.text.ends_with(end), "{}", read.text);
    }
}

#[test]
fn a_mailbox_is_a_section_for_each_message() {
    let one = |subject: &str| {
        format!("From ann@example.org Wed Mar 4 05:06:07 2026\n{}\n", message(subject)).replace('\r', "")
    };
    let mailbox = one("Subject: One\n\nFrom here on, ducks.\nFrom there, geese.\n")
        + &one("Subject: Two\n\nHerons.\n\n>From the weir\n>>From the quoted weir\n>from others");
    let read = read(mailbox);
    let titles: Vec<_> = read.headings.iter().map(|heading| heading.title.as_str()).collect();
    assert_eq!((titles, &read.facts["messages"]), (vec!["One", "Two"], &2.into()));
    assert!(read.text.contains("From here on, ducks.\nFrom there, geese."), "{}", read.text);
    assert!(read.text.ends_with("Herons.\n\nFrom the weir\n>From the quoted weir\n>from others"), "{}", read.text);
}

#[test]
fn a_text_is_read_whatever_encoding_it_claims() {
    let polish = "Żółw i kaczka są nad wodą, a czapla łowi ryby w stawie koło młyna.";
    let (latin, _, _) = encoding_rs::WINDOWS_1250.encode(polish);
    for (charset, bytes) in [
        ("utf-8", polish.as_bytes()),
        ("iso-8859-1", polish.as_bytes()),
        ("us-ascii", polish.as_bytes()),
        ("no-such-charset", polish.as_bytes()),
        ("windows-1250", &latin),
        ("utf-8", &latin),
    ] {
        let head = message(&format!("Subject: x\nContent-Type: text/plain; charset={charset}\n\n"));
        let read = read([head.as_bytes(), bytes].concat());
        assert!(read.text.ends_with(polish), "{charset}: {}", read.text);
    }
    let quoted =
        "Subject: x\nContent-Transfer-Encoding: quoted-printable\nContent-Type: text/plain; charset=iso-8859-1\n\n";
    assert!(read(message(&format!("{quoted}=C5=BB=C3=B3=C5=82w =3D ok"))).text.ends_with("Żółw = ok"));
    let encoded = quoted.replace("quoted-printable", "base64").replace("iso-8859-1", "utf-8");
    assert!(read(message(&format!("{encoded}xbvDs8WCdwBvaw=="))).text.ends_with("Żółwok"), "without NUL");
}

#[test]
fn damaged_messages_are_read_as_far_as_they_go() {
    let missing = read(message("Subject: x\nContent-Type: multipart/mixed; boundary=b\n\n--other\n\nDucks.\n"));
    assert!(missing.text.contains("Ducks."), "{}", missing.text);
    let unnamed = read(message("Subject: x\nContent-Type: multipart/mixed\n\n--b\n\nDucks.\n--b--\n"));
    assert!(unnamed.text.contains("Ducks."), "{}", unnamed.text);
    let cut = read(message("Subject: x\nContent-Type: multipart/mixed; boundary=b\n\n--b\n\nDucks."));
    assert!(cut.text.contains("Ducks."), "{}", cut.text);
    let bodiless = read(message("Subject: Only a subject\n"));
    assert!(bodiless.text.starts_with("# Only a subject\n\nFrom: ") && bodiless.text.ends_with("+01:00"));
    let long = read(message(&format!("Subject: {}\n\nDucks.\n", "very long ".repeat(1 << 20))));
    assert_eq!(long.headings[0].title.chars().count(), writer::CHARACTERS);
    let many = read(message(&format!("Subject: x\nCc: {}\n\nDucks.\n", "a@example.org, ".repeat(10_000))));
    assert!(many.text.contains("and 9900 more\n") && many.text.len() < 10_000, "{}", many.text.len());
}

#[test]
fn a_body_whose_encoding_breaks_off_or_has_a_footer_is_read() {
    let text = "U2llYnppZyBFbnRlbiBhbSBNw7xobHRlaWNoLgo=";
    let page = "PGh0bWw+PGJvZHk+PHA+U2llYnppZyBFbnRlbiBhbSBNw7xobHRlaWNoLjwvcD48L2JvZHk+PC9odG1sPgo=";
    let footer = "Unsubscribe: http://e.org";
    for (kind, body) in [("plain; charset=utf-8", text), ("plain", text), ("html; charset=utf-8", page)] {
        let head = format!("Subject: x\nContent-Type: text/{kind}\nContent-Transfer-Encoding: base64\n");
        let read = read(message(&format!("{head}\n{body}\n{footer}\n"))).text;
        assert!(read.contains("Siebzig Enten am Mühlteich.") && read.ends_with(footer), "{kind}: {read}");
        assert!(!read.contains("Attachments"), "{read}");
    }
    let open = |kind: &str, encoding: &str, body: &str| {
        message(&format!(
            "Subject: x\nContent-Type: multipart/{kind}; boundary=b\n\n--b\nContent-Type: text/plain\n\nSeventy ducks at the mill.\n\
             --b\nContent-Type: text/{encoding}\n\n{body}"
        ))
    };
    let quoted = "plain; charset=utf-8\nContent-Transfer-Encoding: quoted-printable";
    let quoted = read(open("mixed", quoted, "Caf=C3=A9 am M=C3=BChlteich, =\nEnten =3D Enten, = und ==.\nEnde =")).text;
    let end = "+01:00\n\nSeventy ducks at the mill.\n\nCafé am Mühlteich, Enten = Enten, = und ==.\nEnde";
    assert!(quoted.ends_with(end), "{quoted}");
    let encoded = read(open("mixed", "plain\nContent-Transfer-Encoding: base64", text)).text;
    assert!(encoded.ends_with("+01:00\n\nSeventy ducks at the mill.\n\nSiebzig Enten am Mühlteich."), "{encoded}");
    // Of two forms one is shown, also if the other breaks off.
    let other = read(open("alternative", "html\nContent-Transfer-Encoding: base64", page)).text;
    assert!(other.ends_with("+01:00\n\nSeventy ducks at the mill."), "{other}");
}

#[test]
fn a_broken_page_that_comes_with_its_pictures_stays_the_other_form_of_the_text() {
    let page = "PGh0bWw+PGJvZHk+PHA+U2llYnppZyBFbnRlbiBhbSBNw7xobHRlaWNoLjwvcD48L2JvZHk+PC9odG1sPgo=";
    let head = "Subject: x\nContent-Type: multipart/alternative; boundary=a\n\n--a\nContent-Type: text/plain\n\n\
                Seventy ducks at the mill.\n--a\nContent-Type: multipart/related; boundary=r\n\n--r\n\
                Content-Type: text/html; charset=utf-8\nContent-Transfer-Encoding: base64\n\n";
    let image = "--r\nContent-Type: image/png; name=duck.png\nContent-Transfer-Encoding: base64\n\niVBORw0KGgo=\n";
    for rest in [String::new(), format!("*** cut ***\n{image}--r--\n--a--\n")] {
        let read = read(message(&format!("{head}{page}\n{rest}"))).text;
        assert!(read.contains("+01:00\n\nSeventy ducks at the mill.") && !read.contains("Siebzig"), "{read}");
    }
}

#[test]
fn a_calendar_that_breaks_off_is_no_text_of_its_invitation() {
    let calendar = "QkVHSU46VkNBTEVOREFSClZFUlNJT046Mi4wCkVORDpWQ0FMRU5EQVI";
    for (encoding, body) in [("base64", calendar), ("7bit", "BEGIN:VCALENDAR\nVERSION:2.0\n")] {
        let read = read(message(&format!(
            "Subject: x\nContent-Type: multipart/alternative; boundary=b\n\n--b\nContent-Type: text/plain\n\nSeventy ducks.\n\
             --b\nContent-Type: text/html\n\n<p>Seventy ducks.</p>\n--b\nContent-Type: text/calendar; method=REQUEST\n\
             Content-Transfer-Encoding: {encoding}\n\n{body}"
        )));
        assert!(!read.text.contains("VCALENDAR") && read.text.contains("+01:00\n\nSeventy ducks."), "{}", read.text);
        assert_eq!(read.facts["eml.attachments"][0]["type"], "text/calendar");
    }
}

#[test]
fn a_damaged_file_is_left_out_and_a_whole_one_needs_no_boundary_after_it() {
    let mail = |body: &str| {
        message(&format!(
            "Subject: x\nContent-Type: multipart/mixed; boundary=b\n\n--b\n\nText.\n--b\n\
             Content-Type: application/pdf; name=report.pdf\nContent-Transfer-Encoding: base64\n\n{body}"
        ))
    };
    for damaged in ["JVBERi0xLjQK\n*** cut ***\nJSBkdWNrcw==\n--b--\n", "JVBERi0xLjQKJSBkdWNrc"] {
        let mail = mail(damaged);
        let (given, left) = files(&mail, &Limits::default());
        assert_eq!((given.len(), &left[..]), (0, &[("report.pdf".to_owned(), LeftOut::Damaged)][..]));
        let read = read(&mail).text;
        assert!(read.ends_with("Text.\n\nAttachments:\n\n- report.pdf (application/pdf)"), "{read}");
    }
    let (given, left) = files(&mail("JVBERi0xLjQKJSBkdWNrcw==\n"), &Limits::default());
    assert_eq!((&given[0].2[..], left.len()), (&b"%PDF-1.4\n% ducks"[..], 0));
}

#[test]
fn an_attached_text_keeps_its_bytes_whatever_encoding_it_claims() {
    let attached = |kind: &str, encoding: &str, body: &str| {
        format!(
            "--b\nContent-Type: text/{kind}\nContent-Disposition: attachment\nContent-Transfer-Encoding: {encoding}\n\n{body}\n"
        )
    };
    let parts = [
        attached("csv; name=p.csv", "base64", "bmFtZTtjb3VudApN/GxsZXI7Mwo="),
        attached("html; charset=koi8-r; name=p.html", "base64", "PHA+8NLJ18XUPC9wPg=="),
        attached("plain; charset=us-ascii; name=p.txt", "quoted-printable", "M=C3=BChle"),
    ];
    let head = "Subject: x\nContent-Type: multipart/mixed; boundary=b\n\n--b\n\nText.\n";
    let mail = message(&format!("{head}{}--b--\n", parts.concat()));
    let (given, left) = files(&mail, &Limits::default());
    let given: Vec<_> = given.iter().map(|(name, kind, bytes)| (name.as_str(), kind.as_deref(), &bytes[..])).collect();
    let expected = [
        ("p.csv", Some("text/csv"), &b"name;count\nM\xFCller;3\n"[..]),
        ("p.html", Some("text/html; charset=koi8-r"), b"<p>\xF0\xD2\xC9\xD7\xC5\xD4</p>"),
        ("p.txt", Some("text/plain; charset=us-ascii"), "Mühle".as_bytes()),
    ];
    assert_eq!((given, left.len()), (expected.to_vec(), 0));
    let read = read(&mail).text;
    let list = "- p.csv (text/csv, 20 bytes)\n- p.html (text/html, 13 bytes)\n- p.txt (text/plain, 6 bytes)";
    assert!(read.ends_with(list), "{read}");
}

#[test]
fn words_that_end_within_a_character_are_read_with_the_next_one() {
    for words in [
        "=?UTF-8?B?5pel5g==?=\n =?UTF-8?B?nKzoqp4=?=",
        "=?utf-8?Q?=E6=97=A5=E6?=\n =?UTF-8?q?=9C=AC=E8=AA=9E?=",
        "=?UTF-8?Q?=E6=97?= =?UTF-8?Q?=A5?= =?UTF-8?B?5pys6Kqe?=",
    ] {
        let read = read(message(&format!(
            "Subject: {words}\nCc: {words} <dan@example.org>\nContent-Type: application/pdf; name=\"{words}.pdf\"\n\
             Content-Transfer-Encoding: base64\n\nJVBERi0xLjQK\n"
        )));
        assert!(read.text.starts_with("# 日本語\n"), "{}", read.text);
        assert!(read.text.contains("\nCc: 日本語 <dan@example.org>\n"), "{}", read.text);
        assert!(read.text.ends_with("- 日本語.pdf (application/pdf, 9 bytes)"), "{}", read.text);
    }
}

#[test]
fn japanese_in_ascii_is_read_without_a_name_of_its_encoding() {
    let (japanese, _, _) = encoding_rs::ISO_2022_JP.encode("日本語のテキスト。");
    let japanese = std::str::from_utf8(&japanese).unwrap();
    let read = read(message(&format!("Subject: {japanese}\n\n{japanese}\n"))).text;
    assert!(read.starts_with("# 日本語のテキスト。\n") && read.ends_with("+01:00\n\n日本語のテキスト。"), "{read}");
}

#[test]
fn limits_hold() {
    let limits = Limits { text_bytes: 1000, headings: 2, ..Limits::default() };
    let refused = |message: &str| extract(Cursor::new(message), &limits).unwrap_err().limit();
    assert_eq!(refused(&message(&format!("Subject: x\n\n{}", "ducks ".repeat(1000)))), Some(crate::Limit::TextBytes));
    let mailbox = "From a\nFrom: a\nTo: b\nMessage-ID: x\n\nDucks.\n\n".repeat(3);
    assert_eq!(refused(&mailbox), Some(crate::Limit::Headings));
}

/// The name, the declared type and the bytes of an attachment.
type Attachment = (String, Option<String>, Vec<u8>);

/// The attachments of a file, and those that were left out.
fn files(bytes: &str, limits: &Limits) -> (Vec<Attachment>, Vec<(String, LeftOut)>) {
    let (mut files, mut left_out) = (Vec::new(), Vec::new());
    crate::members(Format::Eml, Cursor::new(bytes), limits, &mut |part| {
        match part {
            MemberPart::Begin(head) => {
                assert_eq!(head.index, (files.len() + left_out.len()) as u64);
                files.push((head.name, head.declared_mime, Vec::new()));
            }
            MemberPart::Bytes(bytes) => files.last_mut().unwrap().2.extend(bytes),
            MemberPart::End => {}
            MemberPart::LeftOut { name, reason } => left_out.push((name, reason)),
        }
        Ok(())
    })
    .unwrap();
    (files, left_out)
}

#[test]
fn attachments_come_decoded_in_the_order_of_their_list() {
    let inner = "--b\nContent-Type: message/rfc822\n\nSubject: within\nMessage-ID: <2@example.org>\nFrom: a@example.org\n\
                 Content-Type: multipart/mixed; boundary=\"c\"\n\n--c\n\nText.\n--c\nContent-Type: application/x-thing\n\nthing\n--c--\n";
    let parts = "Subject: files\nContent-Type: multipart/mixed; boundary=\"b\"\n\n--b\n\nThe body.\n\
                 --b\nContent-Type: text/csv; name=\"../counts.csv\"\nContent-Disposition: attachment\nContent-Transfer-Encoding: base64\n\nYSxiCjEsMgo=\n";
    let mail = message(&format!("{parts}{inner}--b--\n"));
    let (read, left) = files(&mail, &Limits::default());
    let shown: Vec<_> =
        read.iter().map(|(name, kind, bytes)| (name.as_str(), kind.as_deref(), bytes.trim_ascii_end())).collect();
    assert_eq!(
        shown,
        [
            ("../counts.csv", Some("text/csv"), &b"a,b\n1,2"[..]),
            ("attachment 2", Some("application/x-thing"), b"thing"),
        ]
    );
    assert!(left.is_empty(), "{left:?}");
    assert!(probe(Cursor::new(&mail), &Limits::default()).unwrap().holds(Pattern::HasMembers));
    let plain = message("Subject: none\n\nText.\n");
    assert!(!probe(Cursor::new(plain), &Limits::default()).unwrap().holds(Pattern::HasMembers));

    let (read, left) = files(&mail, &Limits { members: 1, ..Limits::default() });
    assert_eq!((read.len(), &left[..]), (1, &[("attachment 2".to_owned(), LeftOut::Members)][..]));
    let (read, left) = files(&mail, &Limits { member_bytes: 7, ..Limits::default() });
    assert_eq!((read.len(), left[0].1, left.len()), (0, LeftOut::MemberBytes, 2));
}
