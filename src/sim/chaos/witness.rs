//! Looks at each frame that leaves a host: no grant falls or passes the end, and nobody sends what
//! nobody granted.

use std::collections::{BTreeMap, BTreeSet};

use crate::sim::chaos::log::SharedLog;
use crate::sim::{Copied, Crossing, Watch};
use crate::time::{Duration, Instant};
use crate::wire::homa::{Common, Packet, RpcId};

/// One message of an RPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Name {
    client: usize,
    server: usize,
    /// Even, as the client calls it.
    id: u64,
    is_request: bool,
}

/// After so long without a packet of the sender's a receiver may have given the RPC up, and begin
/// anew with the next.
const SILENCE: Duration = Duration::millis(50);

/// What is known of it.
#[derive(Clone, Copy, Debug)]
struct Flow {
    /// The highest grant that its receiver sent since it knows of the RPC.
    granted: u32,
    /// When the sender was last heard.
    heard_at: Instant,
    /// How far it may be sent, by all that was ever granted or asked for again.
    allowed: u32,
}

impl Flow {
    /// The sender speaks, and may find that it was given up.
    fn on_heard(&mut self, now: Instant) {
        if now.since(self.heard_at) >= SILENCE {
            self.granted = 0;
        }
        self.heard_at = now;
    }
}

/// Writes all to the log, and judges.
#[derive(Debug)]
pub struct Witness {
    log: SharedLog,
    unsched_bytes: u32,
    flows: BTreeMap<Name, Flow>,
    /// Of each message, once its first packet was seen.
    lens: BTreeMap<Name, u32>,
    /// When packets that end a silence come to a client, by its RPCs.
    answers: BTreeMap<(usize, u64), Vec<Instant>>,
    /// RPCs that are over at their clients: late packets may bring them up again at a server.
    over: BTreeSet<(usize, u64)>,
    pub frames: u64,
}

impl Witness {
    pub fn new(log: SharedLog, unsched_bytes: u32) -> Self {
        Self {
            log,
            unsched_bytes,
            flows: BTreeMap::new(),
            lens: BTreeMap::new(),
            answers: BTreeMap::new(),
            over: BTreeSet::new(),
            frames: 0,
        }
    }

    /// A host forgot its RPCs, or will be found to have.
    pub fn on_forgotten(&mut self, host: usize) {
        for (name, flow) in &mut self.flows {
            if name.client == host || name.server == host {
                flow.granted = 0;
            }
        }
    }

    /// An RPC is over at its client.
    pub fn on_over(&mut self, client: usize, id: RpcId) {
        self.over.insert((client, id.0));
    }

    /// When the server of an RPC last spoke of it to its client.
    pub fn answered_at(&self, client: usize, id: RpcId, now: Instant) -> Option<Instant> {
        let all = self.answers.get(&(client, id.0))?;
        all.iter().copied().filter(|&at| at <= now).max()
    }

    /// Notes when a packet of a server's comes that ends its client's silence, if it is one.
    fn on_answer(
        &mut self,
        crossing: &Crossing,
        copies: &[Copied],
        common: Common,
        packet: &Packet<'_>,
    ) {
        let is_answer = matches!(packet, Packet::Data(..) | Packet::Grant(_) | Packet::Busy);
        if is_answer && !common.id.is_client() {
            let intact = copies.iter().filter(|copy| !copy.is_corrupt);
            let at = intact.map(|copy| crossing.now + copy.delay);
            let name = (crossing.to, common.id.0 & !1);
            self.answers.entry(name).or_default().extend(at);
        }
    }

    fn flow(&mut self, name: Name) -> &mut Flow {
        self.flows.entry(name).or_insert(Flow {
            granted: 0,
            heard_at: Instant(0),
            allowed: self.unsched_bytes,
        })
    }
}

impl Watch for Witness {
    fn on_frame(&mut self, crossing: &Crossing, copies: &[Copied]) {
        self.frames += 1;
        self.log.borrow_mut().frame(crossing, copies);
        let Some((common, packet)) = crossing.packet() else {
            return;
        };
        let is_from_client = common.id.is_client();
        let (client, server) = match is_from_client {
            true => (crossing.from, crossing.to),
            false => (crossing.to, crossing.from),
        };
        let name = |is_request| Name {
            client,
            server,
            id: common.id.0 & !1,
            is_request,
        };
        let is_prompt = |copy: &Copied| !copy.is_corrupt && copy.delay < SILENCE;
        if copies.iter().any(is_prompt) {
            self.flow(name(is_from_client)).on_heard(crossing.now);
        }
        self.on_answer(crossing, copies, common, &packet);
        match packet {
            Packet::Data(data, _) => {
                let name = name(is_from_client);
                // A server that restarted may answer anew, in other words.
                let len = self.lens.entry(name).or_default();
                *len = data.message_length.max(*len);
                let allowed = self.flow(name).allowed;
                assert!(
                    data.offset < allowed,
                    "sent beyond {allowed}: {name:?} {data:?}"
                );
            }
            Packet::Grant(grant) => {
                let name = name(!is_from_client);
                let len = self.lens.get(&name).copied();
                assert!(
                    len.is_some_and(|len| grant.offset <= len),
                    "granted past the end, {len:?}: {name:?} {grant:?}"
                );
                let is_over = self.over.contains(&(client, name.id));
                let flow = self.flow(name);
                if is_over || crossing.now.since(flow.heard_at) >= SILENCE {
                    flow.granted = 0;
                }
                assert!(grant.offset > flow.granted, "{flow:?} {name:?} {grant:?}");
                flow.granted = grant.offset;
                flow.allowed = flow.allowed.max(grant.offset);
            }
            Packet::Resend(resend) => {
                let end = resend
                    .length
                    .map_or(0, |len| resend.offset.saturating_add(len));
                let flow = self.flow(name(!is_from_client));
                flow.allowed = flow.allowed.max(end);
            }
            Packet::Unknown => {
                for is_request in [false, true] {
                    self.flow(name(is_request)).granted = 0;
                }
            }
            Packet::Busy
            | Packet::Cutoffs(_)
            | Packet::Freeze
            | Packet::NeedAck
            | Packet::Ack(_) => {}
        }
    }
}
