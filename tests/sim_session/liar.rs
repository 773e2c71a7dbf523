//! Servers that say what no server of ours would.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use demihoma::homa::{Endpoint, Event, Message, Notify, Payload, SocketKey};
use demihoma::mem::Buffers;
use demihoma::rng::Rng;
use demihoma::session::{Outcome, status};
use demihoma::time::{Duration, Instant};
use demihoma::wire::session::{
    self as wire, Close, Common, Entry, IoRequest, IoResponse, OpenResponse, Request, Resolve,
    Response, SlotState, Verdict, parse_request,
};

use crate::rig::{Ledger, Load, Node, Other, PORT, Rig, client, client_params};

/// What is said to a request.
#[derive(Clone, Debug)]
enum Lie {
    Executed,
    Refused(i32),
    Stale,
    /// Of another request.
    WrongSequence,
    /// More than was asked for.
    TooMuch,
    Bytes(Vec<u8>),
}

/// What was seen, and what will be said.
#[derive(Debug, Default)]
struct Script {
    lies: VecDeque<Lie>,
    /// About each slot that is asked about; the last one stays.
    states: VecDeque<SlotState>,
    /// Sequence, attempt and path of each copy that came.
    copies: Vec<(u64, u16, u16)>,
    questions: u32,
    /// Spoils any answer.
    noise: Option<Rng>,
}

#[derive(Debug)]
struct Liar {
    socket: Option<SocketKey>,
    buffers: Buffers,
    script: Rc<RefCell<Script>>,
}

impl Other for Liar {
    fn act(&mut self, homa: &mut Endpoint) {
        self.socket.get_or_insert_with(|| {
            let socket = homa.open(PORT).expect("the port is free");
            homa.set_server(socket, true);
            socket
        });
    }

    fn on_event(&mut self, now: Instant, homa: &mut Endpoint, event: Event) {
        let Event::Request { rpc, .. } = event else {
            panic!("a server was told {event:?}");
        };
        let Some(message) = homa.take(rpc) else {
            return;
        };
        let mut bytes = self.answer(homa, &message);
        if let Some(rng) = &mut self.script.borrow_mut().noise {
            spoil(rng, &mut bytes);
        }
        homa.release(now, message.run);
        let buf = self.buffers.copy_of(&bytes).unwrap();
        homa.send_response(now, rpc, Payload::Buffer(buf), Notify::Never)
            .unwrap();
    }
}

/// Most answers stay as they are, or nothing would ever open.
fn spoil(rng: &mut Rng, bytes: &mut Vec<u8>) {
    match rng.below(10) {
        0 => {
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << rng.below(8);
        }
        1 => bytes.truncate(1 + rng.below(bytes.len() as u64) as usize),
        2 => bytes.extend([0; 40]),
        3 => bytes
            .iter_mut()
            .for_each(|byte| *byte = rng.next_u64() as u8),
        _ => {}
    }
}

impl Liar {
    fn answer(&mut self, homa: &Endpoint, message: &Message) -> Vec<u8> {
        let mut all = vec![0; message.len as usize];
        homa.region().read(message.offset as usize, &mut all);
        let head = &all[..all.len().min(128)];
        let (common, request) = parse_request(head, message.len).expect("a client of ours");
        let script = &mut *self.script.borrow_mut();
        match request {
            Request::PathOpen(_) => {
                let open = OpenResponse {
                    server_uuid: 5,
                    server_id: 77,
                    queue_depth: 16,
                    io_max: 126_976,
                    user_max: 4032,
                    beat_ms: 100,
                    missed_max: 3,
                    is_new: true,
                    lease_ms: 500,
                    ..OpenResponse::default()
                };
                // A path's name is the network's that it came over.
                let path = message.peer.ip.0.to_be_bytes()[14];
                let common = Common {
                    session: 9,
                    path: u16::from(path) + 1,
                    ..common
                };
                emit(common, &Response::PathOpen(open), &[])
            }
            Request::PathReady(list) => {
                let tail = verdicts(script, &all, list.count);
                emit(
                    common,
                    &Response::PathReady(Resolve { pages: 0, ..list }),
                    &tail,
                )
            }
            Request::SlotResolve(list) => {
                script.questions += 1;
                let tail = verdicts(script, &all, list.count);
                emit(
                    common,
                    &Response::SlotResolve(Resolve { pages: 0, ..list }),
                    &tail,
                )
            }
            Request::Heartbeat(beat) => emit(common, &Response::Heartbeat(beat), &[]),
            Request::PathClose(_) => emit(common, &Response::PathClose(Close::default()), &[]),
            Request::SessionClose(_) => {
                emit(common, &Response::SessionClose(Close::default()), &[])
            }
            Request::Read(io) => {
                script.copies.push((io.sequence, io.attempt, common.path));
                io_answer(script, common, io, false)
            }
            Request::Write(io) => {
                script.copies.push((io.sequence, io.attempt, common.path));
                io_answer(script, common, io, true)
            }
        }
    }
}

