//! Two requests over the loopback: one is read to its end, the other left after its first piece.

use frit::StopReason;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use crate::Failure;

async fn ask(to: &mut TcpStream, tokens: usize) -> Result<(), Failure> {
    let head = format!(
        "GET /generate?prompt=The+sea+is&max_tokens={tokens} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    );
    Ok(to.write_all(head.as_bytes()).await?)
}

pub async fn run(
    mut whole: TcpStream,
    mut left: TcpStream,
    mut ends: mpsc::UnboundedReceiver<StopReason>,
) -> Result<(), Failure> {
    ask(&mut whole, 8).await?;
    let mut answer = String::new();
    whole.read_to_string(&mut answer).await?;
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.contains("content-type: text/event-stream"),
        "{answer}"
    );
    assert_eq!(answer.matches("data: \"").count(), 8, "{answer}");
    assert!(answer.contains("event: end\ndata: MaxTokens"), "{answer}");
    assert_eq!(ends.recv().await, Some(StopReason::MaxTokens));

    ask(&mut left, 2000).await?;
    let (mut seen, mut part) = (String::new(), [0; 256]);
    while !seen.contains("data: ") {
        let n = left.read(&mut part).await?;
        assert!(n > 0, "{seen}");
        seen.push_str(&String::from_utf8_lossy(&part[..n]));
    }
    drop(left);
    assert_eq!(ends.recv().await, Some(StopReason::Cancelled));
    println!("one text read to its end, one left and cancelled");
    Ok(())
}
