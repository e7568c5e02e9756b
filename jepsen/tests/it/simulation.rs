//! Seeds are replayable, and a series of them has faults that take effect.

use clawhive_jepsen::sim::profile::Effect;
use clawhive_jepsen::sim::run_seed;

#[test]
fn a_seed_replays_to_the_same_trace_and_another_does_not() {
    let (first, again, other) = (run_seed(7, false), run_seed(7, false), run_seed(8, false));
    assert_eq!((first.hash, first.steps, first.entries), (again.hash, again.steps, again.entries));
    assert_ne!(first.hash, other.hash);
}

#[test]
fn twenty_seeds_hold_and_their_faults_took_effect() {
    let verdicts: Vec<_> = (1..=20).map(|seed| run_seed(seed, false)).collect();
    for verdict in &verdicts {
        assert_eq!(verdict.broken, None, "seed {}", verdict.seed);
        assert!(!verdict.vacuous, "seed {} proves nothing", verdict.seed);
    }
    for effect in [Effect::StaleGrant, Effect::StaleReport, Effect::AttemptLost, Effect::ReplayedAfterCrash] {
        assert!(
            verdicts.iter().any(|verdict| verdict.effects.of(effect) > 0),
            "{} never occurred",
            effect.name()
        );
    }
}
