//! Signatures by Standard Webhooks: HMAC with SHA-256 over the id, the time and the body.
use base64::{Engine, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// A key at the only time when it is shown.
pub struct NewKey {
    pub bytes: [u8; 32],
}

impl NewKey {
    /// Draws a key.
    pub fn draw() -> NewKey {
        NewKey { bytes: rand::random() }
    }

    /// The key as its receiver keeps it.
    pub fn text(&self) -> String {
        format!("whsec_{}", STANDARD.encode(self.bytes))
    }
}

/// The value of `webhook-signature`: one signature for each key.
pub fn sign(keys: &[Vec<u8>], id: &str, timestamp: i64, body: &str) -> String {
    let signed = |key: &Vec<u8>| {
        let mut mac = Hmac::<Sha256>::new_from_slice(key).ok()?;
        mac.update(format!("{id}.{timestamp}.{body}").as_bytes());
        Some(format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes())))
    };
    keys.iter().filter_map(signed).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification.
    #[test]
    fn a_signature_is_that_of_the_specification() {
        let key = STANDARD.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").expect("base64");
        let signature =
            sign(&[key.clone(), key], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, r#"{"test": 2432232314}"#);
        let one = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        assert_eq!(signature, format!("{one} {one}"));
    }

    #[test]
    fn a_key_is_drawn_anew_and_reads_as_it_is() {
        let key = NewKey::draw();
        assert_ne!(key.bytes, NewKey::draw().bytes);
        let text = key.text();
        assert_eq!(STANDARD.decode(text.strip_prefix("whsec_").expect("the mark")).expect("base64"), key.bytes);
    }
}
