// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The counts over HTTP, for Prometheus: one request a connection, each with little time and
//! little room. Of connections that have not asked yet, the oldest is closed where there are too
//! many, and of those that are answered, too: whoever asks at once, and reads the answer, gets it, whatever
//! others hold open.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// The longest request that is read.
const LONGEST: usize = 8192;

/// The most headers of one.
const HEADERS: usize = 64;

/// How long a request may take to come, and an answer to go.
const PATIENCE: Duration = Duration::from_secs(2);

/// The most connections that have not asked yet.
const SILENT: usize = 64;

/// The most connections that have asked, and are answered or wait for that.
const ANSWERED: usize = 64;

/// The most that wait for a look at the machine, which may never end.
const WAITING: usize = 64;

/// How long counts are new: those who ask within this time get the same. A look at them takes time of the
/// machine's, and tells what happens from one moment to the next, which is more than Prometheus asks for.
const NEW: Duration = Duration::from_secs(1);

/// Serves what `text` gives until the process is ended; `None` is answered by an error.
pub(crate) fn listen(
    address: SocketAddr,
    text: impl FnMut() -> Option<String> + Send,
) -> io::Result<()> {
    let listener = TcpListener::bind(address)?;
    let address = listener.local_addr()?;
    eprintln!("uvmtop: http://{address}/metrics");
    serve_all(&listener, &Pages::new(text, address.ip().is_loopback()))
}

/// Serves all who connect, side by side, until the listener fails.
fn serve_all<F: FnMut() -> Option<String> + Send>(
    listener: &TcpListener,
    pages: &Pages<F>,
) -> io::Result<()> {
    let mut open = Connections::default();
    std::thread::scope(|scope| loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => Arc::new(stream),
            Err(error) if is_passing(&error) => {
                open.close_one();
                std::thread::sleep(Duration::from_millis(50));
                continue;
            }
            Err(error) => return Err(error),
        };
        // Who goes away, or is too slow, has lost his answer; nobody else has.
        let asked = open.add(&stream);
        let serves = move || {
            let _ = serve(&stream, pages, &asked);
        };
        // One that has no thread is closed.
        let _ = std::thread::Builder::new().spawn_scoped(scope, serves);
    })
}

/// Connections that are open, the oldest first.
#[derive(Default)]
struct Connections(VecDeque<Connection>);

struct Connection {
    /// The thread that serves it has it.
    stream: Weak<TcpStream>,
    /// The request has come in full.
    asked: Arc<AtomicBool>,
}

impl Connections {
    /// Adds a connection, and closes those that are too many then. Gives what is to be set when it has asked.
    fn add(&mut self, stream: &Arc<TcpStream>) -> Arc<AtomicBool> {
        let asked = Arc::new(AtomicBool::new(false));
        self.limit(false, SILENT - 1);
        self.limit(true, ANSWERED);
        self.0.push_back(Connection {
            stream: Arc::downgrade(stream),
            asked: Arc::clone(&asked),
        });
        asked
    }

    /// Closes the oldest of those that have asked, or have not, until there are no more than `most` of them.
    fn limit(&mut self, asked: bool, most: usize) {
        self.0
            .retain(|connection| connection.stream.strong_count() != 0);
        let is_one = |connection: &Connection| connection.asked.load(Relaxed) == asked;
        let count = self.0.iter().filter(|connection| is_one(connection));
        for _ in most..count.count() {
            if let Some(at) = self.0.iter().position(is_one) {
                close(self.0.remove(at));
            }
        }
    }

    /// Closes one, where the process has no room for another: the oldest that has not asked, or else the
    /// oldest of all.
    fn close_one(&mut self) {
        let is_silent = |connection: &Connection| !connection.asked.load(Relaxed);
        self.0
            .retain(|connection| connection.stream.strong_count() != 0);
        let at = self.0.iter().position(is_silent).unwrap_or(0);
        close(self.0.remove(at));
    }
}

/// Ends a connection, if there is one; the thread that serves it notices.
fn close(connection: Option<Connection>) {
    if let Some(stream) = connection.and_then(|connection| connection.stream.upgrade()) {
        let _ = stream.shutdown(Shutdown::Both);
    }
}

/// The pages that are served, and to whom.
struct Pages<F> {
    /// Where the counts are from, and those of the last look, with when that was.
    counts: Mutex<(F, Option<(Instant, String)>)>,
    /// How many wait for the counts.
    waiting: AtomicUsize,
    /// Whether only this machine is served. Then a request for another host's name is refused: it is
    /// from a browser whose page has had its own name changed to an address of this machine.
    local: bool,
}

impl<F: FnMut() -> Option<String>> Pages<F> {
    const fn new(text: F, local: bool) -> Self {
        Self {
            counts: Mutex::new((text, None)),
            waiting: AtomicUsize::new(0),
            local,
        }
    }

