//! Writes the formulas of web pages, books and journals (MathML) as linear text, as those of office documents are written.

use super::wrap;
use crate::{markdown::one_line, xml};

/// What is nested deeper within a formula is written without its structure.
const DEEPEST: usize = 64;

/// A formula while its elements are read, one after the other.
#[derive(Debug, Default)]
pub(crate) struct MathMl {
    open: Vec<Node>,
    /// How many elements around the present one are not read.
    skipped: usize,
    text: String,
    /// The letters of the open token.
    token: String,
    /// Whether the last token is a word.
    is_word: bool,
    /// Where the last argument begins: nothing parts its first letter from what is before it.
    argument: usize,
    /// Where the last construct ended: letters directly after it would seem to belong to it.
    ended: usize,
}

#[derive(Debug)]
struct Node {
    kind: Kind,
    /// Where in the text it begins.
    start: usize,
    /// How many elements have begun in it.
    children: usize,
    /// What closes it.
    close: String,
    /// What parts the elements of a fence, one character after the other, of which the last one goes on.
    separators: String,
    /// Whether its script may be an accent of its base.
    has_accent: bool,
    /// Where in the text the scripts begin that stand before its base.
    prescripts: Option<usize>,
    /// Whether it begins directly behind a letter or digit that is none of its own.
    is_behind: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Elements one after the other.
    Line,
    Token,
    Fraction,
    /// A fraction without a bar.
    Binomial,
    Above,
    Below,
    BelowAndAbove,
    /// Any number of pairs below and above, behind its base and before it.
    Scripts,
    Root,
    SquareRoot,
    Fence,
    Matrix,
    Row,
}

impl Kind {
    fn of(name: &str) -> Self {
        match name {
            "mi" | "mn" | "mo" | "mtext" | "ms" => Self::Token,
            "mfrac" => Self::Fraction,
            "msup" | "mover" => Self::Above,
            "msub" | "munder" => Self::Below,
            "msubsup" | "munderover" => Self::BelowAndAbove,
            "mmultiscripts" => Self::Scripts,
            "mroot" => Self::Root,
            "msqrt" => Self::SquareRoot,
            "mfenced" => Self::Fence,
            "mtable" => Self::Matrix,
            "mtr" | "mlabeledtr" => Self::Row,
            _ => Self::Line,
        }
    }

    /// Whether it stands for something of its own in the line.
    fn is_construct(self) -> bool {
        !matches!(self, Self::Line | Self::Token | Self::Fence | Self::Matrix | Self::Row)
    }
}

impl MathMl {
    /// Takes in what a reader of XML gives.
    pub(crate) fn node(&mut self, node: xml::Node) {
        match node {
            xml::Node::Start(element) => {
                self.start(&element.name, |name| element.attribute(name).map(str::to_owned));
            }
            xml::Node::Text(text) => self.text(&text),
            xml::Node::End => self.end(),
        }
    }

    /// Begins an element; [`MathMl::end`] must follow.
    pub(crate) fn start(&mut self, name: &str, attribute: impl Fn(&str) -> Option<String>) {
        // What a program reads says the formula once more.
        if self.skipped > 0 || matches!(name, "annotation" | "annotation-xml") {
            self.skipped += 1;
            return;
        }
        self.end_token();
        let mut kind = if self.open.len() < DEEPEST { Kind::of(name) } else { Kind::Line };
        if let Some(parent) = self.open.last_mut() {
            let index = parent.children;
            parent.children += 1;
            if parent.kind == Kind::Scripts && name == "mprescripts" && parent.prescripts.is_none() {
                // The pairs begin anew, as they do behind the base.
                (parent.prescripts, parent.children) = (Some(self.text.len()), 1);
            }
            match (parent.kind, index) {
                (Kind::Matrix, 1..) => self.text.push_str("; "),
                (Kind::Row, 1..) => self.text.push(' '),
                (Kind::Fence, 1..) => {
                    let mut signs = parent.separators.chars();
                    if let Some(sign) = signs.clone().nth(index - 1).or_else(|| signs.next_back()) {
                        self.text.push(sign);
                        self.text.extend(matches!(sign, ',' | ';').then_some(' '));
                    }
                }
                (parent, 1..) if parent.is_construct() && parent != Kind::SquareRoot => self.argument = self.text.len(),
                _ => {}
            }
        }
        let is_behind = self.text.len() > self.argument && self.text.ends_with(char::is_alphanumeric);
        if kind == Kind::Fraction && is_behind {
            self.text.push(' ');
        }
        if kind == Kind::Fraction && attribute("linethickness").is_some_and(|line| line.starts_with('0')) {
            kind = Kind::Binomial;
        }
        let start = self.text.len();
        let (mut close, mut separators) = (String::new(), String::new());
        if kind == Kind::Fence {
            self.text.push_str(&attribute("open").unwrap_or_else(|| "(".to_owned()));
            close = attribute("close").unwrap_or_else(|| ")".to_owned());
            let signs = attribute("separators").unwrap_or_else(|| ",".to_owned());
            separators = signs.chars().filter(|sign| !sign.is_whitespace()).take(16).collect();
        }
        let has_accent = matches!(name, "mover" | "munder");
        self.open.push(Node { kind, start, children: 0, close, separators, has_accent, prescripts: None, is_behind });
    }

