//! The name of the library OS, which elsewhere chooses among several.

use crate::runtime::fail::Fail;

/// Demikernel's programs ask the environment which of its library OSes to take. Here is one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LibOSName;

impl LibOSName {
    /// Whatever the variable `LIBOS` says, so that scripts may stay as they are.
    ///
    /// # Errors
    /// None; the type is that of Demikernel.
    pub const fn from_env() -> Result<Self, Fail> {
        Ok(Self)
    }
}
