//! What a socket of the homa face tells of itself.

use crate::addr::Addr;
use crate::device::Device;
use crate::error::Error;
use crate::homa::RpcInfo;
use crate::libos::LibOSOver;
use crate::libos::result::QDesc;
use crate::runtime::Clock;

/// How a socket is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HomaInfo {
    pub port: u16,
    /// `AF_INET` or `AF_INET6`: the form that addresses of peers are told in.
    pub family: i32,
    /// Bytes of the region that are used.
    pub region_bytes: usize,
    /// Those that messages could have now.
    pub free_bytes: usize,
    /// Its RPCs, in the order of their ids; calls that are over, too, until they are received.
    pub rpcs: Vec<HomaRpc>,
    /// What the last call that failed did not like; empty if none did.
    pub last_error: String,
}

/// How an RPC is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HomaRpc {
    pub id: u64,
    pub peer: Addr,
    /// Of a call; else 0.
    pub cookie: u64,
    /// It waits to be received.
    pub is_ready: bool,
    /// 0, or with what errno it failed.
    pub error: i32,
    pub state: RpcInfo,
}

impl<D: Device, C: Clock> LibOSOver<D, C> {
    /// What is known of a socket. Looks at all RPCs.
    pub fn homa_info(&mut self, qd: QDesc) -> Result<HomaInfo, Error> {
        let homa = self.poller.homa();
        let mailbox = self.desk.mailbox(qd)?;
        let family = mailbox.family;
        let last_error = match mailbox.last_error {
            None => String::new(),
            Some(refusal) if refusal.text.is_empty() => refusal.error.to_string(),
            Some(refusal) => refusal.text.to_owned(),
        };
        let Some(socket) = self.desk.queues.get(qd)?.socket else {
            return Ok(HomaInfo {
                family,
                last_error,
                ..HomaInfo::default()
            });
        };
        let mailbox = self.desk.mailbox(qd)?;
        let living = homa.rpc_infos(socket).map(|(id, peer, state)| HomaRpc {
            id: id.0,
            peer,
            cookie: mailbox.call(id.0).map_or(0, |call| call.cookie),
            is_ready: state.is_requested,
            error: 0,
            state,
        });
        let mut rpcs: Vec<_> = living.collect();
        for (id, call) in mailbox.calls() {
            let Some(outcome) = mailbox.outcome_of(call) else {
                continue;
            };
            let len = outcome.result.map_or(0, |message| message.len);
            rpcs.push(HomaRpc {
                id,
                peer: call.peer,
                cookie: call.cookie,
                is_ready: true,
                error: outcome.result.map_or_else(Error::errno, |_| 0),
                state: RpcInfo {
                    rx_len: len,
                    rx_received: len,
                    ..RpcInfo::default()
                },
            });
        }
        rpcs.sort_unstable_by_key(|rpc| rpc.id);
        let lent = homa.lent(socket);
        Ok(HomaInfo {
            port: homa.port(socket).unwrap_or(0),
            family,
            region_bytes: lent.map_or(0, |lent| lent.used_bytes()),
            free_bytes: lent.map_or(0, |lent| lent.free_bytes()),
            rpcs,
            last_error,
        })
    }
}
