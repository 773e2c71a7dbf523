//! The driver: walks through a capture, lets our side do what its counterpart did, and gives it
//! the module's frames when their time has come.

use std::collections::{BTreeMap, BTreeSet};

use demihoma::addr::{Addr, Ip};
use demihoma::device::Device;
use demihoma::homa::Params;
use demihoma::sim::Tapped;
use demihoma::time::{Duration, Instant};
use demihoma::wire::homa::Packet;

use super::capture::{self, Record};
use super::host::Host;
use super::judge::{Judge, Ruling};
use super::ledger::{Bytes, Ledger};
use super::{Act, Case, End, wire};

/// In which the two hosts met. The other captures were recorded after it, but for those that
/// begin with a first contact of their own.
const FIRST_CONTACT: &str = "01_rpc100_x3";

/// The port of every server in the captures.
const PORT: u16 = 4000;

/// After the last frame; longer than our side remembers anything but finished RPCs.
const AFTER: Duration = Duration::secs(7);

/// A client RPC of ours.
pub(super) struct Call {
    /// Its port and id here.
    pub(super) port: u16,
    pub(super) id: u64,
}

pub(super) struct Play {
    pub(super) case: Case,
    pub(super) params: Params,
    pub(super) ours: Ip,
    pub(super) theirs: Ip,
    pub(super) their_mac: [u8; 6],
    /// Absent while it is stopped.
    pub(super) host: Option<Host>,
    pub(super) now: Instant,
    pub(super) judge: Judge,
    pub(super) messages: BTreeMap<u64, Vec<u8>>,
    /// Our port and theirs of each RPC, as in the capture.
    pub(super) ports: BTreeMap<u64, (u16, u16)>,
    pub(super) calls: BTreeMap<u64, Call>,
    /// Which bytes our counterpart had sent so far.
    pub(super) recorded: BTreeMap<u64, Bytes>,
    /// RPCs for which our counterpart asked for an ack that did not come yet.
    pub(super) need_acks: BTreeSet<u64>,
    /// Requests that were answered.
    pub(super) replies: BTreeSet<u64>,
    /// "Unreachable" that we sent.
    pub(super) refusals: usize,
}

/// Plays a capture; tells what was wrong, and at which frame.
pub fn play(case: Case) -> Ruling {
    let mut main = capture::load(case.name);
    let muted = case.muted.map(|number| address(case.net, number));
    for record in &mut main {
        record.is_lost |= Some(record.from) == muted;
    }
    play_records(case, main)
}

/// Plays what two hosts of ours said to each other, of whom one is put in the other's place.
pub fn play_ours(case: Case, tapped: Vec<Tapped>) -> Ruling {
    play_records(case, capture::of_ours(tapped))
}

fn play_records(case: Case, main: Vec<Record>) -> Ruling {
    let main = capture::resends_when_heard(main);
    let mut records = match main.iter().find_map(Record::data) {
        Some((_, data)) if data.cutoff_version != 0 => capture::load(FIRST_CONTACT),
        _ => Vec::new(),
    };
    let before = records.len();
    records.extend(main);
    let mut play = Play::new(case, &records);
    for (at, record) in records.iter().enumerate() {
        if at >= before {
            play.act_at(record.number);
        }
        let done = match record.from == play.ours {
            true => play.cue(record),
            false => play.give(record),
        };
        done.map_err(|why| format!("{record}: {why}"))?;
    }
    play.come_back();
    play.linger(AFTER)
        .and_then(|()| play.check_end())
        .map_err(|why| format!("at the end: {why}"))
}

fn address([a, b, c]: [u8; 3], number: u8) -> Ip {
    Ip::v4(a, b, c, number)
}

impl Play {
    fn new(case: Case, records: &[Record]) -> Self {
        let mut params = Params::default();
        (case.params)(&mut params);
        let (ours, theirs) = (address(case.net, case.ours), address(case.net, case.theirs));
        let mut from_theirs = records.iter().filter(|record| record.from == theirs);
        let their_mac = from_theirs.next().expect("they say something").frame[6..12].try_into();
        let lost = records
            .iter()
            .filter(|record| record.is_lost && record.from == ours);
        let lost = lost
            .filter_map(Record::data)
            .map(|(common, data)| (common.id.0, data.offset, data.retransmit));
        let mut ports = BTreeMap::new();
        for record in records {
            if let Some((common, _)) = record.homa() {
                let pair = match record.from == ours {
                    true => (common.sport, common.dport),
                    false => (common.dport, common.sport),
                };
                ports.entry(common.id.0 & !1).or_insert(pair);
            }
        }
        let mut play = Self {
            case,
            ours,
            theirs,
            their_mac: their_mac.expect("an Ethernet frame"),
            host: None,
            now: Instant(0),
            judge: Judge::new(params.clone(), lost.collect()),
            params,
            messages: capture::messages(records),
            ports,
            calls: BTreeMap::new(),
            recorded: BTreeMap::new(),
            need_acks: BTreeSet::new(),
            replies: BTreeSet::new(),
            refusals: 0,
        };
        play.start();
        play
    }