    pub(crate) fn text(&mut self, text: &str) {
        let Some(node) = self.open.last().filter(|_| self.skipped == 0) else { return };
        self.token.push_str(text);
        if node.kind != Kind::Token {
            self.end_token();
        }
    }

    /// Ends the element that began last.
    pub(crate) fn end(&mut self) {
        if self.skipped > 0 {
            self.skipped -= 1;
            return;
        }
        self.end_token();
        let Some(mut node) = self.open.pop() else { return };
        self.text.push_str(&node.close);
        self.move_prescripts(&mut node);
        if node.kind == Kind::SquareRoot && self.text.len() > node.start {
            wrap(&mut self.text, node.start);
            self.text.insert(node.start, '√');
        }
        if node.kind.is_construct() {
            self.ended = self.text.len();
            // What comes behind an empty script is no part of it.
            self.argument = self.argument.min(node.start);
        }
        let Some(outer) = self.open.last() else { return };
        let (parent, begin, index) = (outer.kind, outer.start, outer.children);
        if outer.has_accent
            && index == 2
            && let Some(mark) = accent(parent, &self.text[node.start..])
        {
            self.text.truncate(node.start);
            self.text.push(mark);
            return;
        }
        let sign = match (parent, index) {
            (Kind::Fraction | Kind::Binomial | Kind::Above | Kind::Below | Kind::BelowAndAbove | Kind::Scripts, 1) => {
                return wrap(&mut self.text, node.start);
            }
            (Kind::Fraction, 2) => '/',
            (Kind::Binomial, 2) => '¦',
            (Kind::Above, 2) | (Kind::BelowAndAbove, 3) => '^',
            (Kind::Below | Kind::BelowAndAbove, 2) => '_',
            (Kind::Scripts, odd) if odd % 2 == 1 => '^',
            (Kind::Scripts, _) => '_',
            (Kind::Root, 2) => {
                let degree = self.text.split_off(node.start);
                self.text.insert_str(begin, &format!("√({degree}&"));
                self.text.push(')');
                return;
            }
            _ => return,
        };
        // A sign alone, such as a prime, changes no number.
        let is_script = matches!(sign, '^' | '_');
        if !is_script || self.text[node.start..].contains(char::is_alphanumeric) {
            wrap(&mut self.text, node.start);
            self.text.insert(node.start, sign);
        }
    }

    /// Moves the scripts that come last to where they stand: before the base.
    fn move_prescripts(&mut self, node: &mut Node) {
        let Some(at) = node.prescripts.filter(|at| self.text[*at..].contains(|letter: char| !letter.is_whitespace()))
        else {
            return;
        };
        let mut scripts = self.text.split_off(at);
        if scripts.ends_with(char::is_alphanumeric) && self.text[node.start..].starts_with(char::is_alphanumeric) {
            scripts.push(' ');
        }
        if node.is_behind {
            // Scripts directly behind a letter or digit would seem to be its own.
            self.text.insert(node.start, ' ');
            self.open.iter_mut().rev().take_while(|outer| outer.start == node.start).for_each(|outer| outer.start += 1);
            node.start += 1;
        }
        self.text.insert_str(node.start, &scripts);
    }

    /// Whether elements are open.
    pub(crate) fn is_open(&self) -> bool {
        !self.open.is_empty() || self.skipped > 0
    }

