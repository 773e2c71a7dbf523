//! Settings: the file, the environment over it, and what is wrong with them in one line.
//!
//! Each value comes from the first of these that has it: an environment variable
//! `DEMIHOMA_SECTION_KEY`, such as `DEMIHOMA_NETWORK_INTERFACE=eth1`; the file named by the caller,
//! or else by `CONFIG_PATH`; the built-in default. `config/default.toml` lists all keys.

mod check;
mod forms;
mod sections;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::de::DeTable;

use crate::error::Error;
pub use forms::{Addresses, Cidr, Mac, OptionalIp};
pub use sections::{Arp, Backend, Channel, Config, Datagram, Dpdk, Homa, Memory, Network, Runtime};

/// What begins the name of a variable that overrides a key.
const PREFIX: &str = "DEMIHOMA_";

const SECTIONS: [&str; 8] = [
    "network", "arp", "homa", "memory", "datagram", "channel", "runtime", "dpdk",
];

/// A file far longer than any list of settings is some other file.
const FILE_MAX_BYTES: u64 = 1 << 20;

/// Where a setting was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    File {
        path: PathBuf,
        line: usize,
    },
    /// The file as a whole.
    WholeFile(PathBuf),
    /// An environment variable.
    Variable(String),
    BuiltIn,
}

/// What is wrong with the settings: one clear line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    pub origin: Origin,
    /// `section.key`, or empty where there is none.
    pub key: String,
    /// As it was written.
    pub value: String,
    /// What would be right.
    pub right: String,
    /// The same for callers who know only errnos.
    pub error: Error,
}

impl Config {
    /// The settings of `path`, else of `CONFIG_PATH`, else the built-in ones; then the environment.
    pub fn load(path: Option<&Path>) -> Result<Self, ConfigError> {
        let named = path.map(Path::to_owned).or_else(|| {
            std::env::var_os("CONFIG_PATH")
                .filter(|path| !path.is_empty())
                .map(PathBuf::from)
        });
        let text = named.as_deref().map(read).transpose()?.unwrap_or_default();
        Self::from_parts(named.as_deref(), &text, std::env::vars_os())
    }

    /// The same of a file's text and of variables that are given.
    pub fn from_parts(
        path: Option<&Path>,
        text: &str,
        variables: impl Iterator<Item = (OsString, OsString)>,
    ) -> Result<Self, ConfigError> {
        let source = Source { path, text };
        let from_file: Self = toml::from_str(text).map_err(|error| source.explain(&error))?;
        let overrides = overrides(variables)?;
        let config = if overrides.is_empty() {
            from_file
        } else {
            apply(&source, &overrides)?
        };
        match check::check(&config) {
            Ok(()) => Ok(config),
            Err(impossible) => Err(source.blame(impossible, &overrides)),
        }
    }

    /// The device to open. An error if nobody named one.
    pub fn interface(&self) -> Result<&str, ConfigError> {
        match self.network.interface.as_str() {
            "" => Err(ConfigError {
                origin: Origin::BuiltIn,
                key: "network.interface".into(),
                value: "\"\"".into(),
                right: "name one in the file, or in DEMIHOMA_NETWORK_INTERFACE".into(),
                error: Error::NoDevice,
            }),
            name => Ok(name),
        }
    }
}

impl ConfigError {
    pub const fn errno(&self) -> libc::c_int {
        self.error.errno()
    }
}

impl From<ConfigError> for Error {
    fn from(error: ConfigError) -> Self {
        error.error
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::WholeFile(path) => path.display().fmt(f),
            Self::Variable(name) => write!(f, "environment variable {name}"),
            Self::BuiltIn => f.write_str("built-in settings"),
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.origin)?;
        match (self.key.as_str(), self.value.as_str()) {
            ("", "") => {}
            ("", value) => write!(f, "{value}: ")?,
            (key, "") => write!(f, "{key}: ")?,
            (key, value) => write!(f, "{key} = {value}: ")?,
        }
        f.write_str(&self.right)
    }
}

impl std::error::Error for ConfigError {}

