//! An answer, whose body arrives piece by piece within its limits.
use super::{FetchError, HEADER_BYTES, Limits, Url};
use bytes::Bytes;
use flate2::write::MultiGzDecoder;
use http::{HeaderMap, HeaderName, StatusCode, header};
use std::io::Write;
use tokio::time::{Instant, timeout_at};

/// The bytes that must arrive in the time of [`Limits::stall`].
pub(super) const PROGRESS: usize = 4 << 10;
/// How many packed bytes are unpacked at a time. At worst they become a thousand times as many.
const PACKED_PIECE: usize = 4 << 10;
/// The most unpacked bytes for each packed byte, beyond the first [`RATIO_FREE`] ones.
const RATIO: u64 = 100;
const RATIO_FREE: u64 = 10 << 20;

/// The answer of a foreign address. Its body is read by [`Answer::piece`].
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    /// The address that answered, after all redirects.
    pub url: Url,
    response: reqwest::Response,
    limits: Limits,
    /// Why the body cannot be read, as its header says; a caller that reads no body does not care.
    unreadable: Option<FetchError>,
    /// When the whole fetch must be over.
    deadline: Instant,
    /// When the next [`PROGRESS`] bytes must have arrived.
    stalled: Instant,
    progress: usize,
    /// What has arrived but is still packed.
    packed: Bytes,
    unpacker: Option<MultiGzDecoder<Vec<u8>>>,
    received: u64,
    unpacked: u64,
}

impl Answer {
    pub(super) fn new(
        response: reqwest::Response,
        url: Url,
        limits: Limits,
        deadline: Instant,
    ) -> Result<Answer, FetchError> {
        let headers = response.headers().clone();
        let size: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
        if size > HEADER_BYTES {
            return Err(FetchError::broken(&url, format!("its header is over {HEADER_BYTES} bytes")));
        }
        let mut unreadable = response
            .content_length()
            .filter(|length| *length > limits.bytes)
            .map(|_| FetchError::too_large(&url, limits.bytes));
        let encodings: Vec<_> = headers.get_all(header::CONTENT_ENCODING).iter().map(|value| value.to_str()).collect();
        let unpacker = match encodings[..] {
            [] | [Ok("" | "identity")] => None,
            [Ok("gzip" | "x-gzip")] => Some(MultiGzDecoder::new(Vec::new())),
            _ => {
                unreadable.get_or_insert_with(|| FetchError::broken(&url, "it is packed, but not by gzip"));
                None
            }
        };
        Ok(Answer {
            status: response.status(),
            headers,
            url,
            response,
            limits,
            unreadable,
            deadline,
            stalled: Instant::now() + limits.stall,
            progress: 0,
            packed: Bytes::new(),
            unpacker,
            received: 0,
            unpacked: 0,
        })
    }

    pub fn host(&self) -> &str {
        self.url.host_str().unwrap_or_default()
    }

    /// A header as text; `None` if it is absent or not text.
    pub fn header(&self, name: HeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The media type, in lower case and without its parameters.
    pub fn media_type(&self) -> Option<String> {
        let declared = self.header(header::CONTENT_TYPE)?.split(';').next().unwrap_or_default().trim();
        (!declared.is_empty()).then(|| declared.to_ascii_lowercase())
    }

    /// The next piece of the body, unpacked; `None` at its end.
    pub async fn piece(&mut self) -> Result<Option<Bytes>, FetchError> {
        if let Some(error) = self.unreadable.take() {
            return Err(error);
        }
        loop {
            if !self.packed.is_empty() {
                let piece = self.unpack()?;
                if !piece.is_empty() {
                    return Ok(Some(piece));
                }
                continue;
            }
            let until = self.deadline.min(self.stalled);
            let arrived = timeout_at(until, self.response.chunk()).await.map_err(|_| match until == self.deadline {
                true => FetchError::timeout(&self.url),
                false => FetchError::stalled(&self.url),
            })?;
            let Some(piece) = arrived.map_err(|_| FetchError::broken(&self.url, "its body breaks off"))? else {
                return self.end();
            };
            self.count(piece.len())?;
            match &self.unpacker {
                Some(_) => self.packed = piece,
                None => return Ok(Some(piece)),
            }
        }
    }

    /// The whole rest of the body. Call it only with a limit on bytes that the memory has room for.
    pub async fn collect(mut self) -> Result<Vec<u8>, FetchError> {
        let mut all = Vec::new();
        while let Some(piece) = self.piece().await? {
            all.extend_from_slice(&piece);
        }
        Ok(all)
    }

    fn count(&mut self, bytes: usize) -> Result<(), FetchError> {
        self.received += bytes as u64;
        if self.received > self.limits.bytes {
            return Err(FetchError::too_large(&self.url, self.limits.bytes));
        }
        self.progress += bytes;
        if self.progress >= PROGRESS {
            self.progress = 0;
            self.stalled = Instant::now() + self.limits.stall;
        }
        Ok(())
    }

    fn unpack(&mut self) -> Result<Bytes, FetchError> {
        let Some(unpacker) = &mut self.unpacker else { return Ok(std::mem::take(&mut self.packed)) };
        let piece = self.packed.split_to(self.packed.len().min(PACKED_PIECE));
        if unpacker.write_all(&piece).is_err() || unpacker.flush().is_err() {
            return Err(FetchError::broken(&self.url, "its gzip is damaged"));
        }
        let unpacked = std::mem::take(unpacker.get_mut());
        self.unpacked += unpacked.len() as u64;
        if self.unpacked > self.limits.bytes {
            return Err(FetchError::too_large(&self.url, self.limits.bytes));
        }
        if self.unpacked > RATIO_FREE && self.unpacked / RATIO > self.received {
            return Err(FetchError::broken(&self.url, format!("it unpacks to more than {RATIO} times its size")));
        }
        Ok(unpacked.into())
    }

    /// Checks that the packed data ends where the body ends.
    fn end(&mut self) -> Result<Option<Bytes>, FetchError> {
        let Some(mut unpacker) = self.unpacker.take() else { return Ok(None) };
        if self.received > 0 && unpacker.try_finish().is_err() {
            return Err(FetchError::broken(&self.url, "its gzip breaks off"));
        }
        let rest = std::mem::take(unpacker.get_mut());
        Ok((!rest.is_empty()).then(|| rest.into()))
    }
}
