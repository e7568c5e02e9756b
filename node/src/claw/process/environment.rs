//! The whole environment of a task: PATH, HOME and LANG of the server, the task's own variables, and what clawhive tells
//! it. CLAWHIVE_INDEX and CLAWHIVE_DEADLINE are empty when there is none (scripts run under `sh -u`);
//! CLAWHIVE_NOMINAL_TIME and CLAWHIVE_TRACEPARENT are there only when the run has one.

use super::super::config::BaseEnv;
use super::super::executor::{Start, StartError};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::path::Path;

/// Variables by name; a later one replaces an earlier one.
pub(super) struct Environment {
    variables: BTreeMap<String, String>,
}

impl Environment {
    pub(super) fn of(start: &Start, base: &BaseEnv, server: &str, output: &Path) -> Result<Self, StartError> {
        let work = &start.work;
        let mut this = Self { variables: BTreeMap::new() };
        this.set("PATH", &base.path);
        this.set("HOME", &base.home);
        this.set("LANG", &base.lang);
        for variable in &work.task.env {
            let name = &variable.name;
            if name.is_empty() || name.contains(['=', '\0']) {
                return Err(StartError(format!("{name:?} cannot be the name of an environment variable")));
            }
            this.set(name, &variable.value);
        }
        this.set("CLAWHIVE_RUN", &start.id.run.to_string());
        this.set("CLAWHIVE_WORKFLOW", &work.workflow);
        this.set("CLAWHIVE_TASK", &work.task.name);
        this.set("CLAWHIVE_INDEX", &work.index.map(|index| index.to_string()).unwrap_or_default());
        this.set("CLAWHIVE_ATTEMPT", &start.id.attempt.to_string());
        this.set("CLAWHIVE_FENCE", &start.fence.to_string());
        this.set("CLAWHIVE_DEADLINE", &start.deadline_ms.map(rfc3339).unwrap_or_default());
        this.set("CLAWHIVE_OUTPUT", &output.to_string_lossy());
        this.set("CLAWHIVE_SERVER", server);
        this.set_if("CLAWHIVE_NOMINAL_TIME", work.nominal_time.as_deref());
        this.set_if("CLAWHIVE_TRACEPARENT", work.traceparent.as_deref());
        Ok(this)
    }

    fn set(&mut self, name: &str, value: &str) {
        self.variables.insert(name.to_owned(), value.to_owned());
    }

    /// A name of ours never holds a value of the task's.
    fn set_if(&mut self, name: &str, value: Option<&str>) {
        match value {
            Some(value) => self.set(name, value),
            None => drop(self.variables.remove(name)),
        }
    }

    pub(super) fn path(&self) -> &str {
        self.variables.get("PATH").map_or("", String::as_str)
    }

    pub(super) fn strings(&self) -> Result<Vec<CString>, StartError> {
        let string = |(name, value): (&String, &String)| {
            CString::new(format!("{name}={value}"))
                .map_err(|_| StartError(format!("the value of environment variable {name} holds a NUL byte")))
        };
        self.variables.iter().map(string).collect()
    }
}

/// UTC with milliseconds.
fn rfc3339(ms: u64) -> String {
    i64::try_from(ms)
        .ok()
        .and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok())
        .map(|time| time.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::rfc3339;

    #[test]
    fn times_have_milliseconds_and_end_in_z() {
        assert_eq!(rfc3339(1_700_000_000_005), "2023-11-14T22:13:20.005Z");
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(u64::MAX), "");
    }
}
