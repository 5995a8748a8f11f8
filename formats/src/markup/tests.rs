use super::*;

#[test]
fn pages_are_told_from_prose_that_mentions_them() {
    for page in [
        "<!DOCTYPE html><p>x",
        "\u{FEFF}\n <!-- saved --> <HTML lang=en>",
        "<?xml version='1.0'?><!DOCTYPE html PUBLIC 'x'><html>",
        "<?xml version='1.0'?>\n<html xmlns='http://www.w3.org/1999/xhtml'>",
        "<div class=note><p>Some words in a piece of a page</p><p>and some more</p></div>",
        "<h1>Title</h1><ul><li>one</li><li>two</li></ul>",
    ] {
        assert_eq!(format(page, ""), Some(Format::Html), "{page}");
    }
    for prose in [
        "<p align=center><img src=logo.png></p>\n\n# Title\n\nWords.\n\n- one\n- two\n",
        "A page begins with <html> and ends with </html>.",
        "<alice> has anyone seen the heron?\n<bob> no\n<alice> then I will look for it again tomorrow\n",
        "<3 is a heart",
        "From: the mill\nTo: the pond\n\nSeventy ducks.",
        "Date: today\nSubject: ducks\nFrom: me\n\nA note in prose.",
        "# Heading\n\ntext",
        "fn main() { let x: Vec<String> = Vec::<String>::new(); }",
        "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n",
        "Ada <ada@example.org>\nBea <bea@example.org>\n",
        "<https://example.org/a>\n<https://example.org/b>\n<https://example.org/c>\n",
        "    at <anonymous>\n    at Object.<anonymous> (/a.js:1:1)\n    at <anonymous>\n",
        "<template>\n  <div><b>{{ name }}</b></div>\n</template>\n<script setup>\nlet name\n</script>\n",
        "<script setup>\nlet name\n</script>\n<template>\n  <div><b>{{ name }}</b></div>\n</template>\n",
        "export const A = () => <div><b>x</b><i>y</i></div>;\n",
        "--- a/x.html\n+++ b/x.html\n@@ -1 +1 @@\n-<p>a</p>\n+<p><b>a</b></p>\n",
        "<h1 align=center>Name</h1>\n\nWhat it is\n==========\n\nSee [the page](https://example.org) for `<b>`.\n",
        "<https://example.org/>\n<https://example.org/b/>\n",
        "<alice> look<br/>there\n<bob> where?\n",
        "<T> is a type.\nEverything of <T> goes into a </T>, and that is all.\n",
        "<App name=\"x\">\n  <Nav/>{rest}\n</App>;\n\nexport default App\n",
        "<a:b\n",
        "Sender: the mill\nTo: the pond\nDate: today\n\nSeventy ducks.",
        "",
    ] {
        assert_eq!((format(prose, ""), is_markup(prose)), (None, false), "{prose}");
    }
}

#[test]
fn a_piece_of_a_page_is_one_unless_its_name_says_otherwise() {
    let piece = "<p align=center><b>Name</b></p>\n\nWords of it.\n";
    assert_eq!(format(piece, ""), Some(Format::Html));
    for (name, is) in [("a.html", true), ("a", true), ("README.md", false), ("App.VUE", false), ("notes.txt", false)] {
        assert_eq!(is_page(piece, name), is, "{name}");
    }
    assert!(is_page("\n<!DOCTYPE HTML><p>x", "page.txt") && !is_markup(piece));
}

#[test]
fn what_has_no_reader_is_still_markup() {
    let encoded = "TWFuIGlzIGRpc3Rpbmd1aXNoZWQsIG5vdCBvbmx5IGJ5IGhpcyByZWFzb24sIGJ1dCBi\n".repeat(20);
    for markup in
        ["%!PS-Adobe-3.0\n%%Title: x", &format!("-----BEGIN CERTIFICATE-----\n{encoded}-----END CERTIFICATE-----\n")]
    {
        assert!(is_markup(markup) && format(markup, "").is_none(), "{markup}");
    }
}

#[test]
fn an_element_is_told_by_its_end_unless_a_declaration_tells_it() {
    for (head, end) in [
        ("<?xml version=\"1.0\"?><note><to>x</to></note>", ""),
        ("<note><to>a</to><from>b</from></note>", ""),
        ("<!-- x -->\n<ns:note a='1'>\n<to>a</to>\n", "</ns:note >\n"),
        ("<config mode='a' level='2'/>", ""),
        ("<!DOCTYPE note>\n<note>", ""),
        ("<svg width='1'><text>", "x</text></svg>"),
    ] {
        assert_eq!((format(head, end), is_markup(head)), (Some(Format::Xml), false), "{head}");
    }
    assert_eq!(format("<note><to>a</to><from>b</from>", "and so on"), None);
}

#[test]
fn brackets_without_an_end_take_no_time() {
    let text = "<a".repeat(2_000_000);
    assert_eq!(tags(&text), 0);
    assert!(!is_markup(&"< ".repeat(1_000_000)));
}

#[test]
fn values_that_are_pieces_of_pages_are_told_from_code_and_comparisons() {
    for page in [
        "<p>The heron waits.</p>",
        " <div class=\"a\">x<br/></div>\n",
        "<!doctype html><html>x</html>",
        "<b>x</b>, <i>y</i>",
        "<?xml version='1.0'?>\n<!DOCTYPE html>\n<html>x</html>",
    ] {
        assert!(is_page_value(page), "{page}");
    }
    for other in [
        "a <b and c> d",
        "Vec<String>",
        "<birds><water>",
        "<p>",
        "<pond>x</pond>",
        "a <p>b</p>",
        "<p>x</p> y",
        "<",
        "",
        "<?xml version='1.0'?><order><id>17</id></order>",
        "<?xml</p>",
    ] {
        assert!(!is_page_value(other), "{other}");
    }
}
