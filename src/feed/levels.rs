//! Cuts off how deep the headers of a message lie within each other, before the client of the broker reads them. It reads a value within a
//! value by a call within a call, so a message whose headers lie some hundreds deep would end this process, and each one that came after it.
use async_rs::{Runtime, Tokio, TokioRuntime, traits::Reactor, util::RuntimeParts};
use futures_io::{AsyncRead, AsyncWrite};
use futures_util::Stream;
use lapin::{AsyncTcpStream, Connection, ConnectionProperties, tcp::AMQPUriTcpExt, uri::AMQPUri};
use std::{
    io::{self, IoSlice, Read, Write},
    net::SocketAddr,
    os::fd::{AsFd, AsRawFd},
    pin::Pin,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

/// How deep a value may lie. What lies deeper arrives as the bytes that it is made of.
const LEVELS: usize = 32;
/// The type of the frames that have the properties of messages.
const PROPERTIES: u8 = 2;
/// A frame begins with its type, its channel and the length of its payload, and ends with one byte.
const HEAD: usize = 7;
/// The longest properties, far above what a broker lets anybody publish.
const LONGEST: usize = 16 << 20;
/// How much is read at a time.
const PIECE: usize = 64 << 10;

/// Connects to a broker.
pub async fn connect(uri: AMQPUri, properties: ConnectionProperties) -> lapin::Result<Connection> {
    let (tokio, own) = (Tokio::current(), TokioRuntime::tokio_current());
    let runtime = Runtime::new(RuntimeParts::new(tokio.clone(), Leveling(tokio)));
    let connect = async move |uri: AMQPUri, _: Runtime<RuntimeParts<Tokio, Leveling>>| {
        Ok(AsyncTcpStream::Plain(Leveled::new(uri.connect_async(&own).await?)))
    };
    Connection::connector(uri, runtime, connect, properties).await
}

/// The reactor of Tokio, but for its connections.
#[derive(Clone, Debug)]
struct Leveling(Tokio);

impl Reactor for Leveling {
    type TcpStream = Leveled;
    type Sleep = <Tokio as Reactor>::Sleep;

    fn register<H: Read + Write + AsFd + AsRawFd + Send + 'static>(
        &self,
        socket: H,
    ) -> io::Result<impl AsyncRead + AsyncWrite + Send + Unpin + 'static> {
        self.0.register(socket)
    }

    fn sleep(&self, time: Duration) -> Self::Sleep {
        self.0.sleep(time)
    }

    fn interval(&self, time: Duration) -> impl Stream<Item = Instant> + Send + 'static {
        self.0.interval(time)
    }

    fn tcp_connect_addr(
        &self,
        address: SocketAddr,
    ) -> impl Future<Output = io::Result<Self::TcpStream>> + Send + 'static {
        let connecting = self.0.tcp_connect_addr(address);
        async move { Ok(Leveled::new(AsyncTcpStream::Plain(connecting.await?))) }
    }
}

/// A connection to the broker, behind its TLS.
struct Leveled {
    connection: AsyncTcpStream<<Tokio as Reactor>::TcpStream>,
    frames: Frames,
    piece: Box<[u8]>,
    /// What the client has not read yet, and how much of it that has.
    ready: Vec<u8>,
    read: usize,
}

impl Leveled {
    fn new(connection: AsyncTcpStream<<Tokio as Reactor>::TcpStream>) -> Leveled {
        Leveled { connection, frames: Frames::default(), piece: vec![0; PIECE].into(), ready: Vec::new(), read: 0 }
    }
}

impl AsyncRead for Leveled {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        while this.read == this.ready.len() {
            this.ready.clear();
            this.read = 0;
            let arrived = ready!(Pin::new(&mut this.connection).poll_read(context, &mut this.piece))?;
            if arrived == 0 {
                return Poll::Ready(Ok(0));
            }
            this.frames.take(&this.piece[..arrived], &mut this.ready)?;
        }
        let left = &this.ready[this.read..];
        let now = left.len().min(buffer.len());
        buffer[..now].copy_from_slice(&left[..now]);
        this.read += now;
        Poll::Ready(Ok(now))
    }
}

impl AsyncWrite for Leveled {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.connection).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.connection).poll_write_vectored(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_flush(context)
    }

    fn poll_close(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_close(context)
    }
}

/// The frames that a broker sends, of which those with properties are held until they are whole.
#[derive(Default)]
struct Frames {
    held: Vec<u8>,
    /// How much of a frame without properties is still to come.
    passing: u64,
}

impl Frames {
    /// Takes what has arrived, and adds to `ready` what the client may read.
    fn take(&mut self, mut arrived: &[u8], ready: &mut Vec<u8>) -> io::Result<()> {
        while !arrived.is_empty() {
            let wanted = match self.passing {
                0 => self.size() - self.held.len(),
                left => usize::try_from(left).unwrap_or(usize::MAX),
            };
            let (now, rest) = arrived.split_at(wanted.min(arrived.len()));
            arrived = rest;
            if self.passing > 0 {
                ready.extend_from_slice(now);
                self.passing -= now.len() as u64;
                continue;
            }
            self.held.extend_from_slice(now);
            if now.len() < wanted {
                continue;
            }
            let length = length(&self.held, HEAD - 4).unwrap_or_default();
            if self.held[0] != PROPERTIES {
                self.passing = length as u64 + 1;
            } else if length > LONGEST {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "the properties of a message are too long"));
            } else if self.held.len() == HEAD {
                continue;
            } else {
                level(&mut self.held[HEAD..HEAD + length]);
            }
            ready.append(&mut self.held);
        }
        Ok(())
    }

    /// How long what is held must be before it is looked at: the head of a frame, or all of it.
    fn size(&self) -> usize {
        match self.held.len() {
            0..HEAD => HEAD,
            _ => HEAD + length(&self.held, HEAD - 4).unwrap_or_default() + 1,
        }
    }
}

