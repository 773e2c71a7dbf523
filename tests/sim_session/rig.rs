//! A client and servers of sessions in the simulator: each knows what it asked or ran, and the
//! oracle compares.
//!
//! Hosts have an address in each of several networks, and a path is a network: one poller serves
//! them all, as it will when it holds several ports.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use demihoma::error::Error;
use demihoma::homa::{self, Endpoint};
use demihoma::rng::Rng;
use demihoma::session::{
    Client, ClientEvent, ClientParams, Completion, Flags, Gather, LinkEvent, Name, OpKey, Outcome,
    PathAddr, PathInfo, PathKey, PathState, Permit, Purpose, Server, ServerEvent, ServerParams,
};
use demihoma::sim::{App, World};
use demihoma::time::{Duration, Instant};

pub const PORT: u16 = 4791;
pub const CLIENT: usize = 0;
pub const SERVER: usize = 1;
/// Receive pages of each host: 64 MiB.
pub const PAGES: usize = 1024;

/// What the servers ran, in all their lives: the numbers of requests.
pub type Ledger = Rc<RefCell<BTreeMap<u64, u32>>>;

/// What a client asks for.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Requests, all in all.
    pub ops: u64,
    /// At once.
    pub depth: u64,
    pub write_percent: u64,
    pub len_max: u64,
    pub flags: Flags,
    pub first_number: u64,
}

/// A request that has not ended.
#[derive(Clone, Copy, Debug)]
struct Asked {
    permit: Permit,
    is_write: bool,
    len: u32,
    began_at: Instant,
}

/// How a request ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    pub number: u64,
    pub is_write: bool,
    pub completion: Completion,
    pub at: Instant,
    pub took: Duration,
}

#[derive(Debug)]
pub struct ClientApp {
    pub params: ClientParams,
    pub client: Option<Client>,
    pub load: Load,
    rng: Rng,
    next: u64,
    asked: BTreeMap<u64, Asked>,
    pub ended: Vec<Ended>,
    pub links: Vec<(Instant, LinkEvent)>,
    pub opened: Option<i32>,
    pub closed: Option<(usize, usize)>,
    pub granted: Vec<(u64, Option<Permit>)>,
    /// Errors of requests that were not taken.
    pub refusals: Vec<Error>,
    /// Starts no requests.
    pub is_held: bool,
    pub keeps_permits: bool,
}

#[derive(Debug)]
pub struct ServerApp {
    pub params: ServerParams,
    pub server: Option<Server>,
    pub ledger: Ledger,
    /// How long a handler takes.
    pub service: Duration,
    /// Handlers never answer.
    pub is_mute: bool,
    pub refuses: bool,
    pub status: i32,
    pub pending: VecDeque<(Instant, OpKey)>,
    pub events: Vec<ServerEvent>,
    /// Most handlers at once, and most copies of one number at once.
    pub running_max: usize,
}

#[derive(Debug)]
pub enum Node {
    Client(Box<ClientApp>),
    Server(Box<ServerApp>),
    Other(Box<dyn Other>),
    /// A host that is switched on and does nothing.
    Idle,
}

/// A host that is neither a client nor a server of ours.
pub trait Other: std::fmt::Debug {
    fn act(&mut self, homa: &mut Endpoint);
    fn on_event(&mut self, now: Instant, homa: &mut Endpoint, event: homa::Event);
}

impl Load {
    pub fn writes(ops: u64, depth: u64) -> Self {
        Self {
            ops,
            depth,
            write_percent: 100,
            len_max: 4096,
            flags: Flags::default(),
            first_number: 1,
        }
    }

    pub fn mixed(ops: u64, depth: u64) -> Self {
        Self {
            write_percent: 50,
            len_max: 126_976,
            ..Self::writes(ops, depth)
        }
    }
}

pub fn path_to(network: u8) -> PathAddr {
    PathAddr {
        source: Some(World::<Node>::ip_in(network, 1)),
        destination: World::<Node>::ip_in(network, 2),
    }
}

pub fn client_params(paths: u8) -> ClientParams {
    let paths = (0..paths).map(path_to).collect();
    ClientParams::new(Name::new(b"disk").unwrap(), PORT, paths)
}

