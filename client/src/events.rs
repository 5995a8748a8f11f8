//! Answers that come as server-sent events, as the HTML standard defines `text/event-stream`.
#[cfg(feature = "openapi")]
use crate::reply::Described;
use crate::{Failure, Incoming, operation::Wire, position::Known, reply::Reply};
use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt, stream, stream::BoxStream};
use std::{
    borrow::Cow,
    marker::PhantomData,
    pin::Pin,
    task::{Context, Poll, ready},
};

/// The name of the event that carries a [`Failure`]; the stream ends with it.
pub const PROBLEM: &str = "problem";
/// The largest event that is accepted, in bytes.
const EVENT_BYTES: usize = 16 << 20;

/// One event of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event<T> {
    /// The id that a caller sends in `Last-Event-ID` to continue after this event.
    pub id: Option<String>,
    pub name: Cow<'static, str>,
    pub data: T,
}

/// What a stream of events carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sent<T> {
    Event(Event<T>),
    /// The id to send in `Last-Event-ID` to continue from here: nothing before it is left to send.
    Position(String),
}

/// Events as they happen. A failure is always the last item.
pub struct EventStream<T> {
    sent: BoxStream<'static, Result<Sent<T>, Failure>>,
    /// An event that came where a position was waited for.
    early: Option<Event<T>>,
    last_id: Option<String>,
}

impl<T> EventStream<T> {
    pub fn new(sent: impl Stream<Item = Result<Sent<T>, Failure>> + Send + 'static) -> EventStream<T> {
        EventStream { sent: sent.boxed(), early: None, last_id: None }
    }

    /// The id to send in `Last-Event-ID` to continue where this stream is.
    pub fn last_id(&self) -> Option<&str> {
        self.last_id.as_deref()
    }

    /// Waits until the stream says where it begins.
    pub async fn begun(&mut self) -> Result<(), Failure> {
        match self.sent.next().await.transpose()? {
            Some(Sent::Position(id)) => self.last_id = Some(id),
            Some(Sent::Event(event)) => self.early = Some(event),
            None => {}
        }
        Ok(())
    }

    /// The events and the positions between them.
    pub fn into_sent(self) -> BoxStream<'static, Result<Sent<T>, Failure>> {
        self.sent
    }
}

impl<T: Unpin> Stream for EventStream<T> {
    type Item = Result<Event<T>, Failure>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let sent = match self.early.take() {
                Some(event) => Some(Ok(Sent::Event(event))),
                None => ready!(self.sent.poll_next_unpin(context)),
            };
            match sent {
                Some(Ok(Sent::Position(id))) => self.last_id = Some(id),
                Some(Ok(Sent::Event(event))) => {
                    if event.id.is_some() {
                        self.last_id.clone_from(&event.id);
                    }
                    return Poll::Ready(Some(Ok(event)));
                }
                Some(Err(failure)) => return Poll::Ready(Some(Err(failure))),
                None => return Poll::Ready(None),
            }
        }
    }
}

/// 200 with `text/event-stream`; the data of each event is JSON.
pub struct Events<T>(PhantomData<T>);

impl<T: Wire> Reply for Events<T> {
    type Value = EventStream<T>;
    fn is_success(status: u16) -> bool {
        status == 200
    }
    fn accept() -> &'static str {
        "text/event-stream"
    }
    fn heeds() -> Vec<&'static str> {
        vec!["last-event-id"]
    }
    async fn receive(answer: Incoming) -> Result<EventStream<T>, Failure> {
        let known = answer.known.clone();
        Ok(read(answer.pieces(), known))
    }
    #[cfg(feature = "openapi")]
    fn describe(_: &mut crate::reply::Schemas) -> Vec<Described> {
        let text = utoipa::openapi::ObjectBuilder::new().schema_type(utoipa::openapi::Type::String);
        vec![Described::new(200, "Success", &[("text/event-stream", text.into())])]
    }
}

/// Reads events from the pieces of a body. The client knows what they tell of from then on.
fn read<T: Wire>(pieces: BoxStream<'static, Result<Bytes, Failure>>, known: Known) -> EventStream<T> {
    EventStream::new(stream::try_unfold(Some((pieces, Parser::default(), known)), async |state| {
        let Some((mut pieces, mut parser, known)) = state else { return Ok(None) };
        loop {
            if let Some(parsed) = parser.next()? {
                let raw = match parsed {
                    Parsed::Event(raw) => raw,
                    Parsed::Position(id) => return Ok(Some((Sent::Position(id), Some((pieces, parser, known))))),
                };
                let failed = raw.name.as_deref() == Some(PROBLEM);
                let misread =
                    |error| Failure::unreachable(format!("an event does not have the form of this version: {error}"));
                if failed {
                    return Err(serde_json::from_str(&raw.data).unwrap_or_else(misread));
                }
                let data: T = serde_json::from_str(&raw.data).map_err(misread)?;
                known.note(data.position());
                let name = raw.name.map_or(Cow::Borrowed("message"), Cow::Owned);
                let event = Event { id: raw.id, name, data };
                return Ok(Some((Sent::Event(event), Some((pieces, parser, known)))));
            }
            match pieces.next().await {
                Some(piece) => parser.feed(&piece?)?,
                None => return Ok(None),
            }
        }
    }))
}

