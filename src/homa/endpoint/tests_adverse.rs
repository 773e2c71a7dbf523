//! Peers, links and users at their worst moments, packet by packet.

mod found;

use super::*;
use crate::addr::{Addr, LinkId, Meta};
use crate::homa::event::{Payload, RunKey, SocketKey};
use crate::homa::pool::BPAGE_LEN;
use crate::mem::Buffers;
use crate::time::Duration;
use crate::wire::homa::{self as wire, Common, Data, Packet, Placement, Resend};

const OWN: Ip = Ip::v4(10, 0, 0, 1);
const PEER: Ip = Ip::v4(10, 0, 0, 2);
const PORT: u16 = 99;
const THEIR_PORT: u16 = 40_000;
const LINK: LinkId = LinkId::new(0, 7, 0);
/// The version that a peer names once it knows our cutoffs.
const VERSION: u16 = 1;

/// An endpoint driven by hand, with one socket that takes requests.
struct Hand {
    homa: Endpoint,
    now: Instant,
    socket: SocketKey,
    buffers: Buffers,
}

impl Hand {
    fn new(pages: usize, change: impl FnOnce(&mut Params)) -> Self {
        let mut params = Params {
            finished_max: 1000,
            ..Params::default()
        };
        change(&mut params);
        let region = Region::owned(pages * BPAGE_LEN as usize).unwrap();
        let mut homa = Endpoint::new(params, region, Instant(0)).unwrap();
        let socket = homa.open(PORT).unwrap();
        homa.set_server(socket, true);
        Self {
            homa,
            now: Instant(0),
            socket,
            buffers: Buffers::new(16 << 20),
        }
    }

    /// With the link to the peer up.
    fn linked(pages: usize, change: impl FnOnce(&mut Params)) -> Self {
        let mut hand = Self::new(pages, change);
        hand.homa.peers.find_or_add(Instant(0), PEER).unwrap();
        hand.homa.handle_peer_up(PEER, LINK);
        hand
    }

    fn packet(&mut self, id: u64, packet: &Packet<'_>) -> Verdict {
        let mut bytes = [0; 1500];
        let common = Common {
            sport: THEIR_PORT,
            dport: PORT,
            id: RpcId(id),
        };
        let len = wire::emit(&common, packet, &mut bytes);
        let meta = Meta {
            from: PEER,
            to: OWN,
        };
        self.homa
            .handle_packet(self.now, meta, &bytes[..len], &mut Endpoint::keep_event)
    }

    fn data(&mut self, id: u64, data: Data, payload_len: usize) -> Verdict {
        self.packet(id, &Packet::Data(data, &vec![7; payload_len]))
    }

    /// A request of one packet, and its key once the user was told.
    fn request(&mut self, id: u64, version: u16) -> Option<RpcKey> {
        let data = Data {
            cutoff_version: version,
            ..data(100, 0)
        };
        let _ = self.data(id, data, 100);
        self.events().into_iter().find_map(|event| match event {
            Event::Request { rpc, .. } => Some(rpc),
            _ => None,
        })
    }

    /// A request of one packet that the user has taken; the bytes are the user's.
    fn taken(&mut self, id: u64) -> (RpcKey, RunKey) {
        let rpc = self.request(id, VERSION).unwrap();
        let message = self.homa.take(rpc).expect("a request that is there");
        (rpc, message.run)
    }

    fn send(&mut self, payload: Payload, notify: Notify) -> (RpcKey, RpcId) {
        let to = Addr::new(PEER, THEIR_PORT);
        self.homa
            .send_request(self.now, self.socket, to, payload, 5, notify)
            .unwrap()
    }

    fn buffer(&self, len: usize) -> Payload {
        Payload::Buffer(self.buffers.alloc(len).unwrap())
    }

    /// Names and first two words of all that goes out now.
    fn sent(&mut self) -> Vec<&'static str> {
        let mut room = [0; 1500];
        let mut names = Vec::new();
        while let Some(sent) = self.homa.poll_transmit(self.now, &mut room) {
            let (_, packet) = wire::parse(&room[..usize::from(sent.len.get())]).unwrap();
            names.push(packet.name());
        }
        self.homa.check();
        names
    }

    fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.homa.poll_event()).collect()
    }

    fn unresolved(&mut self) -> usize {
        std::iter::from_fn(|| self.homa.poll_unresolved()).count()
    }

    fn live(&mut self, ticks: u32) {
        for _ in 0..ticks {
            self.now += Duration::millis(1);
            self.homa.handle_timeout(self.now);
            self.homa.check();
        }
    }
}

