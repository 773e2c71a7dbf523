//! Sockets: who listens on which port.

use crate::arena::Arena;
use crate::error::Error;
use crate::homa::pool::lent::LentPool;
use crate::rng::Rng;
use crate::slots::Key;

/// Automatic ports start here. Source: the seed's `HOMA_MIN_DEFAULT_PORT`.
const AUTOMATIC_MIN: u16 = 0x8000;

/// No socket on this port.
const NONE: u32 = u32::MAX;

/// A port of ours.
#[derive(Debug, Default)]
pub struct Socket {
    pub port: u16,
    /// Whether requests are taken; if not, they are answered as if the port were closed.
    accepts: bool,
    /// Requests that the user took and has not answered.
    pub in_service: u32,
    /// If its messages go to pages that its user lends: those, once there are any.
    pub lent: Option<Box<LentPool>>,
}

/// All sockets, by port.
#[derive(Debug)]
pub struct Sockets {
    slots: Arena<Socket>,
    by_port: Vec<u32>,
    next_automatic: u16,
    /// Sockets that take requests.
    server_count: u32,
    /// Sockets with pages of their own.
    lent_count: u32,
}

impl Sockets {
    pub fn new(sockets_max: u32, rng: &mut Rng) -> Self {
        Self {
            slots: Arena::new(sockets_max as usize),
            by_port: vec![NONE; 1 << 16],
            next_automatic: AUTOMATIC_MIN | rng.next_u64() as u16,
            server_count: 0,
            lent_count: 0,
        }
    }

    /// A socket on `port`, or on an automatic one if that is 0.
    pub fn open(&mut self, port: u16) -> Result<Key<Socket>, Error> {
        let port = self.free_port(port)?;
        let socket = Socket {
            port,
            accepts: false,
            in_service: 0,
            lent: None,
        };
        let key = self.slots.insert(socket).ok_or(Error::Exhausted)?;
        self.by_port[usize::from(port)] = key.index();
        Ok(key)
    }

    /// Moves a socket to another port; it keeps the old one if that fails. 0 changes nothing.
    pub fn bind(&mut self, key: Key<Socket>, port: u16) -> Result<(), Error> {
        let old = self.slots.get(key).ok_or(Error::BadDescriptor)?.port;
        if port == 0 || port == old {
            return Ok(());
        }
        let port = self.free_port(port)?;
        self.by_port[usize::from(old)] = NONE;
        self.by_port[usize::from(port)] = key.index();
        self.slots.get_mut(key).ok_or(Error::BadDescriptor)?.port = port;
        Ok(())
    }

    pub fn close(&mut self, key: Key<Socket>) -> bool {
        let Some(socket) = self.slots.leave(key) else {
            return false;
        };
        self.by_port[usize::from(socket.port)] = NONE;
        self.server_count -= u32::from(socket.accepts);
        // Its region is its lender's again.
        self.lent_count -= u32::from(socket.lent.take().is_some());
        true
    }

    #[inline]
    pub fn get(&self, key: Key<Socket>) -> Option<&Socket> {
        self.slots.get(key)
    }

    #[inline]
    pub fn get_mut(&mut self, key: Key<Socket>) -> Option<&mut Socket> {
        self.slots.get_mut(key)
    }

    /// From now on the socket's messages go to pages that its user lends. To be called before it
    /// has any.
    pub fn use_lent(&mut self, key: Key<Socket>) {
        if let Some(socket) = self.slots.get_mut(key)
            && socket.lent.is_none()
        {
            socket.lent = Some(Box::default());
            self.lent_count += 1;
        }
    }

    /// Whether any socket has pages of its own.
    #[inline(always)]
    pub fn has_lent(&self) -> bool {
        self.lent_count > 0
    }

    /// The pages of a socket that has some of its own.
    #[inline]
    pub fn lent(&self, key: Key<Socket>) -> Option<&LentPool> {
        match self.has_lent() {
            true => self.slots.get(key)?.lent.as_deref(),
            false => None,
        }
    }

