// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The counts over HTTP, for Prometheus: one request a connection, one connection at a time,
//! each with little time and little room, so that nobody who can connect keeps it for
//! himself or fills the memory.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// The longest request that is read.
const LONGEST: usize = 8192;

/// The most headers of one.
const HEADERS: usize = 64;

/// How long a request may take to come, and an answer to go.
const PATIENCE: Duration = Duration::from_secs(2);

/// Serves what `text` gives until the process is ended.
pub(crate) fn listen(address: SocketAddr, mut text: impl FnMut() -> String) -> io::Result<()> {
    let listener = TcpListener::bind(address)?;
    eprintln!("uvmtop: http://{}/metrics", listener.local_addr()?);
    loop {
        match listener.accept() {
            // Who goes away, or is too slow, has lost his answer; nobody else has.
            Ok((stream, _)) => drop(serve(stream, &mut text)),
            Err(error) if is_passing(&error) => std::thread::sleep(Duration::from_millis(50)),
            Err(error) => return Err(error),
        }
    }
}

/// Errors of accept(2) that are of one connection, or of a moment.
fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted, WouldBlock};
    let kinds = [ConnectionAborted, ConnectionReset, Interrupted, WouldBlock];
    kinds.contains(&error.kind())
        || matches!(
            error.raw_os_error(),
            Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM)
        )
}

/// Answers one request, within [`PATIENCE`] however slowly its bytes come.
pub(crate) fn serve(mut stream: TcpStream, text: &mut dyn FnMut() -> String) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut request = Vec::new();
    let answer = loop {
        if let Some(answer) = answer(&request, text) {
            break answer;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        let mut piece = [0; 1024];
        match stream.read(&mut piece)? {
            0 => return Ok(()),
            read => request.extend_from_slice(&piece[..read]),
        }
    };
    stream.write_all(answer.as_bytes())?;
    stream.shutdown(std::net::Shutdown::Write)
}

/// The answer to a request; `None`: it has not come in full.
fn answer(request: &[u8], text: &mut dyn FnMut() -> String) -> Option<String> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    match parsed.parse(request) {
        Ok(httparse::Status::Partial) if request.len() < LONGEST => return None,
        Ok(httparse::Status::Complete(_)) => {}
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
    Some(match (parsed.method, path) {
        (Some("GET" | "HEAD"), "/metrics") => page("200 OK", &text(), head),
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

    fn asked(request: &str) -> Option<String> {
        answer(request.as_bytes(), &mut || "counts 1\n".into())
    }

    fn status(request: &str) -> String {
        let answer = asked(request).unwrap();
        answer.lines().next().unwrap().to_owned()
    }

    #[test]
    fn requests_and_answers() {
        let get = asked("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
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
    fn who_says_nothing_is_not_waited_for_long() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _silent = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let since = Instant::now();
        assert!(serve(stream, &mut || String::new()).is_err());
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
        serve(stream, &mut || "counts 2\n".into()).unwrap();
        assert!(asks.join().unwrap().ends_with("\r\n\r\ncounts 2\n"));
    }
}
