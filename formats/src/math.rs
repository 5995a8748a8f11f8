//! Writes office mathematics as linear text, much as one would type it: `x^2`, `(a+b)/c`, `∑_(k=0)^n`, `√(x+1)`.
//!
//! Without its structure, the letters of a formula would mean something else, so an operand of more than letters and
//! digits gets parentheses.

mod mathml;

use crate::xml::Element;
pub(crate) use mathml::MathMl;

/// The open elements of a formula; its text goes to its paragraph.
#[derive(Debug, Default)]
pub(crate) struct Math {
    open: Vec<Node>,
    /// Where the last construct ended: letters directly after it would seem to belong to it.
    ended: usize,
}

#[derive(Debug)]
struct Node {
    kind: Kind,
    /// Where in the text it begins.
    start: usize,
    /// How many arguments it has had so far.
    arguments: usize,
    /// The characters that its properties set: a sign or an opening, a closing, and a separator.
    signs: [Option<String>; 3],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Formula,
    Fraction,
    /// A fraction without a bar.
    Binomial,
    Scripts,
    Radical,
    Sum,
    Delimiter,
    Function,
    Accent,
    Bar,
    Matrix,
    Row,
    Equations,
    Properties,
    Numerator,
    Denominator,
    Below,
    Above,
    Degree,
    Base,
    Other,
}

impl Kind {
    fn of(name: &str) -> Self {
        match name {
            "oMath" => Self::Formula,
            "f" => Self::Fraction,
            "sSub" | "sSup" | "sSubSup" | "sPre" | "limLow" | "limUpp" => Self::Scripts,
            "rad" => Self::Radical,
            "nary" => Self::Sum,
            "d" => Self::Delimiter,
            "func" => Self::Function,
            "acc" => Self::Accent,
            "bar" => Self::Bar,
            "m" => Self::Matrix,
            "mr" => Self::Row,
            "eqArr" => Self::Equations,
            "fPr" | "naryPr" | "dPr" | "accPr" => Self::Properties,
            "num" => Self::Numerator,
            "den" => Self::Denominator,
            "sub" => Self::Below,
            "sup" => Self::Above,
            "deg" => Self::Degree,
            "e" => Self::Base,
            _ => Self::Other,
        }
    }

    /// Whether it stands for something of its own in the line.
    fn is_construct(self) -> bool {
        matches!(
            self,
            Self::Fraction
                | Self::Scripts
                | Self::Radical
                | Self::Sum
                | Self::Delimiter
                | Self::Function
                | Self::Accent
                | Self::Bar
                | Self::Matrix
                | Self::Equations
        )
    }
}

impl Math {
    /// Whether an element begins a formula or belongs to one.
    pub(crate) fn takes(&self, element: &Element) -> bool {
        !self.open.is_empty() || element.name == "oMath"
    }

    /// Begins an element; [`Math::end`] must follow.
    pub(crate) fn start(&mut self, element: &Element, text: &mut String) {
        let kind = match (Kind::of(&element.name), &*element.name, self.parent()) {
            (_, "lim", Some(Kind::Scripts)) if self.above() => Kind::Above,
            (_, "lim", Some(Kind::Scripts)) => Kind::Below,
            (kind, ..) => kind,
        };
        if kind.is_construct() {
            self.separate(text);
        }
        // A number and a fraction behind it would be another number, and scripts would seem to belong to what is before them.
        if matches!(&*element.name, "f" | "sPre")
            && text.ends_with(char::is_alphanumeric)
            && !self.begins_argument(text)
        {
            self.part(text);
        }
        if let [.., holder, properties] = &mut self.open[..]
            && properties.kind == Kind::Properties
        {
            holder.note(&element.name, element.value());
        }
        let is_above = element.name == "limUpp";
        if let Some(parent) = self.open.last_mut()
            && matches!(kind, Kind::Base | Kind::Below | Kind::Above | Kind::Row)
        {
            parent.before_argument(text);
        }
        let mut node = Node { kind, start: text.len(), arguments: 0, signs: [None, None, None] };
        if is_above {
            node.signs[0] = Some(String::new());
        }
        if kind == Kind::Matrix {
            text.push('[');
        }
        self.open.push(node);
    }

    /// Prepares for text of the formula.
    pub(crate) fn before_text(&mut self, next: &str, text: &mut String) {
        if next.starts_with(char::is_alphanumeric) {
            self.separate(text);
        }
        if !next.starts_with(char::is_numeric) || !text.ends_with(char::is_numeric) {
            return;
        }
        // A formula and the base of a power are no part of the number before them, but a number may come in several parts.
        let at = text.len();
        let mut begun = self.open.iter().rev().take_while(|node| node.start == at);
        let is_another = begun.any(|node| node.kind.is_construct() || node.kind == Kind::Formula);
        let is_behind_formula = self.open.is_empty() && at == self.ended;
        if is_behind_formula || is_another && !self.begins_argument(text) {
            self.part(text);
        }
    }

    /// Whether an argument begins here that a sign will part from what is before it.
    fn begins_argument(&self, text: &str) -> bool {
        let at = text.len();
        self.open.iter().enumerate().rev().take_while(|(_, node)| node.start == at).any(|(index, node)| {
            match node.kind {
                // No sign parts a formula from a number that is typed before it.
                Kind::Formula => !text.ends_with(char::is_numeric),
                Kind::Numerator | Kind::Denominator | Kind::Below | Kind::Above | Kind::Degree => true,
                Kind::Base => index
                    .checked_sub(1)
                    .and_then(|outer| self.open.get(outer))
                    .is_some_and(|outer| matches!(outer.kind, Kind::Radical | Kind::Function | Kind::Sum)),
                _ => false,
            }
        })
    }

