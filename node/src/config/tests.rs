use super::*;

fn file(text: &str) -> Result<Partial, String> {
    Partial::from_toml(Path::new("hive.toml"), text).map_err(|error| error.to_string())
}

#[test]
fn a_full_file_is_read() {
    let partial = file(
        r#"
data = "/var/lib/clawhive"
listen = "10.0.0.1:7400"
peer_listen = "10.0.0.1:7401"
join = ["10.0.0.2:7401", "10.0.0.3:7401"]
role = "claw"
slots = 8
lease = "5s"
heartbeat = "50ms"
cache = "128MiB"
log_format = "json"
shutdown_grace = "1m"
[labels]
zone = "a"
"#,
    )
    .unwrap();
    let settings = Settings::complete(partial).unwrap();
    assert_eq!(settings.begin, Begin::Join(vec!["10.0.0.2:7401".into(), "10.0.0.3:7401".into()]));
    assert_eq!(settings.role, Role::Claw);
    assert_eq!(settings.cache, 128 << 20);
    assert_eq!(settings.labels["zone"], "a");
    assert_eq!(settings.shutdown_grace, Duration::from_secs(60));
    assert_eq!(settings.election_max, Duration::from_millis(300));
}

#[test]
fn all_faults_come_at_once_with_their_places() {
    let error =
        file("lisen = \"127.0.0.1:1\"\nslots = \"many\"\nlease = 5\n[auth]\non = true\n").unwrap_err();
    assert_eq!(
        error,
        "hive.toml:1:1: unknown setting `lisen` (did you mean `listen`?)\n\
         hive.toml:2:9: `slots` must be a whole number, not a text\n\
         hive.toml:3:9: `lease` must be a duration such as \"250ms\", \"30s\", \"10m\" or \"2h\", not a whole number\n\
         hive.toml:4:2: unknown section `auth`"
    );
}

#[test]
fn malformed_toml_has_a_place() {
    let error = file("data = \"x\nslots = 1\n").unwrap_err();
    assert!(error.starts_with("hive.toml:1:"), "{error}");
}

#[test]
fn values_out_of_range_are_named() {
    for (text, part) in [
        ("slots = -1", "`slots` must be a whole number from 0"),
        ("listen = \"localhost\"", "`listen` must be an address such as 127.0.0.1:7400, not `localhost`"),
        ("role = \"king\"", "`role` must be \"voter\" or \"claw\", not `king`"),
        ("join = [1]", "`join` must be a list of texts, not a list of other things"),
        ("lease = \"99999999999999999999d\"", "`lease` must be a duration"),
    ] {
        let error = file(text).unwrap_err();
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn variables_beat_the_file_and_unknown_ones_are_refused() {
    let variables = |pairs: &[(&str, &str)]| {
        let owned: Vec<_> = pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        Partial::from_env(owned).map_err(|error| error.to_string())
    };
    let env = variables(&[
        ("CLAWHIVE_SLOTS", "3"),
        ("CLAWHIVE_LABELS", "a=b, c=d"),
        ("CLAWHIVE_RUN", "7"),
        ("HOME", "/"),
    ]);
    let merged = env.unwrap().over(file("slots = 9\nlease = \"7s\"").unwrap());
    assert_eq!(merged.slots, Some(3));
    assert_eq!(merged.lease, Some(Duration::from_secs(7)));
    assert_eq!(merged.labels.unwrap().len(), 2);
    let error = variables(&[("CLAWHIVE_LISTNE", "x")]).unwrap_err();
    assert_eq!(error, "environment: unknown variable CLAWHIVE_LISTNE (did you mean `CLAWHIVE_LISTEN`?)");
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    for (text, part) in [
        ("", "`data` is missing"),
        ("data = \"d\"\nbootstrap = true\njoin = [\"a:1\"]", "exclude each other"),
        ("data = \"d\"\nslots = 5000", "at most 1000"),
        ("data = \"d\"\nelection_min = \"60ms\"", "twice `heartbeat`"),
        ("data = \"d\"\npeer_listen = \"0.0.0.0:7401\"", "peer_advertise"),
    ] {
        let error = Settings::complete(file(text).unwrap()).unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
}
