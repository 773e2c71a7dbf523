//! Messages that no client of ours sends, and copies that come when nobody expects them.

use std::cell::RefCell;
use std::rc::Rc;

use demihoma::addr::{Addr, Ip};
use demihoma::homa::{self, Endpoint, Event, Notify, Payload, SocketKey};
use demihoma::mem::Buffers;
use demihoma::rng::Rng;
use demihoma::session::{Outcome, Server, ServerEvent, ServerParams, status};
use demihoma::sim::{App, Copied, Crossing, Watch, World};
use demihoma::time::{Duration, Instant};
use demihoma::wire::homa::Packet;
use demihoma::wire::session::{
    Close, Common, Entry, Heartbeat, IoRequest, OpenRequest, OpenResponse, Request, Resolve,
    Response, SlotState, Verdict, parse_response,
};

use crate::rig::{CLIENT, Load, PORT, Rig, SERVER, client_params, server_params};

/// An answer, read and as it came.
type Heard = (Result<(Common, Response), ()>, Vec<u8>);

/// A server, or somebody who says to it what he likes.
#[derive(Debug)]
enum Node {
    Server(Box<Server>, Vec<ServerEvent>),
    Start(Box<ServerParams>),
    Raw {
        socket: Option<SocketKey>,
        buffers: Buffers,
        heard: Vec<(u64, Heard)>,
    },
}

impl App for Node {
    fn act(&mut self, now: Instant, homa: &mut Endpoint) {
        match self {
            Self::Start(params) => {
                let server = Server::open(now, homa, (**params).clone()).expect("valid params");
                *self = Self::Server(Box::new(server), Vec::new());
            }
            Self::Server(server, events) => {
                server.poll(now, homa);
                while let Some(event) = server.poll_event() {
                    if let ServerEvent::Connecting { session } = event {
                        server.accept(now, homa, session).unwrap();
                    }
                    events.push(event);
                }
            }
            Self::Raw { socket, .. } => {
                socket.get_or_insert_with(|| homa.open(0).expect("a port is free"));
            }
        }
    }

    fn on_event(&mut self, now: Instant, homa: &mut Endpoint, event: Event) {
        match self {
            Self::Server(server, _) => server.handle_event(now, homa, event),
            Self::Start(_) => {}
            Self::Raw { heard, .. } => {
                let Event::Response { tag, message, .. } = event else {
                    panic!("the server always answers: {event:?}");
                };
                let mut bytes = vec![0; message.len as usize];
                homa.region().read(message.offset as usize, &mut bytes);
                homa.release(now, message.run);
                let head = &bytes[..bytes.len().min(128)];
                let parsed = parse_response(head, message.len).map_err(|_| ());
                heard.push((tag, (parsed, bytes)));
            }
        }
        self.act(now, homa);
    }

    fn wake_at(&self) -> Option<Instant> {
        match self {
            Self::Server(server, _) => server.poll_timeout(),
            Self::Start(_) | Self::Raw { .. } => None,
        }
    }
}

struct Lab {
    world: World<Node>,
    next_tag: u64,
}

impl Lab {
    fn new() -> Self {
        Self::with(server_params(1))
    }

    fn with(params: ServerParams) -> Self {
        let raw = Node::Raw {
            socket: None,
            buffers: Buffers::new(1 << 20),
            heard: Vec::new(),
        };
        let nodes = vec![raw, Node::Start(Box::new(params))];
        Self {
            world: World::new(1, &homa::Params::default(), 256, nodes),
            next_tag: 1,
        }
    }

    fn server(&mut self) -> (&mut Server, &mut Vec<ServerEvent>) {
        match &mut self.world.hosts[SERVER].app {
            Node::Server(server, events) => (server, events),
            Node::Start(_) | Node::Raw { .. } => panic!("no server"),
        }
    }

    /// Sends bytes, and gives the answer.
    fn say(&mut self, bytes: &[u8]) -> Heard {
        let tag = self.send(bytes);
        self.world.run_until(self.world.now + Duration::millis(1));
        self.answer(tag).expect("an answer at once")
    }

