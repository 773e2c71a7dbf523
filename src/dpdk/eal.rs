//! DPDK's environment abstraction layer: memory, devices, the threads' places.

use std::cell::OnceCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

use dpdk_sys as sys;

use super::StartError;
use crate::error::Error;

/// What DPDK was started with: kept, and kept in sight, as long as the process lives.
static ARGUMENTS: AtomicPtr<*mut c_char> = AtomicPtr::new(std::ptr::null_mut());

/// How far [`Eal::start`] came. DPDK can be started only once per process, even if that fails.
static STATE: AtomicU8 = AtomicU8::new(UNTRIED);
const UNTRIED: u8 = 0;
const STARTING: u8 = 1;
const RUNNING: u8 = 2;
const FAILED: u8 = 3;

/// Below this, not even one port's packet buffers fit.
const MEMORY_MIB_MIN: u32 = 32;

/// How the EAL is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EalParams {
    /// Memory for packets, MiB. Pages are taken from the system as they are touched.
    pub memory_mib: u32,
    /// Use hugepages, which `sysctl vm.nr_hugepages` must have set aside.
    pub hugepages: bool,
    /// Pin the calling thread to this CPU. By default it stays free to run wherever it may now.
    pub core: Option<u16>,
    /// Addresses of NICs on the PCI bus that this process may take, such as `0000:03:00.0`.
    /// With none the bus is not even looked at, so that no NIC is taken from its owner.
    pub pci: Vec<String>,
}

impl Default for EalParams {
    fn default() -> Self {
        Self {
            memory_mib: 256,
            hugepages: false,
            core: None,
            pci: Vec::new(),
        }
    }
}

/// The token one must hold to open ports: the EAL runs, and this thread may use it.
///
/// It is never shut down: DPDK cannot start again afterwards, and its ports may outlive this.
#[derive(Debug)]
pub struct Eal {
    // A thread has its own place in each mempool's cache, so nothing moves between threads.
    not_send: PhantomData<*const ()>,
}

impl Eal {
    /// Starts it. The second call in a process gives [`Error::Exists`]; a thread that comes later
    /// says [`Self::attach`].
    pub fn start(params: &EalParams) -> Result<Self, StartError> {
        let arguments = params.arguments()?;
        let exists = || {
            let text = "DPDK runs in this process already and starts only once: attach to it";
            Err(StartError::new(Error::Exists, text))
        };
        match STATE.compare_exchange(UNTRIED, STARTING, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) if has_cores() => {
                STATE.store(RUNNING, Ordering::Release); // The application started it.
                return exists();
            }
            Ok(_) => {}
            Err(FAILED) => return Err(failed_before()),
            Err(_) => return exists(),
        }
        // DPDK keeps pointers into its arguments, so they live as long as the process.
        let mut pointers: Vec<*mut c_char> = arguments.into_iter().map(CString::into_raw).collect();
        let count = pointers.len() as c_int; // About twenty.
        pointers.push(std::ptr::null_mut());
        let pointers = pointers.leak();
        // Nobody reads it but leak checkers, so the compiler must not know that.
        std::hint::black_box(&ARGUMENTS).store(pointers.as_mut_ptr(), Ordering::Release);
        // SAFETY: `count` NUL-terminated strings and a final null, writable and never freed.
        if unsafe { sys::rte_eal_init(count, pointers.as_mut_ptr()) } < 0 {
            STATE.store(FAILED, Ordering::Release);
            return Err(StartError::new(
                Error::Device,
                format!(
                    "DPDK did not start with {} MiB: {}",
                    params.memory_mib,
                    last_error()
                ),
            ));
        }
        STATE.store(RUNNING, Ordering::Release);
        Ok(Self {
            not_send: PhantomData,
        })
    }

    /// Joins the EAL that another thread, or the application itself, has started.
    pub fn attach() -> Result<Self, StartError> {
        let runs = match STATE.load(Ordering::Acquire) {
            FAILED => return Err(failed_before()),
            STARTING => false,
            RUNNING => true,
            _ => has_cores(), // Started by the application, if at all.
        };
        if !runs {
            return Err(StartError::new(
                Error::NotInitialised,
                "DPDK was not started yet",
            ));
        }
        if !PLACE.with(|place| place.get_or_init(Place::take).is_some()) {
            let text = format!("DPDK has no place for one more thread: {}", last_error());
            return Err(StartError::new(Error::Exhausted, text));
        }
        Ok(Self {
            not_send: PhantomData,
        })
    }
}