    /// As [`Self::lent`], to write.
    #[inline]
    pub fn lent_mut(&mut self, key: Key<Socket>) -> Option<&mut LentPool> {
        match self.has_lent() {
            true => self.slots.get_mut(key)?.lent.as_deref_mut(),
            false => None,
        }
    }

    /// All sockets with pages of their own.
    pub fn iter_lent(&self) -> impl Iterator<Item = (Key<Socket>, &LentPool)> {
        let sockets = self.slots.iter();
        sockets.filter_map(|(key, socket)| Some((key, socket.lent.as_deref()?)))
    }

    pub fn set_server(&mut self, key: Key<Socket>, accepts: bool) {
        if let Some(socket) = self.slots.get_mut(key) {
            self.server_count -= u32::from(socket.accepts);
            self.server_count += u32::from(accepts);
            socket.accepts = accepts;
        }
    }

    /// Whether any socket takes requests.
    pub fn has_server(&self) -> bool {
        self.server_count > 0
    }

    pub fn iter(&self) -> impl Iterator<Item = &Socket> {
        self.slots.iter().map(|(_, socket)| socket)
    }

    /// The socket on `port` that takes requests.
    #[inline]
    pub fn server_on(&self, port: u16) -> Option<Key<Socket>> {
        match self.by_port[usize::from(port)] {
            NONE => None,
            index => {
                let (key, socket) = self.slots.at(index)?;
                socket.accepts.then_some(key)
            }
        }
    }

    /// Whether any socket has `port`.
    pub fn is_open(&self, port: u16) -> bool {
        self.by_port[usize::from(port)] != NONE
    }

    /// Checks a port that is asked for, or finds an automatic one. Rule SK-01.
    fn free_port(&mut self, port: u16) -> Result<u16, Error> {
        if port != 0 {
            return if self.is_open(port) {
                Err(Error::AddressInUse)
            } else {
                Ok(port)
            };
        }
        for _ in AUTOMATIC_MIN..=u16::MAX {
            let port = self.next_automatic;
            self.next_automatic = AUTOMATIC_MIN | port.wrapping_add(1);
            if !self.is_open(port) {
                return Ok(port);
            }
        }
        Err(Error::AddressNotAvailable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sockets() -> Sockets {
        Sockets::new(40_000, &mut Rng::new(1))
    }

    /// Rule SK-02.
    #[test]
    fn a_port_has_one_owner_and_a_failed_bind_keeps_the_old_one() {
        let mut sockets = sockets();
        let one = sockets.open(80).unwrap();
        let two = sockets.open(81).unwrap();
        assert_eq!(sockets.open(80), Err(Error::AddressInUse));
        assert_eq!(sockets.bind(two, 80), Err(Error::AddressInUse));
        assert_eq!(sockets.get(two).unwrap().port, 81);
        assert!(sockets.close(one) && !sockets.close(one));
        assert_eq!(sockets.bind(two, 80), Ok(()));
        assert!(!sockets.is_open(81) && sockets.is_open(80));
    }

    #[test]
    fn automatic_ports_are_high_and_run_out() {
        let mut sockets = sockets();
        for _ in 0..0x8000 {
            let key = sockets.open(0).unwrap();
            assert!(sockets.get(key).unwrap().port >= AUTOMATIC_MIN);
        }
        assert_eq!(sockets.open(0), Err(Error::AddressNotAvailable));
        assert!(sockets.open(5).is_ok());
    }

    #[test]
    fn only_a_server_takes_requests() {
        let mut sockets = sockets();
        let key = sockets.open(80).unwrap();
        assert_eq!(sockets.server_on(80), None);
        sockets.set_server(key, true);
        assert_eq!(
            (sockets.server_on(80), sockets.server_on(81)),
            (Some(key), None)
        );
        assert!(sockets.has_server() && sockets.close(key) && !sockets.has_server());
    }
}
