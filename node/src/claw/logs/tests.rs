//! Unit tests of the log files: order, follow, tail, torn ends, a disk that refuses.

use super::record::Kind;
use super::*;
use clawhive_proto::LogStream;
use std::io::Write;
use std::time::Duration;

fn store() -> (tempfile::TempDir, LogStore) {
    let dir = tempfile::tempdir().unwrap();
    let store = LogStore::open(dir.path().join("logs"), Arc::new(|| 7)).unwrap();
    (dir, store)
}

const ID: AttemptId = AttemptId { run: 3, task: 1, attempt: 2 };

fn query() -> LogQuery {
    LogQuery { run: 3, task: 1, attempt: 2, ..Default::default() }
}

fn put(writer: &mut LogWriter, kind: Kind, bytes: &[u8]) {
    let mut buffer = PipeBuffer::default();
    buffer.payload()[..bytes.len()].copy_from_slice(bytes);
    writer.append(kind, &mut buffer, bytes.len());
}

async fn all(store: &LogStore, query: LogQuery) -> (Vec<LogPiece>, bool) {
    let mut reader = store.read(query).unwrap();
    let mut pieces = Vec::new();
    while let Some(piece) = reader.next().await.unwrap() {
        pieces.push(piece);
    }
    (pieces, reader.complete())
}

fn text(pieces: &[LogPiece]) -> String {
    pieces.iter().map(|piece| String::from_utf8_lossy(&piece.data).into_owned()).collect()
}

#[tokio::test]
async fn pieces_come_back_in_order_and_from_any_offset() {
    let (_dir, store) = store();
    let mut writer = store.writer(ID);
    put(&mut writer, Kind::Stdout, b"a\n");
    put(&mut writer, Kind::Stderr, b"\0\xff");
    put(&mut writer, Kind::Stdout, b"b\n");
    drop(writer);
    let (pieces, complete) = all(&store, query()).await;
    assert!(complete);
    let kinds: Vec<_> =
        pieces.iter().map(|piece| (piece.stream, piece.data.to_vec(), piece.time_ms)).collect();
    assert_eq!(
        kinds,
        [
            (LogStream::Stdout, b"a\n".to_vec(), 7),
            (LogStream::Stderr, b"\0\xff".to_vec(), 7),
            (LogStream::Stdout, b"b\n".to_vec(), 7)
        ]
    );
    let (rest, _) = all(&store, LogQuery { offset: pieces[0].next_offset, ..query() }).await;
    assert_eq!(rest, pieces[1..]);
    let (none, _) = all(&store, LogQuery { offset: 1 << 40, ..query() }).await;
    assert!(none.is_empty());
}

#[tokio::test]
async fn no_output_makes_no_file_and_reads_as_empty() {
    let (dir, store) = store();
    drop(store.writer(ID));
    assert_eq!(all(&store, LogQuery { follow: true, ..query() }).await.0, []);
    assert!(!dir.path().join("logs/3").exists());
}

