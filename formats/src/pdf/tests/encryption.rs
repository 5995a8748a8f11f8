//! Files that are encrypted in part, or that no password opens.

use super::*;
use crate::Secret;

const SHOWN: &str = "plain as day";

/// A file that claims to be encrypted but is not; nobody knows the password.
fn closed(encryption: &str) -> Vec<u8> {
    Pdf::new()
        .page(&lines(50, 700, 12, &[SHOWN]))
        .object(100, &format!("<< {encryption} >>"))
        .trailer("/Encrypt 100 0 R /ID [(one) (two)]")
        .build()
}

fn standard(filters: &str) -> Vec<u8> {
    let (long, short) = ("k".repeat(48), "k".repeat(32));
    closed(&format!(
        "/Filter /Standard /V 5 /R 6 /Length 256 /P -4 /O ({long}) /U ({long}) /OE ({short}) /UE ({short}) /Perms (0123456789abcdef)
         /CF << /StdCF << /CFM /AESV3 /Length 32 >> >> {filters}"
    ))
}

fn limits() -> Limits {
    Limits::default()
}

#[test]
fn encrypted_attachments_close_no_text() {
    for filters in ["/StmF /Identity /StrF /Identity /EFF /StdCF", "/EFF /StdCF"] {
        let bytes = standard(filters);
        let read = extract(Cursor::new(&bytes), (&limits()).into()).unwrap();
        assert_eq!(read.text, SHOWN);
        let patterns = probe(Cursor::new(&bytes), (&limits()).into()).unwrap();
        assert!(patterns.holds(Pattern::IsEncrypted) && patterns.holds(Pattern::HasTextLayer), "{filters}");
    }
    for filters in ["/StmF /StdCF /StrF /Identity", "/StmF /Identity /StrF /StdCF"] {
        let error = extract(Cursor::new(standard(filters)), (&limits()).into()).unwrap_err();
        assert_eq!(error, FormatError::Encrypted { format: crate::Format::Pdf }, "{filters}");
    }
}

#[test]
fn what_is_encrypted_for_certificates_is_said_to_be() {
    for encryption in [
        "/Filter /Adobe.PubSec /SubFilter /adbe.pkcs7.s5 /V 5 /R 131105 /StmF /All /StrF /All",
        "/Filter /Standard /V 3 /R 3",
    ] {
        let bytes = closed(encryption);
        let error = extract(Cursor::new(&bytes), (&limits()).into()).unwrap_err();
        assert_eq!(error.code(), "encrypted");
        assert!(
            error.to_string().contains("certificates") && !error.to_string().contains("extract.password"),
            "{error}"
        );
        let patterns = probe(Cursor::new(&bytes), (&limits()).into()).unwrap();
        assert!(patterns.holds(Pattern::IsEncrypted));
        let refused = crate::refusal(crate::Format::Pdf, Cursor::new(&bytes), &patterns);
        assert_eq!(refused, Some(error));
    }
}

#[test]
fn either_password_opens_a_file_of_every_older_cipher() {
    for (file, owner) in [
        (include_bytes!("../files/owner-r2.pdf").as_slice(), "otter"),
        (include_bytes!("../files/owner-r3.pdf").as_slice(), "crème"),
        // Its pages are in packed objects, which are encrypted too.
        (include_bytes!("../files/owner-r4.pdf").as_slice(), "otter"),
    ] {
        let with = |password: &str| {
            let (limits, password) = (limits(), Secret::new(password));
            extract(Cursor::new(file), Access { password: Some(&password), ..Access::from(&limits) })
                .map(|read| read.text)
        };
        for password in [owner, "heron"] {
            assert_eq!(with(password).as_deref(), Ok("The owner opens this, too."), "{password}");
        }
        assert_eq!(with("stork"), Err(FormatError::Encrypted { format: crate::Format::Pdf }));
    }
}