thread_local! {
    static PLACE: OnceCell<Option<Place>> = const { OnceCell::new() };
}

/// A thread's place among DPDK's "lcores", given back as the thread ends. Without one, it would
/// use the mempools without their caches.
#[derive(Debug)]
struct Place {
    /// Not the EAL's own, as that of the thread that started it.
    registered: bool,
}

impl Place {
    /// The EAL runs.
    fn take() -> Option<Self> {
        // SAFETY: only reads a variable of this thread.
        if unsafe { sys::shim_lcore_id() } != sys::SHIM_LCORE_ANY {
            return Some(Self { registered: false });
        }
        // SAFETY: the EAL runs, as the caller has checked.
        let error = unsafe { sys::rte_thread_register() };
        (error == 0).then_some(Self { registered: true })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.registered {
            // SAFETY: of this thread, which is about to end. A port that lives longer still works.
            unsafe { sys::rte_thread_unregister() }
        }
    }
}

/// Whether the EAL was started, by us or by the application: before that it knows of no core.
fn has_cores() -> bool {
    // SAFETY: has no precondition.
    unsafe { sys::rte_lcore_count() > 0 }
}

fn failed_before() -> StartError {
    let text = "DPDK failed to start before, and cannot be tried again in this process";
    StartError::new(Error::Device, text)
}

impl EalParams {
    /// The EAL's argument list. All is checked here: what the EAL itself finds wrong it answers
    /// with a hundred lines of help.
    fn arguments(&self) -> Result<Vec<CString>, StartError> {
        let invalid = |text: String| Err(StartError::new(Error::Invalid, text));
        if self.memory_mib < MEMORY_MIB_MIN {
            return invalid(format!(
                "{} MiB are too few for DPDK: give it {MEMORY_MIB_MIN} or more",
                self.memory_mib
            ));
        }
        if let Some(address) = self.pci.iter().find(|address| !is_pci_address(address)) {
            return invalid(format!(
                "{address:?} is no PCI address, such as 0000:03:00.0"
            ));
        }
        if self.hugepages {
            check_hugepages(self.memory_mib)?;
        }
        let cpus = usable_cpus();
        let lcores = match self.core {
            None => format!("0@({})", join(&cpus)),
            Some(core) if cpus.contains(&usize::from(core)) => format!("0@({core})"),
            Some(core) => {
                return invalid(format!(
                    "CPU {core} is not one this process may use ({})",
                    join(&cpus)
                ));
            }
        };
        let mut arguments = vec![
            "demihoma".to_owned(),
            "--lcores".to_owned(),
            lcores,
            "-m".to_owned(),
            self.memory_mib.to_string(),
            "--no-telemetry".to_owned(),
            "--iova-mode=va".to_owned(),
            "--log-level=*:error".to_owned(),
        ];
        if self.hugepages {
            // Nothing left on disk, nothing shared with other processes.
            arguments.extend(["--in-memory", "--single-file-segments"].map(str::to_owned));
        } else {
            arguments.extend(["--no-huge", "--no-shconf"].map(str::to_owned));
        }
        if self.pci.is_empty() {
            arguments.push("--no-pci".to_owned());
        }
        for address in &self.pci {
            arguments.extend(["-a".to_owned(), address.clone()]);
        }
        Ok(arguments
            .into_iter()
            .map(|argument| CString::new(argument).expect("numbers and addresses hold no NUL"))
            .collect())
    }
}

