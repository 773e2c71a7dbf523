//! Channel messages that no sane peer sends: counted and dropped, and nobody else is harmed.

use demihoma::addr::Addr;
use demihoma::channel::{self, CREDIT_MESSAGES, Channels};
use demihoma::homa::{Endpoint, Event, Message, Notify, Params, Payload, SocketKey};
use demihoma::mem::Buffers;
use demihoma::rng::Rng;
use demihoma::sim::{App, World};
use demihoma::time::{Duration, Instant};
use demihoma::wire::channel::{Credit, HEADER_LEN, Header, Kind};

const PORT: u16 = 99;
const PAGES: usize = 64;

#[derive(Debug)]
enum Node {
    Server(Box<Server>),
    Forger(Box<Forger>),
}

/// Accepts every channel, and pops if it wants to.
#[derive(Debug)]
struct Server {
    channels: Channels,
    buffers: Buffers,
    port: Option<SocketKey>,
    pops: bool,
    popped: Vec<Vec<u8>>,
    ended: u32,
    failed: u32,
}

/// Sends messages one by one, each when the one before was answered or has failed.
#[derive(Debug)]
struct Forger {
    script: Vec<Vec<u8>>,
    next: usize,
    socket: Option<SocketKey>,
    buffers: Buffers,
    is_waiting: bool,
    /// Of each message the kind of the answer, or `None` if there was no good one.
    answers: Vec<Option<Kind>>,
    /// How it answers what the server asks of its own accord: not at all, or by chance.
    chance: Option<Rng>,
}

impl Server {
    fn on_events(&mut self, now: Instant, homa: &mut Endpoint) {
        while let Some(event) = self.channels.poll_event() {
            match event {
                channel::Event::Accepted { channel, .. } => {
                    let tag = u64::from(channel.index()) << 32 | u64::from(channel.generation());
                    let buf = self.buffers.copy_of(&[7; 3_000]).expect("memory");
                    let payload = Payload::Buffer(buf);
                    self.channels.push(now, homa, channel, payload, u64::MAX);
                    self.pop(now, homa, tag);
                    self.accept(homa);
                }
                channel::Event::Popped { tag, piece } => {
                    let bytes = homa
                        .region()
                        .bytes(piece.offset as usize, piece.len as usize);
                    self.popped.push(bytes.to_vec());
                    assert!(homa.release(now, piece.run));
                    self.pop(now, homa, tag);
                }
                channel::Event::Ended { tag } => {
                    self.ended += 1;
                    self.close(now, homa, tag);
                }
                channel::Event::Failed { tag, .. } if tag != u64::MAX => {
                    self.failed += 1;
                    self.close(now, homa, tag);
                }
                channel::Event::Failed { .. } | channel::Event::Pushed { .. } => {}
                event => panic!("{event:?}"),
            }
        }
    }

    fn pop(&mut self, now: Instant, homa: &mut Endpoint, tag: u64) {
        if self.pops {
            let key = channel::ChannelKey::from_parts((tag >> 32) as u32, tag as u32);
            self.channels.pop(now, homa, key, u32::MAX, tag);
        }
    }

    fn close(&mut self, now: Instant, homa: &mut Endpoint, tag: u64) {
        let key = channel::ChannelKey::from_parts((tag >> 32) as u32, tag as u32);
        self.channels.begin_close(now, homa, key);
        self.channels.end_close(now, homa, key);
    }

    fn accept(&mut self, homa: &mut Endpoint) {
        let channels = &mut self.channels;
        let port = *self.port.get_or_insert_with(|| {
            let port = channels.open_port(homa, PORT).expect("a free port");
            channels.listen(homa, port, 4);
            port
        });
        channels.accept(port, 0);
    }
}

impl App for Node {
    fn act(&mut self, now: Instant, homa: &mut Endpoint) {
        match self {
            Self::Server(server) => {
                if server.port.is_none() {
                    server.accept(homa);
                }
                server.channels.handle_timeout(now, homa);
                server.on_events(now, homa);
            }
            Self::Forger(forger) => forger.go_on(now, homa),
        }
    }

