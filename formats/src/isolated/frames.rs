//! The answers of a child on their channel.
//!
//! A stream is the magic, then frames: a kind (one byte), the length of the body (four bytes, little-endian), the body.
//! An answer is JSON in one or more bodies of bounded size, so neither side holds it twice; the bytes of a member or an
//! image and the pixels of a picture go as they are. The last frame says how the reading ended; a stream without it broke off.

use super::{Answer, Exit, Request, Usage};
use crate::{FormatError, ImagePart, Limit, MemberPart};
use serde::{Deserialize, Serialize};
use std::{collections::VecDeque, io, io::Write};

const MAGIC: &[u8; 4] = b"SVF2";
const HEADER: usize = 1 + size_of::<u32>();
/// The most bytes in one body.
const BODY: usize = 256 << 10;

/// A part of an answer; more follows.
const PART: u8 = b'P';
/// The last or only part of an answer.
const ANSWER: u8 = b'A';
/// Bytes of a member, an image or a picture, which are an answer of their own.
const BYTES: u8 = b'B';
/// The end of the reading.
const END: u8 = b'E';

#[derive(Debug, Serialize, Deserialize)]
struct End {
    result: Result<(), FormatError>,
    usage: Usage,
    /// The walls that the child's kernel did not put up.
    lacking: Vec<String>,
}

/// The child's side: makes frames of answers and writes them.
pub(super) struct Encoder<W> {
    out: W,
    begun: bool,
    /// A frame: its header, then the part of its body so far.
    frame: Vec<u8>,
    /// How many bytes are left for all answers, for this one, and for those that go as they are.
    room: u64,
    room_of_answer: u64,
    room_of_bytes: u64,
    limits: (u64, u64),
}

impl<W: Write> Encoder<W> {
    pub(super) fn new(out: W, request: &Request) -> Self {
        let limits = (request.limits.answer_bytes, request.step.largest_answer(&request.limits));
        let room_of_bytes = request.step.most_bytes(&request.limits);
        let frame = vec![0; HEADER];
        Self { out, begun: false, frame, room: limits.0, room_of_answer: 0, room_of_bytes, limits }
    }

    pub(super) fn answer(&mut self, answer: &Answer) -> Result<(), FormatError> {
        if let Answer::Member(MemberPart::Bytes(bytes))
        | Answer::Image(ImagePart::Bytes(bytes))
        | Answer::Pixels(bytes) = answer
        {
            return self.bytes(bytes);
        }
        self.room_of_answer = self.limits.1;
        // A writer's error comes back unchanged.
        serde_json::to_writer(&mut *self, answer).map_err(io::Error::from)?;
        Ok(self.send(ANSWER)?)
    }

    fn bytes(&mut self, bytes: &[u8]) -> Result<(), FormatError> {
        for piece in bytes.chunks(BODY) {
            let room = self.room_of_bytes.checked_sub(piece.len() as u64);
            self.room_of_bytes = room.ok_or_else(too_many_bytes)?;
            self.frame.extend_from_slice(piece);
            self.send(BYTES)?;
        }
        Ok(())
    }

    pub(super) fn end(mut self, result: Result<(), FormatError>, usage: Usage, lacking: Vec<String>) -> io::Result<()> {
        // This removes what is left of an abandoned answer.
        self.frame.truncate(HEADER);
        serde_json::to_writer(&mut self.frame, &End { result, usage, lacking })?;
        self.send(END)?;
        self.out.flush()
    }

    fn send(&mut self, kind: u8) -> io::Result<()> {
        if !self.begun {
            self.out.write_all(MAGIC)?;
            self.begun = true;
        }
        let length = u32::try_from(self.frame.len() - HEADER).map_err(io::Error::other)?;
        self.frame[0] = kind;
        self.frame[1..HEADER].copy_from_slice(&length.to_le_bytes());
        self.out.write_all(&self.frame)?;
        self.frame.truncate(HEADER);
        Ok(())
    }
}