fn verdicts(script: &mut Script, message: &[u8], count: u32) -> Vec<u8> {
    let state = match script.states.len() {
        _ if count == 0 => None,
        0 | 1 => script.states.front().copied(),
        _ => script.states.pop_front(),
    };
    let (entries, _) = message[Resolve::LEN..].as_chunks::<{ Entry::ASKED }>();
    let mut tail = Vec::new();
    for entry in &entries[..count as usize] {
        let Entry { slot, sequence } = Entry::parse(entry);
        let mut out = [0; Entry::ANSWERED];
        let state = state.unwrap_or(SlotState::NotExecuted);
        Verdict {
            slot,
            sequence,
            state,
        }
        .emit(&mut out);
        tail.extend(out);
    }
    tail
}

fn io_answer(script: &mut Script, common: Common, io: IoRequest, is_write: bool) -> Vec<u8> {
    let mut answer = IoResponse {
        sequence: io.sequence,
        slot: io.slot,
        outcome: wire::Outcome::Executed,
        is_replayed: false,
        status: if is_write { 0 } else { -2 },
        data_len: 0,
        queued: 0,
    };
    let mut tail = Vec::new();
    match script.lies.pop_front().unwrap_or(Lie::Executed) {
        Lie::Executed => {}
        Lie::Refused(status) => {
            answer.outcome = wire::Outcome::Refused;
            answer.status = status;
        }
        Lie::Stale => answer.outcome = wire::Outcome::Stale,
        Lie::WrongSequence => answer.sequence += 1,
        Lie::TooMuch => {
            answer.status = 0;
            answer.data_len = io.data_len + 1;
            tail = vec![0; answer.data_len as usize];
        }
        Lie::Bytes(bytes) => return bytes,
    }
    let response = match is_write {
        true => Response::Write(answer),
        false => Response::Read(answer),
    };
    emit(common, &response, &tail)
}

fn emit(common: Common, response: &Response, tail: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 128];
    let len = response.emit(&common, &mut bytes);
    bytes.truncate(len);
    bytes.extend(tail);
    bytes
}

fn rig(seed: u64, load: Load, script: Script) -> (Rig, Rc<RefCell<Script>>) {
    let script = Rc::new(RefCell::new(script));
    let liar = Liar {
        socket: None,
        buffers: Buffers::new(16 << 20),
        script: Rc::clone(&script),
    };
    let mut params = client_params(2);
    params.io_timeout = Duration::secs(2);
    params.reconnect_delay = Duration::millis(50);
    params.seed = seed;
    let nodes = vec![client(params, load), Node::Other(Box::new(liar))];
    (Rig::of(seed, 2, Ledger::default(), nodes), script)
}

/// One WRITE whose two copies are turned away, and what the server then says about it.
fn refused_twice(states: &[SlotState]) -> ((i32, Outcome), Script) {
    let script = Script {
        lies: [Lie::Refused(status::BUSY), Lie::Refused(status::ALREADY)].into(),
        states: states.iter().copied().collect(),
        ..Script::default()
    };
    let mut load = Load::writes(1, 1);
    load.write_percent = if states.contains(&SlotState::DoneNoData) {
        0
    } else {
        100
    };
    let (mut rig, script) = rig(90, load, script);
    // Both paths are up before the request is sent.
    rig.client().is_held = true;
    rig.open();
    rig.run_for(Duration::millis(10));
    rig.client().is_held = false;
    rig.call(|_, _, _| ());
    rig.finish(Duration::secs(3));
    let completion = rig.client().ended[0].completion;
    ((completion.status, completion.outcome), script.take())
}

