//! Streams completions from an OpenAI-compatible server on loopback at a fixed rate, each on a connection of its
//! own, and prints what came: requests, tokens, and how evenly they were sent. Stops by itself.
//!
//! `cargo run --release -p kvsim-core --example load_generator -- PORT REQUESTS RATE TOKENS [HELD] [STALLED]`
//!
//! `HELD` further connections stay open and idle meanwhile; `STALLED` requests ask for long answers and never read.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

#[derive(Default)]
struct Counts {
    done: AtomicU64,
    failed: AtomicU64,
    tokens: AtomicU64,
    ttft_us: AtomicU64,
}

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

fn one(port: u16, number: u64, tokens: u64, counts: &Counts) -> std::io::Result<u64> {
    let began = Instant::now();
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    stream.write_all(request(number, tokens).as_bytes())?;
    let (mut line, mut seen) = (Vec::new(), 0);
    let mut reader = BufReader::new(stream);
    while reader.read_until(b'\n', &mut line)? > 0 {
        if line.starts_with(b"data: {") {
            if seen == 0 {
                let us = began.elapsed().as_micros() as u64;
                counts.ttft_us.fetch_add(us, Ordering::Relaxed);
            }
            seen += 1;
        }
        line.clear();
    }
    Ok(seen)
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
    let counts = Arc::new(Counts::default());
    let (began, mut late) = (Instant::now(), Duration::ZERO);
    let mut threads = Vec::new();
    for number in 0..requests {
        let due = Duration::from_nanos(number * 1_000_000_000 / rate);
        thread::sleep(due.saturating_sub(began.elapsed()));
        late = late.max(began.elapsed().saturating_sub(due));
        let counts = Arc::clone(&counts);
        let work = move || match one(port, number, tokens, &counts) {
            Ok(seen) if seen > 0 => {
                counts.done.fetch_add(1, Ordering::Relaxed);
                counts.tokens.fetch_add(seen, Ordering::Relaxed);
            }
            _ => {
                counts.failed.fetch_add(1, Ordering::Relaxed);
            }
        };
        let builder = thread::Builder::new().stack_size(128 << 10);
        threads.push(builder.spawn(work).expect("a thread"));
    }
    for thread in threads {
        thread.join().expect("a thread that ended");
    }
    let (seconds, get) = (began.elapsed().as_secs_f64(), |n: &AtomicU64| {
        n.load(Ordering::Relaxed)
    });
    let done = get(&counts.done);
    println!(
        "{done} done, {} failed in {seconds:.1} s: {:.0} requests/s, {:.0} chunks/s; mean TTFT {:.1} ms; sent at most \
         {:.1} ms late; {} idle and {} stalled connections",
        get(&counts.failed),
        done as f64 / seconds,
        get(&counts.tokens) as f64 / seconds,
        get(&counts.ttft_us) as f64 / 1000.0 / done.max(1) as f64,
        late.as_secs_f64() * 1000.0,
        held.len(),
        stalled.len(),
    );
}
