//! Protocol faults put in on purpose, to prove that the simulator finds them.
//!
//! Each hook asks [`is_on`], which is plainly false unless the feature `mutants` is on, so that the
//! compiler leaves nothing of it.

/// One fault: what the transport then does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// Acknowledges a response of which bytes are missing.
    AckOfMissingBytes,
    /// Takes the first byte after a gap's start for received.
    GapOffByOne,
    /// Grants a whole window, whatever the message's length.
    GrantPastEnd,
    /// Gives two RPCs the same number.
    IdUsedTwice,
    /// Looks for no other message to grant when one has gone.
    NeedyForgotten,
    /// Does not remember what is over.
    FinishedForgotten,
    /// Gives a payload's bytes back once more than it held them.
    PageGivenBackTwice,
    /// Sends other bytes again than was asked.
    ResendOfWrongRange,
    /// Files no timer for a new request.
    TimerNotFiled,
    /// Tells of a request once more when a copy of it comes.
    DuplicateDelivered,
    /// Shows an empty reply as a byte.
    EmptyReplyLost,
    /// Says nothing to a client whose request is in service.
    BusyForgotten,
    /// Keeps counting what a message that is gone might still bring.
    IncomingDrifts,
    /// Sends nothing of what waited for a peer's link.
    ParkedForgotten,
    /// Leaves an RPC that is gone among those that wait for pages.
    WaiterLeftBehind,
    /// Takes a grant and sends nothing by it.
    GrantIgnored,
    /// Sends beyond what was granted.
    GrantOverrun,
    /// Writes bytes to where others belong.
    BytesMisplaced,
}

#[cfg(feature = "mutants")]
mod active {
    use super::Mutant;

    thread_local! {
        static ACTIVE: std::cell::Cell<Option<Mutant>> = const { std::cell::Cell::new(None) };
    }

    /// Which fault all endpoints of this thread have from now on.
    pub fn set(mutant: Option<Mutant>) {
        ACTIVE.set(mutant);
    }

    pub fn is_on(mutant: Mutant) -> bool {
        ACTIVE.get() == Some(mutant)
    }
}

#[cfg(feature = "mutants")]
pub use active::{is_on, set};

#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub const fn is_on(_: Mutant) -> bool {
    false
}