/// The length that is written there.
fn length(bytes: &[u8], at: usize) -> Option<usize> {
    let written = bytes.get(at..at + 4)?.try_into().ok()?;
    usize::try_from(u32::from_be_bytes(written)).ok()
}

/// Makes bytes of each value of the headers that lies too deep, which are as long as the value. What cannot be read is left to the client, which
/// refuses it.
fn level(properties: &mut [u8]) -> Option<()> {
    // The class, the size of the body and the flags stand before the properties, of which two short texts come before the headers.
    let flags = u16::from_be_bytes([*properties.get(12)?, *properties.get(13)?]);
    let mut at = 14;
    for text in [0x8000, 0x4000] {
        if flags & text != 0 {
            at += 1 + usize::from(*properties.get(at)?);
        }
    }
    if flags & 0x2000 == 0 {
        return Some(());
    }
    // The tables and arrays that are open, and where each ends.
    let mut open = vec![(true, at + 4 + length(properties, at)?)];
    at += 4;
    while let Some((is_table, end)) = open.last().copied() {
        if at >= end {
            open.pop();
            continue;
        }
        if is_table {
            at += 1 + usize::from(*properties.get(at)?);
        }
        let is_deep = open.len() >= LEVELS;
        let kind = properties.get_mut(at)?;
        if is_deep && matches!(*kind, b'A' | b'F') {
            *kind = b'x';
        }
        let kind = *kind;
        at += 1;
        at += match kind {
            b'V' => 0,
            b't' | b'b' | b'B' => 1,
            b's' | b'U' | b'u' => 2,
            b'I' | b'i' | b'f' => 4,
            b'D' => 5,
            b'L' | b'l' | b'd' | b'T' => 8,
            b'S' | b'x' => 4 + length(properties, at)?,
            b'A' | b'F' => {
                open.push((kind == b'F', at + 4 + length(properties, at)?));
                4
            }
            _ => return None,
        };
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A value with as many arrays around it.
    fn nested(levels: usize) -> Vec<u8> {
        (0..levels).fold(vec![b'V'], |value, _| {
            let length = u32::try_from(value.len()).expect("short").to_be_bytes();
            [&[b'A'][..], &length, &value].concat()
        })
    }

    /// The frame of a message with a type, an encoding, and these headers.
    fn frame(headers: &[u8]) -> Vec<u8> {
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).expect("short").to_be_bytes();
        let mut payload = vec![0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0xE0, 0];
        payload.extend_from_slice(b"\x04text\x02xy");
        payload.extend_from_slice(&length(headers));
        payload.extend_from_slice(headers);
        [&[PROPERTIES, 0, 1][..], &length(&payload), &payload, &[0xCE]].concat()
    }

    /// What the client reads of what arrives in pieces of this size.
    fn read(sent: &[u8], size: usize) -> Vec<u8> {
        let (mut frames, mut ready) = (Frames::default(), Vec::new());
        for piece in sent.chunks(size) {
            frames.take(piece, &mut ready).expect("frames");
        }
        ready
    }

    #[test]
    fn what_lies_too_deep_becomes_bytes_and_all_else_stays_however_it_is_cut() {
        let other = b"\x01aI\0\0\0\x07\x01bF\0\0\0\x04\x01ct\x01\x01dD\x02\0\0\0\x09\x01eS\0\0\0\x01F\x01fx\0\0\0\0";
        for levels in [0, 1, LEVELS - 1, LEVELS, LEVELS + 1, 20_000] {
            let deep = [&other[..], b"\x01n", &nested(levels), b"\x01lA\0\0\0\x01V"].concat();
            let body = [&[3, 0, 1, 0, 0, 0, 9][..], b"AAAAFFFFF", &[0xCE]].concat();
            let sent = [b"\x01\0\0\0\0\0\x02AF\xCE".as_slice(), &frame(&deep), &body, &frame(other)].concat();
            let mut right = sent.clone();
            if levels >= LEVELS {
                // The table of the headers is the first level.
                let first = sent.windows(3).position(|window| window == b"\x01nA").expect("the value") + 2;
                right[first + 5 * (LEVELS - 1)] = b'x';
            }
            for size in [1, 2, 7, 8, 100, sent.len()] {
                assert!(read(&sent, size) == right, "{levels} levels in pieces of {size} bytes");
            }
        }
    }

    #[test]
    fn what_is_cut_off_or_wrong_is_passed_on_as_it_is() {
        let whole = frame(&[b"\x01n".as_slice(), &nested(50)].concat());
        for end in HEAD..whole.len() {
            let mut payload = whole[HEAD..end].to_vec();
            let length = payload.len();
            level(&mut payload);
            assert_eq!(payload.len(), length);
        }
        let unknown = frame(b"\x01n?");
        assert_eq!(read(&unknown, 5), unknown);
        let mut long = whole;
        long[3..HEAD].copy_from_slice(&u32::MAX.to_be_bytes());
        assert!(Frames::default().take(&long, &mut Vec::new()).is_err(), "nothing is held without a bound");
    }
}
