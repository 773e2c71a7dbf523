//! The file as people write it, and as they get it wrong.

use super::*;

const DEFAULT_FILE: &str = include_str!("../../config/default.toml");

fn parse(text: &str) -> Result<Config, ConfigError> {
    with(text, &[])
}

fn with(text: &str, variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let variables = variables
        .iter()
        .map(|(name, text)| (name.into(), text.into()));
    Config::from_parts(Some(Path::new("a.toml")), text, variables)
}

fn complaint(text: &str) -> String {
    let error = parse(text).expect_err(text);
    assert_eq!(error.errno(), libc::EINVAL, "{text}");
    let line = error.to_string();
    assert!(!line.contains('\n'), "more than one line: {line}");
    line
}

/// The names the parser lists when it meets a wrong one: all fields of that struct.
fn known(text: &str) -> Vec<String> {
    let error = toml::from_str::<Config>(text).unwrap_err();
    let (_, names) = error.message().split_once(", expected ").unwrap();
    names
        .split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_default_file_says_what_is_built_in_key_for_key() {
    assert_eq!(parse(DEFAULT_FILE).unwrap(), Config::default());
    let file: toml::Table = toml::from_str(DEFAULT_FILE).unwrap();
    let mut sections = known("zz = 1");
    // There may be several of these, or none, and their keys are those of [network].
    sections.retain(|section| section != "port");
    assert_eq!(file.keys().len(), sections.len());
    assert_eq!(SECTIONS.as_slice(), sections.as_slice());
    for section in sections {
        let mut keys = known(&format!("[{section}]\nzz = 1"));
        let mut written: Vec<_> = file[&section].as_table().unwrap().keys().cloned().collect();
        keys.sort();
        written.sort();
        assert_eq!(keys, written, "[{section}]");
    }
}

#[test]
fn each_key_of_the_default_file_has_a_comment_above_it() {
    let lines: Vec<_> = DEFAULT_FILE.lines().collect();
    for pair in lines.windows(2).filter(|pair| pair[1].contains(" = ")) {
        assert!(
            pair[1].starts_with('#') || pair[0].starts_with('#'),
            "{}",
            pair[1]
        );
    }
}

#[test]
fn an_empty_file_and_none_are_the_built_in_settings() {
    assert_eq!(parse("").unwrap(), Config::default());
    assert_eq!(
        Config::from_parts(None, "", std::iter::empty()).unwrap(),
        Config::default()
    );
}

#[test]
fn a_file_changes_only_what_it_names() {
    let config =
        parse("[network]\ninterface = \"lab0\"\naddress = [\"10.0.0.2/24\", \"fd00::2/64\"]")
            .unwrap();
    assert_eq!(config.interface(), Ok("lab0"));
    assert_eq!(config.network.address.0.len(), 2);
    assert_eq!(config.network.mtu_bytes, 1_500);
    assert_eq!(config.homa, Homa::default());
}

/// Files as people break them, and how the complaint begins.
const BROKEN: &[(&str, &str)] = &[
    (
        "[network]\nmtu_byte = 9000",
        "a.toml:2: network.mtu_byte = 9000: there is no key `mtu_byte`, expected one of `backend`",
    ),
    (
        "\n[netwrk]\nmtu_bytes = 9000",
        "a.toml:2: [netwrk]: there is no key `netwrk`",
    ),
    (
        "[network]\n\nmtu_bytes = 10",
        "a.toml:3: network.mtu_bytes = 10: must be 576 to 9000 bytes",
    ),
    (
        "[network]\nmtu_bytes = \"big\"",
        "a.toml:2: network.mtu_bytes = \"big\": invalid type: string \"big\", \
             expected a whole number from 0 to 65535",
    ),
    (
        "[homa]\nunsched_bytes = -1",
        "a.toml:2: homa.unsched_bytes = -1: invalid value: integer `-1`, \
             expected a whole number from 0 to 4294967295",
    ),
    (
        "[network]\naddress = \"10.0.0.1/40\"",
        "a.toml:2: network.address = \"10.0.0.1/40\": expected a prefix of 0 to 32 bits",
    ),
    (
        "[network]\naddress = \"10.0.0.999/24\"",
        "a.toml:2: network.address = \"10.0.0.999/24\": expected address/prefix, such as",
    ),
    (
        "[network]\naddress = []",
        "a.toml:2: network.address = []: must hold one",
    ),
    (
        "[network]\naddress = 7",
        "a.toml:2: network.address = 7: invalid type: integer `7`",
    ),
    (
        "[network]\nmac = \"02:00\"",
        "a.toml:2: network.mac = \"02:00\": expected a MAC",
    ),
    (
        "[network]\nbackend = \"xdp\"",
        "a.toml:2: network.backend = \"xdp\": unknown variant",
    ),
    (
        "[network]\ninterface = \"much-too-long-a-name\"",
        "a.toml:2: network.interface = much-too-long-a-name: a kernel interface has 1 to 15",
    ),
    (
        "[network]\ngateway = \"10.9.0.1\"",
        "a.toml:2: network.gateway = 10.9.0.1: must lie in the network",
    ),
    (
        "[homa]\nmax_overcommit = 9",
        "a.toml:2: homa.max_overcommit = 9: must be 1 to 8 messages",
    ),
    (
        "[memory]\nreceive_bytes = 2097152",
        "a.toml:2: memory.receive_bytes = 2097152: must be 2162688 to",
    ),
    (
        "[memory]\nreceive_bytes = 3000000",
        "a.toml:2: memory.receive_bytes = 3000000: must be a m",
    ),
    (
        "[dpdk]\nrx_ring = 500",
        "a.toml:2: dpdk.rx_ring = 500: must be a power of two",
    ),
    (
        "[homa]\ntimeout_ticks = 5",
        "a.toml:2: homa.timeout_ticks = 5: must be more than homa.resend_ticks",
    ),
    (
        "[homa]\nunsched_cutoffs_bytes = [0, 0, 0, 0, 5, 15000, 2800, 200]",
        "a.toml:2: homa.unsched_cutoffs_bytes = [0, 0, 0, 0, 5, 15000, 2800, 200]: must fall",
    ),
    (
        "[homa]\nunsched_cutoffs_bytes = [1, 2]",
        "a.toml:2: homa.unsched_cutoffs_bytes = [1, 2]: invalid length 2",
    ),
    (
        "network = 5",
        "a.toml:1: network = 5: invalid type: integer `5`, expected struct",
    ),
    ("[network]\nmtu_bytes 9000", "a.toml:2: mtu_bytes 9000: "),
    (
        "[network]\nmtu_bytes = 1\nmtu_bytes = 2",
        "a.toml:3: mtu_bytes = 2: duplicate key",
    ),
    (
        "[[port]]\ninterface = \"eth1\"\naddress = \"10.0.0.1/24\"",
        "a.toml:1: port.address = 10.0.0.1: is the address of another",
    ),
    (
        "[[port]]\naddress = \"10.0.1.1/24\"",
        "a.toml:1: port.interface = \"\": must name the device",
    ),
    (
        "[network]\ninterface = \"a\"\n[[port]]\ninterface = \"a\"\naddress = \"10.0.1.1/24\"",
        "a.toml:3: port.interface = a: is the device of another",
    ),
    (
        "port = [{}, {}, {}, {}]",
        "a.toml:1: port = 4 sections: there can be three",
    ),
    (
        "[[port]]\ninterface = \"b\"\naddress = \"10.0.1.1/24\"\nmtu_bytes = 9001",
        "a.toml:1: port.mtu_bytes = 9001: must be 576 to 9000",
    ),
    (
        "[[port]]\ninterfaces = \"b\"",
        "a.toml:2: interfaces = \"b\": there is no key `interfaces`, expected one of `backend`",
    ),
    ("<html>\n<body>", "a.toml:1: <html>: "),
    (
        "[network]\ninterface = \"lab0",
        "a.toml:2: interface = \"lab0: ",
    ),
];

#[test]
fn a_broken_file_is_told_by_line_key_value_and_what_is_right() {
    for (text, expected) in BROKEN {
        let line = complaint(text);
        assert!(
            line.starts_with(expected),
            "\n{text}\n  said {line}\n  not  {expected}"
        );
    }
}

#[test]
fn a_file_that_is_not_there_is_no_such_file() {
    let error = Config::load(Some(Path::new("/nonexistent/a.toml"))).unwrap_err();
    assert_eq!(error.errno(), libc::ENOENT);
    assert_eq!(
        error.to_string(),
        "/nonexistent/a.toml: there is no such file"
    );
}

#[test]
fn what_is_no_plain_file_of_text_is_refused() {
    for (path, right) in [("/", "plain file"), ("/dev/zero", "plain file")] {
        let error = Config::load(Some(Path::new(path))).unwrap_err();
        assert!(error.to_string().contains(right), "{error}");
        assert_eq!(Error::from(error), Error::Invalid);
    }
}

#[test]
fn a_variable_wins_over_the_file() {
    let text = "[network]\ninterface = \"lab0\"\n[homa]\nmax_overcommit = 4";
    let config = with(
        text,
        &[
            ("DEMIHOMA_NETWORK_INTERFACE", "17"),
            ("DEMIHOMA_NETWORK_ADDRESS", "10.0.0.9/16"),
            ("DEMIHOMA_HOMA_UNSCHED_BYTES", "1_000"),
            (
                "DEMIHOMA_HOMA_UNSCHED_CUTOFFS_BYTES",
                "[0, 0, 0, 0, 0, 0, 0, 1000000]",
            ),
            ("DEMIHOMA_DPDK_HUGEPAGES", "true"),
            ("DEMIHOMA_SOAK", "1"),
            ("DEMIHOMA_LAB_INSIDE", "1"),
        ],
    )
    .unwrap();
    assert_eq!(config.network.interface, "17", "a number is a fine name");
    assert_eq!(config.network.address.0[0].prefix_bits, 16);
    assert_eq!(
        (config.homa.unsched_bytes, config.homa.max_overcommit),
        (1_000, 4)
    );
    assert_eq!(config.homa.unsched_cutoffs_bytes[6..], [0, 1_000_000]);
    assert!(config.dpdk.hugepages);
}

#[test]
fn a_bad_variable_is_named() {
    for (name, text, expected) in [
        (
            "DEMIHOMA_NETWORK_MTU_BYTES",
            "huge",
            "environment variable DEMIHOMA_NETWORK_MTU_BYTES: network.mtu_bytes = huge: \
             invalid type",
        ),
        (
            "DEMIHOMA_NETWORK_MTU_BYTES",
            "70000",
            "environment variable DEMIHOMA_NETWORK_MTU_BYTES: network.mtu_bytes = 70000: invalid \
             value: integer `70000`, expected a whole number from 0 to 65535",
        ),
        (
            "DEMIHOMA_NETWORK_MTU_BYTES",
            "10",
            "environment variable DEMIHOMA_NETWORK_MTU_BYTES: network.mtu_bytes = 10: must be 576",
        ),
        (
            "DEMIHOMA_HOMA_OVERCOMMIT",
            "8",
            "environment variable DEMIHOMA_HOMA_OVERCOMMIT: homa.overcommit = 8: there is no key",
        ),
    ] {
        let error = with("[network]\nmtu_bytes = 9000", &[(name, text)]).unwrap_err();
        assert!(error.to_string().starts_with(expected), "{error}");
    }
}

#[test]
fn settings_without_an_interface_open_no_device() {
    let error = Config::default().interface().unwrap_err();
    assert_eq!(error.errno(), libc::ENODEV);
    assert!(
        error.to_string().contains("DEMIHOMA_NETWORK_INTERFACE"),
        "{error}"
    );
}

/// Every prefix of the default file, and the file with any one byte replaced, is an answer and
/// never a panic.
#[test]
fn no_text_makes_the_parser_panic() {
    for end in (0..DEFAULT_FILE.len()).step_by(7) {
        let _ = parse(&DEFAULT_FILE[..end]);
    }
    for at in (0..DEFAULT_FILE.len()).step_by(5) {
        let mut bytes = DEFAULT_FILE.as_bytes().to_vec();
        bytes[at] = b"\"[=\n\0-9"[at % 7];
        let text = String::from_utf8(bytes).expect("the file is ASCII");
        let _ = parse(&text).map_err(|error| error.to_string());
    }
}
