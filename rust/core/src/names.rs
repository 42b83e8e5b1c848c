//! Enums whose values have names.

/// Declares an enum of named values, and `from_name`, which finds the value of a name.
macro_rules! named_values {
    ($(#[$about:meta])* $vis:vis enum $Enum:ident {
        $($(#[$of_value:meta])* $Value:ident = $($name:literal)|+,)+
    }) => {
        $(#[$about])*
        $vis enum $Enum {
            $($(#[$of_value])* $Value,)+
        }

        impl $Enum {
            /// The value of a name, `None` for a name that is not in the core.
            $vis fn from_name(name: &str) -> Option<Self> {
                Some(match name {
                    $($($name)|+ => Self::$Value,)+
                    _ => return None,
                })
            }
        }
    };
}

pub(crate) use named_values;
