//! F-14: what is wrong with settings is told before anything is started; what is in effect can be printed.

use super::support::Place;

fn place() -> Place {
    let place = Place::new();
    place.file(
        "c.toml",
        "data = \"d\"\nlisten = \"127.0.0.1:0\"\npeer_listen = \"127.0.0.1:0\"\nlease = \"7s\"\n",
    );
    place
}

#[test]
fn a_check_tells_every_fault_and_starts_nothing() {
    let place = place();
    let fine = place.call("server --config c.toml --check");
    assert_eq!((fine.code, fine.stdout.as_str()), (0, "the settings are valid\n"), "{fine:?}");
    place.file("bad.toml", "data = \"d\"\nheartbaet = \"50ms\"\nslots = \"many\"\n[auth]\non = true\n");
    let bad = place.call("server --config bad.toml --check");
    assert_eq!(bad.code, 2, "{bad:?}");
    for part in [
        "error: bad.toml:2:1: unknown setting `heartbaet` (did you mean `heartbeat`?)",
        "bad.toml:3:9: `slots` must be a whole number, not a text",
        "bad.toml:4:2: unknown section `auth`",
    ] {
        assert!(bad.stderr.contains(part), "{part}: {bad:?}");
    }
    // A real start refuses the same, and so does a variable that nobody knows.
    assert_eq!(place.call("server --config bad.toml").code, 2);
    let mut command = place.command("server --config c.toml");
    let typo: super::support::Done = command.env("CLAWHIVE_LISTNE", "x").output().unwrap().into();
    assert_eq!(typo.code, 2, "{typo:?}");
    let wanted = "error: environment: unknown variable CLAWHIVE_LISTNE (did you mean `CLAWHIVE_LISTEN`?)";
    assert!(typo.stderr.contains(wanted), "{typo:?}");
    let gone = place.call("server --config nowhere.toml --check");
    assert!(gone.code == 2 && gone.stderr.contains("cannot read nowhere.toml"), "{gone:?}");
    assert!(!place.path().join("d").exists(), "a check made the data directory");
}

#[test]
fn the_settings_in_effect_are_printed_with_where_they_come_from() {
    let place = place();
    let mut command = place.command("server --config c.toml --listen 127.0.0.1:7 --print-settings");
    let shown: super::support::Done = command.env("CLAWHIVE_SLOTS", "3").output().unwrap().into();
    assert_eq!(shown.code, 0, "{shown:?}");
    for line in [
        "data = \"d\"  # c.toml",
        "listen = \"127.0.0.1:7\"  # flags",
        "slots = 3  # environment",
        "lease = \"7s\"  # c.toml",
        "heartbeat = \"50ms\"  # default",
        "# min_free is not set",
    ] {
        assert!(shown.stdout.lines().any(|one| one == line), "{line}: {}", shown.stdout);
    }
    place.file("shown.toml", &shown.stdout);
    let again = place.call("server --config shown.toml --print-settings -o json").json();
    let slots = again["settings"].as_array().unwrap().iter().find(|one| one["name"] == "slots").unwrap();
    assert_eq!((slots["value"].as_str(), slots["origin"].as_str()), (Some("3"), Some("shown.toml")));
    assert!(!place.path().join("d").exists());
}
