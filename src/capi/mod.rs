//! The C face: `include/demi/*.h`, which `tests/headers.rs` makes from these files.
//!
//! A function here checks its pointers, calls [`LibOS`](crate::libos::LibOS) once and converts
//! the result. [`boundary`] holds the one runtime of a thread and all conversions; the doc comments
//! of the others become the headers, and so speak to the C programmer.

// The contract is the same for all functions and stands once, at the head of their file.
#![allow(clippy::missing_safety_doc)]
// These are C's names.
#![allow(non_camel_case_types)]

mod address;
mod boundary;
pub mod homa;
pub mod homa_calls;
pub mod homa_options;
pub mod homa_types;
pub mod libos;
pub mod rust;
pub mod sga;
pub mod types;
pub mod wait;
