//! Counters: plain numbers with a name and a meaning.

/// One counter as it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    pub name: &'static str,
    pub value: u64,
    pub meaning: &'static str,
}

/// Declares a struct of `u64` counters whose documentation is also their printed meaning.
#[macro_export]
macro_rules! counters {
    ($(#[$doc:meta])* $vis:vis struct $name:ident {
        $(#[doc = $meaning:literal] $field:ident,)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        $vis struct $name { $(#[doc = $meaning] pub $field: u64,)* }

        impl $name {
            /// All counters, in the order of their declaration.
            pub fn metrics(&self) -> Vec<$crate::trace::Metric> {
                vec![$($crate::trace::Metric {
                    name: stringify!($field),
                    value: self.$field,
                    meaning: $meaning.trim_ascii(),
                },)*]
            }
        }
    };
}

#[cfg(test)]
mod tests {
    counters! {
        /// For the test.
        struct Fruit {
            /// Apples eaten.
            apples,
            /// Pears eaten.
            pears,
        }
    }

    #[test]
    fn a_counter_tells_its_name_value_and_meaning() {
        let fruit = Fruit {
            apples: 2,
            ..Fruit::default()
        };
        let shown: Vec<_> = fruit
            .metrics()
            .iter()
            .map(|m| (m.name, m.value, m.meaning))
            .collect();
        assert_eq!(
            shown,
            [("apples", 2, "Apples eaten."), ("pears", 0, "Pears eaten.")]
        );
    }
}
