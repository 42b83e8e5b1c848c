//! Input bytes: a file or standard input, hashed as stored, decompressed by its first bytes.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::sync::{Arc, Mutex, PoisonError};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use sha2::{Digest, Sha256};

const RAW_BUFFER: usize = 1 << 18;
const ZSTANDARD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// The largest window that `zstd` writes and accepts without a flag.
const LARGEST_WINDOW: u64 = 1 << 27;

/// The hash of the stored bytes so far; None where it is not wanted.
type Hash = Arc<Mutex<Option<Sha256>>>;

/// Reads the stored bytes and hashes each as it passes.
struct Hashing {
    inner: Box<dyn Read + Send + Sync>,
    hash: Hash,
}

impl Read for Hashing {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(out)?;
        let mut hash = self.hash.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(hash) = &mut *hash {
            hash.update(&out[..n]);
        }
        Ok(n)
    }
}

/// Zstandard frames one after another, as `zstd` and `pzstd` write them.
struct Frames {
    raw: BufReader<Hashing>,
    decoder: FrameDecoder,
    open: bool,
}

impl Read for Frames {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        use std::io::BufRead;
        let bad =
            |e: &dyn std::fmt::Display| io::Error::new(io::ErrorKind::InvalidData, e.to_string());
        loop {
            if self.open {
                if self.decoder.can_collect() < out.len() && !self.decoder.is_finished() {
                    self.decoder
                        .decode_blocks(&mut self.raw, BlockDecodingStrategy::UptoBytes(out.len()))
                        .map_err(|e| bad(&e))?;
                }
                let n = self.decoder.read(out)?;
                if n > 0 || out.is_empty() {
                    return Ok(n);
                }
                self.open = !self.decoder.is_finished();
                continue;
            }
            if self.raw.fill_buf()?.is_empty() {
                return Ok(0);
            }
            check_window(self.raw.buffer())?;
            self.decoder.reset(&mut self.raw).map_err(|e| bad(&e))?;
            self.open = true;
        }
    }
}

/// Refuses a frame whose decoder would need more memory than there is, as the decoder would then fail.
fn check_window(frame: &[u8]) -> io::Result<()> {
    let Some(window) = window_bytes(frame) else {
        return Ok(()); // not a frame header: the decoder reports it
    };
    if window > LARGEST_WINDOW {
        let said = format!("a window of {window} bytes where {LARGEST_WINDOW} are allowed");
        return Err(io::Error::new(io::ErrorKind::InvalidData, said));
    }
    // The decoder keeps the window in a ring that doubles as it grows.
    let needed = 4 * window as usize + RAW_BUFFER;
    match Vec::<u8>::new().try_reserve_exact(needed) {
        Ok(()) => Ok(()),
        Err(_) => Err(io::ErrorKind::OutOfMemory.into()),
    }
}

/// The window that a Zstandard frame's header requests (RFC 8878, 3.1.1.1).
fn window_bytes(frame: &[u8]) -> Option<u64> {
    let (&descriptor, rest) = frame.strip_prefix(&ZSTANDARD)?.split_first()?;
    let single_segment = descriptor & 0x20 != 0;
    if !single_segment {
        let (exponent, mantissa) = (rest.first()? >> 3, u64::from(rest[0] & 7));
        let base = 1u64 << (10 + exponent);
        return Some(base + base / 8 * mantissa);
    }
    let dictionary_id = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let size = [1, 2, 4, 8][usize::from(descriptor >> 6)];
    let bytes = rest.get(dictionary_id..dictionary_id + size)?;
    let written = bytes
        .iter()
        .rev()
        .fold(0, |sum, &b| sum << 8 | u64::from(b));
    Some(if size == 2 { written + 256 } else { written })
}

enum Stored {
    Plain(BufReader<Hashing>),
    Gzip(Box<MultiGzDecoder<BufReader<Hashing>>>),
    Zstd(Box<Frames>),
}

/// A readable trace: its decompressed bytes, and the SHA-256 of the bytes as stored.
pub struct Source {
    stored: Stored,
    hash: Hash,
    /// Decompressed bytes that `head` returned and that are not read yet.
    peeked: Vec<u8>,
    /// The error that ended `head`, returned by the next read after the peeked bytes.
    failed: Option<io::Error>,
}

