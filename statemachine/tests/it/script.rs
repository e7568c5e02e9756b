//! Scheduling, specified by text: each file of `testdata/` is a list of blocks, a block is lines of commands, `----`,
//! and what they print. `CLAWHIVE_REWRITE=1` writes the output into the files; the diff is what is reviewed.
//! `play.rs` says which commands there are.

mod locks;
mod play;
mod show;

use std::path::Path;

use play::Play;

#[test]
fn scripts() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let rewrite = std::env::var_os("CLAWHIVE_REWRITE").is_some();
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
        .collect();
    files.sort();
    assert!(files.len() >= 10, "the scripts are missing");
    let mut wrong = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let played = play_file(&text);
        if rewrite {
            std::fs::write(&file, &played).unwrap();
        } else if played != text {
            wrong.push(format!("{}:\n{}", file.display(), first_difference(&text, &played)));
        }
    }
    assert!(wrong.is_empty(), "CLAWHIVE_REWRITE=1 rewrites the scripts\n{}", wrong.join("\n"));
}

/// The file as it would be if everything printed were expected.
fn play_file(text: &str) -> String {
    let mut play = Play::new();
    let mut played = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if line.is_empty() || line.starts_with('#') {
            played += &format!("{line}\n");
            continue;
        }
        let mut block = vec![line];
        for line in lines.by_ref().take_while(|line| *line != "----") {
            block.push(line);
        }
        while lines.next_if(|line| !line.is_empty()).is_some() {}
        played += &format!("{}\n----\n{}", block.join("\n"), play.block(&block));
    }
    played
}

fn first_difference(expected: &str, found: &str) -> String {
    let mut pairs = expected.lines().zip(found.lines()).enumerate();
    match pairs.find(|(_, (expected, found))| expected != found) {
        Some((index, (expected, found))) => format!("line {}:\n  - {expected}\n  + {found}", index + 1),
        None => "one is longer than the other".into(),
    }
}
