//! The power is cut at every single operation of the disk, and what unsynced writes leave is tried in several
//! ways. What was acknowledged is there afterwards, and the log always opens.

use clawhive_raft::disk::{Fault, SimDisk, Tear};

use crate::log_model::{Model, Run, counting, never, open};

const CALLS: usize = 40;

fn tears(seed: u64) -> [Tear; 7] {
    [
        Tear::LoseAll,
        Tear::KeepAll,
        Tear::Prefix(seed),
        Tear::Sectors(seed),
        Tear::Sectors(seed ^ 0xff00),
        Tear::Sectors(seed ^ 0xff_0000),
        Tear::Sectors(seed ^ 0xff00_0000),
    ]
}

/// Opens an image, checks it, goes on, and cuts the power again at the end.
fn again(run: &Run, image: &SimDisk, seed: u64, context: &str) {
    let log = open(image, never()).unwrap_or_else(|error| panic!("{context}: {error}"));
    let found = run.check(&log, context);
    let more = Run::new(found).go(&log, seed, 4);
    assert!(more.failed.is_none(), "{context}: a healthy disk fails nothing");
    for tear in [Tear::LoseAll, Tear::Sectors(seed)] {
        let image = image.after_cut(tear);
        let log = open(&image, never()).unwrap_or_else(|error| panic!("{context}, second cut: {error}"));
        more.check(&log, &format!("{context}, second cut {tear:?}"));
    }
}

fn cut_everywhere(seed: u64) -> u64 {
    let whole = SimDisk::new();
    let log = open(&whole, never()).expect("opens");
    let run = Run::new(Model::default()).go(&log, seed, CALLS);
    assert!(run.failed.is_none());
    drop(log);
    let mut images = 0;
    for at in 0..whole.operations() {
        let disk = SimDisk::new();
        disk.fail_at(at, Fault::PowerCut);
        let (hook, _) = counting();
        let run = match open(&disk, hook) {
            Ok(log) => Run::new(Model::default()).go(&log, seed, CALLS),
            Err(_) => Run::new(Model::default()),
        };
        for tear in tears(seed.wrapping_add(at)) {
            again(&run, &disk.after_cut(tear), seed ^ at, &format!("seed {seed}, cut at {at}, {tear:?}"));
            images += 1;
        }
    }
    images
}

#[test]
fn a_power_cut_at_any_operation_loses_nothing_acknowledged() {
    let images: u64 = (0..4).map(cut_everywhere).sum();
    assert!(images > 2000, "only {images} images were looked at");
}

/// Opening writes too: a cut while it repairs must leave something that opens.
#[test]
fn a_power_cut_while_opening_loses_nothing() {
    for seed in 10..16 {
        let disk = SimDisk::new();
        let log = open(&disk, never()).expect("opens");
        let operations = disk.operations();
        disk.fail_at(operations + 120 + seed, Fault::PowerCut);
        let (hook, _) = counting();
        drop(log);
        let log = open(&disk, hook).expect("opens");
        let run = Run::new(Model::default()).go(&log, seed, 200);
        assert!(run.failed.is_some(), "the script must be long enough to be cut");
        let torn = disk.after_cut(Tear::Sectors(seed));
        let probe = torn.after_cut(Tear::KeepAll);
        drop(open(&probe, never()).expect("opens"));
        for at in 0..probe.operations() {
            let image = torn.after_cut(Tear::KeepAll);
            image.fail_at(at, Fault::PowerCut);
            let (hook, _) = counting();
            drop(open(&image, hook));
            for tear in tears(seed + at) {
                again(&run, &image.after_cut(tear), seed, &format!("seed {seed}, cut at {at} of opening"));
            }
        }
    }
}
