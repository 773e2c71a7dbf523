//! Handlers that call others and keep their request meanwhile, with the smallest pool there is.
//! Decision 19.

use std::collections::HashMap;

use demihoma::addr::Addr;
use demihoma::homa::{Endpoint, Event, Message, Notify, Params, Payload, SocketKey};
use demihoma::sim::{App, Echo, Requester, RequesterParams, Role, Sizes, World};
use demihoma::time::{Duration, Instant};

const PORT: u16 = 99;

/// Two messages of 1,000,000 B and a page: the least that may be configured.
const PAGES: usize = 33;

#[derive(Debug)]
enum Node {
    Role(Role),
    Relay(Relay),
}

/// Passes each request on, and the response back, without a copy of its own.
#[derive(Debug)]
struct Relay {
    to: Addr,
    socket: Option<SocketKey>,
    /// Requests whose calls are under way, by the calls' tags.
    open: HashMap<u64, Message>,
    next_tag: u64,
}

impl Relay {
    fn pass_on(&mut self, now: Instant, homa: &mut Endpoint, request: Message) {
        let socket = self.socket.expect("it was opened to hear of a request");
        let payload = received(&request);
        let tag = self.next_tag;
        let sent = homa.send_request(now, socket, self.to, payload, tag, Notify::Never);
        sent.expect("a quarter of the RPCs is for calls");
        self.open.insert(tag, request);
        self.next_tag += 1;
    }

    fn answer(&mut self, now: Instant, homa: &mut Endpoint, tag: u64, response: Message) {
        let request = self.open.remove(&tag).expect("each call ends once");
        let replied = homa.send_response(now, request.rpc, received(&response), Notify::Never);
        assert_eq!(replied, Ok(()));
        assert!(homa.release(now, request.run) && homa.release(now, response.run));
    }
}

fn received(message: &Message) -> Payload {
    Payload::Received {
        run: message.run,
        start: 0,
        len: message.len,
    }
}

impl App for Node {
    fn act(&mut self, now: Instant, homa: &mut Endpoint) {
        match self {
            Self::Role(role) => role.act(now, homa),
            Self::Relay(relay) => {
                relay.socket.get_or_insert_with(|| {
                    let socket = homa.open(PORT).expect("the port is free");
                    homa.set_server(socket, true);
                    socket
                });
            }
        }
    }

    fn on_event(&mut self, now: Instant, homa: &mut Endpoint, event: Event) {
        let relay = match self {
            Self::Role(role) => return role.on_event(now, homa, event),
            Self::Relay(relay) => relay,
        };
        match event {
            Event::Request { rpc, .. } => {
                if let Some(request) = homa.take(rpc) {
                    relay.pass_on(now, homa, request);
                }
            }
            Event::Response { tag, message, .. } => relay.answer(now, homa, tag, message),
            Event::Failed { .. } | Event::Released { .. } => panic!("a relay was told {event:?}"),
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        match self {
            Self::Role(role) => role.wake_at(),
            Self::Relay(_) => None,
        }
    }
}

/// Clients call host 1, which passes all on to host 2.
fn world(seed: u64, clients: u64, outstanding: u64, sizes: Sizes) -> World<Node> {
    let address = |number| Addr::new(World::<Node>::ip_of(number), PORT);
    let relay = Relay {
        to: address(2),
        socket: None,
        open: HashMap::new(),
        next_tag: 0,
    };
    let server = Role::Server(Echo::new(PORT, Duration::ZERO));
    let mut nodes = vec![Node::Relay(relay), Node::Role(server)];
    nodes.extend((0..clients).map(|n| {
        Node::Role(Role::Client(Requester::new(RequesterParams {
            to: address(1),
            rpcs: 40,
            outstanding,
            sizes,
            first_number: 1 + n * 1_000,
            seed: seed + n,
        })))
    }));
    World::new(seed, &Params::default(), PAGES, nodes)
}

fn clients(world: &World<Node>) -> impl Iterator<Item = &Requester> {
    world.hosts.iter().filter_map(|host| match &host.app {
        Node::Role(Role::Client(client)) => Some(client),
        Node::Role(Role::Server(_)) | Node::Relay(_) => None,
    })
}

/// Eight clients want many times the pages that the relay has for requests; each of these is held
/// until its response, which needs pages too, is back. None waits for ever, or until it is given
/// up after five seconds.
#[test]
fn nested_rpcs_do_not_deadlock_for_want_of_pages() {
    let sizes = [
        Sizes::Fixed(60_000),
        Sizes::Fixed(200_000),
        Sizes::Fixed(1_000_000),
        Sizes::Uniform(1, 500_000),
        Sizes::W3WithLong,
    ];
    for (seed, sizes) in (1..).zip(sizes) {
        println!("seed {seed}, {sizes:?}");
        let mut world = world(seed, 8, 8, sizes);
        let end = Instant(0) + Duration::secs(4);
        while !clients(&world).all(Requester::is_done) {
            assert!(world.step() && world.now < end, "stuck at {:?}", world.now);
        }
        println!("done at {:?}", world.now);
        assert!(clients(&world).all(|client| client.failed.is_empty()));
        world.run_until(world.now + Duration::secs(1));
        for host in &world.hosts {
            let homa = host.poller.endpoint();
            assert_eq!((homa.rpc_count(), homa.free_pages()), (0, PAGES as u32));
        }
    }
}