fn read(path: &Path) -> Result<String, ConfigError> {
    let wrong = |right: String, error| ConfigError {
        origin: Origin::WholeFile(path.to_owned()),
        key: String::new(),
        value: String::new(),
        right,
        error,
    };
    let text = std::fs::metadata(path).and_then(|about| {
        if !about.is_file() || about.len() > FILE_MAX_BYTES {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        std::fs::read_to_string(path)
    });
    text.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => wrong("there is no such file".into(), Error::NoFile),
        io::ErrorKind::PermissionDenied => {
            wrong("this user may not read it".into(), Error::NotPermitted)
        }
        io::ErrorKind::InvalidData => wrong("must be text in UTF-8".into(), Error::Invalid),
        io::ErrorKind::InvalidInput => wrong(
            "must be a plain file of at most 1 MiB".into(),
            Error::Invalid,
        ),
        _ => wrong(format!("cannot be read: {error}"), Error::Invalid),
    })
}

/// One variable that overrides a key.
struct Override {
    variable: String,
    section: &'static str,
    key: String,
    text: String,
}

/// The variables that are ours: `DEMIHOMA_`, the name of a section, `_`, and a key. Others with the
/// same beginning belong to the programs around us.
fn overrides(
    variables: impl Iterator<Item = (OsString, OsString)>,
) -> Result<Vec<Override>, ConfigError> {
    let mut found = Vec::new();
    for (name, text) in variables {
        let Some(variable) = name.to_str() else {
            continue;
        };
        let Some((section, key)) = variable
            .strip_prefix(PREFIX)
            .and_then(|rest| rest.split_once('_'))
        else {
            continue;
        };
        let Some(section) = SECTIONS
            .into_iter()
            .find(|one| one.eq_ignore_ascii_case(section))
        else {
            continue;
        };
        let key = key.to_ascii_lowercase();
        let Some(text) = text.to_str() else {
            return Err(ConfigError {
                origin: Origin::Variable(variable.to_owned()),
                key: format!("{section}.{key}"),
                value: text.to_string_lossy().into_owned(),
                right: "must be text in UTF-8".into(),
                error: Error::Invalid,
            });
        };
        found.push(Override {
            variable: variable.to_owned(),
            section,
            key,
            text: text.to_owned(),
        });
    }
    // The environment has no order of its own; an error must not depend on it.
    found.sort_by(|a, b| a.variable.cmp(&b.variable));
    Ok(found)
}

/// The file with the overrides in it, one by one, so that the first bad one gets the blame.
fn apply(source: &Source<'_>, overrides: &[Override]) -> Result<Config, ConfigError> {
    let mut table: toml::Table =
        toml::from_str(source.text).map_err(|error| source.explain(&error))?;
    for one in overrides {
        let fits = |value: toml::Value| {
            let mut trial = table.clone();
            let section = trial
                .entry(one.section)
                .or_insert_with(|| toml::Value::Table(toml::Table::new()));
            if let Some(section) = section.as_table_mut() {
                section.insert(one.key.clone(), value);
            }
            Config::deserialize(trial.clone()).map(|_| trial)
        };
        let text = toml::Value::String(one.text.clone());
        // `9000`, `true` and lists read as TOML; `10.0.0.1/24` and `eth1` are simply text.
        let result = match as_toml(&one.text) {
            Some(value) => fits(value).or_else(|error| fits(text).map_err(|_| error)),
            None => fits(text),
        };
        table = result.map_err(|error| ConfigError {
            origin: Origin::Variable(one.variable.clone()),
            key: format!("{}.{}", one.section, one.key),
            value: one.text.clone(),
            right: plain(error.message()),
            error: Error::Invalid,
        })?;
    }
    Config::deserialize(table).map_err(|error| source.explain(&error))
}

fn as_toml(text: &str) -> Option<toml::Value> {
    toml::from_str::<toml::Table>(&format!("value = {text}"))
        .ok()?
        .remove("value")
}

/// The text of the settings and its name.
struct Source<'a> {
    path: Option<&'a Path>,
    text: &'a str,
}

