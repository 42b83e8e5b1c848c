//! Streams completions from an OpenAI-compatible server on loopback at a fixed rate, each on a connection of its own.
//! Prints the requests and tokens received, and how evenly requests were sent. Stops by itself.
//!
//! `cargo run --release -p kvsim-core --example load_generator -- PORT REQUESTS RATE TOKENS [HELD] [STALLED]`
//!
//! `HELD` further connections stay open and idle meanwhile; `STALLED` requests want long answers and never read. One
//! thread polls every connection each 2 ms: clients that sleep until a byte comes would be woken on the server's core
//! once per token, which clients on other machines are not.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

const LOOK: Duration = Duration::from_millis(2);
/// Longest wait for an answer.
const LONGEST: Duration = Duration::from_secs(60);

fn request(number: u64, tokens: u64) -> String {
    let shared = "shared beginning ".repeat(20);
    let body = format!(
        "{{\"prompt\":\"{} {shared}{number}\",\"max_tokens\":{tokens},\"stream\":true}}",
        number % 50
    );
    format!(
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// An answer being received.
struct Answer {
    stream: TcpStream,
    began: Instant,
    /// The incomplete last line.
    line: Vec<u8>,
    chunks: u64,
    ttft: Duration,
    ended: bool,
}

impl Answer {
    fn asked(port: u16, number: u64, tokens: u64) -> std::io::Result<Self> {
        let began = Instant::now();
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.write_all(request(number, tokens).as_bytes())?;
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            began,
            line: Vec::new(),
            chunks: 0,
            ttft: Duration::ZERO,
            ended: false,
        })
    }

    /// Reads the available bytes.
    fn look(&mut self, buffer: &mut [u8]) {
        loop {
            match self.stream.read(buffer) {
                Ok(0) => self.ended = true,
                Ok(bytes) => {
                    self.take(&buffer[..bytes]);
                    if bytes == buffer.len() {
                        continue;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.ended |= self.began.elapsed() > LONGEST;
                }
                Err(_) => self.ended = true,
            }
            return;
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            self.line.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                if self.line.starts_with(b"data: {") {
                    if self.chunks == 0 {
                        self.ttft = self.began.elapsed();
                    }
                    self.chunks += 1;
                }
                self.line.clear();
            }
        }
    }
}

fn argument(at: usize, default: u64) -> u64 {
    let given = std::env::args().nth(at);
    given.map_or(default, |text| text.parse().expect("a whole number"))
}

fn main() {
    let (port, requests) = (argument(1, 8000) as u16, argument(2, 1000));
    let (rate, tokens) = (argument(3, 200), argument(4, 75));
    let connect = |_| TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    let held: Vec<TcpStream> = (0..argument(5, 0)).map(connect).collect();
    let mut stalled: Vec<TcpStream> = (0..argument(6, 0)).map(connect).collect();
    for (number, stream) in stalled.iter_mut().enumerate() {
        let asked = request(1_000_000 + number as u64, 20_000);
        stream.write_all(asked.as_bytes()).expect("a request");
    }
    let (began, mut late, mut most) = (Instant::now(), Duration::ZERO, 0);
    let (mut done, mut failed, mut chunks, mut ttft) = (0u64, 0u64, 0u64, Duration::ZERO);
    let mut open: Vec<Answer> = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    let mut number = 0;
    while number < requests || !open.is_empty() {
        while number < requests {
            let due = Duration::from_nanos(number * 1_000_000_000 / rate);
            if began.elapsed() < due {
                break;
            }
            late = late.max(began.elapsed().saturating_sub(due));
            match Answer::asked(port, number, tokens) {
                Ok(answer) => open.push(answer),
                Err(_) => failed += 1,
            }
            number += 1;
        }
        most = most.max(open.len());
        for answer in &mut open {
            answer.look(&mut buffer);
        }
        open.retain(|answer| {
            if answer.ended {
                let came = answer.chunks > 0;
                done += u64::from(came);
                failed += u64::from(!came);
                chunks += answer.chunks;
                ttft += answer.ttft;
            }
            !answer.ended
        });
        thread::sleep(LOOK);
    }
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{done} done, {failed} failed in {seconds:.1} s: {:.0} requests/s, {:.0} chunks/s; mean TTFT {:.1} ms, seen \
         each 2 ms; sent at most {:.1} ms late; at most {most} at a time; {} idle and {} stalled connections",
        done as f64 / seconds,
        chunks as f64 / seconds,
        ttft.as_secs_f64() * 1000.0 / done.max(1) as f64,
        late.as_secs_f64() * 1000.0,
        held.len(),
        stalled.len(),
    );
}