    fn send(&mut self, bytes: &[u8]) -> u64 {
        let (now, tag) = (self.world.now, self.next_tag);
        self.next_tag += 1;
        let host = &mut self.world.hosts[CLIENT];
        let Node::Raw {
            socket, buffers, ..
        } = &host.app
        else {
            panic!("no raw client");
        };
        let to = Addr::new(Ip::v4(10, 0, 0, 2), PORT);
        let payload = Payload::Buffer(buffers.copy_of(bytes).unwrap());
        let socket = socket.unwrap();
        let homa = host.poller.homa();
        homa.send_request(now, socket, to, payload, tag, Notify::Never)
            .unwrap();
        self.world.turn(CLIENT);
        tag
    }

    fn answer(&mut self, tag: u64) -> Option<Heard> {
        let Node::Raw { heard, .. } = &mut self.world.hosts[CLIENT].app else {
            panic!("no raw client");
        };
        let place = heard.iter().position(|&(other, _)| other == tag)?;
        Some(heard.remove(place).1)
    }

    fn ask(&mut self, common: Common, request: Request, tail: &[u8]) -> (Common, Response) {
        let bytes = message(common, request, tail);
        self.say(&bytes).0.expect("a message of ours")
    }

    fn open(&mut self, epoch: u32, open: OpenRequest, name: &[u8]) -> (Common, OpenResponse) {
        let common = Common {
            epoch,
            ..Common::default()
        };
        let open = OpenRequest {
            name_len: name.len() as u16,
            ..open
        };
        match self.ask(common, Request::PathOpen(open), name) {
            (common, Response::PathOpen(answer)) => (common, answer),
            other => panic!("not to that question: {other:?}"),
        }
    }

    fn ready(&mut self, common: Common) -> i32 {
        match self.ask(common, Request::PathReady(Resolve::default()), &[]) {
            (_, Response::PathReady(list)) => list.status,
            other => panic!("not to that question: {other:?}"),
        }
    }

    fn beat(&mut self, common: Common) -> i32 {
        match self.ask(common, Request::Heartbeat(Heartbeat::default()), &[]) {
            (_, Response::Heartbeat(beat)) => beat.status,
            other => panic!("not to that question: {other:?}"),
        }
    }

    /// Of a WRITE: how it ended. `None` if it runs.
    fn write(&mut self, common: Common, slot: u16, sequence: u64) -> Option<(u8, i32)> {
        let io = IoRequest {
            slot,
            sequence,
            data_len: 4,
            attempt: 1,
            ..IoRequest::default()
        };
        let tag = self.send(&message(common, Request::Write(io), b"data"));
        self.world.run_until(self.world.now + Duration::millis(5));
        let (parsed, bytes) = self.answer(tag)?;
        match parsed {
            Ok((_, Response::Write(io))) => Some((bytes[42], io.status)),
            other => panic!("not to that question: {other:?}"),
        }
    }
}

fn message(common: Common, request: Request, tail: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 128];
    let len = request.emit(&common, &mut bytes);
    bytes.truncate(len);
    bytes.extend(tail);
    bytes
}

fn first_open() -> OpenRequest {
    OpenRequest {
        session_uuid: 5,
        path_uuid: 6,
        may_create: true,
        beat_ms: 100,
        missed_max: 3,
        ..OpenRequest::default()
    }
}

/// Stories 3 and 13.
#[test]
fn what_comes_before_its_time_is_refused_and_changes_nothing() {
    let mut lab = Lab::new();
    let nobody = Common {
        session: 1 << 16,
        path: 1,
        epoch: 1,
        ..Common::default()
    };
    assert_eq!(lab.ready(nobody), status::NOT_CONNECTED);
    assert_eq!(lab.beat(nobody), status::NOT_CONNECTED);
    assert_eq!(lab.write(nobody, 0, 1), Some((4, status::NOT_CONNECTED)));
    let (common, answer) = lab.open(1, first_open(), b"disk");
    assert_eq!((answer.status, answer.is_new), (0, true));
    assert_eq!(lab.beat(common), status::PROTOCOL);
    assert_eq!(lab.write(common, 0, 1), Some((4, status::NOT_CONNECTED)));
    assert_eq!(lab.ready(Common { epoch: 2, ..common }), status::STALE);
    assert_eq!(
        lab.ready(Common { path: 2, ..common }),
        status::NOT_CONNECTED
    );
    assert_eq!(lab.ready(common), 0);
    // Twice is no harm.
    assert_eq!((lab.ready(common), lab.beat(common)), (0, 0));
    assert_eq!(lab.write(common, 0, 1), None);
    assert_eq!(lab.server().0.op_count(), 1);
}

