//! What the parent tells the child. It goes over the channel of the answers, because other processes of the same user
//! can read arguments and environment variables.

use std::io::{self, Read};

use serde::{Deserialize, Serialize};

use super::{Confinement, Request};
use crate::Secret;

/// Far above any request; the password is its only part without a fixed size.
const MOST_BYTES: u64 = 1 << 20;

#[derive(Serialize, Deserialize)]
struct Message {
    request: Request,
    password: Option<String>,
    confinement: Confinement,
}

impl Request {
    /// The bytes that the parent writes to the child before it closes its writing side.
    pub fn to_message(&self, confinement: Confinement) -> Vec<u8> {
        let password = self.password.as_ref().map(|password| password.reveal().to_owned());
        let message = Message { request: self.clone(), password, confinement };
        serde_json::to_vec(&message).expect("JSON can hold every request: it is words, numbers and texts")
    }

    pub(super) fn receive(from: impl Read) -> io::Result<(Self, Confinement)> {
        let mut bytes = Vec::new();
        from.take(MOST_BYTES).read_to_end(&mut bytes)?;
        let Message { request, password, confinement } = serde_json::from_slice(&bytes)?;
        Ok((Self { password: password.map(Secret::new), ..request }, confinement))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Format, Limits,
        isolated::{Policy, Step},
    };

    #[test]
    fn a_request_crosses_the_border_with_its_password() {
        let request = Request {
            password: Some(Secret::new("käse\0\n\"")),
            ..Request::new(Step::Extract(Format::Pdf), Limits { pages: 7, ..Limits::default() })
        };
        let confinement = Confinement { policy: Policy::BestEffort, user: 7 };
        let message = request.to_message(confinement);
        assert_eq!(Request::receive(message.as_slice()).unwrap(), (request, confinement));
        assert!(Request::receive(&b"{}"[..]).is_err());
        assert!(Request::receive(&message[..message.len() - 1]).is_err(), "a parent that died sent half of it");
    }
}
