//! Every file in `testdata/definitions` against the diagnostics that are printed for it (`NAME.expected`). With
//! `UPDATE_EXPECT=1` the expectations are written anew; read the difference before committing it.

use std::fs;
use std::path::{Path, PathBuf};

use clawhive_node::definition::{
    self,
    render::{Frame, Style, render},
};

pub fn testdata() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/definitions")
}

fn shown(name: &str, text: &[u8]) -> String {
    let frame = Frame { source_name: name, text, style: Style::Plain, width: 100 };
    match definition::parse(text, name) {
        Ok(definition) => render(&frame, &[], &definition.warnings, 0),
        Err(refused) => render(&frame, &refused.errors, &refused.warnings, refused.omitted),
    }
}

#[test]
fn every_fault_is_shown_with_its_place() {
    let mut files: Vec<PathBuf> = fs::read_dir(testdata())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "yaml" || end == "json"))
        .collect();
    files.sort();
    assert!(files.len() > 30, "the table is not there");
    let update = std::env::var_os("UPDATE_EXPECT").is_some();
    let mut wrong = Vec::new();
    for path in files {
        let name = path.file_name().unwrap().to_str().unwrap();
        let actual = shown(name, &fs::read(&path).unwrap());
        let expected_path = path.with_file_name(format!("{name}.expected"));
        if update {
            fs::write(&expected_path, &actual).unwrap();
        }
        let expected = fs::read_to_string(&expected_path).unwrap_or_default();
        if expected != actual {
            wrong.push(format!("{name}: expected\n{expected}\nfound\n{actual}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