/// The first DATA packet of a message.
fn data(message_length: u32, offset: u32) -> Data {
    Data {
        message_length,
        incoming: message_length.min(40_000),
        ack: None,
        cutoff_version: VERSION,
        retransmit: false,
        empty_reply: false,
        life: 0,
        offset,
        placement: Placement::Explicit,
    }
}

/// A client RPC whose request is a received message waits for pages. Those of its own request
/// come free as it ends, and must not be given to it.
#[test]
fn an_rpc_that_ends_while_it_waits_for_pages_gets_none() {
    for is_abort in [false, true] {
        let mut hand = Hand::linked(1, |_| ());
        let (_, run) = hand.taken(2);
        let (start, len) = (0, 100);
        let (rpc, id) = hand.send(Payload::Received { run, start, len }, Notify::Never);
        hand.sent();
        hand.homa.release(hand.now, run);
        // It needs the whole page, of which the request has a part.
        let _ = hand.data(id.0 | 1, data(BPAGE_LEN, 0), 1000);
        assert_eq!(hand.homa.stats().page_waits, 1);
        match is_abort {
            true => hand.homa.abort(hand.now, rpc, Error::Canceled),
            false => hand.homa.forget(hand.now, rpc),
        }
        assert_eq!(hand.homa.free_pages(), 1, "abort: {is_abort}");
    }
}

/// Decision 12. The new life uses the id again, and must not get the old one's response.
#[test]
fn a_request_of_a_peers_earlier_life_is_never_answered() {
    let mut hand = Hand::linked(4, |_| ());
    let (in_service, _) = hand.taken(2);
    let waiting = hand.request(4, VERSION).unwrap();
    let replying = hand.taken(6).0;
    let response = hand.buffer(100);
    let replied = hand
        .homa
        .send_response(hand.now, replying, response, Notify::Delivered(9));
    replied.unwrap();
    hand.now += Duration::millis(150);
    let again = hand.request(2, 0).unwrap();
    assert_ne!(again, in_service);
    assert_eq!((hand.homa.stats().restarts, hand.homa.rpc_count()), (1, 1));
    assert!(hand.homa.take(waiting).is_none());
    let response = hand.buffer(100);
    let replied = hand
        .homa
        .send_response(hand.now, in_service, response, Notify::Never);
    assert_eq!((replied, hand.sent()), (Ok(()), vec!["CUTOFFS"]));
}

const RESEND: Packet<'static> = Packet::Resend(Resend {
    offset: 0,
    length: None,
    priority: 7,
});

#[test]
fn a_message_waits_once_for_its_link_however_often_it_is_asked_for() {
    let mut hand = Hand::linked(4, |_| ());
    let (_, id) = hand.send(hand.buffer(3000), Notify::Never);
    hand.sent();
    hand.homa.handle_peer_lost(PEER);
    for _ in 0..100 {
        let _ = hand.packet(id.0 | 1, &RESEND);
        let _ = hand.packet(id.0 | 1, &Packet::Unknown);
    }
    let parked = hand.homa.peers.iter().map(|peer| peer.parked().len());
    assert_eq!((parked.sum::<usize>(), hand.unresolved()), (1, 1));
    hand.homa.handle_peer_up(PEER, LINK);
    assert_eq!(hand.sent(), ["DATA"; 3]);
}

#[test]
fn rpcs_that_ended_do_not_add_up_at_a_peer_without_a_link() {
    let mut hand = Hand::new(4, |_| ());
    for _ in 0..10_000 {
        let (rpc, _) = hand.send(Payload::EmptyReply, Notify::Never);
        hand.homa.forget(hand.now, rpc);
    }
    let parked = hand.homa.peers.iter().map(|peer| peer.parked().len());
    assert!(parked.sum::<usize>() < 10);
}

/// The server asks for a part again just when the link is lost, and then has it after all.
#[test]
fn a_link_that_fails_takes_no_response_that_is_here() {
    let mut hand = Hand::linked(4, |_| ());
    let (_, id) = hand.send(hand.buffer(3000), Notify::Never);
    hand.sent();
    hand.homa.handle_peer_lost(PEER);
    let _ = hand.packet(id.0 | 1, &RESEND);
    let _ = hand.data(id.0 | 1, data(100, 0), 100);
    hand.homa
        .handle_peer_failed(hand.now, PEER, Error::HostUnreachable);
    let events = hand.events();
    assert!(matches!(events[..], [Event::Response { .. }]), "{events:?}");
}