    /// Writes a blank before all that begins here.
    fn part(&mut self, text: &mut String) {
        let at = text.len();
        text.push(' ');
        self.open.iter_mut().rev().take_while(|node| node.start == at).for_each(|node| node.start += 1);
    }

    /// Separates what follows from a construct directly before it.
    fn separate(&self, text: &mut String) {
        if !self.open.is_empty() && text.len() == self.ended && text.ends_with(char::is_alphanumeric) {
            text.push(' ');
        }
    }

    /// Ends the element that began last.
    pub(crate) fn end(&mut self, text: &mut String) {
        let Some(node) = self.open.pop() else { return };
        let parent = self.open.last_mut();
        // The text it was written to has been replaced or cut, so there is nothing to add.
        if !text.is_char_boundary(node.start) || node.start > text.len() {
            return;
        }
        let is_empty = text.len() == node.start;
        match (node.kind, parent.map(|parent| (parent.kind, parent))) {
            (Kind::Numerator, _) => wrap(text, node.start),
            (Kind::Denominator, Some((kind, _))) => {
                wrap(text, node.start);
                text.insert(node.start, if kind == Kind::Binomial { '¦' } else { '/' });
            }
            (Kind::Below, _) if !is_empty => {
                wrap(text, node.start);
                text.insert(node.start, '_');
            }
            (Kind::Above, _) if !is_empty => {
                wrap(text, node.start);
                text.insert(node.start, '^');
            }
            (Kind::Degree, Some((_, parent))) if !is_empty => {
                text.insert_str(node.start, "√(");
                text.push('&');
                parent.signs[0] = Some(")".to_owned());
            }
            (Kind::Base, Some((Kind::Radical, parent))) => match parent.signs[0].take() {
                Some(close) => text.push_str(&close),
                None => {
                    wrap(text, node.start);
                    text.insert(node.start, '√');
                }
            },
            (Kind::Base, Some((Kind::Scripts, parent))) => {
                wrap(text, node.start);
                let (before, base) = text.split_at(node.start);
                // Scripts before a base would seem to go on with it.
                if node.start > parent.start
                    && before.ends_with(char::is_alphanumeric)
                    && base.starts_with(char::is_alphanumeric)
                {
                    text.insert(node.start, ' ');
                }
            }
            (Kind::Base, Some((Kind::Function | Kind::Sum, _))) if !is_empty => text.insert(node.start, ' '),
            (Kind::Base, Some((Kind::Accent, parent))) => {
                wrap(text, node.start);
                text.push_str(parent.signs[0].as_deref().unwrap_or("\u{302}"));
            }
            (Kind::Base, Some((Kind::Bar, _))) => {
                wrap(text, node.start);
                text.push('\u{305}');
            }
            (Kind::Delimiter, _) => {
                if node.arguments == 0 {
                    text.push_str(node.signs[0].as_deref().unwrap_or("("));
                }
                text.push_str(node.signs[1].as_deref().unwrap_or(")"));
            }
            (Kind::Matrix, _) => text.push(']'),
            _ => {}
        }
        if node.kind.is_construct() || matches!(node.kind, Kind::Binomial | Kind::Formula) {
            self.ended = text.len();
        }
    }

    fn parent(&self) -> Option<Kind> {
        self.open.last().map(|node| node.kind)
    }

    /// Whether the limit of the open construct is above it.
    fn above(&self) -> bool {
        self.open.last().is_some_and(|node| node.signs[0].is_some())
    }
}

impl Node {
    /// Takes in a property of the construct.
    fn note(&mut self, name: &str, value: Option<&str>) {
        let sign = |value: Option<&str>| Some(value.unwrap_or_default().chars().take(4).collect());
        match (name, self.kind) {
            ("chr", Kind::Sum | Kind::Accent) | ("begChr", Kind::Delimiter) => self.signs[0] = sign(value),
            ("endChr", Kind::Delimiter) => self.signs[1] = sign(value),
            ("sepChr", Kind::Delimiter) => self.signs[2] = sign(value),
            ("type", Kind::Fraction) if value == Some("noBar") => self.kind = Kind::Binomial,
            _ => {}
        }
    }

    /// Writes what comes before the next argument.
    fn before_argument(&mut self, text: &mut String) {
        let first = self.arguments == 0;
        self.arguments += 1;
        match self.kind {
            Kind::Sum if first => text.push_str(self.signs[0].as_deref().unwrap_or("∫")),
            Kind::Delimiter if first => text.push_str(self.signs[0].as_deref().unwrap_or("(")),
            Kind::Delimiter => text.push_str(self.signs[2].as_deref().unwrap_or("|")),
            Kind::Matrix | Kind::Equations if !first => text.push_str("; "),
            Kind::Row if !first => text.push_str(", "),
            _ => {}
        }
    }
}

/// Puts parentheses around what begins at a byte, unless it is one operand already.
fn wrap(text: &mut String, start: usize) {
    let operand = &text[start..];
    if operand.chars().all(char::is_alphanumeric) || operand.chars().nth(1).is_none() || is_enclosed(operand) {
        return;
    }
    text.insert(start, '(');
    text.push(')');
}

/// Whether the parenthesis at its beginning closes at its end.
fn is_enclosed(operand: &str) -> bool {
    if !operand.starts_with('(') {
        return false;
    }
    let mut depth = 0usize;
    for (at, byte) in operand.bytes().enumerate() {
        match byte {
            b'(' => depth += 1,
            b')' => {
                depth -= 1;
                if depth == 0 {
                    return at + 1 == operand.len();
                }
            }
            _ => {}
        }
    }
    false
}
