//! A paragraph seldom says itself whether it has a bullet. Its shape says it, or the shape's placeholder in the layout,
//! or that in the master, or the master's style for text of that kind.

use crate::{
    FormatError,
    package::Package,
    xml::{Element, Node, XmlReader},
};
use std::{
    io::{Read, Seek},
    rc::Rc,
};

/// No slide has room for more placeholders.
const MAX_PLACEHOLDERS: usize = 256;

/// Whether each of the nine levels has a bullet or a number, if this is stated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Bullets(pub [Option<bool>; 9]);

/// What a placeholder is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Role {
    Title,
    Subtitle,
    /// Body text, and placeholders of objects, which may hold text too.
    #[default]
    Body,
    /// Date, footer, header and slide number, which are the same on every slide.
    Furniture,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Placeholder {
    pub role: Role,
    /// Its type is `body` itself, and not another type that takes text.
    pub is_body: bool,
    pub index: u32,
}

impl Placeholder {
    /// The placeholder of a `p:ph`.
    pub(super) fn of(element: &Element) -> Self {
        let kind = element.attribute("type").unwrap_or("obj");
        let role = match kind {
            "title" | "ctrTitle" => Role::Title,
            "subTitle" => Role::Subtitle,
            "dt" | "ftr" | "hdr" | "sldNum" => Role::Furniture,
            _ => Role::Body,
        };
        let index = element.attribute("idx").and_then(|index| index.parse().ok()).unwrap_or(0);
        Self { role, is_body: kind == "body", index }
    }
}

/// What slides inherit from a layout or a master.
#[derive(Debug, Default)]
pub(super) struct Layout {
    placeholders: Vec<(Placeholder, Bullets)>,
    /// A master's styles for titles and for body text.
    title: Bullets,
    body: Bullets,
    pub master: Option<String>,
}

/// What a slide inherits from.
#[derive(Debug, Default)]
pub(super) struct Inheritance {
    pub layout: Option<Rc<Layout>>,
    pub master: Option<Rc<Layout>>,
}

impl Inheritance {
    /// Whether text of the placeholder has a bullet at the level, if neither paragraph nor shape says so.
    pub(super) fn has_bullet(&self, placeholder: &Placeholder, level: usize) -> bool {
        let by_index = |layout: &Layout| {
            let found = layout
                .placeholders
                .iter()
                .find(|(own, _)| own.index == placeholder.index && own.role == placeholder.role);
            found
                .or_else(|| layout.placeholders.iter().find(|(own, _)| own.role == placeholder.role))
                .map(|found| found.1)
        };
        // A master has one placeholder per role, whatever its index; a subtitle uses the body's.
        let by_role = |master: &Layout| {
            let role = if placeholder.role == Role::Subtitle { Role::Body } else { placeholder.role };
            master.placeholders.iter().find(|(own, _)| own.role == role).map(|found| found.1)
        };
        let styles = self.master.as_deref().map(|master| match placeholder.role {
            Role::Title => master.title,
            Role::Subtitle | Role::Body => master.body,
            Role::Furniture => Bullets::default(),
        });
        [self.layout.as_deref().and_then(by_index), self.master.as_deref().and_then(by_role), styles]
            .into_iter()
            .flatten()
            .find_map(|bullets| bullets.0[level])
            .unwrap_or(false)
    }
}

impl Layout {
    pub(super) fn read<R: Read + Seek>(
        package: &mut Package<R>,
        name: &str,
        master: Option<String>,
    ) -> Result<Self, FormatError> {
        let mut layout = Self { master, ..Self::default() };
        let Some(mut xml) = package.xml(name)? else { return Ok(layout) };
        let mut open: Option<Placeholder> = None;
        while let Some(node) = xml.next()? {
            let Node::Start(element) = node else { continue };
            match element.name.as_str() {
                "sp" => open = None,
                "ph" => {
                    let placeholder = Placeholder::of(&element);
                    if layout.placeholders.len() < MAX_PLACEHOLDERS {
                        layout.placeholders.push((placeholder.clone(), Bullets::default()));
                        open = Some(placeholder);
                    }
                }
                "lstStyle" => {
                    let bullets = Bullets::read(&mut xml)?;
                    if open.is_some()
                        && let Some((_, own)) = layout.placeholders.last_mut()
                    {
                        *own = bullets;
                    }
                }
                "titleStyle" => layout.title = Bullets::read(&mut xml)?,
                "bodyStyle" => layout.body = Bullets::read(&mut xml)?,
                _ => {}
            }
        }
        Ok(layout)
    }
}

impl Bullets {
    /// Reads a list style that just began, until its end.
    pub(super) fn read<R: Read>(xml: &mut XmlReader<R>) -> Result<Self, FormatError> {
        let mut bullets = Self::default();
        let mut depth = 1u32;
        let mut level = None;
        while depth > 0 {
            match xml.next()? {
                Some(Node::Start(element)) => {
                    depth += 1;
                    if depth == 2 {
                        level = level_of(&element.name);
                    } else if let (Some(level), Some(bullet)) = (level, bullet(&element.name)) {
                        bullets.0[level] = Some(bullet);
                    }
                }
                Some(Node::End) => depth -= 1,
                Some(Node::Text(_)) => {}
                None => break,
            }
        }
        Ok(bullets)
    }
}

/// `lvl1pPr` to `lvl9pPr`, counted from 0.
fn level_of(name: &str) -> Option<usize> {
    let level: usize = name.strip_prefix("lvl")?.strip_suffix("pPr")?.parse().ok()?;
    level.checked_sub(1).filter(|level| *level < 9)
}

/// What an element says of bullets; `None` if it is about something else.
pub(super) fn bullet(name: &str) -> Option<bool> {
    match name {
        "buNone" => Some(false),
        "buChar" | "buAutoNum" | "buBlip" => Some(true),
        _ => None,
    }
}
