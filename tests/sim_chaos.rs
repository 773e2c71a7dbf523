//! Applications that misbehave, on links that do, with tables that are too small: nothing is
//! lost, nothing is told twice, and all is free in the end.

use std::collections::{BTreeMap, BTreeSet};

use demihoma::addr::Addr;
use demihoma::error::Error;
use demihoma::homa::{
    Endpoint, Event, Message, Notify, Params, Payload, RpcKey, RunKey, SocketKey,
};
use demihoma::mem::Buffers;
use demihoma::rng::Rng;
use demihoma::sim::{App, Faults, World};
use demihoma::time::{Duration, Instant};

const PORT: u16 = 99;
const HOSTS: u8 = 3;
const SEEDS: u64 = 12;
/// The longest message needs 16, so that one alone can always go.
const PAGES: usize = 20;

/// Asks, answers, asks in turn before it answers, aborts, forgets, closes and holds on to bytes,
/// as chance has it.
struct Chaos {
    number: u8,
    rng: Rng,
    socket: Option<SocketKey>,
    buffers: Buffers,
    /// No new RPCs, and what is held is let go.
    is_ending: bool,
    next_tag: u64,
    /// Requests of ours that are not done.
    open: BTreeMap<u64, RpcKey>,
    /// Requests in service, and what is held of them.
    serving: Vec<Message>,
    /// Answered once the nested request of that tag is done.
    nested: BTreeMap<u64, Message>,
    held: Vec<RunKey>,
    /// Notifications that must still come.
    notices: BTreeSet<u64>,
    done: u64,
    failed: u64,
    closed: u64,
    next_act_at: Instant,
}

impl Chaos {
    fn new(number: u8, seed: u64) -> Self {
        Self {
            number,
            rng: Rng::new(seed << 8 | u64::from(number)),
            socket: None,
            buffers: Buffers::new(256 << 20),
            is_ending: false,
            next_tag: 1,
            open: BTreeMap::new(),
            serving: Vec::new(),
            nested: BTreeMap::new(),
            held: Vec::new(),
            notices: BTreeSet::new(),
            done: 0,
            failed: 0,
            closed: 0,
            next_act_at: Instant(0),
        }
    }

    fn tag(&mut self) -> u64 {
        self.next_tag += 1;
        self.next_tag
    }

    fn len(&mut self) -> u32 {
        let longest = [1, 100, 1424, 3000, 50_000, 200_000, 1_000_000][self.rng.below(7) as usize];
        1 + self.rng.below(longest) as u32
    }

    /// New bytes, or those of a message that is held.
    fn payload(&mut self, held: Option<&Message>) -> Payload {
        match held {
            Some(message) if self.rng.one_in_thousand(500) => Payload::Received {
                run: message.run,
                start: 0,
                len: message.len,
            },
            Some(_) | None => {
                let len = self.len() as usize;
                Payload::Buffer(self.buffers.alloc(len).expect("send buffers"))
            }
        }
    }

    fn notify(&mut self) -> Notify {
        match self.rng.below(3) {
            0 => Notify::Never,
            1 => Notify::Transmitted(self.tag()),
            _ => Notify::Delivered(self.tag()),
        }
    }

    fn expect_notice(&mut self, notify: Notify) {
        match notify {
            Notify::Never => {}
            Notify::Transmitted(tag) | Notify::Delivered(tag) => assert!(self.notices.insert(tag)),
        }
    }

    /// Asks somebody, now and then itself or nobody. Tells the tag.
    fn ask(&mut self, now: Instant, homa: &mut Endpoint, held: Option<&Message>) -> Option<u64> {
        let socket = self.socket?;
        let last = 1 + self.rng.below(u64::from(HOSTS) + 1) as u8;
        let port = if self.rng.one_in_thousand(20) {
            5
        } else {
            PORT
        };
        let to = Addr::new(World::<Self>::ip_of(last), port);
        let (payload, notify, tag) = (self.payload(held), self.notify(), self.tag());
        match homa.send_request(now, socket, to, payload, tag, notify) {
            Ok((rpc, _)) => {
                self.open.insert(tag, rpc);
                self.expect_notice(notify);
                Some(tag)
            }
            Err(Error::Exhausted) => None,
            Err(error) => panic!("host {}: {error:?}", self.number),
        }
    }

    fn answer(&mut self, now: Instant, homa: &mut Endpoint, message: &Message) {
        let (payload, notify) = (self.payload(Some(message)), self.notify());
        // It may be gone meanwhile, which is told as a notice.
        let sent = homa.send_response(now, message.rpc, payload, notify);
        assert_eq!(sent, Ok(()), "host {}", self.number);
        self.expect_notice(notify);
        self.let_go(now, homa, message.run);
    }

    /// Lets a message's bytes go, or holds them for a while.
    fn let_go(&mut self, now: Instant, homa: &mut Endpoint, run: RunKey) {
        if self.rng.one_in_thousand(50) {
            self.held.push(run);
        } else {
            assert!(homa.release(now, run), "bytes that were held");
        }
    }

