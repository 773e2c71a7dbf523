//! Says of each packet of ours whether it is legal at its moment: by what was sent and heard before
//! it, and by Homa's rules.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use demihoma::homa::Params;
use demihoma::time::{Duration, Instant};
use demihoma::wire::homa::{Acks, Common, Cutoffs, Data, Grant, Packet, Resend, RpcId};

use super::ledger::{Asked, Inward, Ledger};

/// Why a packet must not be sent.
pub type Ruling = Result<(), String>;

/// Highest priority of a scheduled packet that the oldest message gets. Source: rule GR-29.
const FIFO_PRIORITY: u8 = 6;

/// New peers' unscheduled packets have this priority. Source: rule PE-01.
const FIRST_PRIORITY: u8 = 6;

/// Knows both sides' words so far.
pub struct Judge {
    params: Params,
    /// By the client's id of the RPC, as in the capture.
    pub rpcs: BTreeMap<u64, Ledger>,
    /// Their last CUTOFFS.
    cutoffs: Option<Cutoffs>,
    /// DATA of theirs under other cutoffs than ours, for which we sent no CUTOFFS yet.
    cutoffs_due: u32,
    /// DATA of ours that the network drops: our id, the offset, whether it is a retransmission.
    lost: BTreeSet<(u64, u32, bool)>,
}

impl Judge {
    /// `lost`: DATA of ours that never arrives, by our id, its offset, and whether it was sent
    /// before.
    pub fn new(params: Params, lost: BTreeSet<(u64, u32, bool)>) -> Self {
        Self {
            params,
            rpcs: BTreeMap::new(),
            cutoffs: None,
            cutoffs_due: 0,
            lost,
        }
    }

    /// Our side began anew and knows nothing.
    pub fn forget(&mut self) {
        self.cutoffs = None;
        self.rpcs.clear();
    }

    /// Our application sent a message: a request, or the response to one.
    pub fn on_send(&mut self, now: Instant, client_id: u64, is_ours: bool, message: Vec<u8>) {
        let rpc = Self::rpc(&mut self.rpcs, client_id, is_ours, now);
        rpc.outward.begin(message);
        rpc.heard_at = now;
    }

    /// Our application gave all RPCs up.
    pub fn on_close(&mut self) {
        self.rpcs.values_mut().for_each(|rpc| rpc.is_over = true);
    }

    fn rpc(
        rpcs: &mut BTreeMap<u64, Ledger>,
        client_id: u64,
        is_ours: bool,
        now: Instant,
    ) -> &mut Ledger {
        rpcs.entry(client_id)
            .or_insert_with(|| Ledger::new(is_ours, now))
    }
}

/// What they say.
impl Judge {
    pub fn hear(&mut self, now: Instant, common: &Common, packet: &Packet<'_>) {
        let (client_id, is_ours) = (common.id.0 & !1, common.id.0 & 1 == 1);
        if let Packet::Cutoffs(cutoffs) = packet {
            self.cutoffs = Some(*cutoffs);
            return;
        }
        if let Packet::Data(data, _) = packet {
            self.cutoffs_due += u32::from(data.cutoff_version != self.params.cutoff_version);
        }
        self.hear_acks(packet);
        let rpc = Self::rpc(&mut self.rpcs, client_id, is_ours, now);
        match packet {
            Packet::Data(data, payload) => {
                rpc.heard_at = now;
                rpc.resends_open = 0;
                rpc.inward.hear(now, data, payload.len() as u32);
                rpc.is_over |= rpc.is_ours && rpc.inward.is_whole();
            }
            Packet::Grant(grant) => {
                rpc.heard_at = now;
                rpc.outward.grant(grant.offset, grant.priority);
            }
            Packet::Resend(resend) => rpc.hear_resend(resend),
            Packet::Unknown if rpc.is_ours => {
                rpc.resends_open = 0;
                rpc.unknowns_heard += 1;
                rpc.ask(0..rpc.outward.sent, self.params.num_priorities - 1);
            }
            Packet::Unknown => rpc.is_over = true,
            Packet::Busy => {
                rpc.heard_at = now;
                rpc.resends_open = 0;
            }
            Packet::NeedAck => rpc.need_acks_heard += 1,
            Packet::Ack(_) => {
                rpc.need_acks_open = 0;
                rpc.is_over |= !rpc.is_ours && rpc.outward.is_delivered();
            }
            Packet::Cutoffs(_) | Packet::Freeze => {}
        }
    }

    fn hear_acks(&mut self, packet: &Packet<'_>) {
        let acks: Vec<_> = match packet {
            Packet::Data(data, _) => data.ack.into_iter().collect(),
            Packet::Ack(acks) => acks.0.iter().copied().collect(),
            _ => return,
        };
        for ack in acks {
            if let Some(rpc) = self.rpcs.get_mut(&ack.client_id.0) {
                rpc.is_over |= !rpc.is_ours && rpc.outward.is_delivered();
            }
        }
    }
}

