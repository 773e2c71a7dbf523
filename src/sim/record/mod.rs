//! Our own frames in the scenarios that were recorded of the Linux module, so that others can
//! replay us as we replay it.

mod party;
mod scenarios;

use std::cell::RefCell;
use std::rc::Rc;

use crate::addr::Addr;
use crate::error::Error;
use crate::homa;
use crate::sim::{Drops, Tap, Tapped, World};
use crate::time::{Duration, Instant};

use party::{Client, Party, Server};
pub use scenarios::SCENARIOS;

/// Places of the two hosts.
pub const CLIENT: usize = 0;
pub const SERVER: usize = 1;

/// The server's port, as in the captures of the module.
const PORT: u16 = 4000;

/// Receive memory of each host, in pages of 64 KiB.
const PAGES: usize = 256;

/// Longer than any scenario: even a response that nobody acknowledges is forgotten after 5 s.
const END: Instant = Instant(Duration::secs(10).as_nanos());

/// What happens between one client and one server.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// That of the module's capture.
    pub name: &'static str,
    pub about: &'static str,
    pub request_bytes: u32,
    pub response_bytes: u32,
    pub rpcs: u32,
    /// RPCs open at once.
    pub outstanding: u32,
    /// From one request to the next, at least.
    pub pause: Duration,
    /// How long the server thinks.
    pub service: Duration,
    /// Whether somebody takes requests.
    pub has_server: bool,
    /// Whether the client does not look for responses until its [`Fate`] says so.
    pub is_away: bool,
    pub drops: &'static [Drops],
    /// What happens, and how long after the first request.
    pub fate: Option<(Duration, Fate)>,
    /// How its RPCs end.
    pub end: Result<(), Error>,
    /// What both hosts do otherwise than by default.
    pub params: fn(&mut homa::Params),
}

/// What happens to one of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    ServerCloses,
    /// Its whole host does, and forgets everything.
    ServerRestarts,
    ClientCloses,
    ClientAborts,
    ClientComesBack,
}

/// What a scenario left behind.
#[derive(Debug)]
pub struct Recording {
    /// Every frame either host sent, in order.
    pub frames: Vec<Tapped>,
    /// How the client's RPCs ended.
    pub ends: Vec<Result<(), Error>>,
}

/// Lets a scenario happen. The same seed gives the same frames.
pub fn record(scenario: Scenario, seed: u64) -> Recording {
    let to = Addr::new(World::<Party>::ip_of(SERVER as u8 + 1), PORT);
    let client = Client::new(scenario, to);
    let parties = vec![
        Party::Client(client),
        Party::Server(Server::new(scenario, PORT)),
    ];
    let mut params = homa::Params {
        finished_max: 1000,
        ..homa::Params::default()
    };
    (scenario.params)(&mut params);
    let mut world = World::new(seed, &params, PAGES, parties);
    let tap = Rc::new(RefCell::new(Tap::new(scenario.drops)));
    world.watch = Some(tap.clone());
    if let Some((after, fate)) = scenario.fate {
        world.run_until(party::BEGIN + after);
        befall(&mut world, scenario, seed, fate);
    }
    world.run_until(END);
    let Party::Client(client) = &mut world.hosts[CLIENT].app else {
        unreachable!("the first host is the client");
    };
    Recording {
        ends: std::mem::take(&mut client.ends),
        frames: std::mem::take(&mut tap.borrow_mut().frames),
    }
}

fn befall(world: &mut World<Party>, scenario: Scenario, seed: u64, fate: Fate) {
    let now = world.now;
    let place = match fate {
        Fate::ServerCloses | Fate::ServerRestarts => SERVER,
        Fate::ClientCloses | Fate::ClientAborts | Fate::ClientComesBack => CLIENT,
    };
    let host = &mut world.hosts[place];
    let homa = host.poller.homa();
    match (fate, &mut host.app) {
        (Fate::ServerCloses, Party::Server(server)) => server.close(now, homa),
        (Fate::ServerRestarts, Party::Server(_)) => {
            let server = Server::new(scenario, PORT);
            world.restart(SERVER, seed ^ 1, Party::Server(server));
        }
        (Fate::ClientCloses, Party::Client(client)) => client.close(now, homa),
        (Fate::ClientAborts, Party::Client(client)) => client.abort(now, homa),
        (Fate::ClientComesBack, Party::Client(client)) => client.come_back(now, homa),
        (fate, party) => unreachable!("{fate:?} befell {party:?}"),
    }
    world.turn(place);
}
