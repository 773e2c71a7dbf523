//! Memory lent to and by the application: receive regions and send buffers.

mod buf;
mod region;

pub use buf::{Buf, Buffers};
pub use region::Region;