    fn misbehave(&mut self, now: Instant, homa: &mut Endpoint) {
        match self.rng.below(12) {
            0..=3 => drop(self.ask(now, homa, None)),
            4..=6 if !self.serving.is_empty() => {
                let at = self.rng.below(self.serving.len() as u64) as usize;
                let message = self.serving.swap_remove(at);
                self.answer(now, homa, &message);
            }
            7 if !self.serving.is_empty() => {
                let message = self.serving.swap_remove(0);
                match self.ask(now, homa, Some(&message)) {
                    Some(tag) => drop(self.nested.insert(tag, message)),
                    None => self.serving.push(message),
                }
            }
            8 if !self.open.is_empty() => {
                let at = self.rng.below(self.open.len() as u64) as usize;
                let (&tag, &rpc) = self.open.iter().nth(at).expect("within");
                if self.rng.one_in_thousand(500) {
                    homa.abort(now, rpc, Error::Canceled);
                } else {
                    homa.forget(now, rpc);
                    self.open.remove(&tag);
                    self.serving.extend(self.nested.remove(&tag));
                }
            }
            9 if !self.serving.is_empty() => {
                let message = self.serving.swap_remove(0);
                homa.forget(now, message.rpc);
                self.let_go(now, homa, message.run);
            }
            10 if !self.held.is_empty() => {
                assert!(
                    homa.release(now, self.held.swap_remove(0)),
                    "bytes that were held"
                );
            }
            11 if self.rng.one_in_thousand(30) => self.close(now, homa),
            _ => {}
        }
    }

    /// All RPCs of the socket end; its client RPCs will not be told of.
    fn close(&mut self, now: Instant, homa: &mut Endpoint) {
        if let Some(socket) = self.socket.take() {
            homa.close(now, socket);
            self.open.clear();
            self.serving
                .extend(std::mem::take(&mut self.nested).into_values());
            self.closed += 1;
        }
    }

    fn end(&mut self, now: Instant, homa: &mut Endpoint) {
        for message in std::mem::take(&mut self.serving) {
            self.answer(now, homa, &message);
        }
        for run in std::mem::take(&mut self.held) {
            assert!(homa.release(now, run), "bytes that were held");
        }
    }

    /// A call is over, with these bytes or with an error.
    fn on_over(&mut self, now: Instant, homa: &mut Endpoint, tag: u64, run: Option<RunKey>) {
        let is_open = self.open.remove(&tag).is_some();
        match run {
            Some(run) => {
                self.done += u64::from(is_open);
                self.let_go(now, homa, run);
            }
            None => self.failed += u64::from(is_open),
        }
        if let Some(message) = self.nested.remove(&tag) {
            self.answer(now, homa, &message);
        }
    }
}

impl App for Chaos {
    fn act(&mut self, now: Instant, homa: &mut Endpoint) {
        if self.socket.is_none() {
            let socket = homa.open(PORT).expect("the port is free");
            homa.set_server(socket, true);
            self.socket = Some(socket);
        }
        if self.is_ending {
            self.end(now, homa);
        } else if now >= self.next_act_at {
            self.next_act_at = now + Duration::micros(1 + self.rng.below(200));
            self.misbehave(now, homa);
        }
    }

    fn on_event(&mut self, now: Instant, homa: &mut Endpoint, event: Event) {
        match event {
            Event::Request { rpc, .. } => self.serving.extend(homa.take(rpc)),
            Event::Response { tag, message, .. } => {
                self.on_over(now, homa, tag, Some(message.run));
            }
            Event::Failed { tag, .. } => self.on_over(now, homa, tag, None),
            Event::Released { tag, .. } => {
                assert!(self.notices.remove(&tag), "notice {tag} came twice");
            }
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        (!self.is_ending).then_some(self.next_act_at)
    }
}

fn params() -> Params {
    Params {
        rpcs_max: 24,
        peers_max: 4,
        control_max: 8,
        finished_max: 4096,
        need_ack_give_up_ticks: 300,
        ..Params::default()
    }
}

fn run(seed: u64, faults: Faults) {
    let apps = (1..=HOSTS).map(|number| Chaos::new(number, seed)).collect();
    let mut world = World::new(seed, &params(), PAGES, apps);
    world.faults = faults;
    world.run_until(Instant(0) + Duration::millis(400));
    world.faults = Faults::NONE;
    // What a client forgot is answered, what nobody answers times out, what nobody acknowledges
    // is given up; then hosts that waited for pages go on.
    for round in 0..40 {
        for number in 0..world.hosts.len() {
            world.hosts[number].app.is_ending = true;
            world.turn(number);
        }
        world.run_until(world.now + Duration::millis(50 + round));
    }
    let mut done = 0;
    for host in &world.hosts {
        let (app, homa) = (&host.app, host.poller.endpoint());
        let left = (homa.rpc_count(), app.open.len(), app.notices.len());
        let (number, stats) = (app.number, homa.stats());
        assert_eq!(left, (0, 0, 0), "seed {seed}, host {number}: {stats:?}");
        assert_eq!(homa.free_pages(), PAGES as u32, "seed {seed}: pages");
        assert_eq!(app.buffers.used_bytes(), 0, "seed {seed}: send buffers");
        assert!(homa.is_quiet(), "seed {seed}: something waits to be sent");
        done += app.done;
    }
    assert!(done > 50, "seed {seed}: only {done} RPCs were done");
}

#[test]
fn nothing_is_lost_on_a_good_link() {
    (1..=SEEDS).for_each(|seed| run(seed, Faults::NONE));
}

#[test]
fn nothing_is_lost_on_a_bad_link() {
    let faults = Faults {
        loss_per_mille: 50,
        duplicate_per_mille: 50,
        late_per_mille: 100,
        late_max: Duration::micros(500),
    };
    (1..=SEEDS).for_each(|seed| run(seed, faults));
}