/// The data of each event, for streams of other services.
pub fn event_data(
    pieces: BoxStream<'static, Result<Bytes, Failure>>,
) -> impl Stream<Item = Result<String, Failure>> + Send + 'static {
    stream::try_unfold((pieces, Parser::default()), async |(mut pieces, mut parser)| {
        loop {
            match parser.next()? {
                Some(Parsed::Event(raw)) => return Ok(Some((raw.data, (pieces, parser)))),
                Some(Parsed::Position(_)) => continue,
                None => {}
            }
            match pieces.next().await {
                Some(piece) => parser.feed(&piece?)?,
                None => return Ok(None),
            }
        }
    })
}

/// What the bytes of a stream say.
#[derive(Debug, PartialEq, Eq)]
enum Parsed {
    Event(Raw),
    /// An id without data.
    Position(String),
}

/// An event whose data has not been parsed yet.
#[derive(Debug, Default, PartialEq, Eq)]
struct Raw {
    id: Option<String>,
    name: Option<String>,
    data: String,
}

/// Turns pieces of a body into events. It skips comments and `retry`.
#[derive(Default)]
struct Parser {
    buffer: BytesMut,
    /// How many bytes at the start of the buffer are known to contain no line feed.
    searched: usize,
    event: Raw,
    has_data: bool,
    has_id: bool,
    last_id: Option<String>,
}

impl Parser {
    fn feed(&mut self, piece: &[u8]) -> Result<(), Failure> {
        if self.buffer.len() + self.event.data.len() + piece.len() > EVENT_BYTES {
            return Err(Failure::unreachable(format!("an event is larger than {EVENT_BYTES} bytes")));
        }
        self.buffer.extend_from_slice(piece);
        Ok(())
    }

    fn next(&mut self) -> Result<Option<Parsed>, Failure> {
        while let Some(length) = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n') {
            let line = self.buffer.split_to(self.searched + length + 1);
            self.searched = 0;
            let line = std::str::from_utf8(&line).map_err(|_| Failure::unreachable("an event is not UTF-8"))?;
            let line = line.trim_end_matches(['\r', '\n']);
            if line.is_empty() {
                let event = std::mem::take(&mut self.event);
                let has_id = std::mem::take(&mut self.has_id);
                if std::mem::take(&mut self.has_data) {
                    return Ok(Some(Parsed::Event(Raw { id: self.last_id.clone(), ..event })));
                }
                if let Some(id) = self.last_id.clone().filter(|_| has_id) {
                    return Ok(Some(Parsed::Position(id)));
                }
                continue;
            }
            let (field, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "event" => self.event.name = Some(value.to_owned()),
                "id" => {
                    self.last_id = Some(value.to_owned());
                    self.has_id = true;
                }
                "data" => {
                    if std::mem::replace(&mut self.has_data, true) {
                        self.event.data.push('\n');
                    }
                    self.event.data.push_str(value);
                }
                _ => {}
            }
        }
        self.searched = self.buffer.len();
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_the_same_however_their_bytes_are_cut() {
        let text = "retry: 2000\n\nid: 6\n\n: keep-alive\n\nid: 7\nevent: frontier\ndata: {\"a\":\ndata: 1}\n\r\nid\ndata\n\ndata: é\n\nevent: unfinished\ndata: 1\n";
        let event = |id: &str, name: Option<&str>, data: &str| {
            let (id, name, data) = (Some(id.to_owned()), name.map(str::to_owned), data.to_owned());
            Parsed::Event(Raw { id, name, data })
        };
        let position = Parsed::Position("6".to_owned());
        let expected =
            [position, event("7", Some("frontier"), "{\"a\":\n1}"), event("", None, ""), event("", None, "é")];
        for size in 1..text.len() {
            let mut parser = Parser::default();
            let mut events = Vec::new();
            for piece in text.as_bytes().chunks(size) {
                parser.feed(piece).expect("small");
                while let Some(event) = parser.next().expect("an event") {
                    events.push(event);
                }
            }
            assert_eq!(events, expected, "pieces of {size} bytes");
        }
    }

    #[test]
    fn an_event_without_an_end_is_given_up() {
        let mut parser = Parser::default();
        let piece = [b'x'; 1 << 16];
        let refused = (0..=EVENT_BYTES / piece.len()).find_map(|_| {
            let refused = parser.feed(&piece).err();
            parser.next().expect("no line yet");
            refused
        });
        assert!(refused.expect("a limit").detail.contains("larger than"));
    }
}
