//! The texts of slides and pages of notes: those in their shapes, and those of an outline, which shapes refer to.

use super::{
    looks,
    records::{Record, Records, kind},
};
use crate::{
    FormatError, Limit, Limits,
    compound::long,
    markdown::{Block, mark_raised, one_line},
};
use encoding_rs::UTF_16LE;

/// A text with its kind.
#[derive(Default)]
pub(super) struct Text {
    pub kind: u32,
    /// As the file has it: its paragraphs end with `\r`.
    text: String,
    /// Whether it shows a number or date, which no file holds.
    has_field: bool,
    has_looks: bool,
}

impl Text {
    const TITLE: u32 = 0;
    const BODY: u32 = 1;
    pub(super) const NOTES: u32 = 2;
    const CENTERED_TITLE: u32 = 6;
    const HALF_BODY: u32 = 7;
    const QUARTER_BODY: u32 = 8;

    /// Takes a record of a text: its beginning or its characters.
    fn take(record: &Record<'_>, texts: &mut Vec<Self>) {
        if record.kind == kind::TEXT {
            texts.push(Self { kind: long(record.body, 0).unwrap_or_default(), ..Self::default() });
            return;
        }
        let Some(text) = texts.last_mut() else { return };
        match record.kind {
            kind::WIDE => text.text.push_str(&UTF_16LE.decode_without_bom_handling(record.body).0),
            kind::NARROW => text.text.extend(record.body.iter().copied().map(char::from)),
            // Each text has one.
            kind::LOOKS if !std::mem::replace(&mut text.has_looks, true) => {
                let looks = looks::raised(record.body, text.text.encode_utf16().count());
                text.text = mark_raised(std::mem::take(&mut text.text), &looks.unwrap_or_default());
            }
            found => text.has_field |= kind::FIELDS.contains(&found),
        }
    }

    /// What is shown of the text.
    fn shown(&self) -> String {
        let shown = self.text.chars().filter_map(|character| match character {
            '\u{B}' => Some('\n'),
            '\r' | '\t' => Some(character),
            _ => (!character.is_control()).then_some(character),
        });
        shown.collect()
    }

    pub(super) fn is_title(&self) -> bool {
        matches!(self.kind, Self::TITLE | Self::CENTERED_TITLE)
    }

    /// The text in one line, if there is any.
    pub(super) fn line(&self) -> Option<String> {
        Some(one_line(&self.shown())).filter(|line| !line.is_empty())
    }

    /// Writes the paragraphs; those of a body are items.
    pub(super) fn write(self, blocks: &mut Vec<Block>) {
        let text = self.shown();
        // In the place of what is filled in when the slide is shown there is a star.
        if self.has_field && text.trim() == "*" {
            return;
        }
        let is_body = matches!(self.kind, Self::BODY | Self::HALF_BODY | Self::QUARTER_BODY);
        let paragraphs = text.split('\r').filter(|paragraph| !paragraph.trim().is_empty());
        blocks.extend(paragraphs.map(|paragraph| match is_body {
            true => Block::ListItem { level: 0, text: paragraph.to_owned() },
            false => Block::Paragraph(paragraph.to_owned()),
        }));
    }
}

/// A slide or a page of notes in the list of them, with its texts in the outline.
pub(super) struct Listed {
    /// The number of its object.
    pub object: u32,
    /// What pages of notes call the slide.
    pub slide: u32,
    pub texts: Vec<Text>,
}

/// What a list has, in its order.
pub(super) fn listed(list: &[u8]) -> impl Iterator<Item = Listed> {
    let mut records = Records::of(list).peekable();
    std::iter::from_fn(move || {
        let head = records.find(|record| record.kind == kind::LISTED)?;
        let mut texts = Vec::new();
        while let Some(record) = records.next_if(|record| record.kind != kind::LISTED) {
            Text::take(&record, &mut texts);
        }
        let number = |at: usize| long(head.body, at).unwrap_or_default();
        Some(Listed { object: number(0), slide: number(12), texts })
    })
}

/// The texts of the shapes of a slide in their order, and then those of its outline that no shape refers to. Those of
/// deleted shapes are left out, also from the outline.
pub(super) fn texts(slide: &[u8], outline: Vec<Text>, limits: &Limits) -> Result<Vec<Text>, FormatError> {
    let mut outline: Vec<Option<Text>> = outline.into_iter().map(Some).collect();
    let mut found = Vec::new();
    let mut open = vec![(Records::of(slide), false)];
    while let Some((records, is_gone)) = open.last_mut() {
        let is_gone = *is_gone;
        let Some(record) = records.next() else {
            open.pop();
            continue;
        };
        if record.kind == kind::TEXT_BOX {
            let mut own = Vec::new();
            for record in Records::of(record.body) {
                if record.kind == kind::LISTED_TEXT {
                    let listed = long(record.body, 0).and_then(|index| outline.get_mut(index as usize));
                    own.extend(listed.and_then(Option::take));
                } else {
                    Text::take(&record, &mut own);
                }
            }
            if !is_gone {
                found.append(&mut own);
            }
        } else if record.kind == kind::DRAWING || kind::SHAPES.contains(&record.kind) {
            if open.len() >= limits.xml_depth as usize {
                let detail = format_args!("shapes nest deeper than {}", limits.xml_depth);
                return Err(FormatError::over(Limit::XmlDepth, detail));
            }
            open.push((Records::of(record.body), is_gone || is_deleted(&record)));
        }
    }
    found.extend(outline.into_iter().flatten());
    Ok(found)
}

/// Whether this is a shape, or a group of them, that was deleted: a drawing keeps it for some time.
fn is_deleted(record: &Record<'_>) -> bool {
    const DELETED: u32 = 8;
    let shape = match record.kind {
        // A group is what its first shape is.
        kind::GROUP => Records::of(record.body).next().filter(|first| first.kind == kind::ONE_SHAPE),
        kind::ONE_SHAPE => Some(*record),
        _ => None,
    };
    let told = shape.and_then(|shape| Records::of(shape.body).find(|record| record.kind == kind::SHAPE));
    told.and_then(|told| long(told.body, 4)).is_some_and(|flags| flags & DELETED != 0)
}