impl Ledger {
    fn ask(&mut self, range: Range<u32>, priority: u8) {
        self.outward.asked.push(Asked { range, priority });
    }

    fn hear_resend(&mut self, resend: &Resend) {
        self.resends_heard += 1;
        let end = match resend.length {
            Some(length) => resend.offset + length,
            None => self.outward.sent,
        };
        self.ask(resend.offset..end, resend.priority);
        if end > self.outward.granted {
            self.outward.grant(end, resend.priority);
        }
    }
}

impl Inward {
    fn hear(&mut self, now: Instant, data: &Data, payload_len: u32) {
        let first = data.message_length.min(data.incoming);
        if self.len.is_none() {
            self.granted = first;
        }
        let len = *self.len.get_or_insert(data.message_length);
        let end = data.offset + payload_len;
        if data.message_length == len && end <= len {
            self.received.add(data.offset..end);
            if end > self.end {
                self.end = end;
                self.ends.push((end, now));
            }
        }
    }
}

/// What we say.
impl Judge {
    /// Whether this packet of ours is legal now; if so, it counts as sent. Ids are the capture's.
    pub fn rule(&mut self, now: Instant, priority: u8, sent: (&Common, &Packet<'_>)) -> Ruling {
        let (common, packet) = sent;
        let client_id = common.id.0 & !1;
        if !matches!(packet, Packet::Data(..)) && priority != self.params.num_priorities - 1 {
            return Err(format!("control packet at priority {priority}"));
        }
        match packet {
            Packet::Data(data, payload) => self.rule_data(now, priority, common.id, data, payload),
            Packet::Cutoffs(cutoffs) => self.rule_cutoffs(cutoffs),
            Packet::Ack(acks) => self.rule_ack(client_id, acks),
            Packet::Freeze => Err("FREEZE".to_owned()),
            Packet::Grant(_)
            | Packet::Resend(_)
            | Packet::Unknown
            | Packet::Busy
            | Packet::NeedAck => {
                let rpc = self.rpcs.get_mut(&client_id);
                let rpc = rpc.ok_or("about an RPC that nobody named")?;
                match packet {
                    Packet::Grant(grant) => rpc.rule_grant(&self.params, grant),
                    Packet::Resend(resend) => {
                        let top = self.params.num_priorities - 1;
                        ensure(resend.priority == top, "a RESEND below the highest level")?;
                        rpc.rule_resend(now, resend)
                    }
                    Packet::Unknown => rpc.rule_unknown(),
                    Packet::Busy => rpc.rule_busy(),
                    _ => rpc.rule_need_ack(now, &self.params),
                }
            }
        }
    }

    fn rule_data(
        &mut self,
        now: Instant,
        priority: u8,
        id: RpcId,
        data: &Data,
        payload: &[u8],
    ) -> Ruling {
        let version = self.cutoffs.as_ref().map_or(0, |cutoffs| cutoffs.version);
        ensure(data.cutoff_version == version, "other cutoffs than theirs")?;
        if let Some(ack) = data.ack {
            self.rule_acked(ack.client_id)?;
        }
        let is_lost = self.lost.contains(&(id.0, data.offset, data.retransmit));
        let unsched = self.unsched_priority(data.message_length);
        let rpc = self.rpcs.get_mut(&(id.0 & !1));
        let out = &mut rpc.ok_or("of an RPC that nobody named")?.outward;
        let message = out.message.as_ref().ok_or("before there is a message")?;
        let range = data.offset..data.offset + payload.len() as u32;
        ensure(data.message_length == out.len(), "a wrong length")?;
        let part = message.get(range.start as usize..range.end as usize);
        ensure(part == Some(payload), "wrong bytes")?;
        ensure(out.is_cut(&range), "not as Homa cuts")?;
        if data.retransmit {
            ensure(range.end <= out.sent, "sent again before it was sent")?;
            let mut asked = out.asked_for(&range);
            ensure(asked.any(|asked| asked.priority == priority), "unasked")?;
            ensure(data.incoming <= out.sent, "incoming")?;
        } else {
            ensure(range.start == out.sent, "out of order")?;
            ensure(range.start < out.granted, "not granted")?;
            let first = out.unsched(out.len());
            ensure(data.incoming == first, "incoming")?;
            let right = match range.start < first {
                true => unsched,
                false => out.priority,
            };
            ensure(
                priority == right,
                &format!("at priority {priority}, not {right}"),
            )?;
            (out.sent, out.sent_at) = (range.end, now);
        }
        if !is_lost {
            out.delivered.add(range);
        }
        Ok(())
    }

    /// The highest level whose cutoff the message is not longer than. Rule PE-09.
    fn unsched_priority(&self, len: u32) -> u8 {
        let Some(cutoffs) = &self.cutoffs else {
            return FIRST_PRIORITY.min(self.params.num_priorities - 1);
        };
        let fits = |&level: &usize| cutoffs.unsched_cutoffs[level] >= len;
        let level = (0..8).rev().find(fits).unwrap_or(0) as u8;
        level.min(self.params.num_priorities - 1)
    }

    fn rule_cutoffs(&mut self, cutoffs: &Cutoffs) -> Ruling {
        let due = self.cutoffs_due.checked_sub(1);
        self.cutoffs_due = due.ok_or("nobody used wrong cutoffs")?;
        ensure(cutoffs.version == self.params.cutoff_version, "the version")
    }

    fn rule_ack(&mut self, client_id: u64, acks: &Acks) -> Ruling {
        self.rule_acked(RpcId(client_id))?;
        if let Some(rpc) = self.rpcs.get_mut(&client_id) {
            rpc.need_acks_heard = 0;
        }
        acks.0
            .iter()
            .try_for_each(|ack| self.rule_acked(ack.client_id))
    }

    fn rule_acked(&self, client_id: RpcId) -> Ruling {
        let rpc = self.rpcs.get(&client_id.0);
        let is_over = rpc.is_none_or(|rpc| rpc.is_over || rpc.outward.message.is_none());
        ensure(is_over, &format!("acks {}, which is not over", client_id.0))
    }
}

impl Ledger {
    fn rule_grant(&mut self, params: &Params, grant: &Grant) -> Ruling {
        let inward = &mut self.inward;
        let len = inward.len.ok_or("before anything came")?;
        ensure(!inward.is_whole(), "for a message that is here")?;
        ensure(grant.offset > inward.granted, "no more than before")?;
        ensure(grant.offset <= len, "beyond the end")?;
        let ahead = grant.offset - inward.received.count;
        ensure(ahead <= params.max_incoming_bytes, "too far ahead")?;
        let fifo = FIFO_PRIORITY.min(params.num_priorities - 1);
        let (level, top) = (grant.priority, params.max_sched_priority);
        ensure(level <= top || level == fifo, &format!("level {level}"))?;
        inward.granted = grant.offset;
        Ok(())
    }

