//! The Rust face, as a program written for Demikernel uses it and as one that begins anew does. The
//! host of these tests is alone with itself: nobody is at the other end of its device.
#![cfg(feature = "dpdk")]

mod common;

use std::net::SocketAddr;
use std::slice;
use std::time::Duration;

use common::in_child;
// What Demikernel's own suites import, by the paths they import it by.
use demihoma::runtime::fail::Fail;
use demihoma::runtime::types::{demi_opcode_t, demi_qresult_t, demi_sgarray_t};
use demihoma::{LibOS, LibOSName, QDesc, QToken, SocketOption};

use demihoma::config::Config;
use demihoma::libos::IPPROTO_HOMA;

const AT_ONCE: Option<Duration> = Some(Duration::ZERO);
const PATIENCE: Option<Duration> = Some(Duration::from_secs(20));

const SETTINGS: &str = "[network]\nbackend = 'vdev'\ninterface = 'net_null0,no-rx=1'\n\
                        address = '10.0.0.1/24'\n";

fn address(port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], port))
}

fn start() -> LibOS {
    let config = Config::from_parts(None, SETTINGS, std::iter::empty()).expect("good settings");
    LibOS::with(&config).expect("it starts")
}

fn native(os: &mut LibOS) -> QDesc {
    os.socket(libc::AF_INET, libc::SOCK_DGRAM, IPPROTO_HOMA)
        .expect("a socket")
}

fn bytes<'a>(sga: demi_sgarray_t) -> &'a mut [u8] {
    let (at, len) = (sga.sga_segs[0].sgaseg_buf, sga.sga_segs[0].sgaseg_len);
    // SAFETY: the array is ours until it is freed, and its bytes are looked at by one at a time.
    unsafe { slice::from_raw_parts_mut(at.cast(), len as usize) }
}

/// An application of the kind that Demikernel's users have.
struct Application {
    os: LibOS,
    qd: QDesc,
}

impl Application {
    fn new() -> Result<Self, Fail> {
        let mut os = LibOS::new(LibOSName::from_env()?, None)?;
        let qd = os.socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
        os.bind(qd, address(7000))?;
        Ok(Self { os, qd })
    }

    fn push(&mut self, text: &[u8]) -> Result<QToken, Fail> {
        let sga = self.os.sgaalloc(text.len())?;
        bytes(sga).copy_from_slice(text);
        let qt = self.os.pushto(self.qd, &sga, address(7000))?;
        self.os.sgafree(sga)?;
        Ok(qt)
    }

    fn echo(&mut self) -> Result<(), Fail> {
        let tokens = [self.push(b"hello")?, self.os.pop(self.qd, None)?];
        for _ in 0..2 {
            let (place, result): (usize, demi_qresult_t) = self.os.wait_any(&tokens, PATIENCE)?;
            let (opcode, token) = (result.qr_opcode, result.qr_qt);
            assert_eq!(u64::from(tokens[place]), token);
            if opcode == demi_opcode_t::DEMI_OPC_POP {
                // SAFETY: the opcode says that the value is an array.
                let sga = unsafe { result.qr_value.sga };
                assert_eq!(bytes(sga), b"hello");
                assert_eq!(u16::from_be(sga.sga_addr.sin_port), 7000);
                self.os.sgafree(sga)?;
                let again = self.os.sgafree(sga).expect_err("it was freed");
                assert_eq!(again.errno, libc::EINVAL);
                return Ok(());
            }
            assert_eq!(opcode, demi_opcode_t::DEMI_OPC_PUSH);
        }
        Err(Fail::new(libc::ENOMSG, "no message came"))
    }
}

#[test]
fn a_program_of_demikernels_users_finds_its_calls() {
    in_child(|| {
        let file = std::env::temp_dir().join(format!("demihoma-{}.toml", std::process::id()));
        std::fs::write(&file, SETTINGS).expect("a folder for such files");
        // SAFETY: this process was started for this test, which is its only thread so far.
        unsafe { std::env::set_var("CONFIG_PATH", &file) };
        let started = Application::new();
        std::fs::remove_file(&file).expect("it is ours");
        let mut application = started.expect("it starts");
        application.echo().expect("an echo");
        let Application { os, qd } = &mut application;
        os.poll();
        assert_eq!(
            os.getpeername(*qd).expect_err("no peer").errno,
            libc::ENOTCONN
        );
        let linger = SocketOption::Linger(Some(Duration::from_millis(3)));
        os.set_socket_option(*qd, linger).expect("an option");
        assert_eq!(
            os.get_socket_option(*qd, SocketOption::Linger(None)),
            Ok(linger)
        );
        let closed = os.async_close(*qd).expect("a close");
        let opcode = os.wait(closed, AT_ONCE).expect("a result").qr_opcode;
        assert_eq!(opcode, demi_opcode_t::DEMI_OPC_CLOSE);
        let error = os.close(*qd).expect_err("it is closed");
        assert_eq!(
            error.to_string(),
            format!("no such queue descriptor (errno {})", libc::EBADF)
        );
    });
}

#[test]
fn buffers_show_their_bytes_and_free_themselves() {
    in_child(|| {
        let mut os = start();
        let (client, server) = (native(&mut os), native(&mut os));
        os.bind(server, address(7000)).expect("a port");
        for len in [1, 5_000, 1_000_000] {
            // More than there is memory for, unless each is freed.
            for n in 0..200_u8 {
                let request = os.buf(&vec![n; len]).expect("memory");
                let call = os.call(client, request, address(7000)).expect("a call");
                let pop = os.pop(server, None).expect("a pop");
                let request = os.take(pop, PATIENCE).expect("a request");
                assert!(request.len() == len && request.iter().all(|&byte| byte == n));
                assert_eq!(
                    request.sender().map(|sender| sender.ip()),
                    Some(address(0).ip())
                );
                let response = os.buf(&request[..1]).expect("memory");
                os.reply(server, &request, response).expect("a reply");
                drop(request);
                assert_eq!(*os.take(call, PATIENCE).expect("a response"), [n]);
            }
        }
        assert_eq!(os.buf(b"").expect_err("no bytes").errno, libc::EINVAL);
        let allotted = os.buf(b"x").expect("memory");
        let response = os.buf(b"y").expect("memory");
        let error = os
            .reply(server, &allotted, response)
            .expect_err("no request");
        assert_eq!(error.errno, libc::EINVAL);
    });
}

#[test]
fn what_is_dropped_amid_a_call_is_freed_by_the_next_and_may_outlive_the_rest() {
    in_child(|| {
        let mut os = start();
        let qd = os
            .socket(libc::AF_INET, libc::SOCK_DGRAM, 0)
            .expect("a socket");
        os.bind(qd, address(7000)).expect("a port");
        for _ in 0..300 {
            let held = os
                .buf(&vec![1; 1_000_000])
                .expect("memory, if each is freed");
            let sent = os.buf(b"x").expect("memory");
            os.send(qd, sent, address(7000)).expect("a push");
            let mut held = Some(held);
            let accept = |_| {
                held.take();
                true
            };
            os.wait_next_n(accept, Some(Duration::from_micros(1)))
                .expect_err("the time is up");
            let pop = os.pop(qd, None).expect("a pop");
            drop(os.take(pop, PATIENCE).expect("a message"));
        }
        let last = os.buf(b"the last").expect("memory");
        let pop = os.pop(qd, None).expect("a pop");
        assert_eq!(
            os.take(pop, AT_ONCE).expect_err("nothing came").errno,
            libc::ETIMEDOUT
        );
        drop(os);
        assert_eq!(&*last, b"the last");
    });
}
