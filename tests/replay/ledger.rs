//! What a judge knows of one RPC: what each side said, as our side could know it.

use std::ops::Range;

use demihoma::time::Instant;

/// Payload of a full packet at an MTU of 1,500. Source: HomaModule, in captures.
const PAYLOAD_MAX: u32 = 1424;

/// Bytes that go out before any grant, at which the cutting begins anew. Source: HomaModule
/// homa_utils.c `homa_init`, and captures.
const UNSCHED: u32 = 40_000;

/// Which bytes of a message.
#[derive(Default)]
pub struct Bytes {
    have: Vec<bool>,
    pub count: u32,
}

/// An RPC, by whichever side it was begun.
pub struct Ledger {
    /// We are its client.
    pub is_ours: bool,
    pub outward: Outward,
    pub inward: Inward,
    /// Nothing of it is owed to anybody: we have the response, or they acknowledged it, or it was
    /// ended.
    pub is_over: bool,
    /// RESENDs of ours that nothing answered yet.
    pub resends_open: u32,
    /// RESENDs of theirs that nothing answered yet.
    pub resends_heard: u32,
    pub need_acks_open: u32,
    pub need_acks_heard: u32,
    pub unknowns_sent: u32,
    pub unknowns_heard: u32,
    /// When the last DATA, GRANT or BUSY of theirs came.
    pub heard_at: Instant,
}

/// The message that we send.
#[derive(Default)]
pub struct Outward {
    /// Whole, once the application gave it.
    pub message: Option<Vec<u8>>,
    /// Bytes `0..sent` went out.
    pub sent: u32,
    pub sent_at: Instant,
    /// What the other side has of it.
    pub delivered: Bytes,
    pub granted: u32,
    pub priority: u8,
    pub asked: Vec<Asked>,
}

/// What they want sent again.
pub struct Asked {
    pub range: Range<u32>,
    pub priority: u8,
}

/// The message that we receive.
#[derive(Default)]
pub struct Inward {
    /// Its length, once something of it came.
    pub len: Option<u32>,
    pub received: Bytes,
    /// What its sender may send, as far as it told or we granted.
    pub granted: u32,
    /// The end of the bytes that came furthest.
    pub end: u32,
    /// When it moved on, and to where.
    pub ends: Vec<(u32, Instant)>,
    /// What we asked for again.
    pub asked: Vec<Range<u32>>,
}

impl Bytes {
    /// Adds a stretch; true if some of it is new.
    pub fn add(&mut self, range: Range<u32>) -> bool {
        let (start, end) = (range.start as usize, range.end as usize);
        if self.have.len() < end {
            self.have.resize(end, false);
        }
        let before = self.count;
        for have in &mut self.have[start..end] {
            self.count += u32::from(!std::mem::replace(have, true));
        }
        self.count > before
    }

    pub fn has_any(&self, range: Range<u32>) -> bool {
        let end = self.have.len().min(range.end as usize);
        let start = end.min(range.start as usize);
        self.have[start..end].contains(&true)
    }

    pub fn has_all(&self, range: Range<u32>) -> bool {
        let (start, end) = (range.start as usize, range.end as usize);
        self.have.len() >= end && !self.have[start..end].contains(&false)
    }
}

impl Ledger {
    pub fn new(is_ours: bool, now: Instant) -> Self {
        Self {
            is_ours,
            outward: Outward::default(),
            inward: Inward::default(),
            is_over: false,
            resends_open: 0,
            resends_heard: 0,
            need_acks_open: 0,
            need_acks_heard: 0,
            unknowns_sent: 0,
            unknowns_heard: 0,
            heard_at: now,
        }
    }
}

impl Outward {
    /// The application gave the message.
    pub fn begin(&mut self, message: Vec<u8>) {
        self.granted = self.unsched(message.len() as u32);
        self.message = Some(message);
    }

    pub fn len(&self) -> u32 {
        self.message.as_ref().map_or(0, |bytes| bytes.len() as u32)
    }

    pub fn is_delivered(&self) -> bool {
        self.message.is_some() && self.delivered.count == self.len()
    }

    /// How many bytes of such a message need no grant.
    pub fn unsched(&self, len: u32) -> u32 {
        len.min(UNSCHED)
    }

    pub fn grant(&mut self, end: u32, priority: u8) {
        self.granted = self.granted.max(end.min(self.len()));
        self.priority = priority;
    }

    /// Whether a packet of the message may begin and end there: a full one, or up to where the
    /// cutting begins anew, or the rest.
    pub fn is_cut(&self, range: &Range<u32>) -> bool {
        let base = if range.start < UNSCHED { 0 } else { UNSCHED };
        let border = match range.start < UNSCHED {
            true => self.len().min(UNSCHED),
            false => self.len(),
        };
        let end = border.min(range.start + PAYLOAD_MAX);
        (range.start - base).is_multiple_of(PAYLOAD_MAX) && range.end == end
    }

    /// Who asked for these bytes, the last one first.
    pub fn asked_for(&self, range: &Range<u32>) -> impl Iterator<Item = &Asked> {
        let overlaps =
            |asked: &&Asked| asked.range.start < range.end && range.start < asked.range.end;
        self.asked.iter().rev().filter(overlaps)
    }
}

impl Inward {
    pub fn is_whole(&self) -> bool {
        self.len == Some(self.received.count)
    }
}
