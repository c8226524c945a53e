//! What every frame type has, and the macro that declares most of them.

use crate::frames::word::HeadWord;
use gannet_transport::Head;

/// Which side sends a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameDirection {
    ToServer,
    ToWorker,
}

/// A place for fields in a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    Aux,
    W0,
    W1,
    W2,
    W3,
}

impl Field {
    pub const ALL: [Field; 5] = [Field::Aux, Field::W0, Field::W1, Field::W2, Field::W3];

    /// Its column in the table of scripts/book/frames.py.
    pub fn name(self) -> &'static str {
        ["aux", "w0", "w1", "w2", "w3"][self as usize]
    }

    #[inline]
    pub fn get(self, head: &Head) -> u64 {
        match self {
            Field::Aux => u64::from(head.aux),
            word => head.words[word as usize - 1],
        }
    }

    #[inline]
    pub fn put(self, head: &mut Head, value: u64) {
        match self {
            Field::Aux => head.aux = value as u16,
            word => head.words[word as usize - 1] = value,
        }
    }
}

/// A frame kind as a row of the table that scripts/book/frames.py prints.
#[derive(Debug, Clone, Copy)]
pub struct FrameRow {
    pub kind: u16,
    pub name: &'static str,
    pub direction: FrameDirection,
    /// The places that the kind uses, with their meanings. The other places are 0.
    pub fields: &'static [(Field, &'static str)],
    pub payload: &'static str,
    /// Decodes a head, and encodes the decoded fields again.
    pub reencode: fn(&Head) -> Result<Head, FrameError>,
}

/// Why a head is not valid for its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("frame kind {got} where {want} ({name}) is expected")]
    Kind { got: u16, want: u16, name: &'static str },
    #[error("frame {name}: {field} ({meaning}) is {value:#x}, which is out of range or has unknown bits")]
    Value { name: &'static str, field: &'static str, meaning: &'static str, value: u64 },
    #[error(
        "frame {name}: {field} is {value:#x}, but this version has no such field: run the same gannet on both sides"
    )]
    Unused { name: &'static str, field: &'static str, value: u64 },
    #[error("frame {name}: {what}")]
    Contradiction { name: &'static str, what: &'static str },
}

/// The fields of one kind of frame.
pub trait FrameKind: Copy {
    const KIND: u16;
    const ROW: FrameRow;

    /// The head of a frame with this id. Its payload travels beside it.
    fn encode(&self, id: u64) -> Head;

    /// The fields of a received head.
    ///
    /// # Errors
    /// The head is of another kind, or a field has bits that the kind does not define.
    fn decode(head: &Head) -> Result<Self, FrameError>;
}

/// For [`FrameRow::reencode`].
pub fn reencode<F: FrameKind>(head: &Head) -> Result<Head, FrameError> {
    F::decode(head).map(|frame| Head {
        len: head.len,
        flags: head.flags,
        payload_crc: head.payload_crc,
        ..frame.encode(head.id)
    })
}

#[inline]
pub fn check_kind<F: FrameKind>(head: &Head) -> Result<(), FrameError> {
    if head.kind == F::KIND {
        return Ok(());
    }
    Err(FrameError::Kind { got: head.kind, want: F::KIND, name: F::ROW.name })
}

/// Reads the fields at one place.
#[inline]
pub fn read_field<F: FrameKind, T: HeadWord>(head: &Head, field: Field) -> Result<T, FrameError> {
    let value = field.get(head);
    T::get(value).ok_or_else(|| bad_value::<F>(field, value))
}

#[cold]
pub fn bad_value<F: FrameKind>(field: Field, value: u64) -> FrameError {
    let meaning = F::ROW.fields.iter().find(|(at, _)| *at == field).map_or("", |(_, meaning)| meaning);
    FrameError::Value { name: F::ROW.name, field: field.name(), meaning, value }
}

/// Places that the kind does not use must be 0.
#[inline]
pub fn check_unused<F: FrameKind>(head: &Head) -> Result<(), FrameError> {
    for field in Field::ALL {
        let value = field.get(head);
        if value != 0 && !F::ROW.fields.iter().any(|(used, _)| *used == field) {
            return Err(FrameError::Unused { name: F::ROW.name, field: field.name(), value });
        }
    }
    Ok(())
}

/// Declares frame types: kind, type, name, direction, payload; then for each place of the head that is used its text in
/// the table and its fields. Two fields at one place are its low and its high half.
macro_rules! frames {
    ($(
        $(#[$doc:meta])*
        $kind:literal $frame:ident $name:literal $direction:ident $payload:literal {
            $( $place:ident $meaning:literal: $( $(#[$field_doc:meta])* $field:ident: $type:ty ),+; )*
        }
    )*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
            pub struct $frame {
                $( $( $(#[$field_doc])* pub $field: $type, )+ )*
            }

            impl $crate::frames::declare::FrameKind for $frame {
                const KIND: u16 = $kind;
                const ROW: $crate::frames::declare::FrameRow = $crate::frames::declare::FrameRow {
                    kind: $kind,
                    name: $name,
                    direction: $crate::frames::declare::FrameDirection::$direction,
                    fields: &[$( ($crate::frames::declare::Field::$place, $meaning) ),*],
                    payload: $payload,
                    reencode: $crate::frames::declare::reencode::<$frame>,
                };

                #[inline]
                fn encode(&self, id: u64) -> gannet_transport::Head {
                    #[allow(unused_mut)]
                    let mut head = gannet_transport::Head::new($kind, 0, id, [0; 4]);
                    $(
                        let word = $crate::frames::word::HeadWord::put(($( self.$field, )+));
                        $crate::frames::declare::Field::$place.put(&mut head, word);
                    )*
                    head
                }

                #[inline]
                fn decode(head: &gannet_transport::Head) -> Result<$frame, $crate::frames::declare::FrameError> {
                    use $crate::frames::declare::{check_kind, check_unused};
                    check_kind::<$frame>(head)?;
                    check_unused::<$frame>(head)?;
                    $(
                        let ($( $field, )+): ($( $type, )+) =
                            $crate::frames::declare::read_field::<$frame, _>(head, $crate::frames::declare::Field::$place)?;
                    )*
                    Ok($frame { $( $( $field, )+ )* })
                }
            }
        )*
    };
}

/// Lists frame types for the table of all kinds.
macro_rules! frame_rows {
    ($($frame:ident),* $(,)?) => {
        #[cfg(any(test, feature = "test-support"))]
        pub const FRAMES: &[$crate::frames::declare::FrameRow] =
            &[$( <$frame as $crate::frames::declare::FrameKind>::ROW ),*];
    };
}