pub fn server_params(life: u64) -> ServerParams {
    ServerParams::new(PORT, 77, life)
}

pub fn client(params: ClientParams, load: Load) -> Node {
    Node::Client(Box::new(ClientApp {
        rng: Rng::new(params.seed ^ 0xabcd),
        params,
        client: None,
        load,
        next: 0,
        asked: BTreeMap::new(),
        ended: Vec::new(),
        links: Vec::new(),
        opened: None,
        closed: None,
        granted: Vec::new(),
        refusals: Vec::new(),
        is_held: false,
        keeps_permits: false,
    }))
}

pub fn server(life: u64, ledger: &Ledger, service: Duration) -> Node {
    server_with(server_params(life), ledger, service)
}

pub fn server_with(params: ServerParams, ledger: &Ledger, service: Duration) -> Node {
    Node::Server(Box::new(ServerApp {
        params,
        server: None,
        ledger: Rc::clone(ledger),
        service,
        is_mute: false,
        refuses: false,
        status: 0,
        pending: VecDeque::new(),
        events: Vec::new(),
        running_max: 0,
    }))
}

/// The byte at a place of that request's data.
fn pattern(number: u64, at: usize) -> u8 {
    (number.wrapping_mul(31) as usize ^ at.wrapping_mul(7) ^ (at >> 8)) as u8
}

fn filled(number: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| pattern(number, at)).collect()
}

impl ClientApp {
    pub fn client(&mut self) -> &mut Client {
        self.client
            .as_mut()
            .expect("it was opened at the first turn")
    }

    pub fn is_done(&self) -> bool {
        self.next == self.load.ops && self.asked.is_empty()
    }

    pub fn open_count(&self) -> usize {
        self.asked.len()
    }

    pub fn paths(&self) -> Vec<PathInfo> {
        let client = self
            .client
            .as_ref()
            .expect("it was opened at the first turn");
        client.paths().collect()
    }

    pub fn path(&self, network: u8) -> PathInfo {
        let of_it = |path: &PathInfo| path.address == path_to(network);
        self.paths()
            .into_iter()
            .find(of_it)
            .expect("a path in that network")
    }

    pub fn key(&self, network: u8) -> PathKey {
        self.path(network).key
    }

    fn pump(&mut self, now: Instant, homa: &mut Endpoint) {
        loop {
            self.client().poll(now, homa);
            let mut is_quiet = true;
            while let Some(event) = self.client().poll_event() {
                is_quiet = false;
                self.on_event(now, homa, event);
            }
            let before = self.next;
            while self.may_ask() && self.ask(now, homa) {}
            if is_quiet && before == self.next {
                return;
            }
        }
    }

    fn may_ask(&self) -> bool {
        let is_open = self.opened == Some(0) && self.closed.is_none() && !self.is_held;
        is_open && self.next < self.load.ops && (self.asked.len() as u64) < self.load.depth
    }

    /// Sends the next request; false if it was not taken.
    pub fn ask(&mut self, now: Instant, homa: &mut Endpoint) -> bool {
        let load = self.load;
        let permit = match self.client().get_permit(Purpose::Io) {
            Ok(permit) => permit,
            Err(error) => {
                if error != Error::Exhausted {
                    self.refusals.push(error);
                }
                return false;
            }
        };
        let number = load.first_number + self.next;
        let is_write = self.rng.below(100) < load.write_percent;
        let len = 1 + self.rng.below(load.len_max) as u32;
        let (head, data) = (number.to_le_bytes(), filled(number, len as usize));
        let cut = self.rng.below(len.into()) as usize;
        let client = self.client.as_mut().expect("open");
        let user: &[&[u8]] = &[&head[..3], &head[3..]];
        let taken = if is_write {
            let parts = [&data[..cut], &data[cut..]];
            let bytes = Gather {
                user,
                data: if cut == 0 { &parts[1..] } else { &parts },
            };
            client.write(now, homa, permit, bytes, load.flags, number)
        } else {
            client.read(now, homa, permit, user, len, load.flags, number)
        };
        match taken {
            Ok(()) => {
                let asked = Asked {
                    permit,
                    is_write,
                    len,
                    began_at: now,
                };
                self.asked.insert(number, asked);
                self.next += 1;
                true
            }
            Err(error) => {
                self.refusals.push(error);
                self.client().put_permit(permit).unwrap();
                false
            }
        }
    }

