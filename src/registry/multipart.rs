//! The parts of a `multipart/form-data` body, from frames as they arrive. Whatever is sent, the reader holds only one
//! frame, the header of one part and the length of one delimiter, and it looks at each byte once.
use bytes::{Buf, Bytes, BytesMut};
use memchr::memmem;
use svc_client::constraint::as_media_type;

/// The longest header of one part; this also limits what comes before the first boundary.
pub const HEAD_BYTES: usize = 16 * 1024;
/// The longest boundary; RFC 2046 allows 70 characters.
const BOUNDARY_BYTES: usize = 200;

/// Why a body is not a form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormError {
    #[error("the form must name its boundary: `Content-Type: multipart/form-data; boundary=...`")]
    NoBoundary,
    #[error("the header of a part of the form is over {HEAD_BYTES} bytes")]
    HeadTooLong,
    #[error("the form is damaged: {0}")]
    Damaged(&'static str),
    #[error("the form ended before its last boundary")]
    Ended,
}

/// What the header of a part says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    pub name: Option<String>,
    pub file_name: Option<String>,
    pub content_type: Option<String>,
}

/// The next thing in a form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Part(Head),
    /// Bytes of the part that began last; never empty.
    Data(Bytes),
    EndOfPart,
    /// The last boundary; what follows does not belong to the form.
    EndOfForm,
    /// Nothing more can be found before the next frame.
    NeedsFrame,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before the first boundary, with the number of bytes that were skipped.
    Preamble(usize),
    /// After a boundary whose line has not ended.
    Boundary,
    /// In a part's header, which begins with the end of the boundary's line; this many bytes do not contain its end.
    Head(usize),
    Data,
    Over,
}

/// Takes frames and returns steps.
#[derive(Debug)]
pub struct Parts {
    /// The separator of two parts: the end of a line, two hyphens and the boundary.
    delimiter: memmem::Finder<'static>,
    buffer: BytesMut,
    state: State,
}

impl Parts {
    /// Makes a reader for a body with this `Content-Type`.
    pub fn new(content_type: &str) -> Result<Parts, FormError> {
        let boundary = parameter(content_type, "boundary").ok_or(FormError::NoBoundary)?;
        if boundary.is_empty() || boundary.len() > BOUNDARY_BYTES {
            return Err(FormError::NoBoundary);
        }
        let delimiter = memmem::Finder::new(&format!("\r\n--{boundary}")).into_owned();
        // The first boundary may be at the very beginning, where no line ends before it.
        Ok(Parts { delimiter, buffer: BytesMut::from("\r\n"), state: State::Preamble(0) })
    }

    /// Takes the next frame of the body. Call it only after [`Step::NeedsFrame`], so that frames never pile up.
    pub fn feed(&mut self, frame: &[u8]) {
        self.buffer.extend_from_slice(frame);
    }

    pub fn next(&mut self) -> Result<Step, FormError> {
        loop {
            let step = match self.state {
                State::Preamble(passed) => self.preamble(passed)?,
                State::Boundary => self.boundary()?,
                State::Head(searched) => self.head(searched)?,
                State::Data => Some(self.data()),
                State::Over => Some(Step::EndOfForm),
            };
            if let Some(step) = step {
                return Ok(step);
            }
        }
    }

    fn preamble(&mut self, passed: usize) -> Result<Option<Step>, FormError> {
        if let Some(at) = self.delimiter.find(&self.buffer) {
            self.buffer.advance(at + self.delimiter.needle().len());
            self.state = State::Boundary;
            return Ok(None);
        }
        let useless = self.settled_bytes();
        self.buffer.advance(useless);
        self.state = State::Preamble(passed + useless);
        match passed + useless > HEAD_BYTES {
            true => Err(FormError::Damaged("it does not begin with its boundary")),
            false => Ok(Some(Step::NeedsFrame)),
        }
    }

    /// How many bytes at the front cannot be the beginning of a delimiter.
    fn settled_bytes(&self) -> usize {
        self.buffer.len().saturating_sub(self.delimiter.needle().len() - 1)
    }

