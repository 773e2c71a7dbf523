//! The types of the C face, where Demikernel's Rust programs look for them. Names only: they are
//! at home in `capi`.

pub use crate::capi::types::{
    demi_accept_result_t, demi_callback_t, demi_opcode_t, demi_qresult_t, demi_qtoken_t,
    demi_sgarray_t, demi_sgaseg_t,
};