#[test]
fn a_later_attempt_takes_a_path_over_and_an_earlier_one_is_stale() {
    let mut lab = Lab::new();
    let (first, answer) = lab.open(3, first_open(), b"disk");
    assert_eq!(lab.ready(first), 0);
    let resumed = OpenRequest {
        expected_server: answer.server_uuid,
        resumed: first.session,
        may_create: false,
        ..first_open()
    };
    assert_eq!(lab.open(2, resumed, b"disk").1.status, status::STALE);
    assert_eq!(lab.open(3, resumed, b"disk").1.status, 0);
    assert_eq!(lab.beat(first), 0, "a copy of an attempt changes nothing");
    let (second, answer) = lab.open(4, resumed, b"disk");
    assert_eq!(
        (answer.status, answer.is_new, second.path),
        (0, false, first.path)
    );
    assert_eq!(lab.write(first, 0, 1), Some((4, status::NOT_CONNECTED)));
    assert_eq!((lab.beat(first), lab.ready(second)), (status::STALE, 0));
    let close = Request::PathClose(Close::default());
    let (_, late) = lab.ask(first, close, &[]);
    assert_eq!(
        late,
        Response::PathClose(Close {
            status: status::STALE
        })
    );
    assert_eq!(lab.beat(second), 0);
    let (_, closed) = lab.ask(second, close, &[]);
    assert_eq!(closed, Response::PathClose(Close { status: 0 }));
    assert_eq!(lab.beat(second), status::NOT_CONNECTED);
}

#[test]
fn sessions_are_opened_in_the_order_of_the_rules() {
    let mut lab = Lab::new();
    let open = |lab: &mut Lab, change: &dyn Fn(&mut OpenRequest), name: &[u8]| {
        let mut open = first_open();
        change(&mut open);
        lab.open(1, open, name).1.status
    };
    for name in [
        &b""[..],
        b"a/b",
        b"a.b",
        b"a b",
        b"a\0",
        b"\xff",
        &[b'a'; 256],
    ] {
        assert_eq!(open(&mut lab, &|_| (), name), status::INVALID, "{name:?}");
    }
    assert_eq!(
        open(&mut lab, &|open| open.beat_ms = 9, b"disk"),
        status::INVALID
    );
    assert_eq!(
        open(&mut lab, &|open| open.missed_max = 0, b"disk"),
        status::INVALID
    );
    assert_eq!(
        open(&mut lab, &|open| open.io_max = 5, b"disk"),
        status::INVALID
    );
    assert_eq!(
        open(&mut lab, &|open| open.expected_server = 1, b"disk"),
        status::STALE
    );
    assert_eq!(
        open(&mut lab, &|open| open.resumed = 1, b"disk"),
        status::STALE
    );
    let may_not = |open: &mut OpenRequest| open.may_create = false;
    assert_eq!(open(&mut lab, &may_not, b"disk"), status::NO_SUCH_SESSION);
    assert_eq!(lab.server().0.session_count(), 0);
    let (common, _) = lab.open(1, first_open(), b"disk");
    assert_eq!(lab.ready(common), 0);
    assert_eq!(
        open(&mut lab, &|open| open.session_uuid = 50, b"disk"),
        status::EXISTS
    );
    assert_eq!(
        open(&mut lab, &|open| open.resumed = 1, b"disk"),
        status::STALE
    );
    for path_uuid in 100..227 {
        assert_eq!(
            open(&mut lab, &|open| open.path_uuid = path_uuid, b"disk"),
            0
        );
    }
    let one_more = |open: &mut OpenRequest| open.path_uuid = 99;
    assert_eq!(open(&mut lab, &one_more, b"disk"), status::TOO_MANY_PATHS);
}