    fn rule_resend(&mut self, now: Instant, resend: &Resend) -> Ruling {
        /// Sooner than this nobody asks, but for a gap that later bytes show. Decision 17.
        const GAP: Duration = Duration::micros(500);
        /// Four whole ticks and a part of one. Rule TM-07, with resend_ticks 5.
        const SILENCE: Duration = Duration::millis(4);
        ensure(!self.is_over, "of an RPC that is over")?;
        let inward = &mut self.inward;
        let silent = now.since(self.heard_at);
        match resend.length {
            None => {
                ensure(self.is_ours, "of a request that was never heard of")?;
                ensure(inward.received.count == 0, "of all, though some is here")?;
                inward.asked.push(0..u32::MAX);
            }
            Some(length) => {
                let range = resend.offset..resend.offset + length;
                ensure(length > 0 && range.end <= inward.granted, "not granted")?;
                ensure(!inward.received.has_any(range.clone()), "of what is here")?;
                inward.asked.push(range);
            }
        }
        let later = inward.ends.iter().find(|(end, _)| *end > resend.offset);
        let is_gap = resend.length.is_some();
        let is_old = later.is_some_and(|(_, since)| is_gap && now.since(*since) >= GAP);
        let is_late = silent >= SILENCE || is_old;
        ensure(is_late || self.need_acks_heard > 0, "too soon")?;
        self.need_acks_heard = 0;
        self.resends_open += 1;
        Ok(())
    }

    fn rule_unknown(&mut self) -> Ruling {
        self.answer_resend()?;
        let is_unknown = self.inward.received.count == 0 && self.outward.message.is_none();
        ensure(self.is_over || is_unknown, "of an RPC that is known")?;
        self.unknowns_sent += 1;
        Ok(())
    }

    fn rule_busy(&mut self) -> Ruling {
        self.answer_resend()?;
        let asked = self
            .outward
            .asked
            .last()
            .map_or(0, |asked| asked.range.start);
        ensure(asked >= self.outward.sent, "though it could answer")
    }

    fn answer_resend(&mut self) -> Ruling {
        let left = self.resends_heard.checked_sub(1);
        self.resends_heard = left.ok_or("without a RESEND")?;
        Ok(())
    }

    fn rule_need_ack(&mut self, now: Instant, params: &Params) -> Ruling {
        ensure(!self.is_ours, "by a client")?;
        ensure(!self.is_over, "though it is over")?;
        let out = &self.outward;
        ensure(out.message.is_some() && out.sent == out.len(), "too soon")?;
        // One of the ticks may have been nearly over.
        let ticks = u64::from(params.request_ack_ticks) - 1;
        let waited = now.since(out.sent_at);
        ensure(waited > params.tick.times(ticks), "too soon")?;
        self.need_acks_open += 1;
        Ok(())
    }
}

fn ensure(is_right: bool, why: &str) -> Ruling {
    match is_right {
        true => Ok(()),
        false => Err(why.to_owned()),
    }
}
