//! Bytes in: a file or standard input, hashed as stored, decompressed by what its first bytes say.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::sync::{Arc, Mutex, PoisonError};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use sha2::{Digest, Sha256};

const RAW_BUFFER: usize = 1 << 18;

/// Reads the stored bytes and hashes each as it passes.
struct Hashing {
    inner: Box<dyn Read + Send + Sync>,
    hash: Arc<Mutex<Sha256>>,
}

impl Read for Hashing {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(out)?;
        self.hash
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .update(&out[..n]);
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
            self.decoder.reset(&mut self.raw).map_err(|e| bad(&e))?;
            self.open = true;
        }
    }
}

enum Stored {
    Plain(BufReader<Hashing>),
    Gzip(Box<MultiGzDecoder<BufReader<Hashing>>>),
    Zstd(Box<Frames>),
}

/// A readable trace: its decompressed bytes, and the SHA-256 of the bytes as stored.
pub struct Source {
    stored: Stored,
    hash: Arc<Mutex<Sha256>>,
    /// Decompressed bytes looked at by `head` and not yet read.
    peeked: Vec<u8>,
    /// The error that ended `head`, told to the next read behind what was peeked.
    failed: Option<io::Error>,
}

impl Source {
    /// Open a path, or standard input for `-`.
    pub fn open(path: &str) -> io::Result<Source> {
        let inner: Box<dyn Read + Send + Sync> = if path == "-" {
            Box::new(io::stdin())
        } else {
            Box::new(File::open(path)?)
        };
        Self::new(inner)
    }

    /// Wrap any bytes; plain, gzip or zstandard by their first four.
    pub fn new(inner: Box<dyn Read + Send + Sync>) -> io::Result<Source> {
        use std::io::BufRead;
        let hash = Arc::new(Mutex::new(Sha256::new()));
        let hashing = Hashing {
            inner,
            hash: Arc::clone(&hash),
        };
        let mut raw = BufReader::with_capacity(RAW_BUFFER, hashing);
        let magic = raw.fill_buf()?;
        let stored = if magic.starts_with(&[0x1f, 0x8b]) {
            Stored::Gzip(Box::new(MultiGzDecoder::new(raw)))
        } else if magic.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
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

    /// Whether the file is compressed.
    pub fn compressed(&self) -> bool {
        !matches!(self.stored, Stored::Plain(_))
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

    /// SHA-256 of every stored byte, in hex; reads what is left of the file first.
    pub fn finish(&mut self) -> io::Result<String> {
        let raw = match &mut self.stored {
            Stored::Plain(r) => r.get_mut(),
            Stored::Gzip(r) => r.get_mut().get_mut(),
            Stored::Zstd(r) => r.raw.get_mut(),
        };
        let mut rest = [0u8; 1 << 14];
        while raw.read(&mut rest)? > 0 {}
        let digest = self
            .hash
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
            .finalize();
        Ok(digest.iter().map(|b| format!("{b:02x}")).collect())
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

/// Whether an error of a compressed source means damaged or shortened data rather than a failing disk.
pub fn is_damage(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput
    )
}