impl Source<'_> {
    fn origin(&self, offset: usize) -> Origin {
        let before = self.text.get(..offset).unwrap_or(self.text);
        match self.path {
            None => Origin::BuiltIn,
            Some(path) => Origin::File {
                path: path.to_owned(),
                line: before.matches('\n').count() + 1,
            },
        }
    }

    /// What the parser complains about, with the key it stumbled over.
    fn explain(&self, error: &toml::de::Error) -> ConfigError {
        let offset = error.span().map_or(0, |span| span.start);
        let (key, value) = match self.entries().into_iter().find(|one| one.holds(offset)) {
            Some(entry) => (entry.key, self.slice(&entry.value)),
            // No table at all: the line itself must do.
            None => (String::new(), self.line_at(offset)),
        };
        ConfigError {
            origin: self.origin(offset),
            key,
            value,
            right: plain(error.message()),
            error: Error::Invalid,
        }
    }

    /// Who wrote a value that cannot work: a variable, the file, or we ourselves.
    fn blame(&self, found: check::Impossible, overrides: &[Override]) -> ConfigError {
        let variable = overrides
            .iter()
            .find(|one| found.key.split_once('.') == Some((one.section, &one.key)));
        // Of a section that there may be several of, only the first one's place is known.
        let section = found.key.split('.').next().unwrap_or_default();
        let is_it = |one: &Entry| one.key == found.key || one.key == section;
        let entry = self.entries().into_iter().find(is_it);
        let origin = match (variable, entry) {
            (Some(one), _) => Origin::Variable(one.variable.clone()),
            (None, Some(entry)) => self.origin(entry.span.start),
            (None, None) => Origin::BuiltIn,
        };
        ConfigError {
            origin,
            key: found.key,
            value: found.value,
            right: found.right,
            error: Error::Invalid,
        }
    }

    /// Each `section.key` of the text and where it is; none if the text is no TOML.
    fn entries(&self) -> Vec<Entry> {
        let Ok(table) = DeTable::parse(self.text) else {
            return Vec::new();
        };
        let mut entries = Vec::new();
        for (section, inner) in table.get_ref() {
            let name = section.get_ref();
            if let Some(keys) = inner.get_ref().as_table() {
                entries.extend(keys.iter().map(|(key, value)| Entry {
                    key: format!("{name}.{}", key.get_ref()),
                    span: key.span().start..value.span().end,
                    value: value.span(),
                }));
            } else {
                entries.push(Entry {
                    key: name.to_string(),
                    span: section.span().start..inner.span().end,
                    value: inner.span(),
                });
            }
        }
        entries
    }

    fn slice(&self, span: &Range<usize>) -> String {
        let text = self.text.get(span.clone()).unwrap_or_default();
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    fn line_at(&self, offset: usize) -> String {
        let start = self
            .text
            .get(..offset)
            .map_or(0, |before| before.rfind('\n').map_or(0, |at| at + 1));
        self.text
            .get(start..)
            .and_then(|rest| rest.lines().next())
            .unwrap_or_default()
            .trim()
            .into()
    }
}

/// One setting of the file.
struct Entry {
    /// `section.key`.
    key: String,
    /// From the key to the end of the value.
    span: Range<usize>,
    value: Range<usize>,
}

impl Entry {
    fn holds(&self, offset: usize) -> bool {
        self.span.contains(&offset)
    }
}

/// The parser's words in one line, with Rust's names for numbers made plain.
fn plain(message: &str) -> String {
    let mut text = message.split_whitespace().collect::<Vec<_>>().join(" ");
    for (ours, theirs) in [
        ("expected u8", "expected a whole number from 0 to 255"),
        ("expected u16", "expected a whole number from 0 to 65535"),
        (
            "expected u32",
            "expected a whole number from 0 to 4294967295",
        ),
        ("expected u64", "expected a whole number, 0 or more"),
        ("unknown field", "there is no key"),
    ] {
        text = text.replace(ours, theirs);
    }
    text
}