#[test]
fn what_waits_for_a_link_is_not_forgotten_when_the_link_is_lost_again() {
    let mut hand = Hand::new(4, |_| ());
    hand.send(hand.buffer(100), Notify::Never);
    assert_eq!(hand.unresolved(), 1);
    hand.homa.handle_peer_lost(PEER);
    assert_eq!(hand.unresolved(), 1);
    hand.homa.handle_peer_up(PEER, LINK);
    assert_eq!(hand.sent(), ["DATA"]);
}

/// Rule TM-03: what comes could not be kept, so nothing is asked for; but the server hears that
/// we live, as it would give up its response after 100 silent ticks.
#[test]
fn a_response_that_waits_for_pages_is_not_asked_for_but_its_server_hears_of_us() {
    let mut hand = Hand::linked(1, |_| ());
    let (_, run) = hand.taken(2);
    let (_, id) = hand.send(hand.buffer(1), Notify::Never);
    hand.sent();
    let _ = hand.data(id.0 | 1, data(BPAGE_LEN, 0), 1000);
    let mut names = Vec::new();
    for _ in 0..200 {
        hand.live(1);
        let _ = hand.packet(id.0 | 1, &Packet::NeedAck);
        names.extend(hand.sent());
    }
    // Every other NEED_ACK is answered.
    assert!((5..110).contains(&names.len()), "{names:?}");
    assert!(names.iter().all(|&name| name == "BUSY"), "{names:?}");
    hand.homa.release(hand.now, run);
    // Rule PL-18. The window is more than a page.
    assert_eq!(hand.sent(), ["RESEND", "GRANT"]);
}

#[test]
fn a_message_longer_than_all_pages_is_refused_and_not_waited_for() {
    let mut hand = Hand::linked(2, |_| ());
    let (_, id) = hand.send(hand.buffer(1), Notify::Never);
    hand.sent();
    let len = 2 * BPAGE_LEN + 1;
    let _ = hand.data(2, data(len, 0), 1000);
    assert_eq!((hand.homa.rpc_count(), hand.homa.stats().too_long), (1, 1));
    let _ = hand.data(id.0 | 1, data(len, 0), 1000);
    let failed = Error::MessageTooLong;
    let events = hand.events();
    assert!(
        matches!(events[..], [Event::Failed { error, .. }] if error == failed),
        "{events:?}"
    );
}

/// Decision 19. Ten messages announce 999,999 B each; an honest one still gets a grant.
#[test]
fn what_a_sender_announces_stops_the_grants_of_no_other() {
    let mut hand = Hand::linked(1024, |params| params.max_incoming_bytes = 500_000);
    for id in 1..=10 {
        let greedy = Data {
            incoming: 999_999,
            ..data(1_000_000, 0)
        };
        let _ = hand.data(2 * id, greedy, 1000);
        let second = Data {
            offset: 1000,
            ..greedy
        };
        let _ = hand.data(2 * id, second, 1000);
    }
    assert_eq!(hand.homa.grants.incoming(), 10 * 38_000);
    assert!(hand.sent().contains(&"GRANT"));
}

#[test]
fn cutoffs_without_a_version_are_not_taken() {
    let mut hand = Hand::linked(4, |_| ());
    let cutoffs = |version| wire::Cutoffs {
        unsched_cutoffs: [9; 8],
        version,
    };
    let _ = hand.packet(0, &Packet::Cutoffs(cutoffs(3)));
    let _ = hand.packet(0, &Packet::Cutoffs(cutoffs(0)));
    let versions: Vec<_> = hand
        .homa
        .peers
        .iter()
        .map(|p| p.cutoffs.version())
        .collect();
    assert_eq!(versions, [3]);
}

/// Hosts that hold pages for each other would else wait for ever.
#[test]
fn a_message_without_pages_is_given_up_in_the_end() {
    let mut hand = Hand::linked(1, |params| params.need_ack_give_up_ticks = 300);
    hand.taken(2);
    let (_, id) = hand.send(hand.buffer(1), Notify::Never);
    hand.sent();
    let _ = hand.data(id.0 | 1, data(BPAGE_LEN, 0), 1000);
    let _ = hand.data(4, data(BPAGE_LEN, 0), 1000);
    for _ in 0..5 {
        hand.live(50);
        let _ = hand.packet(4, &RESEND); // Its client lives.
    }
    hand.live(49);
    hand.sent();
    let _ = hand.packet(4, &RESEND);
    assert_eq!((hand.events(), hand.sent()), (vec![], vec!["BUSY"]));
    hand.live(30);
    let _ = hand.packet(4, &RESEND);
    assert_eq!(hand.sent(), [""; 0]);
    let events = hand.events();
    assert!(
        matches!(
            events[..],
            [Event::Failed {
                error: Error::NoMemory,
                ..
            }]
        ),
        "{events:?}"
    );
}
