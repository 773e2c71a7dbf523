//! Sockets whose messages go to pages that their user lends.
//!
//! Such a message takes the same way as any other; only what its run is differs, and so who is
//! asked for one, how bytes get there, and to whom it is given back. While no such socket is open
//! all of this costs the others one look at a count.

use crate::error::Error;
use crate::homa::event::{Message, RpcKey, RunKey, SocketKey};
use crate::homa::pool::lent::{LentPool, Parts};
use crate::homa::rpc::State;
use crate::homa::share::Share;
use crate::mem::Region;
use crate::time::Instant;
use crate::wire::homa::{Common, Data, RpcId};

use super::receive::WAITERS_PER_CALL;
use super::{Body, Control, Endpoint, Verdict};

impl Endpoint {
    /// As [`Self::open`], a socket whose messages go to pages that its user lends. Until there are
    /// some they wait.
    pub fn open_lent(&mut self, port: u16) -> Result<SocketKey, Error> {
        let socket = self.open(port)?;
        self.sockets.use_lent(socket);
        Ok(socket)
    }

    /// Lends a region to a socket of [`Self::open_lent`]; it is used until the socket is closed.
    ///
    /// # Errors
    /// [`Error::NotSupported`] for another socket, and as [`LentPool::lend`].
    pub fn lend(&mut self, now: Instant, socket: SocketKey, region: Region) -> Result<(), Error> {
        let lent = self.sockets.lent_mut(socket).ok_or(Error::NotSupported)?;
        lent.lend(region)?;
        self.serve_lent(now, socket);
        Ok(())
    }

    /// What a socket of [`Self::open_lent`] was lent.
    pub fn lent(&self, socket: SocketKey) -> Option<&LentPool> {
        self.sockets.lent(socket)
    }

    /// As [`Self::take`], for a socket of [`Self::open_lent`]. The bytes are not the user's before
    /// [`Self::hand_over`].
    pub fn take_lent(&mut self, key: RpcKey) -> Option<Message> {
        let (socket, run) = self.rpcs.get(key).map(|rpc| (rpc.socket, rpc.run))?;
        let len = self.run_len(socket, run)?;
        self.take_at(key, |_, _| Some((0, len)))
    }

    /// Whether a request waits to be taken.
    pub fn is_requested(&self, rpc: RpcKey) -> bool {
        self.rpcs
            .get(rpc)
            .is_some_and(|rpc| rpc.state == State::Requested)
    }

    /// A message's parts are the user's from now on, until [`Self::take_back`].
    pub fn hand_over(&mut self, socket: SocketKey, run: RunKey) -> Option<Parts> {
        self.sockets.lent_mut(socket)?.hand_over(run)
    }

    /// Takes parts back; errors as [`LentPool::take_back`].
    pub fn take_back(
        &mut self,
        now: Instant,
        socket: SocketKey,
        offsets: &[u32],
    ) -> Result<(), Error> {
        let lent = self.sockets.lent_mut(socket).ok_or(Error::NotSupported)?;
        lent.take_back(offsets)?;
        self.serve_lent(now, socket);
        Ok(())
    }

    /// Asks all peers to freeze their traces, in the name of `socket`.
    pub fn freeze_peers(&mut self, socket: SocketKey) {
        let Some(sport) = self.port(socket) else {
            return;
        };
        for peer in self.peers.keys() {
            let common = Common {
                sport,
                dport: 0,
                id: RpcId(0),
            };
            let body = Body::Freeze;
            self.queue(Control { peer, common, body });
        }
    }

    /// Whether long messages wait until the NIC has sent what it was given before.
    pub fn set_throttling(&mut self, is_on: bool) {
        self.pacer.set_on(is_on);
    }

    pub fn is_throttling(&self) -> bool {
        self.pacer.is_on()
    }

    /// Gives back a message that nobody took.
    pub fn release_lent(&mut self, now: Instant, socket: SocketKey, run: RunKey) {
        if let Some(lent) = self.sockets.lent_mut(socket) {
            lent.release(run);
            self.serve_lent(now, socket);
        }
    }

