//! Native sockets: calls and replies, as Homa has them.

use crate::addr::Addr;
use crate::error::Error;
use crate::homa::{Endpoint, Notify};
use crate::runtime::QToken;
use crate::wire::homa::RpcId;

use super::desk::{Completion, Desk, Operation, Pending};
use super::result::{QDesc, SgaView};
use super::sockets::check_destination;

impl Desk {
    /// Starts a call. Its bytes go by reference: the response that completes it proves that the
    /// peer had them all.
    #[inline(always)]
    pub(super) fn call(
        &mut self,
        homa: &mut Endpoint,
        qd: QDesc,
        request: &SgaView,
        to: Addr,
        cookie: u64,
    ) -> Result<(QToken, u64), Error> {
        let queue = self.queues.get_mut(qd)?;
        queue.service()?;
        let socket = queue.socket;
        check_destination(to)?;
        let outgoing = self.sgas.shared(homa, request)?;
        let socket = match socket {
            Some(socket) => socket,
            None => self.socket_of(homa, qd)?,
        };
        let (now, payload) = (self.now, outgoing.into_payload());
        self.tokens.start_with(|qt, pending| {
            let (rpc, id) = homa.send_request(now, socket, to, payload, qt.0, Notify::Never)?;
            pending.qd = qd;
            pending.kind = Operation::Call;
            pending.rpc = rpc;
            pending.cookie = cookie;
            Ok(id.0)
        })
    }

    /// Answers a request that was popped. Short responses are copied, also if no token tells
    /// when: the application may fill the same buffer again at once.
    #[inline(always)]
    pub(super) fn reply(
        &mut self,
        homa: &mut Endpoint,
        qd: QDesc,
        id: u64,
        peer: Addr,
        response: &SgaView,
        want_token: bool,
    ) -> Result<Option<QToken>, Error> {
        let latest = self.queues.get_mut(qd)?.service()?.latest(id, peer);
        if RpcId(id).is_client() {
            return Err(Error::Invalid);
        }
        let rpc = match latest {
            Some(rpc) if homa.in_service(rpc) => latest,
            Some(_) | None => {
                let rpc = homa.server_rpc(RpcId(id), peer);
                if rpc.is_some_and(|rpc| !homa.in_service(rpc)) {
                    return Err(Error::Invalid);
                }
                rpc
            }
        };
        let copy_max = self.params.push_copy_max_bytes;
        let outgoing = self
            .sgas
            .outgoing(homa, &self.buffers, response, copy_max)?;
        let qt = match want_token {
            true => Some(self.tokens.start(Pending::push(qd))?),
            false => None,
        };
        let Some(rpc) = rpc else {
            // The client gave up: nobody is there to complain to, as in Linux Homa.
            qt.into_iter()
                .for_each(|qt| self.complete(qt, Completion::Push));
            return Ok(qt);
        };
        let notify = qt.map_or(Notify::Never, |qt| outgoing.notify(qt));
        if let Err(error) = homa.send_response(self.now, rpc, outgoing.into_payload(), notify) {
            qt.into_iter().for_each(|qt| self.tokens.withdraw(qt));
            return Err(error);
        }
        Ok(qt)
    }

    /// Ends one call of a socket, or with `id` 0 all of them. Their tokens fail with `error`.
    pub(super) fn abort(
        &mut self,
        homa: &mut Endpoint,
        qd: QDesc,
        id: u64,
        error: i32,
    ) -> Result<(), Error> {
        self.queues.get_mut(qd)?.service()?;
        let error = match error {
            0 => Error::Canceled,
            1.. => Error::Aborted(error),
            _ => return Err(Error::Invalid),
        };
        let only = match id {
            0 => None,
            id => Some(homa.client_rpc(RpcId(id)).ok_or(Error::Invalid)?),
        };
        // An RPC does not tell whose it is, so all tokens are looked at: aborts are rare.
        let mut is_found = only.is_none();
        for (_, pending) in self.tokens.iter_pending() {
            if pending.kind == Operation::Call
                && pending.qd == qd
                && only.is_none_or(|only| only == pending.rpc)
            {
                homa.abort(self.now, pending.rpc, error);
                is_found = true;
            }
        }
        if is_found {
            Ok(())
        } else {
            Err(Error::Invalid)
        }
    }
}
