//! Random calls against the model, with the log opened again now and then.

use clawhive_raft::disk::{SimDisk, Tear};
use proptest::prelude::*;

use crate::log_model::{Model, never, open, perform};

#[derive(Debug, Clone)]
enum Step {
    Call(u64, u64, u64),
    Read(u64, u64, usize),
    Close,
    Kill,
    Cut(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => any::<(u64, u64, u64)>().prop_map(|(kind, a, b)| Step::Call(kind, a, b)),
        6 => (0..80_u64, 0..40_u64, 0..4000_usize).prop_map(|(from, count, bytes)| Step::Read(from, count, bytes)),
        1 => Just(Step::Close),
        1 => Just(Step::Kill),
        1 => any::<u64>().prop_map(Step::Cut),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn the_log_is_what_the_model_is(steps in prop::collection::vec(step(), 1..150)) {
        let mut disk = SimDisk::new();
        let mut log = open(&disk, never()).expect("opens");
        let mut model = Model::default();
        for step in steps {
            match step {
                Step::Call(kind, a, b) => {
                    let call = model.call(kind, a, b);
                    perform(&log, &call).expect("a healthy disk fails nothing");
                    model.apply(&call);
                }
                Step::Read(from, count, bytes) => {
                    let base = log.first_index().unwrap_or(0);
                    let range = base + from..base + from + count;
                    let found = log.read(range.clone(), bytes).expect("reads");
                    let wanted: Vec<_> = model.entries.range(range).map(|(_, entry)| entry.clone()).collect();
                    prop_assert!(wanted.starts_with(&found));
                    prop_assert!(wanted.is_empty() || !found.is_empty(), "one comes in any case");
                    let all = log.read(base + from..base + from + count, usize::MAX).expect("reads");
                    prop_assert_eq!(all, wanted);
                }
                Step::Close => {
                    log.close_and_wait().expect("closes");
                    drop(log);
                    log = open(&disk, never()).expect("opens");
                }
                Step::Kill => {
                    drop(log);
                    log = open(&disk, never()).expect("opens");
                }
                Step::Cut(seed) => {
                    drop(log);
                    disk = disk.after_cut(Tear::Sectors(seed));
                    log = open(&disk, never()).expect("opens");
                    model.committed = log.committed();
                }
            }
            prop_assert_eq!(log.last(), model.last());
            prop_assert_eq!(log.committed(), model.committed);
        }
        let found = Model::observe(&log).expect("reads");
        prop_assert_eq!(found.comparable(), model.comparable());
        let (tail, _) = log.usage();
        prop_assert!(tail <= 1500 + 4 * 2200, "{} bytes in memory", tail);
    }
}
