//! Download by HTTP: resumes where a connection broke, gives up on a server that stalls, believes no length.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use indicatif::ProgressBar;
use ureq::config::RedirectAuthHeaders;
use ureq::http::{Response, StatusCode};

use super::{Expect, bar, finish, part};
use crate::failure::Failure;
use crate::interrupt::interrupted;

/// Attempts in a row that bring no new byte before giving up.
const ATTEMPTS: usize = 4;
const CHUNK: usize = 1 << 16;

/// Why one attempt ended.
enum Broken {
    /// Another attempt may help.
    Passing(String),
    /// It will not.
    Final(Failure),
}

/// How to talk to a server.
pub struct Client {
    agent: ureq::Agent,
    stall: Duration,
    token: Option<String>,
    explain: Explain,
}

/// What an answer means to the user, from its status and the server's own word for it; empty if there is nothing to add.
pub type Explain = fn(StatusCode, &str) -> String;

impl Client {
    /// A client that waits `stall` for a silent server.
    pub fn new(stall: Duration) -> Client {
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(stall))
            .timeout_recv_response(Some(stall))
            // A token is for the server that it was given for, not for the one that it redirects to.
            .redirect_auth_headers(RedirectAuthHeaders::SameHost)
            .build()
            .into();
        Client { agent, stall, token: None, explain: |_, _| String::new() }
    }

    /// With a bearer token, and with words for what the server refuses.
    pub fn for_user(mut self, token: Option<String>, explain: Explain) -> Client {
        (self.token, self.explain) = (token, explain);
        self
    }

    fn request(&self, url: &str) -> ureq::RequestBuilder<ureq::typestate::WithoutBody> {
        match &self.token {
            Some(t) => self.agent.get(url).header("Authorization", format!("Bearer {t}")),
            None => self.agent.get(url),
        }
    }

    fn refused(&self, url: &str, r: &Response<ureq::Body>) -> String {
        let meaning = (self.explain)(r.status(), header(r, "x-error-code").unwrap_or_default());
        let colon = if meaning.is_empty() { "" } else { ": " };
        format!("{url}: the server answered {}{colon}{meaning}", r.status())
    }

    /// The body of `url`, of at most `most` bytes, as text.
    pub fn text(&self, url: &str, most: u64) -> Result<String, Failure> {
        let mut why = String::new();
        for _ in 0..ATTEMPTS {
            if interrupted() {
                return Err(Failure::Interrupted);
            }
            match self.try_text(url, most) {
                Ok(t) => return Ok(t),
                Err(Broken::Final(f)) => return Err(f),
                Err(Broken::Passing(e)) => why = e,
            }
        }
        Err(Failure::Error(format!("{url}: {why} ({ATTEMPTS} attempts)")))
    }

    fn try_text(&self, url: &str, most: u64) -> Result<String, Broken> {
        let mut r = self.request(url).call().map_err(|e| sort_error(url, e))?;
        match r.status() {
            StatusCode::OK => {
                let body = r.body_mut().with_config().limit(most).read_to_string();
                body.map_err(|e| sort_error(url, e))
            }
            s if s.is_server_error() => Err(Broken::Passing(format!("the server answered {s}"))),
            _ => Err(fatal(self.refused(url, &r))),
        }
    }
}

/// Downloads `url` to `path`.
pub fn download(client: &Client, url: &str, path: &Path, expect: &Expect) -> Result<(), Failure> {
    let mut idle = 0;
    let mut why = String::new();
    while idle < ATTEMPTS {
        let before = have(path);
        match attempt(client, url, path, expect) {
            Ok(()) => return finish(path, expect).map_err(|e| Failure::Error(format!("{url}: {e}"))),
            Err(Broken::Final(f)) => return Err(f),
            Err(Broken::Passing(e)) => why = e,
        }
        idle = if have(path) > before { 0 } else { idle + 1 };
    }
    Err(Failure::Error(format!("{url}: {why} ({ATTEMPTS} attempts brought nothing new; run again to go on)")))
}

fn have(path: &Path) -> u64 {
    fs::metadata(part(path)).map_or(0, |m| m.len())
}

/// Where the validator of a partial file is kept.
fn tag_file(path: &Path) -> PathBuf {
    let mut p = part(path).into_os_string();
    p.push(".tag");
    p.into()
}

fn attempt(client: &Client, url: &str, path: &Path, expect: &Expect) -> Result<(), Broken> {
    let tag = fs::read_to_string(tag_file(path)).ok();
    // Without a validator or a known hash, two halves may be of different files.
    let resumable = tag.is_some() || expect.sha256.is_some() || expect.git.is_some();
    let start = if resumable { have(path) } else { 0 };
    let mut request = client.request(url);
    if start > 0 {
        request = request.header("Range", format!("bytes={start}-"));
        if let Some(t) = &tag {
            request = request.header("If-Range", t);
        }
    }
    let response = request.call().map_err(|e| sort_error(url, e))?;
    let start = match response.status() {
        StatusCode::OK => 0,
        StatusCode::PARTIAL_CONTENT if content_range(&response).map(|r| r.0) == Some(start) => start,
        StatusCode::PARTIAL_CONTENT => {
            return Err(fatal(format!("{url}: the server sent another range than was asked for")));
        }
        // The partial file is as long as the whole or longer: begin anew.
        StatusCode::RANGE_NOT_SATISFIABLE if start > 0 => {
            let _ = fs::remove_file(part(path));
            return Err(Broken::Passing("the server refused to resume".into()));
        }
        s if s.is_server_error() => return Err(Broken::Passing(format!("the server answered {s}"))),
        _ => return Err(fatal(client.refused(url, &response))),
    };
    let total = total_bytes(&response, start);
    if let (Some(want), Some(total)) = (expect.bytes, total)
        && want != total
    {
        return Err(fatal(format!("{url}: the server offers {total} bytes, expected {want}")));
    }
    keep_tag(&response, path);
    receive(response, path, start, total, client.stall)
}