#[test]
fn a_request_whose_copies_are_turned_away_ends_as_the_server_says_it_did() {
    let (told, script) = refused_twice(&[SlotState::NotExecuted]);
    assert_eq!(told, (status::CANCELED, Outcome::NotExecuted));
    let copies = script.copies.iter();
    let copies: Vec<_> = copies
        .map(|&(sequence, attempt, _)| (sequence, attempt))
        .collect();
    assert_eq!(copies, [(1, 1), (1, 2)]);
    assert_ne!(
        script.copies[0].2, script.copies[1].2,
        "the other path is tried"
    );
    assert_eq!(script.questions, 1);
    let (told, _) = refused_twice(&[SlotState::Done { status: -7 }]);
    assert_eq!(told, (-7, Outcome::Executed));
    let (told, script) = refused_twice(&[
        SlotState::InProgress,
        SlotState::InProgress,
        SlotState::Done { status: 0 },
    ]);
    assert_eq!((told, script.questions), ((0, Outcome::Executed), 3));
    // A READ that ran is asked for again: the third copy is answered.
    let (told, script) = refused_twice(&[SlotState::DoneNoData]);
    assert_eq!(told, (-2, Outcome::Executed));
    let last = script.copies.last();
    assert!(matches!(last, Some((1, 3, _))), "{last:?}");
    let (told, _) = refused_twice(&[SlotState::Stale]);
    assert_eq!(told, (status::PROTOCOL, Outcome::Unknown));
}

#[test]
fn an_answer_that_makes_no_sense_costs_the_path_and_not_the_request() {
    let lies = [
        Lie::WrongSequence,
        Lie::TooMuch,
        Lie::Bytes(vec![7]),
        Lie::Bytes(vec![0; 64]),
        Lie::Bytes(vec![0xff; 5_000]),
        Lie::Refused(status::VERSION),
    ];
    for lie in lies {
        println!("{lie:?}");
        let script = Script {
            lies: [lie].into(),
            ..Script::default()
        };
        let (mut rig, script) = rig(91, Load::writes(1, 1), script);
        rig.finish(Duration::secs(3));
        let ended = rig.client().ended[0];
        assert_eq!(ended.completion.outcome, Outcome::Executed);
        assert_eq!(script.borrow().copies.len(), 2);
        rig.run_for(Duration::secs(1));
        assert!(rig.is_up(0) || rig.is_up(1));
    }
    let script = Script {
        lies: [Lie::Stale].into(),
        ..Script::default()
    };
    let (mut rig, _) = rig(92, Load::writes(1, 1), script);
    rig.finish(Duration::secs(3));
    assert_eq!(rig.count(Outcome::Unknown), 1);
}

/// Whatever bytes come back to whatever was asked, each request ends once, and what the session
/// holds it gives back.
#[test]
fn a_server_that_raves_is_survived() {
    for seed in 0..20 {
        let script = Script {
            noise: Some(Rng::new(seed)),
            ..Script::default()
        };
        let (mut rig, script) = rig(100 + seed, Load::mixed(400, 12), script);
        rig.run_for(Duration::secs(8));
        script.borrow_mut().noise = None;
        if rig.client().opened == Some(0) {
            rig.call(|now, homa, app| {
                for path in app.paths() {
                    app.client().reconnect_path(now, homa, path.key).unwrap();
                }
            });
            rig.finish(Duration::secs(60));
            assert_eq!(rig.client().ended.len(), 400);
            rig.call(|now, _, app| app.client().close(now, Duration::ZERO));
        }
        rig.run_until(Duration::secs(2), |app| app.client().is_closed());
        assert_eq!(rig.world.hosts[0].poller.endpoint().rpc_count(), 0);
        let free = rig.world.hosts[0].poller.endpoint().free_pages();
        assert_eq!(free as usize, crate::rig::PAGES);
    }
}