    fn on_event(&mut self, now: Instant, homa: &mut Endpoint, event: Event) {
        let server = match self {
            Self::Server(server) => server,
            Self::Forger(forger) => return forger.on_event(now, homa, event),
        };
        let channels = &mut server.channels;
        match event {
            Event::Request { socket, rpc } => channels.handle_request(now, homa, socket, rpc),
            Event::Response { tag, message, .. } => {
                channels.handle_response(now, homa, tag, &message);
            }
            Event::Failed { tag, error, .. } => channels.handle_failure(now, homa, tag, error),
            Event::Released { tag, result } => channels.handle_released(tag, result),
        }
        server.on_events(now, homa);
    }

    fn wake_at(&self) -> Option<Instant> {
        match self {
            Self::Server(server) => server.channels.poll_timeout(),
            Self::Forger(_) => None,
        }
    }
}

impl Forger {
    fn go_on(&mut self, now: Instant, homa: &mut Endpoint) {
        let socket = *self.socket.get_or_insert_with(|| {
            let socket = homa.open(0).expect("a free port");
            homa.set_server(socket, true);
            socket
        });
        if !self.is_waiting
            && let Some(bytes) = self.script.get(self.next)
        {
            self.next += 1;
            self.is_waiting = true;
            let payload = Payload::Buffer(self.buffers.copy_of(bytes).expect("memory"));
            let to = Addr::new(World::<Node>::ip_of(1), PORT);
            homa.send_request(now, socket, to, payload, 1, Notify::Never)
                .expect("room for an RPC");
        }
    }

    fn on_event(&mut self, now: Instant, homa: &mut Endpoint, event: Event) {
        match event {
            Event::Response { message, .. } => self.on_answer(now, homa, &message),
            Event::Failed { .. } => {
                self.answers.push(None);
                self.is_waiting = false;
            }
            Event::Request { rpc, .. } => {
                let Some(message) = homa.take(rpc) else {
                    return;
                };
                homa.release(now, message.run);
                match &mut self.chance {
                    None => homa.forget(now, rpc),
                    Some(rng) => {
                        let bytes = forge(rng);
                        let payload =
                            Payload::Buffer(self.buffers.copy_of(&bytes).expect("memory"));
                        let sent = homa.send_response(now, rpc, payload, Notify::Never);
                        assert_eq!(sent, Ok(()));
                    }
                }
            }
            Event::Released { .. } => {}
        }
        self.go_on(now, homa);
    }

    fn on_answer(&mut self, now: Instant, homa: &mut Endpoint, message: &Message) {
        let bytes = homa
            .region()
            .bytes(message.offset as usize, message.len as usize);
        self.answers
            .push(Header::parse(bytes).ok().map(|header| header.kind));
        homa.release(now, message.run);
        self.is_waiting = false;
    }
}

fn header(kind: Kind, sequence: u64) -> Header {
    Header {
        kind,
        channel: 42,
        sequence,
        credit: Credit::default(),
    }
}

fn bare(kind: Kind, sequence: u64) -> Vec<u8> {
    header(kind, sequence).emit().to_vec()
}

fn with(kind: Kind, sequence: u64, bytes: &[u8]) -> Vec<u8> {
    [&header(kind, sequence).emit()[..], bytes].concat()
}

/// A message by chance: mostly a header whose parts make nearly sense, and some bytes.
fn forge(rng: &mut Rng) -> Vec<u8> {
    let kinds = [
        Kind::Open,
        Kind::Data,
        Kind::Head,
        Kind::Body,
        Kind::Fin,
        Kind::Note,
        Kind::Reset,
        Kind::Ack,
        Kind::Again,
        Kind::Refused,
        Kind::Data,
        Kind::Data,
    ];
    let number = |rng: &mut Rng| match rng.below(8) {
        0 => rng.next_u64(),
        1 => u64::MAX - rng.below(3),
        _ => rng.below(40),
    };
    let header = Header {
        kind: kinds[rng.below(kinds.len() as u64) as usize],
        channel: 40 + rng.below(4),
        sequence: number(rng),
        credit: Credit {
            sequence: number(rng),
            bytes: number(rng),
        },
    };
    let len = [0, 0, 1, 40, 41, 3_000, 100_000][rng.below(7) as usize];
    let mut bytes = [&header.emit()[..], &vec![9; len]].concat();
    if rng.one_in_thousand(100) {
        let at = rng.below(HEADER_LEN as u64) as usize;
        bytes[at] = rng.next_u64() as u8;
    }
    let cut = rng.below(bytes.len() as u64) as usize;
    if rng.one_in_thousand(50) {
        bytes.truncate(1 + cut);
    }
    bytes
}