impl Source {
    /// Opens a path, or standard input for `-`.
    pub fn open(path: &str) -> io::Result<Source> {
        let inner: Box<dyn Read + Send + Sync> = if path == "-" {
            Box::new(io::stdin())
        } else {
            Box::new(File::open(path)?)
        };
        Self::new(inner)
    }

    /// Wraps any bytes; plain, gzip or zstandard by the first four.
    pub fn new(inner: Box<dyn Read + Send + Sync>) -> io::Result<Source> {
        use std::io::BufRead;
        let hash = Arc::new(Mutex::new(Some(Sha256::new())));
        let hashing = Hashing {
            inner,
            hash: Arc::clone(&hash),
        };
        let mut raw = BufReader::with_capacity(RAW_BUFFER, hashing);
        let magic = raw.fill_buf()?;
        let stored = if magic.starts_with(&[0x1f, 0x8b]) {
            Stored::Gzip(Box::new(MultiGzDecoder::new(raw)))
        } else if magic.starts_with(&ZSTANDARD) {
            Stored::Zstd(Box::new(Frames {
                raw,
                decoder: FrameDecoder::new(),
                open: false,
            }))
        } else {
            Stored::Plain(raw)
        };
        Ok(Source {
            stored,
            hash,
            peeked: Vec::new(),
            failed: None,
        })
    }

    /// Up to `n` first bytes without consuming them; errors are left for the reading itself.
    pub fn head(&mut self, n: usize) -> &[u8] {
        while self.peeked.len() < n {
            let from = self.peeked.len();
            self.peeked.resize(n, 0);
            let got = self.read_stored(from, n).unwrap_or_else(|error| {
                self.failed = Some(error);
                0
            });
            self.peeked.truncate(from + got);
            if got == 0 {
                break;
            }
        }
        &self.peeked[..n.min(self.peeked.len())]
    }

    fn read_stored(&mut self, from: usize, to: usize) -> io::Result<usize> {
        let mut buffer = std::mem::take(&mut self.peeked);
        let result = self.read_through(&mut buffer[from..to]);
        self.peeked = buffer;
        result
    }

    fn read_through(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match &mut self.stored {
            Stored::Plain(r) => r.read(out),
            Stored::Gzip(r) => r.read(out),
            Stored::Zstd(r) => r.read(out),
        }
    }

    /// Computes no SHA-256, which costs as much as half of a fast reading; `finish` then returns an empty text.
    pub fn without_digest(&mut self) {
        *self.hash.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// SHA-256 of every stored byte, in hex; reads the rest of the file first.
    pub fn finish(&mut self) -> io::Result<String> {
        let raw = match &mut self.stored {
            Stored::Plain(r) => r.get_mut(),
            Stored::Gzip(r) => r.get_mut().get_mut(),
            Stored::Zstd(r) => r.raw.get_mut(),
        };
        let mut rest = [0u8; 1 << 14];
        while raw.read(&mut rest)? > 0 {}
        let hash = self.hash.lock().unwrap_or_else(PoisonError::into_inner);
        let digest = hash.clone().map(Sha256::finalize);
        let bytes = digest.iter().flatten();
        Ok(bytes.map(|b| format!("{b:02x}")).collect())
    }
}

impl Read for Source {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if !self.peeked.is_empty() {
            let n = out.len().min(self.peeked.len());
            out[..n].copy_from_slice(&self.peeked[..n]);
            self.peeked.drain(..n);
            return Ok(n);
        }
        match self.failed.take() {
            Some(error) => Err(error),
            None => self.read_through(out),
        }
    }
}

/// True if an error of a compressed source means damaged or shortened data rather than a failing disk.
pub fn is_damage(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput
    )
}

#[cfg(test)]
mod tests {
    use super::window_bytes;

    #[test]
    fn the_window_of_a_frame_is_what_its_header_says() {
        let header = |rest: &[u8]| [&super::ZSTANDARD, rest].concat();
        assert_eq!(window_bytes(&header(&[0x00, 10 << 3])), Some(1 << 20));
        assert_eq!(
            window_bytes(&header(&[0x00, 31 << 3 | 7])),
            Some((1 << 41) + 7 * (1 << 38))
        );
        assert_eq!(window_bytes(&header(&[0x20, 200])), Some(200));
        assert_eq!(window_bytes(&header(&[0xa1, 9, 0, 0, 1, 0])), Some(1 << 16));
        assert_eq!(window_bytes(&header(&[0x20])), None);
        assert_eq!(window_bytes(b"plain text"), None);
    }
}