    fn on_event(&mut self, now: Instant, homa: &mut Endpoint, event: ClientEvent) {
        match event {
            ClientEvent::Opened { status } => self.opened = Some(status),
            ClientEvent::Completed { tag, completion } => {
                self.on_completed(now, homa, tag, completion);
            }
            ClientEvent::Permit { tag, permit } => self.granted.push((tag, permit)),
            ClientEvent::Link(event) => self.links.push((now, event)),
            ClientEvent::Closed { held, unknown } => self.closed = Some((held, unknown)),
        }
    }

    fn on_completed(
        &mut self,
        now: Instant,
        homa: &mut Endpoint,
        number: u64,
        completion: Completion,
    ) {
        let asked = self.asked.remove(&number).expect("each request ends once");
        if let Some(data) = completion.data {
            let mut bytes = vec![0; data.len as usize];
            homa.region().read(data.offset as usize, &mut bytes);
            assert!(homa.release(now, data.run));
            assert!(
                bytes == filled(number, asked.len as usize),
                "wrong data of {number}"
            );
        }
        let has_read = !asked.is_write && completion.status == 0;
        assert_eq!(
            completion.data.is_some(),
            has_read,
            "{number}: {completion:?}"
        );
        self.ended.push(Ended {
            number,
            is_write: asked.is_write,
            completion,
            at: now,
            took: now.since(asked.began_at),
        });
        if !self.keeps_permits {
            // A session that closes has made it void.
            let put = self.client().put_permit(asked.permit);
            assert!(matches!(put, Ok(()) | Err(Error::BadDescriptor)), "{put:?}");
        }
    }
}

impl ServerApp {
    pub fn server(&mut self) -> &mut Server {
        self.server
            .as_mut()
            .expect("it was opened at the first turn")
    }

    fn pump(&mut self, now: Instant, homa: &mut Endpoint) {
        loop {
            self.server().poll(now, homa);
            while let Some(event) = self.server().poll_event() {
                self.on_event(now, homa, event);
            }
            let is_due = |&(at, _): &(Instant, OpKey)| at <= now && !self.is_mute;
            let Some((_, op)) = self.pending.front().copied().filter(is_due) else {
                return;
            };
            self.pending.pop_front();
            self.respond(now, homa, op);
        }
    }

    pub fn respond(&mut self, now: Instant, homa: &mut Endpoint, op: OpKey) {
        let status = self.status;
        let server = self.server();
        let len = server.op(op).map_or(0, demihoma::session::Op::data_len);
        // A session that closed has taken it along.
        let _ = server.respond(now, homa, op, status, len);
    }

    fn on_event(&mut self, now: Instant, homa: &mut Endpoint, event: ServerEvent) {
        self.events.push(event);
        match event {
            ServerEvent::Connecting { session } if self.refuses => {
                self.server().refuse(now, homa, session).unwrap();
            }
            ServerEvent::Connecting { session } => {
                self.server().accept(now, homa, session).unwrap();
            }
            ServerEvent::Request { op, .. } => self.run(now, homa, op),
            ServerEvent::Disconnected { .. }
            | ServerEvent::Resumed { .. }
            | ServerEvent::Destroyed { .. } => {}
        }
    }

    fn run(&mut self, now: Instant, homa: &mut Endpoint, key: OpKey) {
        let server = self.server.as_mut().expect("open");
        let op = server.op(key).expect("it was just told");
        let read = |range: std::ops::Range<usize>| {
            let mut bytes = vec![0; range.len()];
            homa.region().read(range.start, &mut bytes);
            bytes
        };
        let number = u64::from_le_bytes(read(op.user()).try_into().expect("eight bytes"));
        if op.is_write() {
            let data = read(op.data());
            assert!(
                data == filled(number, data.len()),
                "wrong bytes in WRITE {number}"
            );
        } else {
            let data = filled(number, op.data_len() as usize);
            let buffer = server.read_buffer(key).expect("a READ has one");
            buffer[..data.len()].copy_from_slice(&data);
        }
        *self.ledger.borrow_mut().entry(number).or_default() += 1;
        self.pending.push_back((now + self.service, key));
        self.running_max = self.running_max.max(self.pending.len());
    }
}