/// `domain:bus:device.function`, or without the domain.
fn is_pci_address(address: &str) -> bool {
    let hex = |part: &str, len: usize| {
        part.len() == len && part.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let Some((rest, function)) = address.rsplit_once('.') else {
        return false;
    };
    let parts: Vec<&str> = rest.split(':').collect();
    hex(function, 1)
        && match parts[..] {
            [bus, device] => hex(bus, 2) && hex(device, 2),
            [domain, bus, device] => hex(domain, 4) && hex(bus, 2) && hex(device, 2),
            _ => false,
        }
}

/// The CPUs this thread may run on: what the EAL is told, so that it changes nothing.
fn usable_cpus() -> Vec<usize> {
    // SAFETY: a CPU set is plain bits, all zero is an empty one.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: writes at most the size it is given; 0 is the calling thread.
    let failed = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &mut set) } != 0;
    if failed {
        return vec![0];
    }
    // SAFETY: every index is below the set's size in bits.
    (0..8 * size_of_val(&set))
        .filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) })
        .collect()
}

fn join(cpus: &[usize]) -> String {
    cpus.iter()
        .map(usize::to_string)
        .collect::<Vec<_>>()
        .join(",")
}

fn check_hugepages(memory_mib: u32) -> Result<(), StartError> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let field = |name: &str| -> u64 {
        let line = meminfo
            .lines()
            .find(|line| line.starts_with(name))
            .unwrap_or_default();
        line.split_whitespace()
            .nth(1)
            .and_then(|number| number.parse().ok())
            .unwrap_or(0)
    };
    let free_mib = field("HugePages_Free:") * field("Hugepagesize:") / 1024;
    if free_mib >= u64::from(memory_mib) {
        return Ok(());
    }
    Err(StartError::new(
        Error::NoMemory,
        format!("{free_mib} MiB of hugepages are free, {memory_mib} wanted: raise vm.nr_hugepages"),
    ))
}

/// What DPDK's last call that failed in this thread says.
pub(super) fn last_error() -> String {
    // SAFETY: only reads a variable of this thread.
    describe(unsafe { sys::shim_errno() })
}

/// The text for an errno, of either sign.
pub(super) fn describe(errno: c_int) -> String {
    // SAFETY: gives a NUL-terminated string for any number, valid until this thread's next call.
    let text = unsafe { CStr::from_ptr(sys::rte_strerror(errno.abs())) };
    text.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(params: &EalParams) -> String {
        let arguments = params.arguments().expect("these parameters are right");
        let words: Vec<_> = arguments
            .iter()
            .map(|argument| argument.to_string_lossy())
            .collect();
        words.join(" ")
    }

    #[test]
    fn the_default_needs_no_root_and_takes_no_nic() {
        let line = line(&EalParams::default());
        for word in [
            "--no-huge",
            "--no-shconf",
            "--no-pci",
            "--lcores 0@(",
            "-m 256",
        ] {
            assert!(line.contains(word), "{word} is missing in {line}");
        }
        assert!(
            !line.contains("--in-memory"),
            "refused beside --no-huge: {line}"
        );
    }

    #[test]
    fn named_nics_are_the_only_ones_taken() {
        let pci = vec!["0000:03:00.0".to_owned()];
        let line = line(&EalParams {
            pci,
            ..EalParams::default()
        });
        assert!(
            line.ends_with("-a 0000:03:00.0") && !line.contains("--no-pci"),
            "{line}"
        );
    }

    #[test]
    fn wrong_arguments_never_reach_the_eal() {
        let default = EalParams::default();
        let wrong = [
            EalParams {
                memory_mib: 16,
                ..default.clone()
            },
            EalParams {
                core: Some(u16::MAX),
                ..default.clone()
            },
            EalParams {
                pci: vec!["eth0".to_owned()],
                ..default.clone()
            },
            EalParams {
                pci: vec!["0000:03:00.0 --help".to_owned()],
                ..default
            },
        ];
        for params in wrong {
            let error = params.arguments().expect_err("must be refused");
            assert_eq!(error.error(), Error::Invalid, "{error}");
        }
    }

    #[test]
    fn pci_addresses_have_a_bus_a_device_and_a_function() {
        for right in ["0000:03:00.0", "af:00.1"] {
            assert!(is_pci_address(right), "{right}");
        }
        for wrong in [
            "",
            "03:00",
            "3:00.0",
            "0000:03:00.",
            "0000:03:00.0,x=1",
            "::.0",
            "zz:00.0",
        ] {
            assert!(!is_pci_address(wrong), "{wrong}");
        }
    }
}