    fn boundary(&mut self) -> Result<Option<Step>, FormError> {
        if self.buffer.starts_with(b"--") {
            self.state = State::Over;
            return Ok(None);
        }
        let padding = self.buffer.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        let rest = &self.buffer[padding..];
        if rest.starts_with(b"\r\n") {
            self.buffer.advance(padding);
            self.state = State::Head(0);
            return Ok(None);
        }
        let may_still_come = rest.is_empty() || rest == b"\r" || (padding == 0 && rest == b"-");
        if may_still_come && padding <= BOUNDARY_BYTES {
            return Ok(Some(Step::NeedsFrame));
        }
        Err(FormError::Damaged("a boundary is followed by something other than the end of its line"))
    }

    fn head(&mut self, searched: usize) -> Result<Option<Step>, FormError> {
        const END: &[u8] = b"\r\n\r\n";
        if let Some(at) = memmem::find(&self.buffer[searched..], END).map(|at| searched + at) {
            if at > HEAD_BYTES {
                return Err(FormError::HeadTooLong);
            }
            let head = head(&self.buffer[..at])?;
            self.buffer.advance(at + END.len());
            self.state = State::Data;
            return Ok(Some(Step::Part(head)));
        }
        let searched = self.buffer.len().saturating_sub(END.len() - 1);
        self.state = State::Head(searched);
        if searched > HEAD_BYTES { Err(FormError::HeadTooLong) } else { Ok(Some(Step::NeedsFrame)) }
    }

    fn data(&mut self) -> Step {
        match self.delimiter.find(&self.buffer) {
            Some(0) => {
                self.buffer.advance(self.delimiter.needle().len());
                self.state = State::Boundary;
                Step::EndOfPart
            }
            Some(at) => Step::Data(self.buffer.split_to(at).freeze()),
            None => match self.settled_bytes() {
                0 => Step::NeedsFrame,
                settled => Step::Data(self.buffer.split_to(settled).freeze()),
            },
        }
    }
}

fn head(bytes: &[u8]) -> Result<Head, FormError> {
    let text = String::from_utf8_lossy(bytes);
    let mut head = Head::default();
    for line in text.split("\r\n").filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').ok_or(FormError::Damaged("a line of a part's header has no colon"))?;
        if name.eq_ignore_ascii_case("content-disposition") {
            head.name = parameter(value, "name");
            head.file_name = parameter(value, "filename*").and_then(|value| extended(&value));
            head.file_name = head.file_name.or_else(|| parameter(value, "filename"));
        } else if name.eq_ignore_ascii_case("content-type") {
            head.content_type = as_media_type(value);
        }
    }
    Ok(head)
}

/// The value of a parameter of a header, such as the name in `form-data; name="file"`.
fn parameter(header: &str, wanted: &str) -> Option<String> {
    let mut rest = header.split_once(';')?.1;
    loop {
        let (name, after) = rest.split_once('=')?;
        let (value, behind) = match after.trim_start().strip_prefix('"') {
            Some(quoted) => unquoted(quoted)?,
            None => {
                let end = after.find(';').unwrap_or(after.len());
                (after[..end].trim().to_owned(), &after[end..])
            }
        };
        if name.trim().eq_ignore_ascii_case(wanted) {
            return Some(value);
        }
        rest = behind.split_once(';')?.1;
    }
}

/// The text up to the closing quote, and what follows it. A backslash escapes a quote and otherwise stands for itself,
/// because browsers send the paths of some systems as they are.
fn unquoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices().peekable();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, &text[at + 1..])),
            '\\' if characters.next_if(|(_, next)| *next == '"').is_some() => value.push('"'),
            other => value.push(other),
        }
    }
    None
}

/// A value as RFC 8187 extends it: `UTF-8''na%C3%AFve.txt`.
fn extended(value: &str) -> Option<String> {
    let (charset, rest) = value.split_once('\'')?;
    let (_, encoded) = rest.split_once('\'')?;
    let is_utf8 = charset.eq_ignore_ascii_case("utf-8");
    is_utf8.then(|| percent_encoding::percent_decode_str(encoded).decode_utf8_lossy().into_owned())
}

#[cfg(test)]
mod tests;
