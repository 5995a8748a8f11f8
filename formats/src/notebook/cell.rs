//! Takes one cell out of a notebook. Its members come in any order, and what has an unexpected type counts as absent.

use crate::json::{Fault, Token, Tokens};
use std::io::BufRead;

/// Bytes of one output that are kept, and outputs of one cell.
const OUTPUT: usize = 64 << 10;
const OUTPUTS: usize = 1000;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Kind {
    Markdown,
    /// A kind of cell of nbformat 3.
    Heading(u8),
    #[default]
    Code,
    Raw,
}

#[derive(Debug)]
pub(super) enum Output {
    /// What was printed or is the result, and how many bytes of it were not kept.
    Printed {
        text: String,
        cut: usize,
    },
    /// A result that is shown as Markdown.
    Markdown {
        text: String,
        cut: usize,
    },
    /// A result that is shown as a web page.
    Page {
        text: String,
        cut: usize,
    },
    Error {
        name: String,
        value: String,
    },
}

#[derive(Debug, Default)]
pub(super) struct Cell {
    pub kind: Kind,
    pub source: String,
    pub outputs: Vec<Output>,
}

impl Cell {
    /// Reads a cell whose beginning was taken.
    pub(super) fn read<R: BufRead>(tokens: &mut Tokens<R>) -> Result<Self, Fault> {
        let mut cell = Self::default();
        let (mut is_heading, mut level) = (false, 1);
        while let Some(Token::Key(key)) = tokens.next()? {
            match key.as_str() {
                "cell_type" => {
                    let kind = joined(tokens, usize::MAX)?.0;
                    is_heading = kind == "heading";
                    cell.kind = match kind.as_str() {
                        "markdown" => Kind::Markdown,
                        "raw" => Kind::Raw,
                        _ => Kind::Code,
                    };
                }
                "level" => {
                    if let Some(Token::Number(number)) = scalar(tokens)? {
                        level = number.parse().unwrap_or(1);
                    }
                }
                "source" | "input" => cell.source = joined(tokens, usize::MAX)?.0,
                "outputs" => outputs(tokens, &mut cell.outputs)?,
                _ => tokens.skip_value()?,
            }
        }
        if is_heading {
            cell.kind = Kind::Heading(level);
        }
        Ok(cell)
    }
}

fn outputs<R: BufRead>(tokens: &mut Tokens<R>, outputs: &mut Vec<Output>) -> Result<(), Fault> {
    each(tokens, |tokens| {
        let output = output(tokens)?;
        outputs.extend(output.filter(|_| outputs.len() < OUTPUTS));
        Ok(())
    })
}

/// What the plain text of an object begins with that is shown as Markdown or as a page.
const SHOWN: &str = "<IPython.core.display.";

/// Reads an output whose beginning was taken. Of several forms of a result the plain text is kept; where the result is an
/// image, Markdown or a page, that text only names the object.
fn output<R: BufRead>(tokens: &mut Tokens<R>) -> Result<Option<Output>, Fault> {
    let (mut printed, mut name, mut value, mut is_image) = (None, None, None, false);
    let (mut markdown, mut page) = (None, None);
    while let Some(Token::Key(key)) = tokens.next()? {
        match key.as_str() {
            "text" => printed = Some(joined(tokens, OUTPUT)?),
            "ename" => name = Some(joined(tokens, OUTPUT)?.0),
            "evalue" => value = Some(joined(tokens, OUTPUT)?.0),
            "png" | "jpeg" | "svg" => {
                is_image = true;
                tokens.skip_value()?;
            }
            "data" => match tokens.next()? {
                Some(Token::BeginObject) => {
                    while let Some(Token::Key(kind)) = tokens.next()? {
                        is_image |= kind.starts_with("image/");
                        match kind.as_str() {
                            "text/plain" => printed = Some(joined(tokens, OUTPUT)?),
                            "text/markdown" => markdown = Some(joined(tokens, OUTPUT)?),
                            "text/html" => page = Some(joined(tokens, OUTPUT)?),
                            _ => tokens.skip_value()?,
                        }
                    }
                }
                other => skip_rest(tokens, other)?,
            },
            _ => tokens.skip_value()?,
        }
    }
    if let Some(name) = name {
        return Ok(Some(Output::Error { name, value: value.unwrap_or_default() }));
    }
    let is_printed = printed.as_ref().is_some_and(|(text, _)| !text.trim_start().starts_with(SHOWN));
    match (markdown, page) {
        (Some((text, cut)), _) if !is_printed => return Ok(Some(Output::Markdown { text, cut })),
        (None, Some((text, cut))) if !is_printed => return Ok(Some(Output::Page { text, cut })),
        _ => {}
    }
    let is_named_only = |text: &str| is_image && text.starts_with('<') && text.trim_end().ends_with('>');
    Ok(printed.filter(|(text, _)| !is_named_only(text)).map(|(text, cut)| Output::Printed { text, cut }))
}

/// Takes each object of an array; the end of an object is taken by `take`.
fn each<R: BufRead>(
    tokens: &mut Tokens<R>,
    mut take: impl FnMut(&mut Tokens<R>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    match tokens.next()? {
        Some(Token::BeginArray) => {}
        other => return skip_rest(tokens, other),
    }
    loop {
        match tokens.next()? {
            Some(Token::BeginObject) => take(tokens)?,
            Some(Token::EndArray) | None => return Ok(()),
            other => skip_rest(tokens, other)?,
        }
    }
}

/// A text, or the texts of an array one after the other, up to a number of bytes; and how many are left out.
fn joined<R: BufRead>(tokens: &mut Tokens<R>, most: usize) -> Result<(String, usize), Fault> {
    let (mut joined, mut cut) = (String::new(), 0);
    let mut add = |text: &str| {
        let end = text.floor_char_boundary(most - joined.len());
        joined.push_str(&text[..end]);
        cut += text.len() - end;
    };
    match tokens.next()? {
        Some(Token::Text(text)) => add(&text),
        Some(Token::BeginArray) => loop {
            match tokens.next()? {
                Some(Token::Text(text)) => add(&text),
                Some(Token::EndArray) | None => break,
                other => skip_rest(tokens, other)?,
            }
        },
        other => skip_rest(tokens, other)?,
    }
    Ok((joined, cut))
}

/// Takes a value that should be one token.
fn scalar<R: BufRead>(tokens: &mut Tokens<R>) -> Result<Option<Token>, Fault> {
    let token = tokens.next()?;
    if matches!(token, Some(Token::BeginArray | Token::BeginObject)) {
        skip_rest(tokens, token)?;
        return Ok(None);
    }
    Ok(token)
}

/// Skips what is left of a value of which the first token was taken.
fn skip_rest<R: BufRead>(tokens: &mut Tokens<R>, first: Option<Token>) -> Result<(), Fault> {
    if matches!(first, Some(Token::BeginArray | Token::BeginObject)) {
        let outside = tokens.depth() - 1;
        while tokens.depth() > outside {
            tokens.next()?.ok_or(Fault::End)?;
        }
    }
    Ok(())
}
