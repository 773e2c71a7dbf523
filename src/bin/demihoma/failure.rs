//! Why the program ends early.

use demihoma::dpdk;
use demihoma::error::Error;
use demihoma::libos;

/// One line that says what failed and, where that is known, what to do.
#[derive(Debug)]
pub struct Failure(pub String);

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self(error.to_string())
    }
}

impl From<dpdk::StartError> for Failure {
    fn from(error: dpdk::StartError) -> Self {
        Self(error.to_string())
    }
}

impl From<libos::StartError> for Failure {
    fn from(error: libos::StartError) -> Self {
        Self(error.to_string())
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self(error.to_string())
    }
}
