//! Starts this very program as a reader's child, as the service starts its own.

#![allow(dead_code, reason = "each of the two tests looks at its own part of an outcome")]

use std::{
    io::Read,
    os::{fd::OwnedFd, unix::net::UnixStream},
    process::{Child, Command, Stdio},
    thread,
};
use svc_formats::{
    FormatError,
    isolated::{Answer, Confinement, Decoder, Exit, Request, Usage},
};

/// What a child answered, how it ended and what that means.
pub struct Outcome {
    pub answers: Vec<Answer>,
    pub exit: Exit,
    pub end: Result<Usage, FormatError>,
    /// The walls that its kernel did not put up.
    pub lacking: Vec<String>,
}

/// A child that has been told what to do.
pub struct Started {
    pub child: Child,
    channel: UnixStream,
    decoder: Decoder,
}

/// Starts a child; `arguments` say which of the test's deeds it does.
pub fn start(arguments: &[&str], request: &Request, confinement: Confinement, input: impl Into<OwnedFd>) -> Started {
    let (ours, theirs) = UnixStream::pair().unwrap();
    // Not by its path, which a user other than root may be unable to reach.
    let child = Command::new("/proc/self/exe")
        .args(arguments)
        .stdin(Stdio::from(input.into()))
        .stdout(Stdio::from(OwnedFd::from(theirs)))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    request.send(&ours, confinement, None).unwrap();
    Started { child, channel: ours, decoder: Decoder::new(request) }
}

impl Started {
    /// Takes the answers until the child's end; only the child's own limits stop one that loops.
    pub fn finish(self) -> Outcome {
        let Self { mut child, mut channel, mut decoder } = self;
        // The test may have taken it.
        let errors = child.stderr.take().map(|mut errors| {
            thread::spawn(move || {
                let mut text = String::new();
                errors.read_to_string(&mut text).ok();
                text
            })
        });
        let (mut answers, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
        loop {
            // A child that dies may leave the socket broken.
            let read = channel.read(&mut buffer).unwrap_or(0);
            if read == 0 || decoder.feed(&buffer[..read]).is_err() {
                break;
            }
            answers.extend(std::iter::from_fn(|| decoder.next_answer()));
        }
        drop(channel);
        let status = child.wait().unwrap();
        let stderr = errors.map(|errors| errors.join().unwrap()).unwrap_or_default();
        let exit = Exit { stderr, ..status.into() };
        let end = decoder.finish(&exit);
        Outcome { answers, end, lacking: decoder.lacking().to_vec(), exit }
    }
}
