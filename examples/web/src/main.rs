//! Texts as server-sent events: `cargo run --release -- MODEL.gguf [ADDRESS]`, then
//! `curl -N 'http://127.0.0.1:8080/generate?prompt=The+sea+is'`.
//!
//! Generating is work for a thread, not for the async runtime: each request runs on a blocking thread and streams through a channel.
//! When the client goes away the channel closes, and the text is cancelled within one step. With `--check` in place of an address the
//! server answers one request of its own over the loopback, checks that leaving cancels, and ends.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::sse::{Event, Sse};
use axum::routing::get;
use frit::{Model, Options, StopReason};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;

mod check;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What all requests share.
#[derive(Clone)]
struct App {
    model: Model,
    /// Texts that are generated at the same time; more than that wait.
    room: Arc<Semaphore>,
    /// Told how each text ended.
    ended: mpsc::UnboundedSender<StopReason>,
}

#[derive(serde::Deserialize)]
struct Ask {
    prompt: String,
    #[serde(default = "default_tokens")]
    max_tokens: usize,
}

fn default_tokens() -> usize {
    128
}

type Events = Sse<ReceiverStream<Result<Event, Infallible>>>;

async fn generate(State(app): State<App>, Query(ask): Query<Ask>) -> Result<Events, (StatusCode, String)> {
    let room = app.room.clone().acquire_owned().await;
    let room = room.map_err(|_| (StatusCode::SERVICE_UNAVAILABLE, "the server is closing".to_owned()))?;
    let (send, receive) = mpsc::channel(16);
    tokio::task::spawn_blocking(move || {
        let end = write(&app, &ask, &send);
        let last = match &end {
            Ok(end) => Event::default().event("end").data(format!("{end:?}")),
            Err(e) => Event::default().event("error").data(e.to_string()),
        };
        let _ = send.blocking_send(Ok(last));
        let _ = end.map(|reason| app.ended.send(reason));
        drop(room);
    });
    Ok(Sse::new(ReceiverStream::new(receive)))
}

/// Generates one text into the channel.
fn write(app: &App, ask: &Ask, to: &mpsc::Sender<Result<Event, Infallible>>) -> frit::Result<StopReason> {
    let options = Options::default().max_tokens(ask.max_tokens).ignore_end(true);
    let mut generator = app.model.generator(options)?;
    let mut reply = generator.complete(&ask.prompt)?;
    let cancel = reply.cancel();
    for piece in &mut reply {
        let text = piece?.text;
        // Newlines would split the event.
        let event = Event::default().data(format!("{text:?}"));
        if to.blocking_send(Ok(event)).is_err() {
            cancel.cancel();
        }
    }
    Ok(reply.finish()?.reason)
}

async fn run() -> Result<(), Failure> {
    let mut args = std::env::args().skip(1);
    let model = args.next().ok_or("usage: web MODEL.gguf [ADDRESS | --check]")?;
    let address = args.next().unwrap_or_else(|| "127.0.0.1:8080".into());
    let model = Model::load(model)?;
    let (ended, ends) = mpsc::unbounded_channel();
    let app = App { model, room: Arc::new(Semaphore::new(4)), ended };
    let routes = Router::new().route("/generate", get(generate)).with_state(app);
    if address == "--check" {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let at: SocketAddr = listener.local_addr()?;
        let server = tokio::spawn(async move { axum::serve(listener, routes).await });
        check::run(TcpStream::connect(at).await?, TcpStream::connect(at).await?, ends).await?;
        server.abort();
        return Ok(());
    }
    drop(ends);
    let listener = TcpListener::bind(&address).await?;
    println!("http://{}/generate?prompt=The+sea+is", listener.local_addr()?);
    let stop = async {
        let _ = tokio::signal::ctrl_c().await;
    };
    Ok(axum::serve(listener, routes).with_graceful_shutdown(stop).await?)
}

fn main() -> Result<(), Failure> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(run())
}
