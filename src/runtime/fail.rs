//! Errors as Demikernel's Rust programs know them: an errno and words.

use std::fmt;

use crate::error::{Error, StartError};

/// Why a call of [`LibOS`](crate::LibOS) could not be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fail {
    /// Positive.
    pub errno: i32,
    pub cause: String,
}

impl Fail {
    pub fn new(errno: i32, cause: &str) -> Self {
        Self {
            errno,
            cause: cause.to_owned(),
        }
    }
}

impl From<Error> for Fail {
    fn from(error: Error) -> Self {
        Self::new(error.errno(), &error.to_string())
    }
}

impl From<StartError> for Fail {
    fn from(start: StartError) -> Self {
        Self::new(start.error().errno(), &start.to_string())
    }
}

impl fmt::Display for Fail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (errno {})", self.cause, self.errno)
    }
}

impl std::error::Error for Fail {}
