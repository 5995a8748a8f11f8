//! What elements mean by their names, as DocBook, JATS, TEI, feeds and drawings use them.

use std::borrow::Cow;

/// What becomes of the text of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// It holds other elements; a text of its own is a value under its name.
    Container,
    Heading,
    Paragraph,
    /// Lines that stay lines.
    Lines,
    List,
    Item,
    Table,
    Row,
    Cell,
    /// A part of the text around it.
    Inline,
    /// Not read.
    Skipped,
}

/// The role of an element by its name in lower case; `None` if the name says nothing.
pub(super) fn role(name: &str) -> Option<Role> {
    Some(match name {
        "title" | "head" | "heading" | "article-title" | "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => Role::Heading,
        "p" | "para" | "simpara" | "paragraph" => Role::Paragraph,
        _ if is_citation(name) => Role::Paragraph,
        "programlisting" | "screen" | "literallayout" | "preformat" | "verbatim" | "pre" => Role::Lines,
        "itemizedlist" | "orderedlist" | "simplelist" | "list" | "ul" | "ol" => Role::List,
        "listitem" | "list-item" | "li" => Role::Item,
        "table" | "informaltable" => Role::Table,
        "script" | "style" | "stylesheet" | "binary" | "bindata" => Role::Skipped,
        _ => return None,
    })
}

/// A name in lower case, by which an element is known; only the beginning of a long one counts.
pub(super) fn known(name: &str) -> Cow<'_, str> {
    let name = shown(name);
    match name.bytes().all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase()) {
        true => Cow::Borrowed(name),
        false => Cow::Owned(name.to_lowercase()),
    }
}

/// A name as it is written, unless it is too long to be shown.
pub(super) fn shown(name: &str) -> &str {
    &name[..name.floor_char_boundary(80)]
}

/// Whether the element is one reference, whose parts are not titles of anything here.
pub(super) fn is_citation(name: &str) -> bool {
    matches!(name, "mixed-citation" | "element-citation" | "nlm-citation" | "bibl" | "biblstruct" | "biblioentry")
}

/// Whether what an element holds stands above the line.
pub(super) fn is_raised(name: &str) -> bool {
    matches!(name, "sup" | "superscript")
}

/// What holds the same in several forms.
pub(super) const ALTERNATIVES: &str = "alternatives";

/// The element of a formula in MathML.
pub(super) const FORMULA: &str = "math";

/// Whether an element in a text holds a formula on lines of its own. Others of the name `formula` may stand in a line.
pub(super) fn is_displayed_formula(name: &str, parent: &str) -> bool {
    matches!(name, "disp-formula" | "equation" | "informalequation") || (name == "formula" && parent == "display")
}

/// Whether an element within a text is a note to it, which stands in brackets where it belongs.
pub(super) fn is_note(name: &str, context: Role) -> bool {
    matches!(name, "footnote" | "endnote" | "note" | "fn")
        && matches!(context, Role::Paragraph | Role::Item | Role::Cell)
}

/// Whether a title in such an element is that of the element around it.
pub(super) fn is_front(name: &str) -> bool {
    const FRONTS: [&str; 15] = [
        "info",
        "bookinfo",
        "articleinfo",
        "chapterinfo",
        "sectioninfo",
        "sect1info",
        "front",
        "article-meta",
        "title-group",
        "book-meta",
        "teiheader",
        "filedesc",
        "titlestmt",
        "header",
        "prolog",
    ];
    FRONTS.contains(&name)
}

/// Whether a title in such an element says what is shown, and begins no section.
pub(super) fn is_exhibit(name: &str) -> bool {
    const EXHIBITS: [&str; 9] =
        ["table", "table-wrap", "informaltable", "figure", "fig", "example", "caption", "note", "boxed-text"];
    EXHIBITS.contains(&name)
}

/// Whether an attribute says how a document is processed, and nothing about its subject.
pub(super) fn is_technical(attribute: &str) -> bool {
    const TECHNICAL: [&str; 7] =
        ["lang", "space", "base", "schemalocation", "nonamespaceschemalocation", "style", "class"];
    TECHNICAL.iter().any(|name| attribute.eq_ignore_ascii_case(name))
}

/// What a whole document is by its first element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Text for people, or data.
    Other,
    Feed,
    Drawing,
    /// Sheets of Excel 2003, which other programs still export.
    Workbook,
}

/// The names of the elements around a cell of a [`Kind::Workbook`], and that of the cell.
pub(super) const ROW: [&str; 4] = ["workbook", "worksheet", "table", "row"];
pub(super) const CELL: &str = "cell";

/// Whether an element of a workbook says how a program shows it.
pub(super) fn is_of_program(name: &str) -> bool {
    const OF_PROGRAM: [&str; 13] = [
        "autofilter",
        "componentoptions",
        "conditionalformatting",
        "customdocumentproperties",
        "datavalidation",
        "documentproperties",
        "excelworkbook",
        "names",
        "officedocumentsettings",
        "pagebreaks",
        "pivottable",
        "styles",
        "worksheetoptions",
    ];
    OF_PROGRAM.contains(&name)
}

impl Kind {
    pub(super) fn of(root: &str) -> Self {
        match root {
            "rss" | "feed" | "rdf" => Self::Feed,
            "svg" => Self::Drawing,
            _ => Self::Other,
        }
    }
}

/// Whether an element of a feed may hold a page as escaped text.
pub(super) fn may_hold_page(name: &str) -> bool {
    matches!(name, "description" | "content" | "encoded" | "summary" | "subtitle")
}