fn fatal(message: String) -> Broken {
    Broken::Final(Failure::Error(message))
}

fn sort_error(url: &str, e: ureq::Error) -> Broken {
    match e {
        ureq::Error::Timeout(_) => Broken::Passing("the server sent nothing in time".into()),
        ureq::Error::Io(_) | ureq::Error::ConnectionFailed | ureq::Error::Protocol(_) => {
            Broken::Passing(e.to_string())
        }
        e => fatal(format!("{url}: {e}")),
    }
}

fn header<'a>(r: &'a Response<ureq::Body>, name: &str) -> Option<&'a str> {
    r.headers().get(name)?.to_str().ok()
}

/// (first byte, total) of `Content-Range: bytes a-b/total`.
fn content_range(r: &Response<ureq::Body>) -> Option<(u64, Option<u64>)> {
    let (range, total) = header(r, "content-range")?.strip_prefix("bytes ")?.split_once('/')?;
    Some((range.split_once('-')?.0.parse().ok()?, total.parse().ok()))
}

fn total_bytes(r: &Response<ureq::Body>, start: u64) -> Option<u64> {
    let length = header(r, "content-length").and_then(|v| v.parse::<u64>().ok());
    content_range(r).and_then(|c| c.1).or_else(|| length?.checked_add(start))
}

/// Remembers what identifies the file, so that a later attempt can prove that it goes on with the same one.
fn keep_tag(r: &Response<ureq::Body>, path: &Path) {
    let strong = header(r, "etag").filter(|t| !t.starts_with("W/"));
    let file = tag_file(path);
    // Without the file the next attempt starts anew: slower, not wrong.
    let _ = match strong {
        Some(t) => fs::write(file, t),
        None => fs::remove_file(file),
    };
}

/// Reads the body on a thread of its own, so that a silent server and Ctrl-C are noticed.
fn body(response: Response<ureq::Body>) -> Receiver<io::Result<Vec<u8>>> {
    let (send, receive) = sync_channel(16);
    std::thread::spawn(move || {
        let mut from = response.into_body().into_reader();
        loop {
            let mut chunk = vec![0; CHUNK];
            let read = from.read(&mut chunk).map(|n| {
                chunk.truncate(n);
                chunk
            });
            let last = !matches!(&read, Ok(c) if !c.is_empty());
            if send.send(read).is_err() || last {
                return;
            }
        }
    });
    receive
}

fn receive(
    response: Response<ureq::Body>,
    path: &Path,
    start: u64,
    total: Option<u64>,
    stall: Duration,
) -> Result<(), Broken> {
    let temporary = part(path);
    let local = |e: io::Error| {
        // A full disk: what was written is of no use to anybody.
        let _ = fs::remove_file(part(path));
        let _ = fs::remove_file(tag_file(path));
        fatal(format!("{}: {e}", path.display()))
    };
    let mut to = if start > 0 {
        File::options().append(true).open(&temporary).map_err(local)?
    } else {
        File::create(&temporary).map_err(local)?
    };
    let progress: ProgressBar = bar(total);
    progress.set_position(start);
    let chunks = body(response);
    let mut got = start;
    loop {
        let chunk =
            wait(&chunks, stall)?.map_err(|e| Broken::Passing(format!("the connection broke: {e}")))?;
        if chunk.is_empty() {
            break;
        }
        to.write_all(&chunk).map_err(local)?;
        got += chunk.len() as u64;
        progress.set_position(got);
    }
    to.sync_all().map_err(local)?;
    progress.finish_and_clear();
    match total {
        Some(t) if got < t => Err(Broken::Passing(format!("the connection broke after {got} of {t} bytes"))),
        Some(t) if got > t => {
            let _ = fs::remove_file(&temporary);
            Err(fatal(format!("the server sent {got} bytes and had announced {t}")))
        }
        _ => {
            let _ = fs::remove_file(tag_file(path));
            Ok(())
        }
    }
}

/// The next chunk, looked for in short waits so that Ctrl-C acts at once.
fn wait(chunks: &Receiver<io::Result<Vec<u8>>>, stall: Duration) -> Result<io::Result<Vec<u8>>, Broken> {
    const LOOK: Duration = Duration::from_millis(100);
    let mut silent = Duration::ZERO;
    loop {
        if interrupted() {
            return Err(Broken::Final(Failure::Interrupted));
        }
        let step = LOOK.min(stall);
        match chunks.recv_timeout(step) {
            Ok(c) => return Ok(c),
            Err(RecvTimeoutError::Disconnected) => return Ok(Ok(Vec::new())),
            Err(RecvTimeoutError::Timeout) => silent += step,
        }
        if silent >= stall {
            return Err(Broken::Passing(format!(
                "the server sent nothing for {:.0} s",
                stall.as_secs_f64().ceil()
            )));
        }
    }
}