    /// The counts, or why there are none.
    fn counts(&self) -> Result<String, &'static str> {
        let before = self.waiting.fetch_add(1, Relaxed);
        let counts = match before < WAITING {
            true => self.look().ok_or("no descriptor is left\n"),
            false => Err("many are waiting\n"),
        };
        self.waiting.fetch_sub(1, Relaxed);
        counts
    }

    /// The counts of the last look, if that is new, or of one that is made now. One that failed is
    /// no look.
    fn look(&self) -> Option<String> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let (text, last) = &mut *counts;
        match last {
            Some((at, text)) if at.elapsed() < NEW => Some(text.clone()),
            _ => Some(last.insert((Instant::now(), text()?)).1.clone()),
        }
    }

    fn is_for(&self, host: Option<&[u8]>) -> bool {
        let Some(host) = host.filter(|_| self.local) else {
            return true;
        };
        std::str::from_utf8(host).is_ok_and(|host| is_local(host.trim()))
    }
}

/// Whether a `Host` header, with or without a port, is an address or this machine's name for itself.
fn is_local(host: &str) -> bool {
    let is_address = host.parse::<SocketAddr>().is_ok() || host.parse::<IpAddr>().is_ok();
    let name = host.split_once(':').map_or(host, |(name, _)| name);
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    is_address || bare.parse::<IpAddr>().is_ok() || name.eq_ignore_ascii_case("localhost")
}

/// Errors of accept(2) that are of one connection, or of a moment.
fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted, WouldBlock};
    let kinds = [ConnectionAborted, ConnectionReset, Interrupted, WouldBlock];
    kinds.contains(&error.kind())
        || matches!(
            error.raw_os_error(),
            Some(
                libc::EMFILE
                    | libc::ENFILE
                    | libc::ENOBUFS
                    | libc::ENOMEM
                    | libc::ENETDOWN
                    | libc::EPROTO
                    | libc::ENOPROTOOPT
                    | libc::EHOSTDOWN
                    | libc::ENONET
                    | libc::EHOSTUNREACH
                    | libc::EOPNOTSUPP
                    | libc::ENETUNREACH
            )
        )
}

/// Answers one request: it has [`PATIENCE`] to come, and the answer as long to go, however slowly their
/// bytes do.
fn serve<F: FnMut() -> Option<String>>(
    stream: &TcpStream,
    pages: &Pages<F>,
    asked: &AtomicBool,
) -> io::Result<()> {
    let done = talk(stream, pages, asked);
    // To close it is not enough: `serve_all` may have it open too, for a moment.
    let ended = stream.shutdown(Shutdown::Both);
    done.and(ended)
}

fn talk<F: FnMut() -> Option<String>>(
    mut stream: &TcpStream,
    pages: &Pages<F>,
    asked: &AtomicBool,
) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let mut request = Vec::new();
    let answer = loop {
        if let Some(answer) = answer(&request, pages, asked) {
            break answer;
        }
        stream.set_read_timeout(Some(left(deadline)?))?;
        let mut piece = [0; 1024];
        match stream.read(&mut piece)? {
            0 => return Ok(()),
            read => request.extend_from_slice(&piece[..read]),
        }
    };
    let (deadline, mut rest) = (Instant::now() + PATIENCE, answer.as_bytes());
    while !rest.is_empty() {
        stream.set_write_timeout(Some(left(deadline)?))?;
        match stream.write(rest)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written => rest = &rest[written..],
        }
    }
    Ok(())
}

/// The time until then, if there is any.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    Ok(left)
}

/// The answer to a request; `None`: it has not come in full. `asked` is set when it has.
fn answer<F: FnMut() -> Option<String>>(
    request: &[u8],
    pages: &Pages<F>,
    asked: &AtomicBool,
) -> Option<String> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    match parsed.parse(request) {
        Ok(httparse::Status::Partial) if request.len() < LONGEST => return None,
        Ok(httparse::Status::Complete(_)) => asked.store(true, Relaxed),
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return Some(page(
                "431 Request Header Fields Too Large",
                "too long\n",
                false,
            ))
        }
        Err(_) => return Some(page("400 Bad Request", "not HTTP\n", false)),
    }
    let head = parsed.method == Some("HEAD");
    let path = parsed.path.unwrap_or_default();
    let path = path.split('?').next().unwrap_or_default();
    let mut given = parsed.headers.iter();
    let host = given.find(|header| header.name.eq_ignore_ascii_case("host"));
    if !pages.is_for(host.map(|header| header.value)) {
        let what = "ask for localhost, or for the address\n";
        return Some(page("403 Forbidden", what, head));
    }
    Some(match (parsed.method, path) {
        (Some("GET" | "HEAD"), "/metrics") => match pages.counts() {
            Ok(text) => page("200 OK", &text, head),
            Err(why) => page("503 Service Unavailable", why, head),
        },
        (Some("GET" | "HEAD"), "/") => page("200 OK", "The counts are at /metrics.\n", head),
        (Some("GET" | "HEAD"), _) => page("404 Not Found", "/metrics is all there is\n", head),
        _ => page(
            "405 Method Not Allowed\r\nAllow: GET, HEAD",
            "GET it\n",
            false,
        ),
    })
}

