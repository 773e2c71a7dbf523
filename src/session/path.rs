//! The states of a client's path, and what leads from one to the next.
//!
//! A path that is lost needs no state of draining: its RPCs are given up and its requests collected
//! within the call that finds it lost, since frames were copied and nothing refers to a request's
//! bytes any more.

/// How far a path is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathState {
    /// It is being opened.
    Connecting,
    /// It carries requests.
    Connected,
    /// It was lost, and will be opened again after a while.
    Reconnecting,
    /// It says farewell to the server.
    Closing,
    /// It is not used, and nothing but a wish of the user will change that.
    Closed,
    /// It is none of the session's any more.
    Removed,
}

/// What happens to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathEvent {
    /// The server takes it.
    Accepted,
    /// The server knows which requests are open, and is ready for more.
    Ready,
    /// It cannot be opened, or does not carry any more. `retries`: it is to be tried again.
    Lost { retries: bool },
    /// The time to open it again has come.
    Due,
    /// The user wants it opened, now.
    Reconnect,
    /// The user does not want it to carry.
    Disconnect,
    /// The user wants it gone, or the session closes.
    Remove,
    /// Farewell was said, or nobody listens.
    Parted { removed: bool },
}

/// What is to be done on the way to the next state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    pub next: PathState,
    /// It does not carry requests any more: they go elsewhere.
    pub goes_down: bool,
    pub then: Then,
}

/// What begins with a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    Nothing,
    SendOpen,
    SendReady,
    /// It carries requests now.
    GoUp,
    /// Wait, and then open it again.
    Wait,
    /// Open it again at once, as if it had never failed.
    StartOver,
    /// Tell the user that it will not come back by itself.
    Fail,
    SayFarewell,
    /// Remember that it is to be removed when farewell is said.
    NoteRemoval,
    Unlink,
}

/// What an event does in a state; `None` if it makes no sense there, and changes nothing.
pub const fn step(state: PathState, event: PathEvent) -> Option<Step> {
    use PathEvent as On;
    use PathState as At;

    let (next, then) = match (state, event) {
        (At::Connecting, On::Accepted) => (At::Connecting, Then::SendReady),
        (At::Connecting, On::Ready) => (At::Connected, Then::GoUp),
        (At::Connecting | At::Connected, On::Lost { retries: true }) => {
            (At::Reconnecting, Then::Wait)
        }
        (At::Connecting | At::Connected, On::Lost { retries: false }) => (At::Closed, Then::Fail),
        (At::Connected | At::Closing | At::Closed, On::Reconnect) => {
            (At::Reconnecting, Then::StartOver)
        }
        (At::Reconnecting, On::Due | On::Reconnect) => (At::Connecting, Then::SendOpen),
        (At::Connecting | At::Connected | At::Reconnecting, On::Disconnect) => {
            (At::Closing, Then::SayFarewell)
        }
        (At::Connecting | At::Connected | At::Reconnecting, On::Remove) => {
            (At::Closing, Then::SayFarewell)
        }
        (At::Closing, On::Remove) => (At::Closing, Then::NoteRemoval),
        (At::Closing, On::Parted { removed: false }) => (At::Closed, Then::Nothing),
        (At::Closing, On::Parted { removed: true }) => (At::Removed, Then::Unlink),
        (At::Closed, On::Remove) => (At::Removed, Then::Unlink),
        (
            At::Connecting
            | At::Connected
            | At::Reconnecting
            | At::Closing
            | At::Closed
            | At::Removed,
            _,
        ) => return None,
    };
    Some(Step {
        next,
        goes_down: matches!(state, At::Connected),
        then,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [PathState; 6] = [
        PathState::Connecting,
        PathState::Connected,
        PathState::Reconnecting,
        PathState::Closing,
        PathState::Closed,
        PathState::Removed,
    ];

    const EVENTS: [PathEvent; 10] = [
        PathEvent::Accepted,
        PathEvent::Ready,
        PathEvent::Lost { retries: true },
        PathEvent::Lost { retries: false },
        PathEvent::Due,
        PathEvent::Reconnect,
        PathEvent::Disconnect,
        PathEvent::Remove,
        PathEvent::Parted { removed: false },
        PathEvent::Parted { removed: true },
    ];

    /// A row per state, a column per event, in the order of [`EVENTS`]: the next state and what
    /// is done; `!` before it where the path goes down; `-` where nothing happens.
    const TABLE: [[&str; 10]; 6] = [
        [
            "Connecting SendReady",
            "Connected GoUp",
            "Reconnecting Wait",
            "Closed Fail",
            "-",
            "-",
            "Closing SayFarewell",
            "Closing SayFarewell",
            "-",
            "-",
        ],
        [
            "-",
            "-",
            "!Reconnecting Wait",
            "!Closed Fail",
            "-",
            "!Reconnecting StartOver",
            "!Closing SayFarewell",
            "!Closing SayFarewell",
            "-",
            "-",
        ],
        [
            "-",
            "-",
            "-",
            "-",
            "Connecting SendOpen",
            "Connecting SendOpen",
            "Closing SayFarewell",
            "Closing SayFarewell",
            "-",
            "-",
        ],
        [
            "-",
            "-",
            "-",
            "-",
            "-",
            "Reconnecting StartOver",
            "-",
            "Closing NoteRemoval",
            "Closed Nothing",
            "Removed Unlink",
        ],
        [
            "-",
            "-",
            "-",
            "-",
            "-",
            "Reconnecting StartOver",
            "-",
            "Removed Unlink",
            "-",
            "-",
        ],
        ["-"; 10],
    ];

    #[test]
    fn every_event_in_every_state_does_what_the_table_says() {
        for (state, row) in STATES.into_iter().zip(TABLE) {
            for (event, expected) in EVENTS.into_iter().zip(row) {
                let found = step(state, event).map_or("-".to_owned(), |step| {
                    let down = if step.goes_down { "!" } else { "" };
                    format!("{down}{:?} {:?}", step.next, step.then)
                });
                assert_eq!(found, expected, "{event:?} in {state:?}");
            }
        }
    }
}