    fn start(&mut self) {
        let mut params = self.params.clone();
        (self.case.secret)(&mut params);
        let mut host = Host::new(self.now, self.ours, params);
        host.listen(PORT);
        self.host = Some(host);
    }

    fn act_at(&mut self, number: usize) {
        for &(at, act) in self.case.acts {
            if at == number {
                self.act(act);
            }
        }
    }

    fn act(&mut self, act: Act) {
        if act == Act::Start {
            self.start();
            return;
        }
        let host = self.host.as_mut().expect("acts of a host that is up");
        match act {
            Act::Close => {
                host.close();
                self.judge.on_close();
            }
            Act::Stop => {
                self.host = None;
                self.judge.forget();
                self.recorded.clear();
                self.need_acks.clear();
            }
            Act::Abort => {
                let (client_id, call) = self.calls.last_key_value().expect("a call");
                host.abort(call.id);
                if let Some(rpc) = self.judge.rpcs.get_mut(client_id) {
                    rpc.is_over = true;
                }
            }
            Act::Leave => host.is_away = true,
            Act::Start => {}
        }
    }

    fn come_back(&mut self) {
        if let Some(host) = &mut self.host {
            host.come_back();
        }
    }
}

/// What our counterpart did: our side's application does the same.
impl Play {
    fn cue(&mut self, record: &Record) -> Ruling {
        let Some((common, packet)) = record.homa() else {
            return Ok(());
        };
        let client_id = common.id.0 & !1;
        match packet {
            Packet::NeedAck => {
                self.need_acks.insert(client_id);
            }
            Packet::Data(data, payload) => {
                match common.id.is_client() {
                    true => self.cue_request(client_id),
                    false => self.cue_response(client_id)?,
                }
                let end = data.offset + payload.len() as u32;
                let recorded = self.recorded.entry(client_id).or_default();
                recorded.add(data.offset..end);
                let frames = self.host.as_mut().map_or(Vec::new(), Host::turn);
                self.judge_all(frames)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn cue_request(&mut self, client_id: u64) {
        let Some(host) = &mut self.host else { return };
        if self.calls.contains_key(&client_id) {
            return;
        }
        let message = self.messages[&client_id].clone();
        let to = Addr::new(self.theirs, self.ports[&client_id].1);
        let (port, id) = host.call(to, &message);
        self.calls.insert(client_id, Call { port, id });
        self.judge.on_send(self.now, client_id, true, message);
    }

    fn cue_response(&mut self, client_id: u64) -> Ruling {
        let id = client_id | 1;
        if self.replies.contains(&client_id) || !self.messages.contains_key(&client_id) {
            return Ok(());
        }
        let is_here = |play: &Self| {
            play.host
                .as_ref()
                .is_some_and(|host| host.request(id).is_some())
        };
        if !self.wait(is_here)? {
            return self.differ("our side has no request to answer");
        }
        let Some(host) = &mut self.host else {
            return Ok(());
        };
        if host.request(id).as_ref() != self.messages.get(&client_id) {
            return Err("the request's bytes are wrong".to_owned());
        }
        let message = self.messages[&id].clone();
        host.reply(id, &message);
        self.judge.on_send(self.now, client_id, false, message);
        self.replies.insert(client_id);
        Ok(())
    }

    /// Something did not come about as it did there; in some captures that is right.
    pub(super) fn differ(&self, why: &str) -> Ruling {
        match self.case.end {
            End::AtLeast(_) => Ok(()),
            _ => Err(why.to_owned()),
        }
    }
}

/// What the module sent: our side gets it.
impl Play {
    fn give(&mut self, record: &Record) -> Ruling {
        if record.is_lost {
            return Ok(());
        }
        let homa = record.homa();
        let pause = match &homa {
            // Its timers are as ours.
            Some((_, Packet::Resend(_))) => Duration::millis(5),
            Some((_, Packet::NeedAck)) => Duration::millis(1),
            _ => Duration::micros(20),
        };
        self.linger(pause)?;
        if !self.wait(|play| play.is_due(record))? {
            self.differ("its situation does not come about")?;
        }
        let mut frame = record.frame.clone();
        if let Some((common, packet)) = &homa {
            if let Packet::Ack(acks) = packet {
                self.need_acks.remove(&(common.id.0 & !1));
                acks.0.iter().for_each(|ack| {
                    self.need_acks.remove(&ack.client_id.0);
                });
            }
            if let Some(call) = self.calls.get(&(common.id.0 & !1)) {
                wire::rename(&mut frame, call.port, call.id | 1);
            }
            if self.host.is_some() {
                self.judge.hear(self.now, common, packet);
            }
        } else if let Some(call) = quoted(record).and_then(|(id, _)| self.calls.get(&id)) {
            wire::rename_quoted(&mut frame, call.port, call.id);
        }
        if let Some((id, _)) = quoted(record)
            && let Some(rpc) = self.judge.rpcs.get_mut(&(id & !1))
        {
            rpc.is_over = true;
        }
        let Some(host) = &mut self.host else {
            return Ok(());
        };
        wire::address_to(&mut frame, host.poller.device().caps().mac);
        host.deliver(frame);
        let frames = host.turn();
        self.judge_all(frames)
    }

    /// Whether the situation has come about in which the module sent this frame.
    fn is_due(&self, record: &Record) -> bool {
        let Some((common, packet)) = record.homa() else {
            return quoted(record).is_none_or(|(id, name)| {
                let rpc = self.judge.rpcs.get(&(id & !1));
                rpc.is_none_or(|rpc| has_sent(rpc, name))
            });
        };
        let client_id = common.id.0 & !1;
        let Some(rpc) = self.judge.rpcs.get(&client_id) else {
            return true; // It is the first word.
        };
        if rpc.is_over || self.host.is_none() {
            return true;
        }
        let recorded = self.recorded.get(&client_id);
        if recorded.is_some_and(|bytes| rpc.outward.sent < bytes.count) {
            return false;
        }
        match packet {
            Packet::Data(data, payload) => {
                let range = data.offset..data.offset + payload.len() as u32;
                let inward = &rpc.inward;
                let is_missing = !inward.received.has_all(range.clone());
                let overlaps = |asked: &std::ops::Range<u32>| {
                    asked.start < range.end && range.start < asked.end
                };
                let is_asked = rpc.unknowns_sent > 0 || inward.asked.iter().any(overlaps);
                (!rpc.is_ours || rpc.outward.is_delivered())
                    && data.offset < inward.granted.max(data.incoming)
                    && (!data.retransmit || !is_missing || is_asked)
            }
            Packet::Busy => !rpc.is_ours || rpc.resends_open > 0,
            // Several may be on their way at once.
            Packet::Unknown => rpc.resends_open > 0 || rpc.unknowns_heard > 0,
            Packet::Ack(_) => !self.need_acks.contains(&client_id) || rpc.need_acks_open > 0,
            _ => true,
        }
    }
}

/// The id, as its sender knows it, and the type of the packet that a record says was refused.
fn quoted(record: &Record) -> Option<(u64, u8)> {
    const PACKET_AT: usize = 20;
    let packet = record.quote()?.get(PACKET_AT..)?;
    let id = packet.get(20..28)?.try_into().ok()?;
    Some((u64::from_be_bytes(id), packet[11]))
}

/// Whether our side sent a packet of that type.
fn has_sent(rpc: &Ledger, kind: u8) -> bool {
    const RESEND: u8 = 0x12;
    const NEED_ACK: u8 = 0x17;
    match kind {
        RESEND => rpc.is_over || rpc.resends_open > 0,
        NEED_ACK => rpc.is_over || rpc.need_acks_open > 0,
        _ => rpc.outward.sent > 0,
    }
}

/// How it must end.
impl Play {
    fn check_end(&self) -> Ruling {
        let Some(host) = &self.host else {
            return Ok(());
        };
        let endpoint = host.poller.endpoint();
        let left = endpoint.rpc_count();
        if left > 0 || !endpoint.is_quiet() {
            return Err(format!("{left} RPCs are left"));
        }
        if let Some((id, runs)) = host.runs.iter().find(|&(_, &runs)| runs > 1) {
            return Err(format!("request {id} ran {runs} times"));
        }
        match self.case.end {
            End::AtLeast(count) => match self.replies.len() >= count {
                true => Ok(()),
                false => Err(format!("{} requests were answered", self.replies.len())),
            },
            End::Whole => self.check_whole(host),
            End::Failed(error) => {
                let (client_id, call) = self.calls.last_key_value().ok_or("no call")?;
                match host.outcomes.get(&call.id) {
                    Some(Err(found)) if *found == error => Ok(()),
                    outcome => Err(format!("RPC {client_id} ended with {outcome:?}")),
                }
            }
            End::Refused => match self.refusals {
                0 => Err("nobody said that the port is closed".to_owned()),
                _ => Ok(()),
            },
            End::Unanswered => {
                let (client_id, _) = self.ports.last_key_value().ok_or("no RPC")?;
                let call = self.calls.get(client_id);
                let is_told = call.is_some_and(|call| host.outcomes.contains_key(&call.id));
                let rpc = self.judge.rpcs.get(client_id);
                let is_answered = rpc.is_some_and(|rpc| !rpc.is_ours && rpc.outward.is_delivered());
                match is_told || is_answered {
                    true => Err("it was answered".to_owned()),
                    false => Ok(()),
                }
            }
        }
    }

    fn check_whole(&self, host: &Host) -> Ruling {
        for (client_id, call) in &self.calls {
            let expected = self.messages.get(&(client_id | 1));
            match host.outcomes.get(&call.id) {
                Some(Ok(bytes)) if Some(bytes) == expected => {}
                Some(Ok(_)) => return Err(format!("RPC {client_id} got wrong bytes")),
                outcome => return Err(format!("RPC {client_id} ended with {outcome:?}")),
            }
        }
        for (client_id, rpc) in self.judge.rpcs.iter().filter(|(_, rpc)| !rpc.is_ours) {
            if !rpc.outward.is_delivered() {
                return Err(format!("RPC {client_id} got no whole response"));
            }
        }
        Ok(())
    }
}
