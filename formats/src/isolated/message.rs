//! What the parent tells the child. It goes over the channel of the answers, because other processes of the same user
//! can read arguments and environment variables.

use super::{Confinement, Request};
use crate::Secret;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    Shutdown, recvmsg, sendmsg, shutdown,
};
use serde::{Deserialize, Serialize};
use std::{
    fs::File,
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::AsFd,
};

/// Far above any request; the password is its only part without a fixed size.
const MOST_BYTES: usize = 1 << 20;
/// Every request fits in one piece, except one with a huge password.
const PIECE_BYTES: usize = 16 << 10;

#[derive(Serialize, Deserialize)]
struct Message {
    request: Request,
    password: Option<String>,
    confinement: Confinement,
}

impl Request {
    /// Writes the request to the child's socket and closes that direction. The child gets a descriptor of its own for
    /// `shared_strings`. The socket must hold a whole request, or it must block.
    ///
    /// # Errors
    /// What the socket met.
    pub fn send(&self, channel: impl AsFd, confinement: Confinement, shared_strings: Option<&File>) -> io::Result<()> {
        let password = self.password.as_ref().map(|password| password.reveal().to_owned());
        let message = serde_json::to_vec(&Message { request: self.clone(), password, confinement })?;
        let files: Vec<_> = shared_strings.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut attached = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() && !attached.push(SendAncillaryMessage::ScmRights(&files)) {
            return Err(io::Error::other("a descriptor does not fit beside the request"));
        }
        let mut sent = sendmsg(&channel, &[IoSlice::new(&message)], &mut attached, SendFlags::NOSIGNAL)?;
        while sent < message.len() {
            sent += rustix::net::send(&channel, &message[sent..], SendFlags::NOSIGNAL)?;
        }
        Ok(shutdown(channel, Shutdown::Write)?)
    }

    pub(super) fn receive(from: impl AsFd) -> io::Result<(Self, Confinement, Option<File>)> {
        let (mut bytes, mut shared_strings) = (Vec::new(), None);
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut attached = RecvAncillaryBuffer::new(&mut space);
            let mut into = [IoSliceMut::new(&mut piece)];
            let received = recvmsg(&from, &mut into, &mut attached, RecvFlags::CMSG_CLOEXEC)?;
            for message in attached.drain() {
                if let RecvAncillaryMessage::ScmRights(files) = message {
                    shared_strings = files.last().map(File::from);
                }
            }
            if received.bytes == 0 {
                break;
            }
            bytes.extend_from_slice(&piece[..received.bytes]);
            if bytes.len() > MOST_BYTES {
                return Err(io::Error::other("the request has no end"));
            }
        }
        let Message { request, password, confinement } = serde_json::from_slice(&bytes)?;
        Ok((Self { password: password.map(Secret::new), ..request }, confinement, shared_strings))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Format, Limits,
        isolated::{Policy, Step},
    };
    use std::{
        io::{Read, Seek, Write},
        net::Shutdown,
        os::unix::net::UnixStream,
    };

    #[test]
    fn a_request_crosses_the_border_with_its_password_and_its_file() {
        let request = Request {
            password: Some(Secret::new("käse\0\n\"".repeat(10_000))),
            ..Request::new(Step::Extract(Format::Pdf), Limits { pages: 7, ..Limits::default() })
        };
        let confinement = Confinement { policy: Policy::BestEffort, user: 7 };
        let mut table = tempfile::tempfile().unwrap();
        table.write_all(b"texts").unwrap();
        table.rewind().unwrap();
        for file in [None, Some(&table)] {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let received = std::thread::scope(|scope| {
                let child = scope.spawn(|| Request::receive(&theirs));
                request.send(&ours, confinement, file).unwrap();
                child.join().unwrap().unwrap()
            });
            assert_eq!((received.0, received.1), (request.clone(), confinement));
            let text = received.2.map(|mut file| io::read_to_string(&mut file).unwrap());
            assert_eq!(text.as_deref(), file.map(|_| "texts"));
        }
    }

    #[test]
    fn half_a_request_is_none() {
        for half in [&b"{}"[..], &b"{\"request\": {\"st"[..], b""] {
            let (mut ours, theirs) = UnixStream::pair().unwrap();
            ours.write_all(half).unwrap();
            ours.shutdown(Shutdown::Write).unwrap();
            assert!(Request::receive(&theirs).is_err());
            assert_eq!(theirs.take(1).read(&mut [0]).unwrap(), 0);
        }
    }
}