    /// As `receive`, for the first packet of a message.
    #[inline(never)]
    pub(super) fn receive_lent(
        &mut self,
        now: Instant,
        key: RpcKey,
        data: Data,
        payload: &[u8],
    ) -> Verdict {
        let Some(rpc) = self.rpcs.get(key) else {
            return Verdict::Dropped;
        };
        let (socket, share, len) = (rpc.socket, rpc.share(), data.message_length);
        if let Some(traffic) = &mut self.traffic {
            traffic.on_message(len);
        }
        if payload.len() == len as usize
            && let Some(lent) = self.sockets.lent_mut(socket)
            && let Some(run) = lent.alloc(len, share)
        {
            lent.write(run, 0, payload);
            self.stats.retransmits_used += u64::from(data.retransmit);
            let empty_reply = data.empty_reply && len == 1;
            return self.complete(now, key, (run, 0, len), empty_reply, &mut Self::keep_event);
        }
        self.start_receiving(now, key, data, payload.len());
        self.store(now, key, data, payload)
    }

    /// A run for a new message of a socket of either kind.
    pub(super) fn alloc_run_of(
        &mut self,
        now: Instant,
        socket: SocketKey,
        len: u32,
        share: Share,
    ) -> Option<RunKey> {
        match self.sockets.lent_mut(socket) {
            None => self.alloc_run(now, len, share),
            Some(lent) => lent.alloc(len, share),
        }
    }

    pub(super) fn run_len(&self, socket: SocketKey, run: RunKey) -> Option<u32> {
        match self.sockets.lent(socket) {
            None => self.pool.place(run).map(|(_, len)| len),
            Some(lent) => lent.len_of(run),
        }
    }

    /// Writes to byte `at` of a message's run.
    pub(super) fn write_run(&mut self, socket: SocketKey, run: RunKey, at: u32, bytes: &[u8]) {
        match self.sockets.lent_mut(socket) {
            None => {
                if let Some((base, _)) = self.pool.place(run) {
                    self.region.write((base + at) as usize, bytes);
                }
            }
            Some(lent) => lent.write(run, at, bytes),
        }
    }

    /// Gives back the run of a message that is not wanted any more.
    pub(super) fn release_of(&mut self, now: Instant, socket: SocketKey, run: RunKey) {
        match self.sockets.lent(socket) {
            None => {
                self.release(now, run);
            }
            Some(_) => self.release_lent(now, socket, run),
        }
    }

    /// As `alloc_with_first`: the first packet's bytes are few, so they wait elsewhere meanwhile.
    pub(super) fn alloc_lent_with_first(
        &mut self,
        (socket, first): (SocketKey, RunKey),
        start: u32,
        (len, share): (u32, Share),
    ) -> Option<RunKey> {
        let lent = self.sockets.lent_mut(socket)?;
        let mut bytes = vec![0; lent.len_of(first)? as usize];
        lent.read(first, 0, &mut bytes);
        lent.release(first);
        let run = lent.alloc(len, share)?;
        lent.write(run, start, &bytes);
        Some(run)
    }

    /// Pages of the runtime or of a socket came free perhaps.
    pub(super) fn serve_waiters_of(&mut self, now: Instant, socket: SocketKey) {
        if self.sockets.lent(socket).is_some() {
            self.serve_lent(now, socket);
        } else if self.pool.has_waiters() {
            self.serve_waiters(now);
        }
    }

    /// As `serve_waiters`, for one socket's pages.
    fn serve_lent(&mut self, now: Instant, socket: SocketKey) {
        for _ in 0..WAITERS_PER_CALL {
            let lent = self.sockets.lent_mut(socket);
            let Some((waiter, run)) = lent.and_then(|lent| lent.poll_waiter(now)) else {
                return;
            };
            if !self.serve_waiter(now, waiter.rpc, run)
                && let Some(lent) = self.sockets.lent_mut(socket)
            {
                lent.release(run);
            }
        }
        self.waiters_left = true;
    }

    /// What was left for this call.
    #[cold]
    pub(super) fn serve_all_waiters(&mut self, now: Instant) {
        self.serve_waiters(now);
        let sockets: Vec<_> = self.sockets.iter_lent().map(|(key, _)| key).collect();
        for socket in sockets {
            self.serve_lent(now, socket);
        }
    }
}
