//! Thrift's compact protocol, as far as Parquet's headers use it.

/// Field types, as the compact protocol numbers them.
const TRUE: u8 = 1;
const FALSE: u8 = 2;
const I16: u8 = 4;
const I32: u8 = 5;
const I64: u8 = 6;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const STRUCT: u8 = 12;

/// Appends a number in groups of seven bits, the lowest first.
pub fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// A signed number with its sign in the lowest bit.
pub fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// A struct being written; field numbers ascend.
#[derive(Default)]
pub struct Struct {
    out: Vec<u8>,
    last: i16,
}

impl Struct {
    fn head(&mut self, field: i16, kind: u8) {
        self.out.push(((field - self.last) as u8) << 4 | kind);
        self.last = field;
    }

    /// A field of 16 bits.
    pub fn i16(&mut self, field: i16, value: i16) -> &mut Self {
        self.head(field, I16);
        varint(&mut self.out, zigzag(i64::from(value)));
        self
    }

    /// A field of 32 bits.
    pub fn i32(&mut self, field: i16, value: i32) -> &mut Self {
        self.head(field, I32);
        varint(&mut self.out, zigzag(i64::from(value)));
        self
    }

    /// A field of 64 bits.
    pub fn i64(&mut self, field: i16, value: u64) -> &mut Self {
        self.head(field, I64);
        varint(&mut self.out, zigzag(value as i64));
        self
    }

    /// A field of text.
    pub fn text(&mut self, field: i16, value: &str) -> &mut Self {
        self.head(field, BINARY);
        varint(&mut self.out, value.len() as u64);
        self.out.extend_from_slice(value.as_bytes());
        self
    }

    /// A struct inside this one.
    pub fn inner(&mut self, field: i16, value: Struct) -> &mut Self {
        self.head(field, STRUCT);
        self.out.extend(value.bytes());
        self
    }

    /// A list of structs.
    pub fn structs(
        &mut self,
        field: i16,
        values: impl ExactSizeIterator<Item = Struct>,
    ) -> &mut Self {
        self.list(field, STRUCT, values.len());
        for value in values {
            self.out.extend(value.bytes());
        }
        self
    }

    /// A list of numbers of 32 bits.
    pub fn i32s(&mut self, field: i16, values: &[i32]) -> &mut Self {
        self.list(field, I32, values.len());
        for &value in values {
            varint(&mut self.out, zigzag(i64::from(value)));
        }
        self
    }

    /// A list of one text.
    pub fn one_text(&mut self, field: i16, value: &str) -> &mut Self {
        self.list(field, BINARY, 1);
        varint(&mut self.out, value.len() as u64);
        self.out.extend_from_slice(value.as_bytes());
        self
    }

    fn list(&mut self, field: i16, kind: u8, length: usize) {
        self.head(field, LIST);
        if length < 15 {
            self.out.push((length as u8) << 4 | kind);
        } else {
            self.out.push(0xF0 | kind);
            varint(&mut self.out, length as u64);
        }
    }

    /// The struct's bytes, its end included.
    pub fn bytes(mut self) -> Vec<u8> {
        self.out.push(0);
        self.out
    }
}

/// An integer of a struct.
pub struct FieldValue {
    /// Its field: field 2 of a struct in field 5 is 502.
    pub field: i64,
    pub value: i64,
}

/// The bytes not read yet; every reading fails at their end.
pub struct Reader<'a> {
    pub bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    /// The next bytes.
    pub fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(count)?;
        self.bytes = rest;
        Some(taken)
    }

    /// The next byte.
    pub fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    /// A number in groups of seven bits.
    pub fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    /// A number with its sign in the lowest bit.
    pub fn signed(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// Reads a struct and appends its integers.
    pub fn structure(&mut self, outer: i64, integers: &mut Vec<FieldValue>) -> Option<()> {
        let mut last = 0;
        loop {
            let head = self.byte()?;
            last = match head >> 4 {
                0 if head == 0 => return Some(()),
                0 => self.signed()?,
                step => last + i64::from(step),
            };
            if !(1..100).contains(&last) {
                return None;
            }
            let field = 100 * outer + last;
            match head & 15 {
                TRUE | FALSE => {}
                I16 | I32 | I64 => integers.push(FieldValue {
                    field,
                    value: self.signed()?,
                }),
                BINARY => {
                    let size = self.varint()?;
                    self.take(usize::try_from(size).ok()?)?;
                }
                STRUCT if outer < 100 => self.structure(field, integers)?,
                _ => return None,
            }
        }
    }
}