/// `status` may have headers behind it; of an answer to HEAD the text is left out.
fn page(status: &str, text: &str, head: bool) -> String {
    let length = text.len();
    let text = if head { "" } else { text };
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n{text}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(text: &'static str) -> Pages<impl FnMut() -> Option<String> + Send> {
        Pages::new(move || Some(text.to_owned()), true)
    }

    fn asked(request: &str) -> Option<String> {
        answer(
            request.as_bytes(),
            &pages("counts 1\n"),
            &AtomicBool::default(),
        )
    }

    fn status(request: &str) -> String {
        let answer = asked(request).unwrap();
        answer.lines().next().unwrap().to_owned()
    }

    #[test]
    fn requests_and_answers() {
        let get = asked("GET /metrics HTTP/1.1\r\nHost: [::1]:9\r\n\r\n").unwrap();
        assert!(get.starts_with("HTTP/1.1 200 OK\r\n"), "{get}");
        assert!(get.contains("Content-Length: 9\r\n"), "{get}");
        assert!(get.ends_with("\r\n\r\ncounts 1\n"), "{get}");
        let head = asked("HEAD /metrics?x=y HTTP/1.0\r\n\r\n").unwrap();
        assert!(head.contains("Content-Length: 9\r\n") && head.ends_with("\r\n\r\n"));
        assert_eq!(status("GET / HTTP/1.1\r\n\r\n"), "HTTP/1.1 200 OK");
        assert_eq!(status("GET /x HTTP/1.1\r\n\r\n"), "HTTP/1.1 404 Not Found");
        let post = asked("POST /metrics HTTP/1.1\r\n\r\n").unwrap();
        assert!(post.starts_with("HTTP/1.1 405 Method Not Allowed\r\nAllow: GET, HEAD\r\n"));
    }

    #[test]
    fn what_is_not_a_request() {
        assert_eq!(status("\u{1}\u{2}\r\n\r\n"), "HTTP/1.1 400 Bad Request");
        assert_eq!(asked(""), None);
        assert_eq!(asked("GET /metrics HTTP/1.1\r\nHost: x\r\n"), None);
        let long = format!("GET /metrics HTTP/1.1\r\nX: {}", "x".repeat(LONGEST));
        assert!(status(&long).contains("431"));
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(HEADERS + 1));
        assert!(status(&many).contains("431"));
    }

    #[test]
    fn a_page_of_another_host_is_refused() {
        let get = |host: &str| format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let ours = [
            "localhost:9",
            "LOCALHOST",
            "127.0.0.1:9",
            "127.0.0.1",
            "[::1]",
            "[::1]:9",
        ];
        for host in ours {
            assert_eq!(status(&get(host)), "HTTP/1.1 200 OK", "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:9",
            "localhost.evil.example",
            "",
        ] {
            assert_eq!(status(&get(host)), "HTTP/1.1 403 Forbidden", "{host}");
        }
        // Who listens on all addresses has a name.
        let all = Pages::new(|| Some(String::new()), false);
        let said = answer(
            get("gpu1.example:9").as_bytes(),
            &all,
            &AtomicBool::default(),
        )
        .unwrap();
        assert!(said.starts_with("HTTP/1.1 200 OK"));
    }

    #[test]
    fn those_who_ask_at_once_get_one_look() {
        let mut looks = 0;
        let pages = Pages::new(
            || {
                looks += 1;
                Some(looks.to_string())
            },
            true,
        );
        let since = Instant::now();
        let both = (pages.counts(), pages.counts());
        if since.elapsed() < NEW {
            assert_eq!(both, (Ok("1".into()), Ok("1".into())));
        }
        std::thread::sleep(NEW);
        assert_ne!(pages.counts(), both.1);
    }

    /// Prometheus would take what is not seen for gone, and what is seen again for new.
    #[test]
    fn a_look_that_fails_is_an_error_and_is_not_kept() {
        let mut looks = 0;
        let pages = Pages::new(
            || {
                looks += 1;
                (looks != 1).then(|| "counts 4\n".to_owned())
            },
            true,
        );
        let get = || {
            let request = b"GET /metrics HTTP/1.1\r\n\r\n";
            answer(request, &pages, &AtomicBool::default()).unwrap()
        };
        let said = get();
        assert!(said.starts_with("HTTP/1.1 503"), "{said}");
        assert!(get().ends_with("\r\n\r\ncounts 4\n"));
    }

    /// Those who ask and do not read their answers take no descriptors from the others.
    #[test]
    fn of_those_that_are_answered_the_oldest_are_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut open = Connections::default();
        let streams: Vec<_> = (0..ANSWERED + 10)
            .map(|_| {
                let client = TcpStream::connect(address).unwrap();
                let stream = Arc::new(listener.accept().unwrap().0);
                open.add(&stream).store(true, Relaxed);
                stream.set_nonblocking(true).unwrap();
                (client, stream)
            })
            .collect();
        let is_closed = |stream: &TcpStream| stream.peek(&mut [0]).is_ok_and(|read| read == 0);
        let closed: Vec<_> = streams
            .iter()
            .map(|(_, stream)| is_closed(stream))
            .collect();
        // The last one is added, and has not asked yet, when the others are counted.
        let expected: Vec<_> = (0..streams.len()).map(|at| at < 9).collect();
        assert_eq!(closed, expected);
        // Where there is no room at all, one more is; and what is over is forgotten.
        open.close_one();
        assert!(is_closed(&streams[9].1) && !is_closed(&streams[10].1));
        drop(streams);
        open.limit(true, ANSWERED);
        assert!(open.0.is_empty());
    }

    /// More connections that say nothing than may, and than wait to be accepted.
    #[test]
    fn who_asks_is_served_beside_many_who_say_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || serve_all(&listener, &pages("counts 3\n")));
        let connect = |_| TcpStream::connect(address).unwrap();
        let silent: Vec<_> = (0..SILENT * 4).map(connect).collect();
        let since = Instant::now();
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut said = String::new();
        client.read_to_string(&mut said).unwrap();
        assert!(said.ends_with("\r\n\r\ncounts 3\n"), "{said}");
        // One after the other they take eight minutes.
        assert!(since.elapsed() < PATIENCE * 30, "{:?}", since.elapsed());
        // By then all but the last were closed for those behind them, and not as their time was over.
        let is_closed = |client: &&TcpStream| {
            client.set_nonblocking(true).unwrap();
            client.peek(&mut [0]).is_ok_and(|read| read == 0)
        };
        let closed = silent.iter().filter(is_closed).count();
        assert!(closed >= silent.len() - SILENT, "{closed}");
    }

    /// A look at the machine that does not end costs a few threads, however many ask.
    #[test]
    fn no_more_wait_for_a_look_than_may() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let never = || loop {
            std::thread::park();
        };
        std::thread::spawn(move || serve_all(&listener, &Pages::new(never, true)));
        let ask = |_| {
            let mut client = TcpStream::connect(address).unwrap();
            client.set_nonblocking(true).unwrap();
            let _ = client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n");
            client
        };
        let clients: Vec<_> = (0..WAITING * 2).map(ask).collect();
        let waits = |client: &&TcpStream| {
            let read = client.peek(&mut [0]);
            read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
        };
        let waiting = || clients.iter().filter(waits).count();
        let since = Instant::now();
        while waiting() > WAITING && since.elapsed() < PATIENCE * 30 {
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(waiting() <= WAITING, "{}", waiting());
    }

    #[test]
    fn who_reads_slowly_is_not_waited_for_long() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        // Fast enough for no write to take two seconds; all of it would take two minutes.
        std::thread::spawn(move || {
            let mut piece = vec![0; 256 << 10];
            while client.read_exact(&mut piece).is_ok() {
                std::thread::sleep(Duration::from_millis(500));
            }
        });
        let since = Instant::now();
        let many = Pages::new(|| Some("x".repeat(64 << 20)), true);
        assert!(serve(&stream, &many, &AtomicBool::default()).is_err());
        assert!(since.elapsed() < PATIENCE * 30, "{:?}", since.elapsed());
    }

    #[test]
    fn who_says_nothing_is_not_waited_for_long() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _silent = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let since = Instant::now();
        assert!(serve(&stream, &pages(""), &AtomicBool::default()).is_err());
        // On a busy machine, too.
        assert!(since.elapsed() < PATIENCE * 30, "{:?}", since.elapsed());
    }

    #[test]
    fn a_request_that_comes_in_pieces() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        client.set_nodelay(true).unwrap();
        let asks = std::thread::spawn(move || {
            for piece in ["GET /metr", "ics HTTP/1.1\r\n", "\r", "\n"] {
                client.write_all(piece.as_bytes()).unwrap();
                std::thread::sleep(Duration::from_millis(20));
            }
            let mut said = String::new();
            client.read_to_string(&mut said).unwrap();
            said
        });
        serve(&stream, &pages("counts 2\n"), &AtomicBool::default()).unwrap();
        assert!(asks.join().unwrap().ends_with("\r\n\r\ncounts 2\n"));
    }
}
