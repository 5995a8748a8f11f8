//! What a reader gets besides the bytes.

use crate::{FormatError, Limits};
use std::fmt;

/// A password. It is never serialised, and neither logs nor errors show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(secret: impl Into<String>) -> Self {
        Self(secret.into())
    }

    /// The password itself, for the one place that needs it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// What a reading may cost, and the password that opens the file. A file that needs no password is read with limits
/// alone.
#[derive(Clone, Copy)]
pub struct Access<'a> {
    pub limits: &'a Limits,
    pub password: Option<&'a Secret>,
    /// Hears how many of how many pages were read. A reading that gets an error from it ends with that error.
    pub pages: Option<&'a dyn Fn(u32, u32) -> Result<(), FormatError>>,
}

impl<'a> From<&'a Limits> for Access<'a> {
    fn from(limits: &'a Limits) -> Self {
        Self { limits, password: None, pages: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_does_not_show() {
        let secret = Secret::new("hunter2");
        assert_eq!(format!("{secret:?}"), "Secret(..)");
        assert_eq!(secret.reveal(), "hunter2");
    }
}