fn world(pops: bool, scripts: Vec<Vec<Vec<u8>>>, chance: Option<u64>) -> World<Node> {
    let buffers = Buffers::new(64 << 20);
    let params = channel::Params::default();
    let channels = Channels::new(params, buffers.clone(), Instant(0));
    let server = Server {
        channels: channels.expect("valid params"),
        buffers,
        port: None,
        pops,
        popped: Vec::new(),
        ended: 0,
        failed: 0,
    };
    let mut nodes = vec![Node::Server(Box::new(server))];
    nodes.extend(scripts.into_iter().map(|script| {
        Node::Forger(Box::new(Forger {
            script,
            next: 0,
            socket: None,
            buffers: Buffers::new(64 << 20),
            is_waiting: false,
            answers: Vec::new(),
            chance: chance.map(Rng::new),
        }))
    }));
    World::new(1, &Params::default(), PAGES, nodes)
}

fn server(world: &World<Node>) -> &Server {
    match &world.hosts[0].app {
        Node::Server(server) => server,
        Node::Forger(_) => panic!("host 0 is the server"),
    }
}

/// Plays one script; gives the answers.
fn play(world: &mut World<Node>) -> Vec<Option<Kind>> {
    world.run_until(Instant(0) + Duration::secs(4));
    match &world.hosts[1].app {
        Node::Forger(forger) => {
            assert_eq!(
                forger.answers.len(),
                forger.script.len(),
                "not all was answered"
            );
            forger.answers.clone()
        }
        Node::Server(_) => panic!("host 1 is the forger"),
    }
}

#[test]
fn what_is_no_channel_message_is_counted_and_not_answered() {
    let mut other_version = bare(Kind::Open, 0);
    other_version[6] = 9;
    let script = vec![
        b"hello".to_vec(),
        vec![0x8d; 100],
        bare(Kind::Open, 0)[..39].to_vec(),
        other_version,
        bare(Kind::Ack, 0),
        bare(Kind::Again, 0),
        bare(Kind::Refused, 0),
    ];
    let mut world = world(true, vec![script], None);
    assert_eq!(play(&mut world), [None; 7]);
    let stats = server(&world).channels.stats();
    assert_eq!((stats.strangers, stats.malformed), (2, 5));
    assert!(server(&world).channels.is_empty());
}

#[test]
fn messages_for_a_channel_that_does_not_exist_are_answered_so() {
    let script = vec![
        with(Kind::Data, 0, b"x"),
        bare(Kind::Note, 0),
        bare(Kind::Fin, 0),
        bare(Kind::Reset, 0),
    ];
    let mut world = world(true, vec![script], None);
    let [reset, ack] = [Some(Kind::Reset), Some(Kind::Ack)];
    assert_eq!(play(&mut world), [reset, reset, reset, ack]);
    assert_eq!(server(&world).channels.stats().no_channel, 3);
}

#[test]
fn lengths_and_numbers_that_make_no_sense_are_dropped() {
    let script = vec![
        bare(Kind::Open, 0),
        bare(Kind::Open, 0),
        bare(Kind::Data, 0),
        with(Kind::Fin, 0, b"x"),
        with(Kind::Head, 0, &[1; HEADER_LEN + 1]),
        with(Kind::Data, CREDIT_MESSAGES + 2, b"x"),
        with(Kind::Data, u64::MAX, b"x"),
        with(Kind::Data, 0, b"good"),
        with(Kind::Data, 0, b"again"),
        with(Kind::Data, 1, b"better"),
        bare(Kind::Fin, 2),
    ];
    let mut world = world(true, vec![script], None);
    let ack = Some(Kind::Ack);
    let expected = [ack, ack, None, None, None, None, None, ack, ack, ack, ack];
    assert_eq!(play(&mut world), expected);
    let server = server(&world);
    assert_eq!(server.popped, [&b"good"[..], b"better"]);
    let stats = server.channels.stats();
    assert_eq!(
        (stats.malformed, stats.over_credit, stats.duplicates),
        (3, 2, 1)
    );
    assert_eq!((stats.opened, server.ended), (1, 1));
}