/// Story 14, `open_during_close`.
#[test]
fn a_session_that_is_going_is_not_gone_on_with() {
    let mut lab = Lab::new();
    let (common, _) = lab.open(1, first_open(), b"disk");
    assert_eq!(lab.ready(common), 0);
    assert_eq!(lab.write(common, 0, 1), None);
    let close = Request::SessionClose(Close::default());
    lab.ask(common, close, &[]);
    let (_, answer) = lab.open(2, first_open(), b"disk");
    assert_eq!(answer.status, status::BUSY);
    assert!(answer.retry_after_ms >= 50);
    assert_eq!(lab.write(common, 1, 1), Some((4, status::NOT_CONNECTED)));
    let now = lab.world.now;
    let host = &mut lab.world.hosts[SERVER];
    let Node::Server(server, events) = &mut host.app else {
        panic!("no server");
    };
    let op = events.iter().find_map(|event| match event {
        ServerEvent::Request { op, .. } => Some(*op),
        _ => None,
    });
    server
        .respond(now, host.poller.homa(), op.unwrap(), 0, 0)
        .unwrap();
    assert_eq!(server.session_count(), 0);
    assert_eq!(lab.open(3, first_open(), b"disk").1.status, 0);
}

/// Sessions get what memory there is, down to eight slots, and then none.
#[test]
fn memory_is_promised_once() {
    let mut params = server_params(1);
    params.queue_depth = 100;
    let mut lab = Lab::with(params);
    let depths: Vec<u32> = (1..=4)
        .map(|uuid| {
            let open = OpenRequest {
                session_uuid: uuid,
                path_uuid: uuid,
                ..first_open()
            };
            let (_, answer) = lab.open(1, open, format!("disk{uuid}").as_bytes());
            assert_eq!(
                answer.retry_after_ms > 0,
                answer.status == status::NO_MEMORY
            );
            answer.queue_depth
        })
        .collect();
    // Of 256 pages each session has 8 for itself and 2 for each slot: 208, then 40 are left.
    assert_eq!(depths, [100, 20, 0, 0]);
}

/// Story 12 and more: whatever bytes come, they are answered, and no state is left by them.
#[test]
fn no_bytes_whatever_do_harm() {
    let mut lab = Lab::new();
    let (common, _) = lab.open(1, first_open(), b"disk");
    assert_eq!(lab.ready(common), 0);
    let mut rng = Rng::new(9);
    let mut tags = Vec::new();
    for round in 0..4_000 {
        let io = IoRequest {
            slot: rng.below(600) as u16,
            sequence: 0,
            user_len: [0, 0, 1, 4032, 4033, u16::MAX][rng.below(6) as usize],
            data_len: [0, 1, 126_976, 126_977, u32::MAX][rng.below(5) as usize],
            ..IoRequest::default()
        };
        let is_whole = rng.below(2) == 0;
        let list = Resolve {
            count: rng.below(5_000) as u32,
            ..Resolve::default()
        };
        let request = match rng.below(6) {
            0 => Request::Read(io),
            1 => Request::Write(io),
            2 => Request::SlotResolve(list),
            3 => Request::PathReady(list),
            4 => Request::Heartbeat(Heartbeat::default()),
            _ => Request::PathOpen(OpenRequest {
                name_len: 9,
                ..first_open()
            }),
        };
        let tail_len = if is_whole {
            io.user_len.min(5)
        } else {
            rng.below(300) as u16
        };
        let tail = vec![round as u8; tail_len.into()];
        let mut bytes = message(common, request, &tail);
        if !is_whole {
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << rng.below(8);
            bytes.truncate(1 + rng.below(bytes.len() as u64) as usize);
        }
        tags.push(lab.send(&bytes));
        if round % 64 == 0 {
            lab.world.run_until(lab.world.now + Duration::millis(10));
        }
    }
    lab.world.run_until(lab.world.now + Duration::millis(200));
    assert!(
        tags.into_iter().all(|tag| lab.answer(tag).is_some()),
        "each is answered"
    );
    let (server, _) = lab.server();
    let stats = server.stats();
    assert!(stats.malformed > 1_000 && stats.refused > 100, "{stats:?}");
    assert_eq!(
        (
            server.op_count(),
            server.session_count(),
            server.stats().requests
        ),
        (0, 1, 0)
    );
    // The slots are as they were.
    assert_eq!(lab.write(common, 0, 1), None);
}