impl<W: Write> Write for Encoder<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = bytes.len() as u64;
        for (room, limit, what) in [
            (&mut self.room_of_answer, self.limits.1, "the answer is"),
            (&mut self.room, self.limits.0, "the answers are together"),
        ] {
            *room = room.checked_sub(length).ok_or_else(|| over(what, limit))?;
        }
        for piece in bytes.chunks(BODY) {
            if self.frame.len() - HEADER + piece.len() > BODY {
                self.send(PART)?;
            }
            self.frame.extend_from_slice(piece);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn over(what: &str, limit: u64) -> FormatError {
    FormatError::over(Limit::AnswerBytes, format_args!("{what} over {limit} bytes"))
}

fn too_many_bytes() -> FormatError {
    FormatError::crashed("it gave more bytes of members or pixels than it was allowed to")
}

/// The parent's side: makes answers of what comes over the channel, in pieces of any size. It holds one incomplete
/// answer, and those that nobody has taken.
#[derive(Debug)]
pub struct Decoder {
    request: Request,
    state: State,
    /// The part of the answer so far.
    answer: Vec<u8>,
    room: u64,
    room_of_bytes: u64,
    ready: VecDeque<Answer>,
    end: Option<End>,
}

#[derive(Debug)]
enum State {
    /// Within the magic or a header, with the part of it so far.
    Header {
        begun: bool,
        bytes: Vec<u8>,
    },
    Body {
        kind: u8,
        left: usize,
    },
    /// The stream has been refused, and everything further is ignored.
    Refused(FormatError),
}

impl Decoder {
    /// Makes a decoder for the answers to one request.
    pub fn new(request: &Request) -> Self {
        Self {
            state: State::Header { begun: false, bytes: Vec::new() },
            answer: Vec::new(),
            room: request.limits.answer_bytes,
            room_of_bytes: request.step.most_bytes(&request.limits),
            ready: VecDeque::new(),
            end: None,
            request: request.clone(),
        }
    }

    /// Takes in bytes. Answers that become complete wait in [`Decoder::next_answer`].
    ///
    /// # Errors
    /// The stream is not one that our child writes, or exceeds its limits; the child is best killed then. The error
    /// stays.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Result<(), FormatError> {
        while !bytes.is_empty() {
            match self.step(&mut bytes) {
                Ok(next) => self.state = next,
                Err(error) => self.state = State::Refused(error),
            }
            if let State::Refused(error) = &self.state {
                return Err(error.clone());
            }
        }
        Ok(())
    }

    fn step(&mut self, bytes: &mut &[u8]) -> Result<State, FormatError> {
        match std::mem::replace(&mut self.state, State::Refused(FormatError::UnknownFormat)) {
            State::Header { begun, bytes: mut header } => {
                let wanted = if begun { HEADER } else { MAGIC.len() };
                header.extend_from_slice(take(bytes, wanted - header.len()));
                if header.len() < wanted {
                    return Ok(State::Header { begun, bytes: header });
                }
                if !begun {
                    return match header == MAGIC {
                        true => Ok(State::Header { begun: true, bytes: Vec::new() }),
                        false => Err(FormatError::crashed("its output is not a reader's")),
                    };
                }
                self.header(&header)
            }
            State::Body { kind, left } => {
                let piece = take(bytes, left);
                self.answer.extend_from_slice(piece);
                self.body(kind, left - piece.len())
            }
            refused @ State::Refused(_) => Ok(refused),
        }
    }

    fn header(&mut self, header: &[u8]) -> Result<State, FormatError> {
        let kind = header[0];
        let length = header[1..].iter().rev().fold(0, |length, &byte| (length << 8) | usize::from(byte));
        if self.end.is_some() || ![PART, ANSWER, BYTES, END].contains(&kind) || length > BODY {
            return Err(FormatError::crashed("a frame of its answer cannot be read"));
        }
        if kind == END {
            // If an answer was abandoned, a part of it may come before the end.
            let unfinished = !std::mem::take(&mut self.answer).is_empty();
            return Ok(State::Body { kind: if unfinished { END | UNFINISHED } else { END }, left: length });
        }
        if kind == BYTES {
            if !self.answer.is_empty() {
                return Err(FormatError::crashed("bytes of a member or pixels came within another answer"));
            }
            let room = self.room_of_bytes.checked_sub(length as u64);
            self.room_of_bytes = room.ok_or_else(too_many_bytes)?;
            return self.body(kind, length);
        }
        let limits = &self.request.limits;
        let whole = (self.answer.len() + length) as u64;
        let largest = self.request.step.largest_answer(limits);
        if whole > largest {
            return Err(over("the answer is", largest));
        }
        self.room = self
            .room
            .checked_sub(length as u64)
            .ok_or_else(|| over("the answers are together", limits.answer_bytes))?;
        self.body(kind, length)
    }

    /// Continues a body of which `left` bytes are still to come.
    fn body(&mut self, kind: u8, left: usize) -> Result<State, FormatError> {
        if left > 0 {
            return Ok(State::Body { kind, left });
        }
        match kind {
            PART => {}
            BYTES => {
                let bytes = std::mem::take(&mut self.answer);
                self.ready.push_back(self.request.step.of_bytes(bytes));
            }
            ANSWER => {
                let bytes = std::mem::take(&mut self.answer);
                self.ready.push_back(serde_json::from_slice(&bytes).map_err(unreadable)?);
            }
            _ => {
                let end: End = serde_json::from_slice(&std::mem::take(&mut self.answer)).map_err(unreadable)?;
                if kind & UNFINISHED != 0 && end.result.is_ok() {
                    return Err(FormatError::crashed("its last answer is not whole"));
                }
                self.end = Some(end);
            }
        }
        Ok(State::Header { begun: true, bytes: Vec::new() })
    }

    /// The next complete answer, in the order in which they were emitted.
    pub fn next_answer(&mut self) -> Option<Answer> {
        self.ready.pop_front()
    }

    /// The cost of the reading, once its end has arrived; a killed child could not report it.
    pub fn usage(&self) -> Option<Usage> {
        self.end.as_ref().map(|end| end.usage)
    }

    /// The walls that the child's kernel did not put up, as the child said at its end. Believe this only of a child
    /// that read a harmless file.
    pub fn lacking(&self) -> &[String] {
        self.end.as_ref().map_or(&[], |end| &end.lacking)
    }

    /// Whether the reading ended well. Call it when the channel is closed and the child is gone; until this says so,
    /// the answers may belong to a reading that failed half way.
    ///
    /// # Errors
    /// The reader's own refusal, or what the child's end stands for: a limit by name, a crash, or an I/O error if
    /// somebody outside asked it to end.
    pub fn finish(&self, exit: &Exit) -> Result<Usage, FormatError> {
        // The caller kills a child whose stream was refused, so this comes first.
        if let State::Refused(error) = &self.state {
            return Err(error.clone());
        }
        if let Some(refusal) = exit.refusal(&self.request.limits) {
            return Err(refusal);
        }
        match &self.end {
            Some(End { result, usage, .. }) if matches!(&self.state, State::Header { bytes, .. } if bytes.is_empty()) => {
                result.clone().map(|()| *usage)
            }
            _ => Err(FormatError::crashed(format_args!(
                "exit code {}, and its answer broke off",
                exit.code.unwrap_or(-1)
            ))),
        }
    }
}

/// Marks, among the kinds of a body, an end that came within an answer.
const UNFINISHED: u8 = 0x80;

fn take<'a>(bytes: &mut &'a [u8], most: usize) -> &'a [u8] {
    let (taken, rest) = bytes.split_at(bytes.len().min(most));
    *bytes = rest;
    taken
}

fn unreadable(error: serde_json::Error) -> FormatError {
    FormatError::crashed(format_args!("its answer cannot be read: {error}"))
}

#[cfg(test)]
mod tests;