/// More than 32 messages, or than 256 KiB, that nobody popped.
#[test]
fn a_peer_that_ignores_its_credit_gets_nothing_out_of_it() {
    let mut script = vec![bare(Kind::Open, 0)];
    script.extend((0..40).map(|sequence| with(Kind::Data, sequence, b"x")));
    let mut one = world(false, vec![script], None);
    let answers = play(&mut one);
    assert!(
        answers[..=34]
            .iter()
            .all(|&answer| answer == Some(Kind::Ack))
    );
    assert!(answers[35..].iter().all(Option::is_none));
    assert_eq!(server(&one).channels.stats().over_credit, 6);

    let mut script = vec![bare(Kind::Open, 0)];
    script.extend((0..4).map(|sequence| with(Kind::Data, sequence, &[5; 100_000])));
    let mut two = world(false, vec![script], None);
    let ack = Some(Kind::Ack);
    assert_eq!(play(&mut two), [ack, ack, ack, None, None]);
    assert_eq!(server(&two).channels.stats().over_credit, 2);
}

/// A long message in two parts that do not belong together ends the channel.
#[test]
fn parts_without_each_other_end_the_channel() {
    for parts in [
        [with(Kind::Body, 0, b"x"), with(Kind::Data, 1, b"x")],
        [with(Kind::Head, 0, b"x"), with(Kind::Data, 1, b"x")],
        [with(Kind::Head, 0, b"x"), with(Kind::Head, 1, b"x")],
        [with(Kind::Head, 0, b"x"), bare(Kind::Fin, 1)],
    ] {
        let [first, second] = parts;
        let script = vec![bare(Kind::Open, 0), first, second];
        let mut world = world(true, vec![script], None);
        assert_eq!(play(&mut world).last(), Some(&Some(Kind::Reset)));
        let server = server(&world);
        assert_eq!((server.failed, server.popped.len()), (1, 0));
        assert!(server.channels.is_empty());
    }
}

/// Nor are there ones that other addresses, or other ports, speak for.
#[test]
fn only_its_own_peer_speaks_for_a_channel() {
    let own = vec![bare(Kind::Open, 0), with(Kind::Data, 0, b"mine")];
    let foreign = vec![
        bare(Kind::Note, 0),
        bare(Kind::Reset, 0),
        with(Kind::Data, 1, b"not"),
    ];
    let mut world = world(true, vec![own, foreign], None);
    play(&mut world);
    let server = server(&world);
    assert_eq!(server.popped, [b"mine"]);
    assert_eq!((server.failed, server.channels.stats().no_channel), (0, 2));
}

/// Requests and answers by chance, of three hosts. The simulator checks all tables meanwhile.
#[test]
fn messages_by_chance_leave_no_trace() {
    for seed in 0..4 {
        let mut rng = Rng::new(seed);
        let scripts = (0..3).map(|_| (0..400).map(|_| forge(&mut rng)).collect());
        let mut world = world(seed % 2 == 0, scripts.collect(), Some(seed));
        world.run_until(Instant(0) + Duration::secs(150));
        let server = server(&world);
        let stats = server.channels.stats();
        assert!(stats.malformed > 0 && stats.opened > 0, "{stats:?}");
        let homa = world.hosts[0].poller.endpoint();
        let held = PAGES as u32 - homa.free_pages();
        // At most what the channels that are still open may keep, each at most its credit.
        let most = 5 * server.channels.len() as u32 + 1;
        assert!(
            held <= most,
            "{held} pages for {} channels",
            server.channels.len()
        );
        assert!(
            homa.rpc_count() <= 40 * server.channels.len(),
            "{}",
            homa.rpc_count()
        );
    }
}