impl Node {
    pub fn client(&mut self) -> &mut ClientApp {
        match self {
            Self::Client(client) => client,
            Self::Server(_) | Self::Other(_) | Self::Idle => panic!("no client"),
        }
    }

    pub fn server(&mut self) -> &mut ServerApp {
        match self {
            Self::Server(server) => server,
            Self::Client(_) | Self::Other(_) | Self::Idle => panic!("no server"),
        }
    }
}

impl App for Node {
    fn act(&mut self, now: Instant, homa: &mut Endpoint) {
        match self {
            Self::Client(app) => {
                if app.client.is_none() {
                    let params = app.params.clone();
                    app.client = Some(Client::open(now, homa, params).expect("valid params"));
                }
                app.pump(now, homa);
            }
            Self::Server(app) => {
                if app.server.is_none() {
                    let params = app.params.clone();
                    app.server = Some(Server::open(now, homa, params).expect("valid params"));
                }
                app.pump(now, homa);
            }
            Self::Other(other) => other.act(homa),
            Self::Idle => {}
        }
    }

    fn on_event(&mut self, now: Instant, homa: &mut Endpoint, event: homa::Event) {
        match self {
            Self::Client(app) => {
                app.client().handle_event(now, homa, event);
                app.pump(now, homa);
            }
            Self::Server(app) => {
                app.server().handle_event(now, homa, event);
                app.pump(now, homa);
            }
            Self::Other(other) => other.on_event(now, homa, event),
            Self::Idle => {}
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        match self {
            Self::Client(app) => app.client.as_ref()?.poll_timeout(),
            Self::Server(app) => {
                let due = app.server.as_ref().and_then(Server::poll_timeout);
                let pending = app.pending.front().map(|&(at, _)| at);
                let pending = pending.filter(|_| !app.is_mute);
                due.into_iter().chain(pending).min()
            }
            Self::Other(_) | Self::Idle => None,
        }
    }
}

/// A client and a server, and as many paths as networks.
#[derive(Debug)]
pub struct Rig {
    pub world: World<Node>,
    pub ledger: Ledger,
    next_life: u64,
}

impl Rig {
    pub fn new(seed: u64, networks: u8, load: Load) -> Self {
        Self::with(
            seed,
            networks,
            client_params(networks),
            load,
            Duration::ZERO,
        )
    }

    pub fn with(
        seed: u64,
        networks: u8,
        params: ClientParams,
        load: Load,
        service: Duration,
    ) -> Self {
        let ledger = Ledger::default();
        let server = server(1, &ledger, service);
        Self::of(seed, networks, ledger, vec![client(params, load), server])
    }

    pub fn of(seed: u64, networks: u8, ledger: Ledger, nodes: Vec<Node>) -> Self {
        Self::of_pages(seed, networks, ledger, nodes, PAGES)
    }

    pub fn of_pages(
        seed: u64,
        networks: u8,
        ledger: Ledger,
        nodes: Vec<Node>,
        pages: usize,
    ) -> Self {
        println!("seed {seed}");
        let params = homa::Params::default();
        let world = World::with_networks(seed, &params, (pages, networks), nodes);
        Self {
            world,
            ledger,
            next_life: 2,
        }
    }

    pub fn now(&self) -> Instant {
        self.world.now
    }

    pub fn client(&mut self) -> &mut ClientApp {
        self.world.hosts[CLIENT].app.client()
    }

    pub fn server(&mut self) -> &mut ServerApp {
        self.world.hosts[SERVER].app.server()
    }

    /// Calls the client's session, and lets the host turn.
    pub fn call<T>(&mut self, act: impl FnOnce(Instant, &mut Endpoint, &mut ClientApp) -> T) -> T {
        let now = self.world.now;
        let host = &mut self.world.hosts[CLIENT];
        let result = act(now, host.poller.homa(), host.app.client());
        self.world.turn(CLIENT);
        result
    }

