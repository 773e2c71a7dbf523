//! What bytes mean. A codec per protocol: bytes become a type here, and nowhere further in.
//!
//! Input is hostile: whatever it holds, parsing ends in a value or in an `Err`.

pub mod channel;
pub mod homa;
pub mod session;
