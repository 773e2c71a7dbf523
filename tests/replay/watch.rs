//! Time passes, and what our side sends in it is looked at, frame by frame.

use std::collections::VecDeque;

use demihoma::time::{Duration, Instant};
use demihoma::wire::homa::{self, Common, Packet, RpcId};

use super::host::Host;
use super::judge::Ruling;
use super::play::Play;
use super::{capture, wire};

/// How long a frame waits for its situation. Our side asks a busy peer every 40 ms.
const PATIENCE: Duration = Duration::millis(90);

/// Time, and what our side sends in it.
impl Play {
    /// Lets time pass until something holds; false if it does not for long.
    pub(super) fn wait(&mut self, holds: impl Fn(&Self) -> bool) -> Result<bool, String> {
        let deadline = self.now + PATIENCE;
        while !holds(self) {
            if self.now >= deadline || self.host.is_none() {
                return Ok(false);
            }
            self.pass(deadline)?;
        }
        Ok(true)
    }

    pub(super) fn linger(&mut self, span: Duration) -> Ruling {
        let end = self.now + span;
        while self.now < end {
            self.pass(end)?;
        }
        Ok(())
    }

    fn pass(&mut self, end: Instant) -> Ruling {
        let Some(host) = &mut self.host else {
            self.now = end;
            return Ok(());
        };
        let frames = host.pass(end);
        self.now = host.now;
        self.judge_all(frames)
    }

    pub(super) fn judge_all(&mut self, frames: Vec<Vec<u8>>) -> Ruling {
        let mut frames = VecDeque::from(frames);
        while let Some(frame) = frames.pop_front() {
            self.judge_one(&frame)
                .map_err(|why| format!("we sent {}: {why}", describe(&frame)))?;
            if let Some(answer) = wire::arp_answer(&frame, self.their_mac)
                && let Some(host) = &mut self.host
            {
                host.deliver(answer);
                frames.extend(host.turn());
            }
        }
        Ok(())
    }

    fn judge_one(&mut self, frame: &[u8]) -> Ruling {
        if frame[12..14] == [8, 6] {
            return Ok(());
        }
        let ends = [self.ours, self.theirs].map(|ip| ip.as_v4().unwrap().octets());
        if frame[..6] != self.their_mac || frame[26..34] != *ends.concat() {
            return Err("to nobody".to_owned());
        }
        if capture::quote(frame).is_some() {
            let is_listening = self.host.as_ref().is_some_and(Host::is_listening);
            self.refusals += 1;
            return match is_listening {
                true => self.differ("the port is open"),
                false => Ok(()),
            };
        }
        let packet = capture::homa_bytes(frame).ok_or("it is no Homa packet")?;
        let (common, mut packet) = homa::parse(packet).map_err(|why| format!("{why:?}"))?;
        let common = self.renamed(common)?;
        self.rename_acks(&mut packet);
        self.judge
            .rule(self.now, frame[15] >> 5, (&common, &packet))
    }

    /// The header with the capture's names for our client RPCs.
    fn renamed(&self, common: Common) -> Result<Common, String> {
        let id = self.renamed_id(common.id);
        let ports = self.ports.get(&(id.0 & !1)).ok_or("of no RPC")?;
        let call = self.calls.get(&id.0);
        let sport = call.map_or(ports.0, |call| call.port);
        match (common.sport, common.dport) == (sport, ports.1) {
            true => Ok(Common { id, ..common }),
            false => Err("between wrong ports".to_owned()),
        }
    }

    fn renamed_id(&self, id: RpcId) -> RpcId {
        let call = self.calls.iter().find(|(_, call)| call.id == id.0);
        call.map_or(id, |(&client_id, _)| RpcId(client_id))
    }

    fn rename_acks(&self, packet: &mut Packet<'_>) {
        match packet {
            Packet::Data(data, _) => {
                if let Some(ack) = &mut data.ack {
                    ack.client_id = self.renamed_id(ack.client_id);
                }
            }
            Packet::Ack(acks) => {
                for ack in &mut acks.0 {
                    ack.client_id = self.renamed_id(ack.client_id);
                }
            }
            _ => {}
        }
    }
}

fn describe(frame: &[u8]) -> String {
    match capture::homa_bytes(frame).map(homa::parse) {
        Some(Ok((common, Packet::Data(data, payload)))) => {
            format!("{:?} {data:?} and {} B", common.id, payload.len())
        }
        Some(Ok((common, packet))) => format!("{:?} {packet:?}", common.id),
        Some(Err(why)) => format!("{why:?}"),
        None => "a frame without Homa".to_owned(),
    }
}