    /// The bytes of text so far.
    pub(crate) fn len(&self) -> usize {
        self.text.len() + self.token.len()
    }

    /// The whole formula.
    pub(crate) fn finish(self) -> String {
        one_line(&self.text)
    }

    /// Writes the token so far. A blank parts it from letters that are none of its own.
    fn end_token(&mut self) {
        // Some operators are not seen.
        let is_seen = |letter: &char| {
            !matches!(letter, '\u{2061}'..='\u{2064}') && (!letter.is_control() || letter.is_whitespace())
        };
        let seen: String = std::mem::take(&mut self.token).chars().filter(is_seen).collect();
        let token = one_line(&seen);
        let (Some(first), last) = (token.chars().next(), self.text.chars().next_back()) else {
            let is_token = self.open.last().is_some_and(|node| node.kind == Kind::Token);
            if is_token && !seen.is_empty() && self.text.len() > self.argument {
                self.text.push(' ');
            }
            return;
        };
        let is_word = token.chars().nth(1).is_some() && token.chars().all(char::is_alphabetic);
        let are_two = |last: char| {
            let are_numbers = last.is_numeric() && first.is_numeric();
            last.is_alphanumeric() && (self.is_word || is_word || are_numbers || self.text.len() == self.ended)
        };
        let at = self.text.len();
        if at > self.argument && first.is_alphanumeric() && last.is_some_and(are_two) {
            self.text.push(' ');
            self.open.iter_mut().rev().take_while(|node| node.start == at).for_each(|node| node.start += 1);
        }
        self.text.push_str(&token);
        self.is_word = is_word;
    }
}

