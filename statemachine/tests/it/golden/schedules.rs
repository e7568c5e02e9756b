//! The bytes of schedules: commands, rows, keys.

use clawhive_statemachine::proto::command::Kind;
use clawhive_statemachine::proto::schedule::When;
use clawhive_statemachine::proto::*;
use clawhive_statemachine::{Table, key};

use super::{all_keys, fixed, full_workflow, golden};

fn of() -> ScheduleRef {
    ScheduleRef { namespace: "data".into(), workflow: "etl".into(), schedule: "hourly".into() }
}

fn definition(when: When) -> Schedule {
    Schedule {
        name: "hourly".into(),
        timezone: "Europe/Paris".into(),
        missed: MissedPolicy::Latest as i32,
        missed_window_ms: 9,
        when: Some(when),
    }
}

#[test]
fn commands() {
    let params: std::collections::BTreeMap<_, _> = [("a".to_string(), "1".to_string())].into();
    let skipped = Skipped { first_ms: 1, last_ms: 2, count: 3, reason: SkipReason::Missed as i32 };
    let scheduled = Workflow {
        schedules: vec![
            definition(When::Cron("0 * * * *".into())),
            Schedule { name: "often".into(), ..definition(When::EveryMs(5)) },
        ],
        overlap: Overlap::Skip as i32,
        ..full_workflow()
    };
    let all = [
        (
            "put_workflow_schedules",
            Kind::PutWorkflow(PutWorkflow {
                workflow: Some(scheduled),
                hash: vec![9; 32],
                set_schedules: true,
            }),
        ),
        (
            "fire_schedule",
            Kind::FireSchedule(FireSchedule {
                of: Some(of()),
                revision: 1,
                nominal_ms: 2,
                next_ms: 3,
                version: 4,
                params: params.clone(),
                params_error: "m".into(),
            }),
        ),
        (
            "plan_schedule",
            Kind::PlanSchedule(PlanSchedule {
                of: Some(of()),
                revision: 1,
                cursor_ms: 2,
                skipped: Some(skipped),
                next_ms: 3,
            }),
        ),
        (
            "suspend_schedule",
            Kind::SuspendSchedule(SuspendSchedule { of: Some(of()), revision: 1, message: "m".into() }),
        ),
        (
            "pause_schedule",
            Kind::PauseSchedule(PauseSchedule { of: Some(of()), paused: true, reason: "r".into() }),
        ),
        (
            "trigger_schedule",
            Kind::TriggerSchedule(TriggerSchedule { of: Some(of()), force: true, version: 1, params }),
        ),
    ];
    for (name, kind) in all {
        golden(&format!("command/{name}"), Command { kind: Some(kind) });
    }
    let fired = ScheduleFired { run: 1, skipped: SkipReason::Overlap as i32 };
    golden("command/schedule_fired", Outcome { kind: Some(outcome::Kind::ScheduleFired(fired)) });
}

#[test]
fn rows() {
    golden(
        "row/schedule",
        ScheduleRow {
            uid: 1,
            revision: 2,
            state: ScheduleState::Suspended as i32,
            message: "m".into(),
            definition: Some(definition(When::EveryMs(1_000))),
            overlap: Overlap::Skip as i32,
            cursor_ms: 3,
            next_ms: 4,
            never: true,
            paused_until_ms: 5,
            active: 6,
            last_run: 7,
            fired: 8,
            skipped: 9,
        },
    );
    golden(
        "row/occurrence",
        OccurrenceRow {
            run: 1,
            skipped: SkipReason::Changed as i32,
            detail: "d".into(),
            last_ms: 2,
            count: 3,
            recorded_at_ms: 4,
        },
    );
    golden(
        "row/run_scheduled",
        RunRow { schedule_uid: 1, schedule: "hourly".into(), nominal_ms: 2, ..RunRow::default() },
    );
}

#[test]
fn keys() {
    let schedule = key::schedule("data", "etl", "hourly");
    assert_eq!(key::parse_schedule(&schedule), Some(("data", "etl", "hourly")));
    assert_eq!(key::parse_schedule(&key::schedule("data", "etl", "")), Some(("data", "etl", "")));
    let occurrence = key::occurrence(&schedule, 7);
    let keys = vec![
        (Table::Schedules, schedule.clone()),
        (Table::ScheduleDue, key::schedule_due(6, &schedule)),
        (Table::Occurrences, occurrence.clone()),
        (Table::OccurrenceExpiry, key::occurrence_expiry(8, &occurrence)),
    ];
    fixed("keys_schedules", &all_keys(keys));
}
