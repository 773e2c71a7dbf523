//! The kinds of trouble that a run may have, by name.

use std::fmt;
use std::str::FromStr;

/// One kind of trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Loss,
    Duplicate,
    Reorder,
    Delay,
    Corrupt,
    Partition,
    OneWay,
    Flap,
    Restart,
    Freeze,
    Pool,
    Slow,
    Abort,
    Nested,
}

/// Some kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults(u16);

impl Fault {
    pub const ALL: [Self; 14] = [
        Self::Loss,
        Self::Duplicate,
        Self::Reorder,
        Self::Delay,
        Self::Corrupt,
        Self::Partition,
        Self::OneWay,
        Self::Flap,
        Self::Restart,
        Self::Freeze,
        Self::Pool,
        Self::Slow,
        Self::Abort,
        Self::Nested,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Loss => "loss",
            Self::Duplicate => "duplicate",
            Self::Reorder => "reorder",
            Self::Delay => "delay",
            Self::Corrupt => "corrupt",
            Self::Partition => "partition",
            Self::OneWay => "one-way",
            Self::Flap => "flap",
            Self::Restart => "restart",
            Self::Freeze => "freeze",
            Self::Pool => "pool",
            Self::Slow => "slow",
            Self::Abort => "abort",
            Self::Nested => "nested",
        }
    }
}

impl Faults {
    pub const NONE: Self = Self(0);
    pub const ALL: Self = Self((1 << Fault::ALL.len()) - 1);

    #[must_use]
    pub const fn with(self, fault: Fault) -> Self {
        Self(self.0 | 1 << fault as u16)
    }

    pub const fn has(self, fault: Fault) -> bool {
        self.0 >> fault as u16 & 1 == 1
    }
}

impl FromIterator<Fault> for Faults {
    fn from_iter<I: IntoIterator<Item = Fault>>(faults: I) -> Self {
        faults.into_iter().fold(Self::NONE, Self::with)
    }
}

impl fmt::Display for Faults {
    /// As [`FromStr`] reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = Fault::ALL
            .into_iter()
            .filter(|&fault| self.has(fault))
            .map(Fault::name)
            .collect();
        match names.is_empty() {
            true => f.write_str("none"),
            false => f.write_str(&names.join(",")),
        }
    }
}

impl FromStr for Faults {
    type Err = String;

    /// Names with commas between them, or `none`, or `all`.
    fn from_str(list: &str) -> Result<Self, String> {
        match list {
            "none" => return Ok(Self::NONE),
            "all" => return Ok(Self::ALL),
            _ => {}
        }
        let fault = |name: &str| {
            let found = Fault::ALL.into_iter().find(|fault| fault.name() == name);
            found.ok_or_else(|| {
                let names = Fault::ALL.map(Fault::name).join(", ");
                format!("`{name}` is no fault: there are {names}, and `none` and `all`")
            })
        };
        list.split(',').map(fault).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_read_again() {
        let some = Faults::NONE.with(Fault::Loss).with(Fault::OneWay);
        assert_eq!(some.to_string(), "loss,one-way");
        for faults in [some, Faults::NONE, Faults::ALL] {
            assert_eq!(faults.to_string().parse(), Ok(faults));
        }
        assert_eq!("all".parse(), Ok(Faults::ALL));
        assert!(
            "loss,rain"
                .parse::<Faults>()
                .is_err_and(|text| text.contains("`rain`"))
        );
    }
}