    /// As [`Self::call`], at the server.
    pub fn serve<T>(&mut self, act: impl FnOnce(Instant, &mut Endpoint, &mut ServerApp) -> T) -> T {
        let now = self.world.now;
        let host = &mut self.world.hosts[SERVER];
        let result = act(now, host.poller.homa(), host.app.server());
        self.world.turn(SERVER);
        result
    }

    pub fn run_for(&mut self, span: Duration) {
        self.world.run_until(self.world.now + span);
    }

    /// Runs until something is so, and tells how long that took.
    pub fn run_until(
        &mut self,
        limit: Duration,
        is_so: impl Fn(&mut ClientApp) -> bool,
    ) -> Duration {
        let start = self.world.now;
        while !is_so(self.client()) {
            assert!(
                self.world.step() && self.world.now < start + limit,
                "not so within {limit:?}: {:#?}",
                self.client()
            );
        }
        self.world.now.since(start)
    }

    pub fn open(&mut self) {
        self.run_until(Duration::secs(5), |client| client.opened == Some(0));
    }

    /// Runs until all requests have ended.
    pub fn finish(&mut self, limit: Duration) -> Duration {
        self.run_until(limit, |client| client.is_done())
    }

    /// Nothing crosses a network in either direction.
    pub fn cut(&mut self, network: u8) {
        self.world.network_cuts.insert((CLIENT, SERVER, network));
        self.world.network_cuts.insert((SERVER, CLIENT, network));
    }

    pub fn mend(&mut self, network: u8) {
        self.world.network_cuts.remove(&(CLIENT, SERVER, network));
        self.world.network_cuts.remove(&(SERVER, CLIENT, network));
    }

    pub fn mend_all(&mut self) {
        self.world.network_cuts.clear();
    }

    /// The server's computer fails and starts anew; only the ledger remembers.
    pub fn restart_server(&mut self) {
        let life = self.next_life;
        let service = self.server().service;
        let node = server(life, &self.ledger, service);
        self.restart_server_as(node);
    }

    pub fn restart_server_as(&mut self, node: Node) {
        self.next_life += 1;
        self.world.restart(SERVER, self.next_life * 1000, node);
    }

    /// Compares what the client was told with what the servers ran.
    pub fn judge(&mut self) {
        let ledger = self.ledger.borrow().clone();
        let client = self.client();
        let mut numbers: Vec<u64> = client.ended.iter().map(|ended| ended.number).collect();
        numbers.sort_unstable();
        let count = numbers.len();
        numbers.dedup();
        assert_eq!(numbers.len(), count, "a request ended twice");
        let is_idempotent = client.load.flags.is_idempotent;
        for ended in &client.ended {
            let runs = ledger.get(&ended.number).copied().unwrap_or(0);
            let is_right = match ended.completion.outcome {
                Outcome::Executed if ended.is_write && !is_idempotent => runs == 1,
                Outcome::Executed => runs >= 1,
                Outcome::NotExecuted => runs == 0,
                Outcome::Unknown => runs <= 1 || !ended.is_write || is_idempotent,
            };
            assert!(is_right, "ran {runs} times: {ended:?}");
        }
    }

    /// As [`Self::judge`], and all that was held is given back.
    pub fn judge_calm(&mut self) {
        self.run_for(Duration::secs(8));
        self.judge();
        let client = self.client();
        let depth = client.client().attrs().expect("a path is up").queue_depth;
        assert_eq!(client.client().permit_counts(), (depth as usize, 0, 0));
        for path in client.paths() {
            assert_eq!((path.inflight, path.inflight_bytes), (0, 0), "{path:?}");
        }
        assert_eq!(self.server().server().op_count(), 0);
        for host in &self.world.hosts {
            let homa = host.poller.endpoint();
            let calls = homa.rpc_count();
            // A heartbeat or its answer may be under way.
            assert!(calls <= 8, "{calls} RPCs are left");
            assert!(homa.free_pages() as usize >= PAGES - 8);
        }
    }

    pub fn count(&mut self, outcome: Outcome) -> usize {
        let ended = &self.client().ended;
        ended
            .iter()
            .filter(|ended| ended.completion.outcome == outcome)
            .count()
    }

    pub fn is_up(&mut self, network: u8) -> bool {
        self.client().path(network).state == PathState::Connected
    }
}