#[tokio::test]
async fn a_follower_gets_what_comes_and_ends_with_the_writer() {
    let (_dir, store) = store();
    let mut writer = store.writer(ID);
    let follower = tokio::spawn({
        let store = store.clone();
        async move { all(&store, LogQuery { follow: true, ..query() }).await }
    });
    for n in 0..50 {
        put(&mut writer, Kind::Stdout, format!("{n}\n").as_bytes());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(!follower.is_finished(), "the log is still open");
    drop(writer);
    let (pieces, complete) = follower.await.unwrap();
    assert!(complete);
    assert_eq!(text(&pieces), (0..50).map(|n| format!("{n}\n")).collect::<String>());
}

#[tokio::test]
async fn the_last_lines_are_found_across_records_and_streams() {
    let (_dir, store) = store();
    let mut writer = store.writer(ID);
    put(&mut writer, Kind::Stdout, b"one\ntwo\nth");
    put(&mut writer, Kind::Stdout, b"ree\n");
    put(&mut writer, Kind::Stderr, b"four\n");
    put(&mut writer, Kind::Stdout, b"five");
    drop(writer);
    for (lines, expected) in [
        (1, "five"),
        (2, "four\nfive"),
        (3, "three\nfour\nfive"),
        (4, "two\nthree\nfour\nfive"),
        (5, "one\ntwo\nthree\nfour\nfive"),
        (99, "one\ntwo\nthree\nfour\nfive"),
    ] {
        let (pieces, _) = all(&store, LogQuery { tail_lines: lines, ..query() }).await;
        assert_eq!(text(&pieces), expected, "last {lines} lines");
    }
}

#[tokio::test]
async fn the_last_line_of_many_records_and_of_one_long_line() {
    let (_dir, store) = store();
    let mut writer = store.writer(ID);
    let block = vec![b'x'; record::MAX_PAYLOAD];
    for _ in 0..10 {
        put(&mut writer, Kind::Stdout, &block);
    }
    put(&mut writer, Kind::Stdout, b"\nend\n");
    drop(writer);
    assert_eq!(text(&all(&store, LogQuery { tail_lines: 1, ..query() }).await.0), "end\n");
    let two = text(&all(&store, LogQuery { tail_lines: 2, ..query() }).await.0);
    assert_eq!(two.len(), 10 * record::MAX_PAYLOAD + 5);
}

#[tokio::test]
async fn a_torn_end_is_left_out_and_says_that_it_is_not_complete() {
    for garbage in [&b"\xc7\x01\0\0\x10\0\0\0half"[..], &[0; 100], b"\xc7", &[0xff; 30]] {
        let (dir, store) = store();
        let mut writer = store.writer(ID);
        put(&mut writer, Kind::Stdout, b"one\n");
        put(&mut writer, Kind::Stdout, b"two\n");
        drop(writer);
        let path = dir.path().join("logs/3/1-2.log");
        // As if the writer had been killed: no close record, a record that is not whole.
        let whole = std::fs::metadata(&path).unwrap().len() - (record::HEAD + record::TAIL) as u64;
        let mut file = std::fs::File::options().append(true).open(&path).unwrap();
        file.set_len(whole).unwrap();
        file.write_all(garbage).unwrap();
        let (pieces, complete) = all(&store, LogQuery { follow: true, ..query() }).await;
        assert_eq!((text(&pieces).as_str(), complete), ("one\ntwo\n", false));
        let (pieces, _) = all(&store, LogQuery { tail_lines: 1, ..query() }).await;
        assert_eq!(text(&pieces), "two\n");
    }
}

#[tokio::test]
async fn a_full_disk_leaves_a_mark_with_the_count() {
    let (_dir, store) = store();
    let mut writer = store.writer(ID);
    put(&mut writer, Kind::Stdout, b"before\n");
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let good = writer.replace_file(Some(full));
    put(&mut writer, Kind::Stdout, b"12345");
    put(&mut writer, Kind::Stderr, b"67890");
    writer.replace_file(good);
    put(&mut writer, Kind::Stdout, b"after\n");
    drop(writer);
    let (pieces, complete) = all(&store, query()).await;
    assert!(complete);
    assert_eq!(
        text(&pieces),
        "before\n[clawhive: 10 bytes of output were dropped here, the log could not be written]\nafter\n"
    );
    assert_eq!(pieces.iter().map(|piece| piece.note).collect::<Vec<_>>(), [false, true, false]);
    let (pieces, _) = all(&store, LogQuery { tail_lines: 2, ..query() }).await;
    assert_eq!(pieces.len(), 2);
}

#[tokio::test]
async fn a_dropped_run_is_gone_and_dropping_twice_is_fine() {
    let (_dir, store) = store();
    let mut writer = store.writer(ID);
    put(&mut writer, Kind::Stdout, b"x");
    drop(writer);
    assert_eq!(store.runs().unwrap(), [3]);
    store.drop_run(3).unwrap();
    store.drop_run(3).unwrap();
    assert!(store.runs().unwrap().is_empty());
    assert_eq!(all(&store, query()).await.0, []);
}
