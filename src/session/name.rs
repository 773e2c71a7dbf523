//! Names of sessions.

use crate::error::Error;

/// Longest name, bytes. Source: NAME_MAX of Linux.
const NAME_MAX: usize = 255;

/// A name that can stand in a path, a table and a log: 1 to 255 bytes of UTF-8 without space,
/// control characters, `/`, `.`, `\` and `"`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Name(Box<str>);

impl Name {
    /// # Errors
    /// [`Error::Invalid`] if it is none.
    pub fn new(bytes: &[u8]) -> Result<Self, Error> {
        let name = std::str::from_utf8(bytes).map_err(|_| Error::Invalid)?;
        let is_odd = |c: char| c.is_whitespace() || c.is_control() || "/.\\\"".contains(c);
        if name.is_empty() || name.len() > NAME_MAX || name.chars().any(is_odd) {
            return Err(Error::Invalid);
        }
        Ok(Self(name.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Story 21.
    #[test]
    fn names_that_would_break_a_path_or_a_log_are_refused() {
        let long = "a".repeat(256);
        let bad: [&[u8]; 13] = [
            b"",
            long.as_bytes(),
            b"a\0b",
            b"a/b",
            b"a.b",
            b".",
            b"a b",
            b"a\nb",
            b"a\x7fb",
            b"a\\b",
            b"a\"b",
            b"a\xffb",
            "a\u{85}b".as_bytes(),
        ];
        for name in bad {
            assert_eq!(Name::new(name), Err(Error::Invalid), "{name:?}");
        }
        for name in ["a", "disk-1_ä:b@c", &"a".repeat(255)] {
            assert_eq!(Name::new(name.as_bytes()).unwrap().as_str(), name);
        }
    }
}