#[test]
fn slots_are_resolved_one_by_one_and_fenced() {
    let mut lab = Lab::new();
    let (common, _) = lab.open(1, first_open(), b"disk");
    assert_eq!(lab.ready(common), 0);
    assert_eq!(lab.write(common, 3, 1), None);
    let asked = [(3, 1), (3, 2), (4, 7), (4, 6), (600, 1)];
    let mut tail = Vec::new();
    for (slot, sequence) in asked {
        let mut entry = [0; Entry::ASKED];
        Entry { slot, sequence }.emit(&mut entry);
        tail.extend(entry);
    }
    let list = Resolve {
        count: 5,
        ..Resolve::default()
    };
    let (_, bytes) = lab.say(&message(common, Request::SlotResolve(list), &tail));
    let (entries, rest) = bytes[Resolve::LEN..].as_chunks::<{ Entry::ANSWERED }>();
    assert!(rest.is_empty());
    let states: Vec<_> = entries
        .iter()
        .map(|entry| Verdict::parse(entry).unwrap().state)
        .collect();
    let expected = [
        SlotState::InProgress,
        SlotState::InProgress,
        SlotState::NotExecuted,
        SlotState::Stale,
        SlotState::Stale,
    ];
    assert_eq!(states, expected);
    assert_eq!(lab.write(common, 4, 7), Some((1, status::CANCELED)));
    assert_eq!(lab.write(common, 4, 6), Some((3, status::STALE)));
    assert_eq!(lab.write(common, 4, 8), None);
}

/// Keeps what goes to the server over the first network.
#[derive(Debug, Default)]
struct Keeper {
    frames: Vec<Vec<u8>>,
}

impl Watch for Keeper {
    fn on_frame(&mut self, crossing: &Crossing, _copies: &[Copied]) {
        let is_data = matches!(crossing.packet(), Some((_, Packet::Data(..))));
        if is_data && crossing.to == SERVER && crossing.network() == Some(0) {
            self.frames.push(crossing.frame.to_vec());
        }
    }
}

/// Story 34, `ghost_write`, and story 36: copies over path A lie somewhere for twenty seconds,
/// longer than the transport remembers them. Meanwhile their requests ran over path B, and many
/// more did in the same slots.
#[test]
fn a_copy_that_was_stuck_for_long_does_not_run_when_it_comes_at_last() {
    let mut rig = Rig::with(
        70,
        2,
        client_params(2),
        Load::writes(2_000, 16),
        Duration::ZERO,
    );
    rig.open();
    let keeper = Rc::new(RefCell::new(Keeper::default()));
    rig.world.watch = Some(Rc::clone(&keeper) as Rc<RefCell<dyn Watch>>);
    rig.world.network_cuts.insert((CLIENT, SERVER, 0));
    rig.finish(Duration::secs(5));
    assert_eq!(rig.count(Outcome::Executed), 2_000);
    rig.world.watch = None;
    rig.run_for(Duration::secs(20));
    let frames = keeper.borrow().frames.clone();
    assert!(frames.len() > 16, "{}", frames.len());
    let before = *rig.server().server().stats();
    for frame in frames {
        rig.world.inject(SERVER, frame);
        rig.run_for(Duration::micros(10));
    }
    rig.run_for(Duration::secs(1));
    let after = *rig.server().server().stats();
    assert!(
        after.refused + after.stale > before.refused + before.stale,
        "they came"
    );
    assert_eq!(after.requests, before.requests);
    assert!(rig.ledger.borrow().values().all(|&runs| runs == 1));
    rig.mend_all();
    rig.judge_calm();
}