/// The mark that a script puts on its base, if it is an accent alone.
fn accent(kind: Kind, script: &str) -> Option<char> {
    Some(match (kind, script.trim()) {
        (Kind::Above, "^" | "ˆ") => '\u{302}',
        (Kind::Above, "~" | "˜") => '\u{303}',
        (Kind::Above, "¯" | "‾" | "_") => '\u{305}',
        (Kind::Above, "→") => '\u{20D7}',
        (Kind::Above, "˙") => '\u{307}',
        (Kind::Above, "¨") => '\u{308}',
        (Kind::Below, "_" | "¯" | "‾") => '\u{332}',
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Format, Limits, xml::XmlReader};

    fn written(formula: &str) -> String {
        let formula = format!("<math>{formula}</math>");
        let mut reader = XmlReader::new(formula.as_bytes(), Format::Html, &Limits::default());
        let mut written = MathMl::default();
        while let Some(node) = reader.next().unwrap() {
            written.node(node);
        }
        assert!(!written.is_open());
        written.finish()
    }

    #[test]
    fn formulas_are_written_as_one_would_type_them() {
        for (formula, text) in [
            ("<mi>x</mi><mo>=</mo><mfrac><mn>1</mn><mn>2</mn></mfrac>", "x=1/2"),
            ("<mn>2</mn><mfrac><mn>1</mn><mn>2</mn></mfrac><mi>x</mi>", "2 1/2 x"),
            ("<mfrac><mrow><mi>a</mi><mo>+</mo><mi>b</mi></mrow><mrow><mn>2</mn><mi>c</mi></mrow></mfrac>", "(a+b)/2c"),
            ("<mn>5</mn><mo>×</mo><msup><mn>10</mn><mrow><mo>−</mo><mn>6</mn></mrow></msup>", "5×10^(−6)"),
            ("<mn>5</mn><msup><mn>10</mn><mn>6</mn></msup>", "5 10^6"),
            ("<msup><mi>x</mi><mn>2</mn></msup><msup><mi>y</mi><mn>3</mn></msup>", "x^2 y^3"),
            ("<msup><mi>x</mi><mfrac><mn>1</mn><mn>2</mn></mfrac></msup>", "x^(1/2)"),
            (
                "<msubsup><mi>a</mi><mn>1</mn><mn>2</mn></msubsup><msub><mi>H</mi><mn>2</mn></msub><mi>O</mi>",
                "a_1^2 H_2 O",
            ),
            (
                "<munderover><mo>∑</mo><mrow><mi>k</mi><mo>=</mo><mn>0</mn></mrow><mi>n</mi></munderover><mi>k</mi>",
                "∑_(k=0)^n k",
            ),
            ("<msqrt><mi>x</mi><mo>+</mo><mn>1</mn></msqrt><msqrt><mn>2</mn></msqrt>", "√(x+1)√2"),
            ("<mroot><mi>x</mi><mn>3</mn></mroot><mi>y</mi>", "√(3&x)y"),
            ("<mi>f</mi><msup><mi>g</mi><mo>′</mo></msup><mover><mi>x</mi><mo>¯</mo></mover>", "fg′x\u{305}"),
            ("<mover><mi>p</mi><mo>^</mo></mover><mi>q</mi>", "p\u{302}q"),
            ("<mover><mrow><mi>a</mi><mo>+</mo><mi>b</mi></mrow><mo>→</mo></mover>", "(a+b)\u{20D7}"),
            ("<munder><mi>x</mi><mo>_</mo></munder><msup><mi>y</mi><mo>~</mo></msup>", "x\u{332}y~"),
            ("<mover><mo>=</mo><mi>def</mi></mover>", "=^def"),
            ("<mfenced separators=\";|\"><mi>a</mi><mi>b</mi><mi>c</mi><mi>d</mi></mfenced>", "(a; b|c|d)"),
            ("<mfenced separators=\"\"><mi>a</mi><mi>b</mi></mfenced>", "(ab)"),
            ("<mi>sin</mi><mo>\u{2061}</mo><mi>x</mi><mtext> if </mtext><mn>2</mn><mi>x</mi>", "sin x if 2x"),
            ("\n <mi>x</mi>\n <mi>y</mi>\n <mn>1</mn><mn>2</mn>", "xy1 2"),
            (
                "<mfenced><mi>a</mi><mi>b</mi></mfenced><mfenced open=\"[\" close=\"]\"><mi>c</mi></mfenced>",
                "(a, b)[c]",
            ),
            ("<mi>x</mi><mtext>\u{a0}</mtext><mi>y</mi>", "x y"),
            ("<mfrac linethickness=\"0pt\"><mi>n</mi><mi>k</mi></mfrac>", "n¦k"),
            (
                "<mo>(</mo><mtable><mtr><mtd><mn>1</mn></mtd><mtd><mn>2</mn></mtd></mtr><mtr><mtd><mn>3</mn></mtd></mtr></mtable><mo>)</mo>",
                "(1 2; 3)",
            ),
            ("<semantics><mi>x</mi><annotation encoding=\"application/x-tex\">\\alpha</annotation></semantics>", "x"),
            ("<semantics><annotation-xml><mi>y</mi></annotation-xml></semantics>", ""),
            ("plain &lt; <mtext>a<b>b</b>c</mtext>", "plain<abc"),
            ("<mmultiscripts><mi>C</mi><mprescripts/><mn>6</mn><mn>14</mn></mmultiscripts><mi>x</mi>", "_6^14 C x"),
            (
                "<mn>2</mn><mmultiscripts><mi>X</mi><none/><mn>2</mn><mprescripts/><mn>6</mn><mn>14</mn></mmultiscripts>",
                "2 _6^14 X^2",
            ),
            ("<mmultiscripts><mi>C</mi><mprescripts/><none/><mn>14</mn></mmultiscripts>", "^14 C"),
            (
                "<mmultiscripts><mi>R</mi><mi>i</mi><none/><none/><mrow><mi>j</mi><mi>k</mi></mrow></mmultiscripts>",
                "R_i^jk",
            ),
            (
                "<msup><mi>x</mi><mmultiscripts><mi>C</mi><mprescripts/><none/><mn>14</mn></mmultiscripts></msup>",
                "x^(^14 C)",
            ),
            ("<msubsup><mi>x</mi><mn>1</mn><mrow></mrow></msubsup><mn>5</mn>", "x_1 5"),
        ] {
            assert_eq!(written(formula), text, "{formula}");
        }
    }

    #[test]
    fn what_is_nested_too_deep_is_written_without_its_structure() {
        let (begin, end) = ("<msup><mi>x</mi>".repeat(100), "</msup>".repeat(100));
        let text = written(&format!("{begin}{end}"));
        assert_eq!(text.matches('x').count(), 100);
        assert!(text.matches('^').count() <= DEEPEST, "{text}");
    }
}
